"""The costs of the kernels of a layer, and what sets the pace of each."""

import numpy as np

SIZES = {"n": 4096, "d": 2048, "k": 128}


def example(own):
    def listed(n, d, k):
        costs = [
            own.linear(n, d, d),
            own.attention(n, n, k, together=256),
            own.attention(1, n, k, together=1),
            own.decoding(3, d, d // k, d // k, n, batch=2),
        ]
        return np.array(costs, float), np.array([own.verdict(cost)[0] * 1e6 for cost in costs])

    return listed, tuple(SIZES.values())


def library(own, function, arguments):
    from attnmath import count, roofline

    n, d, k = arguments
    listed = roofline.kernels(n, d, k)
    costs = [listed[name] for name in ("projection", "attention in tiles", "decoding one token")]
    weights = 3 * count.transformer_parameters(d, 4 * d, 1)
    operations = 2 * (2 * weights + 3 * count.attention_flops(1, n, d, d))
    costs.append((operations, 2 * (weights + 3 * 2 * 2 * n * d)))
    costs = np.array(costs, float)
    rates = [roofline.attainable(roofline.H100, operations / moved) for operations, moved in costs]
    return costs, 1e6 * costs[:, 0] / rates
