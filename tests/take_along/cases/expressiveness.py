"""Overlaps of three heads, and a head that does not notice a move in its blind directions."""


def example(own):
    import numpy as np

    return own.overlaps, (np.random.default_rng(5).standard_normal((20, 12)), 3)


def library(own, function, arguments):
    import numpy as np
    from scipy.linalg import subspace_angles

    import attnmath.numpy as an

    W, heads = arguments
    rng = np.random.default_rng(6)
    X, three = rng.standard_normal((5, 20)), rng.standard_normal((3, 20, 4))
    moved = X + rng.standard_normal((5, 8)) @ own.blind_directions(*three)
    before, after = (an.self_attention(Y, *three)[0] for Y in (X, moved))
    np.testing.assert_allclose(before, after, atol=1e-10)
    parts = np.split(W, heads, axis=1)
    return np.array([[np.mean(np.cos(subspace_angles(A, B)) ** 2) for B in parts] for A in parts])
