"""Attention with a causal mask, and its gradient."""


def example(own):
    import numpy as np

    rng = np.random.default_rng(5)
    Q, K, V, dO = (rng.standard_normal((2, 4, 3)) for _ in range(4))

    def both(Q, K, V, dO):
        O, gradient = own.attention(Q, K, V, np.tri(4, dtype=bool))
        return O, *gradient(dO)

    return both, (Q, K, V, dO)


def library(own, function, arguments):
    import attnmath.numpy as an

    Q, K, V, dO = arguments
    O, vjp = an.attention(Q, K, V, an.causal_mask(4))
    return O, *vjp(dO)[:3]
