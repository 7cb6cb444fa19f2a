"""Blanks for texts of several lengths, the scores for them, and their loss."""

import torch


def example(own):
    ids = torch.randint(2, 20, (3, 40))
    ids[1, 25:] = 0
    ids[2, 2:] = 0
    table = torch.nn.Parameter(torch.randn(20, 6))
    head = own.MaskedHead(table)
    torch.nn.init.normal_(head.bias)
    torch.nn.init.normal_(head.norm.weight)

    def blanked(ids):
        seen, chosen = own.blank(ids, 1, (2, 20))
        loss = own.masked_loss(lambda seen: torch.nn.functional.embedding(seen, table), head, ids, seen, chosen)
        left = torch.where(chosen, 0, seen)  # what is not chosen stays
        return loss, left, chosen, seen, head(table[:4])

    blanked.head = head
    return blanked, (ids,)


def library(own, function, arguments):
    """The counts are the library's, the other places are untouched, and head and loss are those of `masked_head`."""
    import numpy as np

    import attnmath.torch as at
    from attnmath import masking

    (ids,), head = arguments, function.head
    torch.manual_seed(0)
    _ = example(own)  # the draws of the example, again
    seen, chosen = own.blank(ids, 1, (2, 20))
    mask = (ids != 0).numpy()
    want = masking.choose(mask, np.random.default_rng(0)).sum(-1)
    assert (chosen.sum(-1).numpy() == want).all() and not chosen.numpy()[~mask].any()
    params = {"transform": {"weight": head.dense.weight.T, "bias": head.dense.bias}, "bias": head.bias}
    params["norm"] = {"gain": head.norm.weight, "bias": head.norm.bias}
    scores = at.masked_head(head.table[seen][chosen], params, head.table)
    loss = at.cross_entropy(scores, ids[chosen])
    return loss, torch.where(chosen, 0, ids), chosen, seen, at.masked_head(head.table[:4], params, head.table)
