"""Rotary rows, ALiBi's lines and T5's buckets."""

from tests.take_along.params import scattered


def example(own):
    import torch

    buckets = scattered(own.Buckets(4, 16, 40))

    def all_three(X):
        return own.rotary(X, 5), own.alibi(4, 3, 60), buckets(3, 60)

    all_three.table = buckets.table.weight
    return all_three, (torch.randn(2, 3, 8),)


def library(own, function, arguments):
    import attnmath.torch as at

    rows = at.relative_buckets(3, 60, 16, 40)
    return at.rotary(*arguments, start=5), at.alibi_bias(3, 60, at.alibi_slopes(4)), function.table[rows].movedim(-1, 0)
