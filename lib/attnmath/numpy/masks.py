"""Boolean masks, True = may attend, and their additive form: plain arrays, for there is nothing to differentiate."""

import numpy as np
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require.attention import window_sizes
from attnmath.numpy.types import Array


def causal_mask(n: int, m: int | None = None) -> Bool[Array, "n m"]:
    r"""Each query sees the keys up to its own position; the last query sees every key.

    .. math:: M_{ij} = [\,j \le i + m - n\,]

    Parameters
    ----------
    n : queries.
    m : keys, at least n, of which the first m - n lie before the first query; None means n.

    Returns
    -------
    M : (n, m) boolean, lower triangular with its corner at the lower right.

    Raises
    ------
    ValueError
        If n < 1 or m < n, since the first n - m queries would see nothing.

    References
    ----------
    Vaswani et al. (2017), section 3.2.3. Chapter 3, eq:causal-mask.

    Examples
    --------
    >>> causal_mask(2, 3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    m = n if m is None else m
    _require.causal_sizes(n, m)
    return np.tril(np.ones((n, m), bool), m - n)  # eq:causal-mask


def padding_mask(lengths: Integer[Array, " b"], m: int | None = None) -> Bool[Array, "b 1 m"]:
    r"""Keys that are tokens, in a batch padded at the end.

    .. math:: M_{b1j} = [\,j < \ell_b\,]

    Parameters
    ----------
    lengths : (b,) tokens of each sequence, 1 to m; the longest is m unless m is given.
    m : the padded length.

    Returns
    -------
    M : (b, 1, m) boolean, one row for all queries; give it one more axis, ``M[:, None]``, for the heads.

    Raises
    ------
    ValueError
        If the lengths are not integers between 1 and m.

    References
    ----------
    Chapter 3, eq:padding-mask.

    Examples
    --------
    >>> padding_mask(np.array([1, 3]))[:, 0].astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    m = _require.lengths(lengths, m)
    return np.arange(m) < lengths[:, None, None]  # eq:padding-mask


def window_mask(n: int, width: int, m: int | None = None) -> Bool[Array, "n m"]:
    r"""Each query sees the keys at most ``width`` steps away; the last query stands at the last key.

    .. math:: M_{ij} = [\,|i + m - n - j| \le w\,]

    Parameters
    ----------
    n : queries.
    width : w >= 0.
    m : keys, at least n, of which the first m - n lie before the first query; None means n.

    Returns
    -------
    M : (n, m) boolean, a band of 2 w + 1 diagonals; combine it with others by ``&``, such as `causal_mask`.

    Raises
    ------
    ValueError
        If n < 1, m < n or width < 0.

    References
    ----------
    Beltagy, Peters and Cohan (2020), section 3.1. Chapter 3, eq:window-mask.

    Examples
    --------
    >>> window_mask(3, 1).astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    m = n if m is None else m
    window_sizes(n, m)
    _require.nonnegative("width", width)
    return abs(np.arange(m - n, m)[:, None] - np.arange(m)) <= width  # eq:window-mask


def additive_mask(mask: Bool[Array, "..."], dtype) -> Float[Array, "..."]:
    r"""What to add to the scores in place of a boolean mask.

    .. math:: A_{ij} = \begin{cases}0 & M_{ij}\\ -\infty & \text{otherwise}\end{cases}

    Parameters
    ----------
    mask : boolean, True = may attend.
    dtype : a floating type, that of the scores.

    Returns
    -------
    A : mask's shape; ``softmax(S + A)`` are the masked weights.

    Raises
    ------
    ValueError
        If the mask is not boolean.

    References
    ----------
    Chapter 3, eq:additive-mask. ``A == 0`` is the mask again.

    Examples
    --------
    >>> additive_mask(np.array([True, False]), np.float32)
    array([  0., -inf], dtype=float32)
    """
    _require.mask(mask, mask.shape)
    return np.where(mask, 0, -np.inf).astype(dtype)  # eq:additive-mask
