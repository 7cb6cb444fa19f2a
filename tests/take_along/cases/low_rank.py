"""Texts of 10 words, some of them padded, in a layer for 12, against the library's core."""

import torch


def example(own):
    layer, X = own.Linformer(12, 3, 8, 2).double(), torch.randn(2, 10, 8).double()
    return layer, (X, torch.arange(10) < torch.tensor([[10], [7]]))


def library(own, function, arguments):
    import attnmath.torch as at

    X, words = arguments
    Q, K, V = (at.split_heads(Y, 2) for Y in function.qkv(X).chunk(3, -1))
    seen = words[:, None, None].double()  # the mixing matrices of each text, without its padded words
    E, F = (Y[:, :10] * seen for Y in (function.E, function.F))
    return function.out(at.merge_heads(at.linformer_attention(Q, K, V, E, F)))
