"""Two sublayers in both orders of the norm."""

from tests.take_along.params import affine, norm, scattered


def example(own):
    import torch
    from torch import nn

    stacks = [scattered(own.stack([nn.Linear(6, 6), nn.Linear(6, 6)], 6, first)) for first in (True, False)]

    def both(X):
        return [stack(X) for stack in stacks]

    both.stacks = stacks
    return both, (torch.randn(4, 6),)


def library(own, function, arguments):
    import attnmath.torch as at

    found = []
    for first, stack in zip((True, False), function.stacks, strict=True):
        (X,) = arguments
        for layer in list(stack)[:2]:
            tree = affine(layer.f)
            X = at.sublayer(X, lambda Z: at.linear(Z, tree["weight"], tree["bias"]), norm(layer.norm), norm_first=first)
        found.append(at.layer_norm(X, **norm(stack[2])) if first else X)
    return found
