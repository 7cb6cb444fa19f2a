"""A decoder that reads five tokens behind words of four letters and of two."""

import torch


def example(own):
    decoder = own.AdditiveDecoder(words=9, d=3, h=4, a=5)
    H, tokens = torch.randn(2, 4, 4), torch.randint(0, 9, (2, 5))
    letters = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    return decoder, (tokens, (torch.randn(2, 4), torch.randn(2, 4)), H, letters)


def library(own, decoder, arguments):
    import attnmath.torch as at

    (tokens, (h, c), H, letters), cell = arguments, decoder.cell
    lstm = {"input": cell.weight_ih.T, "state": cell.weight_hh.T, "bias": cell.bias_ih + cell.bias_hh}
    score = {"query": decoder.query.weight.T, "key": decoder.key.weight.T, "vector": decoder.vector.weight[0]}
    output = {"weight": decoder.out.weight.T, "bias": decoder.out.bias}
    carried, rows = torch.stack([h, c, torch.zeros_like(h)], 1), []
    for token in tokens.unbind(1):
        params = {"lstm": lstm, "score": score, "output": output}
        carried = at.bahdanau_step(decoder.embed.weight[token], carried, H, params, letters)
        rows.append(carried[:, 2])
    said = decoder.write(0, 1, (h, c), H, letters, limit=6)
    forced = decoder(torch.cat([torch.zeros_like(said[:, :1]), said[:, :-1]], 1), (h, c), H, letters).argmax(-1)
    over = (said == 1).cumsum(1).cumsum(1) > 1
    assert (said == torch.where(over, 1, forced)).all(), "forced and free agree"
    return torch.stack(rows, 1) @ decoder.logits.weight.T + decoder.logits.bias
