def weights(d, layers, f, vocabulary=0, key_width=None, gated=False):
    """What meets each token's row: four projections, the network, the logits."""
    e = d if key_width is None else key_width  # all key heads together
    matrices = 3 if gated else 2
    return layers * (2 * d * d + 2 * d * e + matrices * d * f) + vocabulary * d


def training_flops(tokens, context, d, layers, f, causal=False, **sizes):
    """Forward and backward: six operations a weight and token, and the pairs."""
    N = weights(d, layers, f, **sizes)
    pairs = (context + 1) / 2 if causal else context  # for each token
    return tokens * (6 * N + 12 * pairs * d * layers)


def training_bytes(parameters, tokens, context, d, layers, f, heads, gated=False):
    """Adam in mixed precision: what stays, and what a batch keeps for the way back.

    Kept in 16 bits for each token and layer: 8 d + 2 f numbers (8 d + 4 f with a gate),
    and the attention weights, which a fused kernel does not keep.
    """
    stays = (2 + 2 + 4 + 8) * parameters  # copy, gradient, original, two moments
    rows = 2 * tokens * layers * (8 * d + (4 if gated else 2) * f)
    maps = 2 * tokens * layers * heads * context
    return stays, rows, maps


def days(flops, devices, peak, utilisation):
    """peak: operations a second, by the maker; utilisation: the part attained."""
    return flops / (devices * peak * utilisation) / 86_400
