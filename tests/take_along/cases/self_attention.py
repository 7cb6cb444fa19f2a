"""A sequence that asks another one, under a mask."""

import torch


def example(own):
    layer = own.SelfAttention(6, 4, d_v=5, d_source=3)
    return layer, (torch.randn(2, 3, 6), torch.randn(2, 7, 3), torch.rand(3, 7) < 0.8)


def library(own, function, arguments):
    import attnmath.torch as at

    X, Y, mask = arguments
    maps = [getattr(function, name).weight.T for name in ("query", "key", "value", "output")]
    Q, K, V = X @ maps[0], Y @ maps[1], Y @ maps[2]
    alone = own.SelfAttention(6, 4)
    own_maps = [getattr(alone, name).weight.T for name in ("query", "key", "value")]
    want = at.self_attention(X, *own_maps) @ alone.output.weight.T
    torch.testing.assert_close(alone(X)[0], want)
    return at.attention(Q, K, V, mask) @ maps[3], at.attention_weights(Q, K, mask)
