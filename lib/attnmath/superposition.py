"""Features in superposition: sparse samples, exact losses, how many directions fit, and how well dictionaries agree."""

import math

import numpy as np

from attnmath import _require
from attnmath._require import superposition as require


def sparse_features(rng, shape: tuple[int, ...], present: float):
    r"""Features that are mostly absent.

    .. math:: P(x = 0) = 1 - p,\qquad x \sim U(0, 1) \text{ otherwise}

    Parameters
    ----------
    rng : where they are drawn from.
    shape : of the answer; the last axis numbers the features.
    present : p, the probability that a feature is there, 0 < p <= 1.

    Returns
    -------
    X : float64 in [0, 1), all entries independent.

    Raises
    ------
    ValueError
        If present is no such probability.

    Examples
    --------
    >>> float((sparse_features(np.random.default_rng(0), (1000, 5), 0.1) > 0).mean().round(2))
    0.1
    """
    require.probability("present", present)
    return rng.random(shape) * (rng.random(shape) < present)


def dropped_loss(present: float, importance: float = 1.0) -> float:
    r"""The least loss of a model of two features that gives the second one no direction.

    .. math:: L_1 = r\left(\frac p3 - \frac{p^2}4\right)

    Parameters
    ----------
    present : p, the probability that a feature is there, 0 < p <= 1.
    importance : r, how much the second feature counts, 0 < r <= 1.

    Raises
    ------
    ValueError
        If a number is outside its range.

    References
    ----------
    Chapter 9, eq:dropped-loss.

    Examples
    --------
    >>> round(dropped_loss(0.5), 4)
    0.1042
    """
    require.probability("present", present)
    require.importance(importance)
    return importance * (present / 3 - present**2 / 4)  # eq:dropped-loss


def opposite_loss(present: float, importance: float = 1.0) -> float:
    r"""The loss of two features in opposite directions of one dimension, of length 1 and without a bias.

    .. math:: L_2 = (1 + r)\,\frac{p^2}6

    Parameters, errors and reference as in `dropped_loss`; Chapter 9, eq:opposite-loss.

    Examples
    --------
    >>> round(opposite_loss(0.5), 4)
    0.0833
    """
    require.probability("present", present)
    require.importance(importance)
    return (1 + importance) * present**2 / 6  # eq:opposite-loss


def opposite_border(importance: float = 1.0) -> float:
    r"""Below this probability the plain opposite directions lose less than any model that drops a feature.

    .. math:: p^* = \frac{4r}{2 + 5r}

    Parameters, errors and reference as in `dropped_loss`; Chapter 9, eq:opposite-border.

    Examples
    --------
    >>> round(opposite_border(), 4)
    0.5714
    """
    require.importance(importance)
    return 4 * importance / (2 + 5 * importance)  # eq:opposite-border


def welch_bound(n: int, m: int) -> float:
    r"""However n directions are chosen in m dimensions, two of them have a cosine of at least this absolute value.

    .. math:: \mu = \sqrt{\frac{n - m}{m\,(n - 1)}}\ \text{ if } n > m,\qquad 0 \text{ otherwise}

    Parameters
    ----------
    n, m : how many directions, at least 2, and dimensions, at least 1.

    Raises
    ------
    ValueError
        If a number is too small.

    References
    ----------
    Welch (1974). Chapter 9, eq:welch.

    Examples
    --------
    >>> welch_bound(3, 2)
    0.5
    """
    _require.count("n", n)
    _require.count("m", m)
    require.directions("n, m", n, m)
    return math.sqrt(max(n - m, 0) / (m * (n - 1)))  # eq:welch


def coherence(D) -> float:
    r"""The largest absolute cosine between two different rows.

    .. math:: \mu(D) = \max_{i\ne j}\lvert\cos(d_i, d_j)\rvert

    Parameters
    ----------
    D : (n, m) rows that are not zero, n >= 2.

    Raises
    ------
    ValueError
        If there are fewer than two rows.

    Examples
    --------
    >>> angles = 2 * np.pi * np.arange(3) / 3
    >>> round(coherence(np.stack([np.cos(angles), np.sin(angles)], -1)), 4)
    0.5
    """
    require.directions("D", *D.shape)
    C = np.abs(_unit(D) @ _unit(D).T)
    np.fill_diagonal(C, 0)
    return float(C.max())


