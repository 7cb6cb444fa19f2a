"""Measures of attention maps: how much of the weight lies where, and how spread out it is.

They take weights P (..., n, m), rows summing to 1, as NumPy arrays, one map or a stack of heads, and have no gradient.
"""

import numpy as np
from scipy.special import entr

from attnmath import _require


def _maps(P):
    _require.shapes(P=(P, "... n m"))
    _require.nonempty("P", P.shape, -2, P.shape[-2], "query")
    _require.nonempty("P", P.shape, -1, P.shape[-1], "key")
    return P


def offset_score(P, offset: int):
    r"""The mean weight on the key at a fixed distance: -1 the previous, 1 the next, 0 the position itself.

    .. math:: \frac{1}{|I|}\sum_{i\in I} P_{i,\,i+\delta},\qquad I = \{i : 0 \le i + \delta < m\}

    Parameters
    ----------
    P : (..., n, m) weights.
    offset : :math:`\delta`; queries without such a key do not count.

    Returns
    -------
    (...) in [0, 1].

    Raises
    ------
    ValueError
        If P is not a float array of at least one query and key, or no query has such a key.

    References
    ----------
    Clark et al. (2019), section 3.1. Chapter 3, eq:offset-score.

    Examples
    --------
    >>> float(offset_score(np.eye(3, k=-1) + np.diag([1.0, 0, 0]), -1))
    1.0
    """
    diagonal = np.diagonal(_maps(P), offset, -2, -1)
    if not diagonal.shape[-1]:
        raise ValueError(f"no query of P, {P.shape}, has a key at offset {offset}; choose one nearer to 0")
    return diagonal.mean(-1)  # eq:offset-score


def local_score(P, width: int):
    r"""The mean weight within a window around the query.

    .. math:: \frac1n\sum_i \sum_{|i-j|\le w} P_{ij}

    Parameters
    ----------
    P : (..., n, n) weights of self-attention.
    width : w >= 0; uniform weights score about :math:`(2w+1)/n`.

    Returns
    -------
    (...) in [0, 1].

    Raises
    ------
    ValueError
        If P is not square or width is negative.

    References
    ----------
    Chapter 3, eq:local-score.

    Examples
    --------
    >>> float(local_score(np.full((4, 4), 0.25), 1))
    0.625
    """
    sizes = _require.shapes(P=(_maps(P), "... n n"))
    _require.nonnegative("width", width)
    i = np.arange(sizes["n"])
    return np.where(abs(i[:, None] - i) <= width, P, 0).sum(-1).mean(-1)  # eq:local-score


def column_score(P, columns):
    r"""The mean weight on a set of keys, such as the delimiters.

    .. math:: \frac1n\sum_i \sum_{j\in C} P_{ij}

    Parameters
    ----------
    P : (..., n, m) weights.
    columns : (m,) boolean, True for the keys of C; uniform weights score :math:`|C|/m`.

    Returns
    -------
    (...) in [0, 1].

    Raises
    ------
    ValueError
        If columns is not m booleans.

    References
    ----------
    Clark et al. (2019), section 3.2. Chapter 3, eq:column-score.

    Examples
    --------
    >>> float(column_score(np.full((2, 4), 0.25), np.array([True, False, False, True])))
    0.5
    """
    columns = np.asarray(columns)
    if columns.dtype != bool or columns.shape != _maps(P).shape[-1:]:
        raise ValueError(
            f"columns has shape {columns.shape} and dtype {columns.dtype}; expected {P.shape[-1]} booleans, one per key"
        )
    return P[..., columns].sum(-1).mean(-1)  # eq:column-score


def broadcast_score(P):
    r"""The mean weight on the key that receives most.

    .. math:: \max_j \frac1n\sum_i P_{ij}

    Parameters
    ----------
    P : (..., n, m) weights.

    Returns
    -------
    (...) from 1/m (every key receives the same) to 1 (all look at one key).

    Raises
    ------
    ValueError
        If P is not a float array of at least one query and key.

    References
    ----------
    Chapter 3, eq:broadcast-score.

    Examples
    --------
    >>> float(broadcast_score(np.array([[0.5, 0.5], [1.0, 0.0]])))
    0.75
    """
    return _maps(P).mean(-2).max(-1)  # eq:broadcast-score


def entropy(P):
    r"""How spread out each row of weights is.

    .. math:: H_i = -\sum_j P_{ij}\log P_{ij},\qquad 0\log 0 = 0

    Parameters
    ----------
    P : (..., n, m) weights.

    Returns
    -------
    (..., n) nats, from 0 to :math:`\log m`.

    Raises
    ------
    ValueError
        If P is not a float array of at least one query and key.

    References
    ----------
    Shannon (1948), section 6. Chapter 3, eq:entropy.

    Examples
    --------
    >>> np.exp(entropy(np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])))
    array([2., 1.])
    """
    return entr(_maps(P)).sum(-1)  # eq:entropy


def gaussian_window(n: int, sigma: float):
    r"""The local pattern with a soft edge.

    .. math:: P_{ij} = \frac{1}{Z_i}\exp\!\left(-\frac{(i-j)^2}{2\sigma^2}\right)

    Parameters
    ----------
    n : positions.
    sigma : :math:`\sigma > 0`, in positions.

    Returns
    -------
    P : (n, n) weights.

    Raises
    ------
    ValueError
        If n or sigma is not positive.

    References
    ----------
    Chapter 3, eq:gaussian-window.

    Examples
    --------
    >>> gaussian_window(3, 1.0)[0].round(3)
    array([0.574, 0.348, 0.078])
    """
    _require.positive("n", n)
    _require.positive("sigma", sigma)
    i = np.arange(n)
    E = np.exp(-((i[:, None] - i) ** 2) / (2 * sigma**2))
    return E / E.sum(-1, keepdims=True)  # eq:gaussian-window
