"""Weights that can be exactly zero: sparsemax and alpha-entmax, their entropies, their losses, and attention with them.

Each row of weights maximises the expected score plus an entropy. Shannon's entropy gives the softmax; Tsallis's, whose
slope at weight 0 is finite, gives zeros.
"""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import sparse_weights as require
from attnmath.numpy.attention import _allow
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.softmax import softmax
from attnmath.numpy.types import Array, Vjp, differentiable, sum_to
from attnmath.numpy.weighed import weighed


def _below_top(S, c, empty_rows):
    """Scores times c, less the row's largest and at least -1; the rows that hold -inf only; those without a maximum."""
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    top = S.max(-1, keepdims=True)
    empty = np.isneginf(top)
    if empty.any() and empty_rows == "error":
        _require.no_empty_row(tuple(np.argwhere(empty[..., 0])[0].tolist()), "empty_rows='zero'")
    lost = np.isnan(top) | np.isposinf(top)
    with np.errstate(over="ignore"):  # a difference beyond the largest number is a key of weight 0
        Z = np.maximum(c * (S - np.where(empty | lost, 0, top).astype(S.dtype)), -1)
    return np.where(empty | lost, 0, Z).astype(S.dtype), empty, lost


def _finish(P, empty, lost):
    """Zeros for an empty row, nan for one whose largest score is +inf or nan."""
    return np.where(empty, 0, np.where(lost, np.nan, P)).astype(P.dtype)


def _sorted_support(Z, power):
    """Which keys have a weight above 0: those that the larger scores do not push out."""
    ordered = -np.sort(-Z, -1)
    k = np.arange(1, Z.shape[-1] + 1, dtype=Z.dtype)
    total = ordered.cumsum(-1)
    if power == 1:
        pushed = total - k * ordered  # the sum of the leads over key k
    else:
        pushed = (ordered**2).cumsum(-1) - 2 * ordered * total + k * ordered**2  # the sum of their squares
    last = (pushed < 1).sum(-1, keepdims=True) - 1
    return np.take_along_axis(ordered, last, -1) <= Z


def _masked_mean(X, on, count):
    return np.where(on, X, 0).sum(-1, keepdims=True) / count


@differentiable
@half_in_float32
def sparsemax(S: Float[Array, "... m"], *, empty_rows: str = "error") -> tuple[Float[Array, "... m"], Vjp]:
    r"""The point of the simplex that lies nearest to each row of scores.

    .. math:: P_i = \arg\min_{p\ge0,\ \sum p=1}\lVert p - S_i\rVert^2,\qquad P_{ij} = \max(S_{ij} - \tau_i, 0)

    The threshold is found exactly, by sorting, in O(m log m).

    Parameters
    ----------
    S : (..., m) scores; an entry of ``-inf`` gets weight 0. A row with ``+inf`` or ``nan`` gives ``nan``.
    empty_rows : what to do with a row of ``-inf`` only: ``"error"``, or ``"zero"`` for a row of zeros.

    Returns
    -------
    P : (..., m) non-negative, rows sum to 1; a score that is 1 or more below the largest has weight 0 exactly.
    vjp : dP -> dS. Where a score lies on the threshold, its weight counts as 0 and its slope too.

    Raises
    ------
    ValueError
        If S is not floating point, has no entry along its last axis, or has an empty row that was not allowed.

    References
    ----------
    Martins and Astudillo (2016), algorithm 1 and equation 9, whose z is our S; Held, Wolfe and Crowder (1974).
    Chapter 9, eq:sparsemax.

    Examples
    --------
    >>> P, vjp = sparsemax(np.array([[1.0, 0.5, -0.5]]))
    >>> P
    array([[0.75, 0.25, 0.  ]])
    """
    Z, empty, lost = _below_top(S, 1, empty_rows)
    on = _sorted_support(Z, 1)  # eq:support
    count = on.sum(-1, keepdims=True).astype(S.dtype)
    tau = _masked_mean(Z, on, count) - 1 / count  # eq:sparsemax-threshold
    P = _finish(np.maximum(Z - tau, 0), empty, lost)  # eq:sparsemax

    def vjp(dP):
        s = (P > 0).astype(P.dtype)
        mean = (s * dP).sum(-1, keepdims=True) / np.maximum(s.sum(-1, keepdims=True), 1)
        return s * (dP - mean)  # eq:sparsemax-vjp

    return P, vjp


