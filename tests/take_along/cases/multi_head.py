"""Cross-attention with a padded text."""

from tests.take_along.params import attention, scattered


def example(own):
    import torch

    layer = scattered(own.MultiHeadAttention(12, 3))
    X, other = torch.randn(2, 4, 12), torch.randn(2, 5, 12)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    return layer, (X, other, mask)


def library(own, layer, arguments):
    import attnmath.torch as at

    X, other, mask = arguments
    params = attention(layer, ("query", "key", "value", "out"))
    return at.multi_head_attention(X, other, other, params, 3, mask[:, None, None])
