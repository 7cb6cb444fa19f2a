"""Six layers of twelve heads at four lengths, and a cross-attention."""

import numpy as np

LENGTHS = np.array([30, 128, 512, 768])


def example(own):
    def both(n):
        return own.attention_cost(n, 384, heads=12, layers=6), own.attention_cost(n, 384, m=200)

    return both, (LENGTHS,)


def library(own, function, arguments):
    import attnmath.torch as at
    from attnmath import count

    assert own.borders(384, 12) == {"of the operations": 768, "of what is held": 128}
    causal = own.attention_cost(64, 384, causal=True)["products, FLOP"]
    assert causal == count.attention_flops(64, 64, 384, 384) * 65 / 128
    assert at.MultiHeadAttention is not None
    return _want(count, 12, 6), _want(count, 1, 1, m=200)


def _want(count, heads, layers, m=None, d=384):
    found = [_at(count, int(n), int(n if m is None else m), d, heads, layers) for n in LENGTHS]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def _at(count, n, m, d, heads, layers):
    products = layers * count.attention_flops(n, m, d, d)
    own, other = count.projection_flops(n, d, d, d), count.projection_flops(m, d, d, d)
    projections = layers * (own + other) / 2
    inputs = 2 * layers * 2 * (n + m) * d
    return {
        "projections": projections,
        "products": products,
        "share": products / (projections + products),
        "training": 3 * (projections + products),
        "plain": inputs + count.attention_bytes(n, m, heads, layers, itemsize=2),
        "blocks": inputs + 2 * layers * n * (d + 2 * heads),
        "cache": count.kv_cache_bytes(m, heads, d // heads, d // heads, layers, itemsize=2),
    }