def _entmax_vjp(P, dP, alpha):
    """From dP to dS, and each row's s, the weights to the power 2 - alpha on the support, divided by their sum."""
    on = P > 0
    s = np.where(on, np.where(on, P, 1) ** (2 - alpha), 0).astype(P.dtype)
    share = s / np.where(on.any(-1, keepdims=True), s.sum(-1, keepdims=True), 1)
    return s * (dP - (share * dP).sum(-1, keepdims=True)), share


@differentiable
@half_in_float32
def entmax15(S: Float[Array, "... m"], *, empty_rows: str = "error") -> tuple[Float[Array, "... m"], Vjp]:
    r"""Half way between softmax and sparsemax: alpha-entmax at 1.5.

    .. math:: P_{ij} = \max(S_{ij}/2 - \tau_i, 0)^2

    The threshold is found exactly, by sorting, in O(m log m).

    Parameters
    ----------
    S, empty_rows : as in `sparsemax`.

    Returns
    -------
    P : (..., m) non-negative, rows sum to 1; a score that is 2 or more below the largest has weight 0 exactly.
    vjp : dP -> dS, continuous in S.

    Raises
    ------
    ValueError
        As `sparsemax`.

    References
    ----------
    Peters, Niculae and Martins (2019), algorithm 2, whose z is our S. Chapter 9, eq:entmax15-threshold.

    Examples
    --------
    >>> P, vjp = entmax15(np.array([[2.0, 1.6, -1.0]]))
    >>> P
    array([[0.64, 0.36, 0.  ]])
    """
    Z, empty, lost = _below_top(S, 0.5, empty_rows)
    on = _sorted_support(Z, 2)  # eq:support
    count = on.sum(-1, keepdims=True).astype(S.dtype)
    mean = _masked_mean(Z, on, count)
    spread = _masked_mean((Z - mean) ** 2, on, count)
    tau = mean - np.sqrt(np.maximum(1 / count - spread, 0))  # eq:entmax15-threshold
    P = _finish(np.maximum(Z - tau, 0) ** 2, empty, lost)
    return P, lambda dP: _entmax_vjp(P, dP, 1.5)[0]  # eq:entmax-vjp


@differentiable
@half_in_float32
def entmax_bisect(
    S: Float[Array, "... m"],
    alpha: Float[Array, "..."] | float = 1.5,
    *,
    empty_rows: str = "error",
    halvings: int | None = None,
) -> tuple[Float[Array, "... m"], Vjp]:
    r"""The alpha-entmax of each row of scores, for any alpha above 1, its threshold by bisection.

    .. math:: P_{ij} = \max\bigl((\alpha-1)S_{ij} - \tau_i,\ 0\bigr)^{1/(\alpha-1)}

    Parameters
    ----------
    S : (..., m) scores, as in `sparsemax`.
    alpha : > 1, a number, or an array of at least one axis that broadcasts to (..., 1) and has a cotangent. Towards 1
        the weights approach softmax's; at alpha - 1 = 1e-4 they keep eleven digits in float64.
    empty_rows : as in `sparsemax`.
    halvings : how often the interval of the threshold is halved; None halves it to the dtype's precision.

    Returns
    -------
    P : (..., m) non-negative, rows sum to 1; a score that is 1/(alpha - 1) or more below the largest has weight 0.
    vjp : dP -> dS, or (dS, dalpha) if alpha is an array. They assume that the threshold was found.

    Raises
    ------
    ValueError
        As `sparsemax`; if alpha is not above 1 and finite, or halvings is not a count.

    References
    ----------
    Peters, Niculae and Martins (2019), algorithm 1; Correia, Niculae and Martins (2019), proposition 1, for dalpha.
    Chapter 9, eq:entmax.

    Examples
    --------
    >>> P, vjp = entmax_bisect(np.array([[2.0, 1.6, -1.0]]), 1.5)
    >>> P
    array([[0.64, 0.36, 0.  ]])
    """
    _require.shapes(S=(S, "... m"))
    learned = not isinstance(alpha, float | int)
    if learned:
        require.array(alpha, S)
        require.array_values(alpha)
    else:
        require.above_one(alpha)
    if halvings is not None:
        _require.count("halvings", halvings)
    Z, empty, lost = _below_top(S, alpha - 1, empty_rows)
    a = np.asarray(alpha, S.dtype)
    power = 1 / (a - 1)
    low = np.full((*S.shape[:-1], 1), -1, S.dtype)
    width = 1 - np.asarray(S.shape[-1], S.dtype) ** (1 - a)
    for _ in range(halvings or np.finfo(S.dtype).nmant + 2):
        width = width / 2
        middle = low + width
        heavy = (np.maximum(Z - middle, 0) ** power).sum(-1, keepdims=True) >= 1
        low = np.where(heavy, middle, low).astype(S.dtype)  # eq:entmax-bisection
    P = np.maximum(Z - low, 0) ** power  # eq:entmax
    P = _finish(P / P.sum(-1, keepdims=True), empty, lost).astype(S.dtype)

    def vjp(dP):
        dS, share = _entmax_vjp(P, dP, a)  # eq:entmax-vjp
        if not learned:
            return dS
        information = P * np.log(np.where(P > 0, P, 1))
        tilt = power**2 * (P - share) - power * (information - share * information.sum(-1, keepdims=True))
        return dS, sum_to(np.where(empty, 0, dP * tilt).astype(S.dtype), alpha.shape)  # eq:entmax-alpha-vjp

    return P, vjp


