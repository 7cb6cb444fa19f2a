"""Attention in tiles, forward and backward."""

import torch


def example(own):
    Q, K, W = torch.randn(3, 2, 3, 37, 8)
    V = torch.randn(2, 3, 37, 5)

    def both(Q, K, V, W):
        leaves = [X.detach().requires_grad_() for X in (Q, K, V)]
        O = own.CausalInTiles.apply(*leaves, 16)
        return O, *torch.autograd.grad((O * W).sum(), leaves)

    return both, (Q, K, V, W[..., :5])


def library(own, function, arguments):
    import attnmath.torch as at
    from attnmath import layouts

    Q, K, V, W = arguments
    leaves = [X.clone().requires_grad_() for X in (Q, K, V)]
    O = at.tiled_attention(*leaves, layouts.causal(), tile=16)
    return O, *torch.autograd.grad((O * W).sum(), leaves)
