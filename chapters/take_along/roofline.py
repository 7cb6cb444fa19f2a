# Operations and bytes of a kernel; s is the bytes of a number, 2 in 16 bits.


def linear(rows, inputs, outputs, s=2):
    """X W for `rows` rows: the weights are read once."""
    return 2 * rows * inputs * outputs, s * (
        rows * (inputs + outputs) + inputs * outputs
    )


def attention(n, m, k, together, s=2, group=1):
    """n queries see m keys of width k; one read of keys serves `together` queries.

    together: the queries of a tile when a text is read, times the tiles that share a
    read through a cache; 1 when one token is written. group: heads that share keys.
    """
    keys = -(-n // together) * 2 * m * k / group  # keys and values, for each query head
    return 4 * n * m * k, s * (keys + 2 * n * k)


def decoding(layers, d, heads, key_heads, n, batch=1, s=2, f=4):
    """The next token of `batch` texts of n tokens: weights of layers, and the cache."""
    k = d // heads
    weights = layers * (2 * d * d + 2 * d * key_heads * k + 2 * f * d * d)
    cache = layers * batch * n * 2 * key_heads * k
    return batch * (2 * weights + layers * 4 * n * d), s * (weights + cache)


def verdict(cost, peak=989e12, bandwidth=3.35e12):
    """Seconds at least, and what sets them; by default an H100 SXM, dense 16 bits."""
    operations, moved = cost
    arithmetic, traffic = operations / peak, moved / bandwidth
    if arithmetic > traffic:
        return arithmetic, "arithmetic"
    return traffic, "memory"