def _weights(S, alpha, empty_rows):
    """The weights for an alpha from 1, by the exact algorithm where there is one."""
    if isinstance(alpha, float | int):
        require.number(alpha)
        exact = {1: softmax, 1.5: entmax15, 2: sparsemax}.get(alpha)
        if exact is not None:
            return exact(S, empty_rows=empty_rows)
    return entmax_bisect(S, alpha, empty_rows=empty_rows)


@differentiable
@half_in_float32
def tsallis_entropy(P: Float[Array, "... m"], alpha: float = 1.5) -> tuple[Float[Array, "..."], Vjp]:
    r"""How spread out each row of weights is, by the entropy whose maximisers are the alpha-entmax weights.

    .. math:: H_\alpha(p) = \frac{\sum_j p_j - p_j^\alpha}{\alpha(\alpha-1)},\qquad H_1(p) = -\sum_j p_j\log p_j

    Parameters
    ----------
    P : (..., m) non-negative weights.
    alpha : at least 1; 1 is Shannon's entropy in nats, 2 half of Gini's impurity.

    Returns
    -------
    H : (...) from 0, for a row with all its weight on one key, to the value of equal weights.
    vjp : dH -> dP; the slope at weight 0 is finite if alpha is above 1, and infinite if it is 1.

    Raises
    ------
    ValueError
        If P is not floating point or alpha is not a finite number from 1.

    References
    ----------
    Tsallis (1988); Peters, Niculae and Martins (2019), equation 9, with the factor of ours. Chapter 9,
    eq:tsallis-entropy.

    Examples
    --------
    >>> tsallis_entropy(np.array([[0.5, 0.5, 0.0, 0.0]]), 2.0)[0]
    array([0.25])
    """
    _require.shapes(P=(P, "... m"))
    require.number(alpha)
    if alpha == 1:
        H = -(P * np.log(np.where(P > 0, P, 1))).sum(-1)
    else:
        H = (P - P**alpha).sum(-1) / (alpha * (alpha - 1))  # eq:tsallis-entropy

    def vjp(dH):
        if alpha == 1:
            with np.errstate(divide="ignore"):  # the slope at 0 is infinite
                return -np.asarray(dH)[..., None] * (np.log(P) + 1)
        return (
            np.asarray(dH)[..., None] * (1 - alpha * P ** (alpha - 1)) / (alpha * (alpha - 1))
        )  # eq:tsallis-entropy-vjp

    return H, vjp


