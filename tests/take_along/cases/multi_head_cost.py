"""Counts of a layer with shared keys, and of one without."""


def example(own):
    return lambda n: [list(map(float, own.layer_cost(n, 24, 6).values()))[1:4]], (10,)


def library(own, function, arguments):
    import torch

    from attnmath import count

    (n,) = arguments
    layer = torch.nn.MultiheadAttention(24, 6)
    assert own.layer_cost(n, 24, 6)["parameters"] == sum(p.numel() for p in layer.parameters())
    assert own.layer_cost(n, 24, 6, 2)["bytes of cache"] == count.kv_cache_bytes(n, 2, 4, 4, itemsize=2)
    maps = own.layer_cost(n, 24, 6, batch=3)["bytes of maps kept to train"]
    assert maps == 3 * count.attention_bytes(n, n, 6, itemsize=2)
    X = torch.randn(50, 8, requires_grad=True)
    assert own.measured_bytes(lambda X: X.exp().sum(), X) == 4 * 50 * 8
    attention = count.attention_flops(n, n, 24, 24)
    return [[count.multi_head_flops(n, 24, 6, 4, 4) - attention, attention, count.exponentials(n, n, 6)]]