def sign_directions(rng, n: int, m: int):
    r"""Random directions with m components of equal size and random sign.

    .. math:: d_i = (\pm1, \dots, \pm1) / \sqrt m

    Parameters
    ----------
    rng : where they are drawn from.
    n, m : how many, and in how many dimensions.

    Returns
    -------
    D : (n, m), each row of length 1.

    Examples
    --------
    >>> sign_directions(np.random.default_rng(0), 2, 4)
    array([[ 0.5,  0.5,  0.5, -0.5],
           [-0.5, -0.5, -0.5, -0.5]])
    """
    return rng.choice([-1.0, 1.0], (n, m)) / math.sqrt(m)


def random_fit(m: int, largest: float) -> int:
    r"""So many directions fit into m dimensions with all absolute cosines below a bound: random ones prove it.

    .. math:: n = \lfloor e^{m\varepsilon^2/4} \rfloor

    Parameters
    ----------
    m : dimensions, at least 1.
    largest : :math:`\varepsilon > 0`.

    Raises
    ------
    ValueError
        If a number is too small.

    References
    ----------
    Chapter 9, eq:random-fit.

    Examples
    --------
    >>> random_fit(768, 0.25)
    162754
    """
    _require.count("m", m)
    _require.positive("largest", largest)
    return math.floor(math.exp(m * largest**2 / 4))  # eq:random-fit


def matched(A, B):
    r"""For each row of A the largest cosine with a row of B.

    .. math:: s_i = \max_j\cos(a_i, b_j)

    Parameters
    ----------
    A, B : (n, d) and (m, d) directions, no row zero, m >= 1.

    Returns
    -------
    s : (n,). It is not symmetric: each row of A may choose the same row of B.

    Raises
    ------
    ValueError
        If the widths differ, or B has no row.

    References
    ----------
    Chapter 9, eq:matched.

    Examples
    --------
    >>> matched(np.eye(2), np.array([[3.0, 4.0]]))
    array([0.6, 0.8])
    """
    sizes = _require.shapes(A=(A, "n d"), B=(B, "m d"))
    _require.nonempty("B", B.shape, 0, sizes["m"], "direction")
    return (_unit(A) @ _unit(B).T).max(-1)  # eq:matched


def purity(Z, ids, top: int | None = None):
    r"""For each unit, the share of the commonest token among those that it speaks about.

    .. math:: \max_x\ \frac{\lvert\{t \in T_j : x_t = x\}\rvert}{\lvert T_j\rvert}

    Parameters
    ----------
    Z : (t, u) codes of t tokens.
    ids : (t,) the tokens.
    top : :math:`T_j` holds so many tokens with the largest codes; None for all whose code is positive.

    Returns
    -------
    (u,), nan for a unit that is silent.

    Raises
    ------
    ValueError
        If there are not as many rows as tokens.

    Examples
    --------
    >>> Z = np.array([[0.9, 0.0], [0.8, 0.0], [0.1, 0.0], [0.2, 0.0]])
    >>> purity(Z, np.array([7, 7, 5, 4]))
    array([0.5, nan])
    >>> purity(Z, np.array([7, 7, 5, 4]), top=2)
    array([ 1., nan])
    """
    if len(Z) != len(ids):
        raise ValueError(f"Z has {len(Z)} rows and ids {len(ids)} tokens; give one row for each token")
    found = []
    for z in Z.T:
        at = np.flatnonzero(z > 0)
        if top is not None:
            at = at[np.argsort(-z[at], kind="stable")[:top]]
        found.append(np.unique(ids[at], return_counts=True)[1].max() / len(at) if len(at) else np.nan)
    return np.array(found)


def soft_threshold(a, amount: float):
    r"""What a penalty on the sum makes of numbers: each becomes smaller by the same amount, or 0.

    .. math:: z = \max(a - \lambda, 0)

    Parameters
    ----------
    a : any shape.
    amount : :math:`\lambda \ge 0`.

    Raises
    ------
    ValueError
        If the amount is negative.

    References
    ----------
    Chapter 9, eq:soft-threshold.

    Examples
    --------
    >>> soft_threshold(np.array([2.0, 0.3, -1.0]), 0.5)
    array([1.5, 0. , 0. ])
    """
    _require.nonnegative("amount", amount)
    return np.maximum(a - amount, 0)  # eq:soft-threshold


def _unit(D):
    return D / np.linalg.norm(D, axis=-1, keepdims=True)
