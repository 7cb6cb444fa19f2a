"""Which words made a model answer: scores of words, how to test them, and how freely attention weights can move.

A score says how much each of n words counts. Some come from attention weights (`attnmath.rollout`, `attention_flow`),
some from gradients (`integrated_gradients`), some from experiments (`occlusion`). `deletion_curve` tests any of them.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow

from attnmath import _require

CAPACITY = 2**30  # of an edge with the weight 1: the algorithm counts in integers of 32 bits

# scores of words ------------------------------------------------------------------------------------------------------


def attention_flow(P, residual: float = 0.5):
    r"""The most that can flow from each row of the last layer down to each token, where weights are capacities.

    .. math:: F_{ij} = \max\,\{\text{flow from } (L, i) \text{ to } (0, j)\},\qquad
              \text{capacity of } (l, a)\to(l-1, b) = A^{(l)}_{ab}

    Parameters
    ----------
    P : (layers, ..., h, n, n) weights, rows summing to 1, the first layer first.
    residual : from 0 to 1, the share of the connection that passes a layer by, as in `attention_rollout`.

    Returns
    -------
    F : (..., n, n), at least the rollout and at most 1; rows do not sum to 1. The error is at most n n layers / 2^30.

    Raises
    ------
    ValueError
        If P has no layer or no head, its maps are not square or hold a number outside [0, 1], or the share is not in
        [0, 1].

    References
    ----------
    Abnar and Zuidema (2020), section 3. Chapter 9, eq:attention-flow.

    Examples
    --------
    >>> P = np.array([[1.0, 0.0], [0.5, 0.5]])
    >>> attention_flow(np.stack([P[None], P[None]]))[1].round(4)
    array([0.5 , 0.75])
    """
    _require.shapes(P=(P, "... n m"))
    if P.ndim < 4 or P.shape[-1] != P.shape[-2] or not P.size:
        raise ValueError(f"P has shape {P.shape}; expected (layers, ..., h, n, n) with a layer and a head at least")
    if not ((P >= 0) & (P <= 1 + 1e-6)).all():
        raise ValueError("P holds a number outside [0, 1]; give weights, the softmax of the scores")
    if not 0 <= residual <= 1:
        raise ValueError(f"residual is {residual!r}; it must be a share, >= 0 and <= 1")
    n = P.shape[-1]
    A = (1 - residual) * P.mean(-3) + residual * np.eye(n)
    F = np.empty(A.shape[1:])
    for at in np.ndindex(F.shape[:-2]):
        graph, layers = _layered(A[(slice(None), *at)]), len(A)
        for i, j in np.ndindex(n, n):
            F[(*at, i, j)] = maximum_flow(graph, layers * n + i, j).flow_value / CAPACITY  # eq:attention-flow
    return F


def _layered(A):
    """The graph of the layers: node l n + a is row a above layer l, and edges lead down."""
    layers, n, _ = A.shape
    level, a, b = np.nonzero(np.minimum(A, 1.0) * CAPACITY >= 1)
    capacity = (np.minimum(A, 1.0)[level, a, b] * CAPACITY).astype(np.int32)
    nodes = (layers + 1) * n
    return csr_array(coo_array((capacity, ((level + 1) * n + a, level * n + b)), (nodes, nodes)))


def integrated_gradients(gradient: Callable, X, baseline, *, points: int = 32):
    r"""The gradient's mean along the straight line from a baseline, times the way, for each component.

    .. math:: I = (x - b)\odot\int_0^1\nabla f\bigl(b + t\,(x - b)\bigr)\,dt

    Parameters
    ----------
    gradient : takes a batch (points, ...) of inputs and returns the gradients of f at them, of the same shape.
    X : (...) the input, an array of floats.
    baseline : broadcasts to X; what stands for "nothing".
    points : of Gauss and Legendre's rule, which is exact if the gradient is a polynomial of degree 2 points - 1 along
        the line.

    Returns
    -------
    I : (...) of the shape of X; the sum is f(X) - f(baseline) up to the error of the rule.

    Raises
    ------
    ValueError
        If X is not floating point, the number of points is no count, or the gradients have another shape.

    References
    ----------
    Sundararajan, Taly and Yan (2017). Chapter 9, eq:integrated-gradients.

    Examples
    --------
    >>> integrated_gradients(lambda X: 2 * X, np.array([3.0, 1.0]), 0.0).round(6)  # of the sum of squares
    array([9., 1.])
    """
    _require.floats(X=X)
    _require.count("points", points)
    t, w = np.polynomial.legendre.leggauss(points)
    t, w = (t + 1) / 2, w / 2  # from [-1, 1] to [0, 1]
    way = X - np.broadcast_to(baseline, X.shape)
    line = X - (1 - t).reshape(-1, *[1] * X.ndim) * way
    G = np.asarray(gradient(line))
    if G.shape != line.shape:
        raise ValueError(
            f"gradient returns the shape {G.shape} for {line.shape}; it must return one gradient per input"
        )
    return way * np.tensordot(w, G, 1)  # eq:integrated-gradients


def occlusion(answer: Callable, n: int):
    r"""By how much the answer falls when one word alone is taken out.

    .. math:: s_j = f(\text{all}) - f(\text{all but } j)

    Parameters
    ----------
    answer : takes (b, n) booleans, True for a word that is kept, and returns (b,) numbers.
    n : how many words.

    Returns
    -------
    s : (n,).

    Raises
    ------
    ValueError
        If n is no count, or the answer has another shape.

    References
    ----------
    Chapter 9, eq:occlusion.

    Examples
    --------
    >>> occlusion(lambda kept: kept @ np.array([1.0, 5.0]), 2)
    array([1., 5.])
    """
    _require.count("n", n)
    Y = _answers(answer, np.vstack([np.ones((1, n), bool), ~np.eye(n, dtype=bool)]))
    return Y[0] - Y[1:]  # eq:occlusion


def _answers(answer, kept):
    Y = np.asarray(answer(kept), float)
    if Y.shape != kept.shape[:1]:
        raise ValueError(f"answer returns the shape {Y.shape} for {kept.shape}; it must return one number for each row")
    return Y


def deletion_curve(answer: Callable, scores, *, keep: bool = False, steps: int = 10):
    r"""The answer while more and more words are taken out, the ones with the largest scores first.

    .. math:: c_k = f(\text{all but the first } \lceil kn/K\rceil),\qquad
              c_k = f(\text{only the first } \lceil kn/K\rceil)\text{ with keep}

    Parameters
    ----------
    answer : as in `occlusion`.
    scores : (n,) numbers; equal ones keep their order.
    keep : begin with no word and put the best ones in, instead of taking them out.
    steps : K, in how many steps.

    Returns
    -------
    c : (steps + 1,), k = 0 first.

    Raises
    ------
    ValueError
        If the scores are not a row of finite numbers, steps is no count, or the answer has another shape.

    References
    ----------
    DeYoung et al. (2020), section 5. Chapter 9, eq:deletion-curve.

    Examples
    --------
    >>> deletion_curve(lambda kept: kept @ np.array([1.0, 5.0]), np.array([0.2, 0.8]), steps=2)
    array([6., 1., 0.])
    """
    scores = np.asarray(scores, float)
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise ValueError(f"scores has shape {scores.shape}; expected (n,) finite numbers, one for each word")
    _require.count("steps", steps)
    rank = np.argsort(np.argsort(-scores, kind="stable"))
    gone = rank < np.ceil(np.arange(steps + 1) * len(scores) / steps - 1e-9)[:, None]
    return _answers(answer, gone if keep else ~gone)  # eq:deletion-curve


# how freely weights can move ------------------------------------------------------------------------------------------


def removal(p, V, key: int):
    r"""What a row of attention loses when one key is taken out and the other weights grow to sum to 1 again.

    .. math:: o - o_{-j} = p_j\,(v_j - o_{-j})

    Parameters
    ----------
    p : (n,) weights; that of the key is less than 1.
    V : (n, v) values.
    key : j.

    Returns
    -------
    (v,) the difference of the outputs with and without the key.

    Raises
    ------
    ValueError
        If p is no distribution, the shapes disagree, or the key has all the weight.

    References
    ----------
    Chapter 9, eq:removal.

    Examples
    --------
    >>> removal(np.array([0.5, 0.25, 0.25]), np.array([[2.0], [1.0], [3.0]]), key=0)  # 2 is what the others say
    array([0.])
    """
    p, V = _row(p, V)
    rest = np.delete(p, key)
    if not rest.sum() > 0:
        raise ValueError(f"key {key} has all the weight; without it there is no output")
    return p[key] * (V[key] - rest @ np.delete(V, key, 0) / rest.sum())  # eq:removal


def _row(p, V):
    p, V = np.asarray(p, float), np.asarray(V, float)
    _require.shapes(p=(p, "n"), V=(V, "n v"))
    if not (p >= 0).all() or abs(p.sum() - 1) > 1e-4:
        raise ValueError("p is no row of weights; give numbers >= 0 that sum to 1")
    return p / p.sum(), V


def free_directions(V) -> int:
    r"""In how many directions weights can move while the output stays what it is.

    .. math:: n - \operatorname{rank}[V, 1]\ \ge\ n - d_v - 1

    Parameters
    ----------
    V : (n, v) values.

    References
    ----------
    Brunner et al. (2020). Chapter 9, eq:free-directions.

    Examples
    --------
    >>> free_directions(np.array([[0.0], [1.0], [3.0], [4.0]]))
    2
    """
    V = np.asarray(V, float)
    _require.shapes(V=(V, "n v"))
    return len(V) - int(np.linalg.matrix_rank(np.hstack([V, np.ones((len(V), 1))])))  # eq:free-directions


def least_weight(p, V, key: int, *, tolerance: float = 0.0):
    r"""The weights with the same output that give one key as little as possible: a linear programme.

    .. math:: \min\,\{q_j : q\ge0,\ \textstyle\sum_iq_i=1,\ |qV - pV|\le\epsilon\}

    Parameters
    ----------
    p : (n,) weights.
    V : (n, v) values.
    key : j.
    tolerance : :math:`\epsilon`, in each component of the output, in the unit of V.

    Returns
    -------
    q : (n,) weights.

    Raises
    ------
    ValueError
        If p is no distribution, the shapes disagree, or the tolerance is negative.

    References
    ----------
    Chapter 9, eq:same-output.

    Examples
    --------
    >>> least_weight(np.array([0.2, 0.6, 0.2]), np.array([[0.0], [1.0], [2.0]]), key=1).round(4)
    array([0.5, 0. , 0.5])
    """
    p, V = _row(p, V)
    _require.nonnegative("tolerance", tolerance)
    return _best(np.eye(len(p))[key], p, *_constraints(p, V, tolerance))


def farthest_weights(p, V, *, tolerance: float = 0.0, starts: int = 6, rng: np.random.Generator | None = None):
    r"""Weights with the same output that are as far from the given ones as a climb by linear programmes gets.

    .. math:: \max_q\ \tfrac12\sum_j|q_j - p_j|\quad\text{over } q\ge0,\ \textstyle\sum_jq_j=1,\ |qV - pV|\le\epsilon

    The maximum of a convex function stands at a vertex, and finding the best vertex is hard. From each start, a vertex
    that is best for random signs, the climb takes the signs of q - p as a linear objective until nothing is gained. So
    the distance that is returned can be reached, and a larger one may exist.

    Parameters
    ----------
    p, V, tolerance : as in `least_weight`.
    starts : how many climbs.
    rng : of the random signs; by default one with the seed 0.

    Returns
    -------
    q : (n,) weights.

    Raises
    ------
    ValueError
        As `least_weight`; if starts is no count.

    References
    ----------
    Jain and Wallace (2019), section 4.2, with another search. Chapter 9, eq:same-output.

    Examples
    --------
    >>> p, V = np.array([0.2, 0.6, 0.2]), np.array([[0.0], [1.0], [2.0]])
    >>> farthest_weights(p, V).round(4)  # the distance is 0.6
    array([0.5, 0. , 0.5])
    """
    p, V = _row(p, V)
    _require.nonnegative("tolerance", tolerance)
    _require.count("starts", starts)
    rng, limits = np.random.default_rng(0) if rng is None else rng, _constraints(p, V, tolerance)
    found = [p]
    for start in range(starts):
        signs = rng.choice([-1.0, 1.0], len(p)) if start else -np.sign(p - p.mean())
        q, gained = _best(-signs, p, *limits), True
        while gained:
            better = _best(-np.where(q > p, 1.0, -1.0), p, *limits)
            gained = distance(better, p) > distance(q, p) + 1e-9
            q = better if gained else q
        found.append(q)
    return max(found, key=lambda q: distance(q, p))  # eq:same-output


def distance(p, q) -> float:
    """The total variation of two rows of weights: how much weight has to move.

    Examples
    --------
    >>> distance(np.array([0.5, 0.5]), np.array([0.75, 0.25]))
    0.25
    """
    return float(np.abs(np.asarray(p) - np.asarray(q)).sum() / 2)


def _constraints(p, V, tolerance):
    """Rows of A q = 0, or |A q| <= tolerance, for weights q: the output stays."""
    A = (V - p @ V).T
    if tolerance:
        return A, tolerance
    U, s, _ = np.linalg.svd(A.T, full_matrices=False)
    return U[:, s > 1e-10 * max(s.max(initial=0), 1e-300)].T, 0.0  # the same rows, independent and of length 1


def _best(objective, p, A, tolerance):
    """The weights at which a linear function is least."""
    one, n = np.ones((1, len(p))), len(p)
    if tolerance:
        limits = {"A_ub": np.vstack([A, -A]) / tolerance, "b_ub": np.ones(2 * len(A)), "A_eq": one, "b_eq": [1.0]}
    else:
        limits = {"A_eq": np.vstack([A, one]), "b_eq": np.append(np.zeros(len(A)), 1.0)}
    found = linprog(objective, bounds=[(0, 1)] * n, method="highs", **limits)
    q = np.clip(found.x, 0, None) if found.status == 0 else p  # p itself is always allowed
    return q / q.sum()
