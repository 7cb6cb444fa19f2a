"""Two streams with their times, one of them padded."""

from tests.take_along.cases.vision_transformer import tree
from tests.take_along.params import norm, scattered


def example(own):
    import torch
    from torch import nn

    model = own.Fusion([nn.Linear(5, 12), nn.Linear(3, 12)], 12, 2, 2, torch.tensor([0.0, 0.7, 0.1]))
    times = [torch.tensor([[0, 4, 9]]), torch.tensor([[1, 2, 5, 0]])]
    there = [torch.ones(1, 3, dtype=torch.bool), torch.tensor([[True, True, True, False]])]
    return scattered(model), ([torch.randn(1, 3, 5), torch.randn(1, 4, 3)], times, there)


def library(own, model, arguments):
    from functools import partial

    import torch

    import attnmath.torch as at

    streams, times, there = arguments
    X = torch.cat([into(rows).detach() for into, rows in zip(model.into, streams, strict=True)], 1)
    turn = partial(at.rotary, frequencies=model.speeds, places=torch.cat(times, 1)[:, None])
    parts = {
        "attention": partial(at.multi_head_attention, turn=turn),
        "join": partial(at.sublayer, norm_first=True),
    }
    params = {"layers": {str(i): tree(block) for i, block in enumerate(model.blocks)}, "norm": norm(model.norm)}
    return at.encoder(X, params, 2, torch.cat(there, 1)[:, None, None], **parts)
