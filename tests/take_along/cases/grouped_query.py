"""A text read in two pieces, with the cache in between."""

from tests.take_along.params import attention, scattered


def example(own):
    import torch

    layer, X = scattered(own.GroupedQueryAttention(12, 6, 2)), torch.randn(2, 7, 12)

    def in_two_pieces(X):
        first, cache = layer(X[:, :4])
        return torch.cat([first, layer(X[:, 4:], cache)[0]], 1)

    in_two_pieces.layer = layer
    return in_two_pieces, (X,)


def library(own, function, arguments):
    import attnmath.torch as at

    (X,) = arguments
    params = attention(function.layer, ("query", "key", "value", "out"))
    return at.multi_head_attention(X, X, X, params, 6, at.causal_mask(7))
