"""A layer that reads 20 words and then 9 more from its state, against the library's chunked form."""

import torch


def example(own):
    layer, X = own.LinearSelfAttention(16, 4).double(), torch.randn(2, 29, 16).double()

    def two_pieces(X):
        first, state = layer(X[:, :20])
        second, _ = layer(X[:, 20:], state)
        return torch.cat([first, second], 1)

    two_pieces.layer = layer
    return two_pieces, (X,)


def library(own, function, arguments):
    import attnmath.torch as at

    (X,), layer = arguments, function.layer
    Q, K, V = (at.split_heads(Y, 4) for Y in layer.qkv(X).chunk(3, -1))
    return layer.out(at.merge_heads(at.linear_attention(Q, K, V, causal=True, form="parallel")))