@differentiable
@half_in_float32
def fenchel_young_loss(
    S: Float[Array, "... m"], Y: Float[Array, "... m"], alpha: float = 1.5
) -> tuple[Float[Array, "..."], Vjp]:
    r"""How far scores are from choosing given weights: 0 if and only if their alpha-entmax is these weights.

    .. math:: L(s, y) = \max_p\,[\,p\cdot s + H_\alpha(p)\,] - [\,y\cdot s + H_\alpha(y)\,]

    Parameters
    ----------
    S : (..., m) scores.
    Y : (..., m) the weights that there should be: rows from the simplex, taken as constants.
    alpha : at least 1; 1 gives the divergence of Y from softmax's weights, the cross-entropy where one key is right.

    Returns
    -------
    L : (...) at least 0; for alpha above 1 it is 0 at finite scores for every Y.
    vjp : dL -> dS, the weights less Y, times dL.

    Raises
    ------
    ValueError
        If S and Y are not floats of one shape, a row of Y is no distribution, or alpha is not a finite number from 1.

    References
    ----------
    Blondel, Martins and Niculae (2020), definition 2, with Omega = -H. Chapter 9, eq:fenchel-young.

    Examples
    --------
    >>> fenchel_young_loss(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), 2.0)[0]  # a lead of 1 is enough
    array([0.])
    """
    _require.shapes(S=(S, "... m"), Y=(Y, "... m"))
    require.weights(Y)
    P, _ = _weights(S, alpha, "error")
    moved = P - Y
    leads = np.where(moved == 0, 0, S - S.max(-1, keepdims=True)).astype(S.dtype)  # what no weight moves may be -inf
    L = (moved * leads).sum(-1) + tsallis_entropy(P, alpha)[0] - tsallis_entropy(Y, alpha)[0]  # eq:fenchel-young

    def vjp(dL):
        return sum_to((np.asarray(dL)[..., None] * moved).astype(S.dtype), S.shape)  # eq:fenchel-young-vjp

    return L, vjp


@differentiable
@half_in_float32
def entmax_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    alpha: Float[Array, "..."] | float = 1.5,
    bias: Float[Array, "..."] | None = None,
    empty_rows: str = "error",
    scale: float | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention whose weights are the alpha-entmax of the scores, most of them exactly 0.

    .. math:: O = \operatorname{entmax}_\alpha(Q K^\top / \sqrt{d_k})\, V

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.
    V : (..., m, v) values.
    mask : boolean, broadcasts to (..., n, m); True = may attend.
    alpha : a number from 1, where 1 is softmax, 1.5 `entmax15` and 2 `sparsemax`; or an array of numbers above 1 that
        broadcasts to (..., n, 1), such as (h, 1, 1) for one learned alpha a head.
    bias : broadcasts to (..., n, m), added to the scaled scores; None adds nothing.
    empty_rows : a query that may attend to nothing is an ``"error"``, or gets an output of zeros with ``"zero"``.
    scale : what multiplies the dot products; None is :math:`1/\sqrt{d_k}`.

    Returns
    -------
    O : (..., n, v); each row lies in the convex hull of the values of its support.
    vjp : dO -> (dQ, dK, dV), then dbias if there is a bias, then dalpha if alpha is an array.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no key, the mask is not boolean or does not broadcast, a row is empty,
        scale is not positive and finite, or alpha is below 1.

    References
    ----------
    Correia, Niculae and Martins (2019), section 3. Chapter 9, eq:entmax-attention.

    Examples
    --------
    >>> Q, K, V = np.array([[1.0]]), np.array([[2.0], [1.6], [-1.0]]), np.array([[1.0], [0.0], [100.0]])
    >>> entmax_attention(Q, K, V)[0]
    array([[0.64]])
    """

    def weigh(S):
        return _weights(_allow(S, mask), alpha, empty_rows)

    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:entmax-attention, eq:entmax-attention-vjp


def sparsemax_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    empty_rows: str = "error",
    scale: float | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention whose weights are the projection of the scores onto the simplex.

    .. math:: O = \operatorname{sparsemax}(Q K^\top / \sqrt{d_k})\, V

    Parameters
    ----------
    Q, K, V, mask, bias, empty_rows, scale : as in `entmax_attention`.

    Returns
    -------
    O : (..., n, v); each row lies in the convex hull of the values of its support.
    vjp : dO -> (dQ, dK, dV), and dbias after them if there is a bias.

    Raises
    ------
    ValueError
        As `entmax_attention`.

    References
    ----------
    Martins and Astudillo (2016), section 4. Chapter 9, eq:entmax-attention with alpha = 2.

    Examples
    --------
    >>> sparsemax_attention(np.array([[1.0]]), np.array([[2.0], [1.5]]), np.array([[1.0], [0.0]]))[0]
    array([[0.75]])
    """
    return entmax_attention(Q, K, V, mask, alpha=2.0, bias=bias, empty_rows=empty_rows, scale=scale)
