"""The tail of the standard normal distribution, fast where the precision asked for allows it."""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from attnmath.numpy.types import Array

# erfc(x / sqrt 2) / 2 = t (c1 + t (c2 + …)) exp(-x² / 2), t = 1 / (1 + r x): Abramowitz and Stegun (1964), 7.1.26
RATE = 0.3275911 / 2**0.5
COEFFICIENTS = tuple(c / 2 for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
BLOCK = 1 << 14  # numbers worked on at a time, so that they stay in a core's cache


def upper_tail(A: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The probability that a standard normal variable exceeds a.

    .. math:: 1 - \Phi(a) = \tfrac12\operatorname{erfc}(a/\sqrt2)

    Parameters
    ----------
    A : any shape, a >= 0.

    Returns
    -------
    A's shape. In float64 from SciPy; in float32 and float16 from a formula with an error of at most 3e-7, several times
    as fast.

    References
    ----------
    Abramowitz and Stegun (1964), 7.1.26.

    Examples
    --------
    >>> upper_tail(np.array([0.0, 1.0])).round(4)
    array([0.5   , 0.1587])
    """
    if A.dtype == np.float64:
        return ndtr(-A)
    flat = np.ascontiguousarray(A, np.float32).reshape(-1)
    out = np.empty_like(flat)
    for i in range(0, flat.size, BLOCK):
        a, y = flat[i : i + BLOCK], out[i : i + BLOCK]
        t = a * np.float32(RATE)
        t += 1
        np.reciprocal(t, out=t)
        y[...] = 0
        for c in COEFFICIENTS:
            y += np.float32(c)
            y *= t
        np.multiply(a, a, out=t)
        t *= np.float32(-0.5)
        y *= np.exp(t, out=t)
    return out.reshape(A.shape).astype(A.dtype, copy=False)
