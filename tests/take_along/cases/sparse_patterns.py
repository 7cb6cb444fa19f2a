"""Two rules on 50 tokens in blocks of 8, against the library's layouts."""

import torch


def example(own):
    def two(Q, K, V):
        rules = own.window(3, ends=1), own.causal_window(4, sinks=2)
        return tuple(own.sparse_attention(Q, K, V, sees, size=8) for sees in rules)

    return two, tuple(torch.randn(3, 2, 50, 4).double())


def library(own, function, arguments):
    import attnmath.torch as at
    from attnmath import layouts

    rules = layouts.longformer(3, 1), layouts.sinks(2, 4)
    return tuple(at.block_sparse_attention(*arguments, layout=layout, size=16) for layout in rules)
