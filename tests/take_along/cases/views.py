"""Attention along twelve edges is attention with the mask of these edges."""


def example(own):
    import torch

    edges = own.with_loops(torch.tensor([[0, 1, 1, 2, 4, 5], [1, 0, 3, 5, 2, 4]]), 6)
    return own.edge_attention, (torch.randn(6, 4), torch.randn(6, 4), torch.randn(6, 3), edges)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at

    Q, K, V, edges = arguments
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[tuple(edges)] = True
    return at.attention(Q, K, V, mask)
