"""How large a batch should be: the noise scale of gradients, how to estimate it, and what it says of a step."""

from typing import NamedTuple

import numpy as np

from attnmath import _require


class Noise(NamedTuple):
    """The squared length of the true gradient, the trace of one example's covariance, and their ratio."""

    signal: float
    noise: float
    scale: float


def noise_scale(small: int, big: int, square_small, square_big) -> Noise:
    r"""The gradient noise scale from squared lengths of gradients at two batch sizes.

    .. math:: \hat g = \frac{B\,q_B - b\,q_b}{B - b},\qquad
              \hat s = \frac{q_b - q_B}{1/b - 1/B},\qquad \hat B_{\text{simple}} = \hat s / \hat g

    Parameters
    ----------
    small, big : b < B, examples in a batch; b >= 1.
    square_small, square_big : q_b, q_B, squared lengths of mean gradients of b and of B examples, >= 0, of one batch
        or of several, which are averaged before anything is divided. The big batch may be made of the small ones.

    Returns
    -------
    The estimates of the squared length of G and of the trace of Sigma, both unbiased, and their quotient, which is not.
    The quotient is ``inf`` if the first is not above 0, and then more gradients are needed.

    Raises
    ------
    ValueError
        If the sizes are not ``1 <= b < B``, or there is no length.

    References
    ----------
    McCandlish et al. (2018), appendix A.1: their B_small, B_big, squared norm of G and S are our b, B, g and s.
    Chapter 8, eq:noise-signal and eq:noise-trace.

    Examples
    --------
    >>> noise_scale(2, 8, 7.0, 4.0)
    Noise(signal=3.0, noise=8.0, scale=2.6666666666666665)
    """
    if not 1 <= small < big:
        raise ValueError(f"small and big are {small} and {big}; they must fulfil 1 <= small < big")
    squares = [np.asarray(squares, dtype=float) for squares in (square_small, square_big)]
    if not all(square.size for square in squares):
        raise ValueError("there is no squared length; give at least one of each size")
    q_b, q_B = (float(square.mean()) for square in squares)
    g = (big * q_B - small * q_b) / (big - small)  # eq:noise-signal
    s = (q_b - q_B) / (1 / small - 1 / big)  # eq:noise-trace
    return Noise(g, s, s / g if g > 0 else float("inf"))


def progress_share(batch, scale):
    r"""The share of the best possible progress of a step that a batch gets.

    .. math:: \frac{\Delta_B}{\Delta_\infty} = \frac{1}{1 + B_{\text{noise}} / B}

    Parameters
    ----------
    batch : B, > 0, one or an array.
    scale : the noise scale, >= 0.

    References
    ----------
    McCandlish et al. (2018), equation 2.7. Chapter 8, thm-batch-progress.

    Examples
    --------
    >>> progress_share(np.array([5, 20, 180]), 20).round(6).tolist()
    [0.2, 0.5, 0.9]
    """
    batch = np.asarray(batch, dtype=float)
    _require.nonnegative("scale", scale)
    if not (batch > 0).all():
        raise ValueError("a batch has no example; its size must be > 0")
    return 1 / (1 + scale / batch)  # eq:batch-progress
