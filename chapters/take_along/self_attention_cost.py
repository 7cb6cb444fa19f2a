import numpy as np


def attention_cost(n, d, heads=1, layers=1, m=None, causal=False, bytes_each=2):
    """What attention of total width d costs for n queries (a number, or an array).

    m keys (n by default); causal: only pairs that may look are computed, m = n.
    A multiplication and an addition count as two operations (FLOP). The projections
    are those of queries, keys, values and output; the network behind is not counted.
    """
    n = np.asarray(n, float)
    m = n if m is None else np.asarray(m, float)
    pairs = n * (n + 1) / 2 if causal else n * m
    projections = layers * (4 * n + 4 * m) * d * d
    products = layers * 4 * pairs * d
    rows = layers * (2 * n + 2 * m) * d  # X or source, Q, K and V
    weights = layers * heads * n * m
    return {
        "projections, FLOP": projections,
        "products, FLOP": products,
        "quadratic share": products / (projections + products),
        "training step, FLOP": 3 * (projections + products),
        "held plainly, bytes": bytes_each * (rows + weights),
        "held in blocks, bytes": bytes_each * (rows + layers * n * (d + 2 * heads)),
        "cache of keys and values, bytes": bytes_each * layers * 2 * m * d,
    }


def borders(d, heads=1):
    """The lengths from which on the quadratic part is the larger one."""
    return {"of the operations": 2 * d, "of what is held": 4 * d / heads}
