"""The layer of chapters/take_along/selective_scan.py, and the library's with the same parameters."""

import torch


def example(own):
    layer = own.Mamba(6, states=3, rank=2)
    with torch.no_grad():
        layer.step.bias += 3  # longer steps than at the start of a training, so that the memory fades
    return layer, (torch.randn(2, 11, 6),)


def library(own, function, arguments):
    import attnmath.torch as at

    params = {
        "input": {"weight": function.into.weight.T},
        "conv": {"weight": function.conv.weight[:, 0].T, "bias": function.conv.bias},
        "select": {"weight": function.select.weight.T},
        "step": {"weight": function.step.weight.T, "bias": function.step.bias},
        "rate": function.log_rate,
        "skip": function.skip,
        "output": {"weight": function.out.weight.T},
    }
    return at.mamba(arguments[0], params, form="sequential")
