"""Random maps of three heads on two sentences, of which the second has padding."""

import torch


def example(own):
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    S = 2 * torch.randn(2, 3, 6, 6)
    P = S.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
    return own.describe, (P, mask[:, None])


def library(own, function, arguments):
    from attnmath import patterns

    P, mask = arguments
    even = own.even(mask[:, 0].float())
    assert abs(own.describe(even, mask[:, 0])["keys"][1].item() - 4) < 1e-5
    found: dict = {}
    for sentence, real in zip(P.double().numpy(), mask[:, 0].numpy(), strict=True):
        maps = sentence[:, real][:, :, real]
        for name, values in _scores(patterns, maps).items():
            found.setdefault(name, []).append(torch.tensor(values))
    return {name: torch.stack(values) for name, values in found.items()}


def _scores(patterns, P):
    import numpy as np

    i = np.arange(P.shape[-1])
    return {
        "previous": patterns.offset_score(P, -1),
        "next": patterns.offset_score(P, 1),
        "window": patterns.local_score(P, 2),
        "distance": (P * abs(i[:, None] - i)).sum(-1).mean(-1),
        "keys": np.exp(patterns.entropy(P)).mean(-1),
        "sink": patterns.broadcast_score(P),
        "place": P.mean(-2).argmax(-1).astype(float),
    }
