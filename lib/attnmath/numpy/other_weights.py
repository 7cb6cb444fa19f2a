"""Weights that are not a softmax: each key by itself, a place to put nothing, and columns that sum to one too."""

from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import other_weights as require
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to
from attnmath.numpy.weighed import weighed


def _allowed(S, mask):
    """The mask in the scores' shape; every row has a key."""
    _require.shapes(S=(S, "... n m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    _require.mask(mask, S.shape)
    return np.broadcast_to(mask, S.shape)


def _refuse_empty_rows(allowed):
    empty = ~allowed.any(-1)
    if empty.any():
        _require.no_empty_row(tuple(np.argwhere(empty)[0].tolist()), "attention(…, empty_rows='zero')")


@differentiable
@half_in_float32
def pointwise_weights(
    S: Float[Array, "... n m"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    kind: str = "sigmoid",
) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Weights of which each depends on its own score and on the number of keys only.

    .. math:: w_{ij} = \sigma(s_{ij} - \log m_i),\quad \frac{[s_{ij}]_+}{m_i},\quad \frac{[s_{ij}]_+^2}{m_i},\quad
              \frac{s_{ij}^2}{m_i}

    Parameters
    ----------
    S : (..., n, m) finite scores.
    mask : boolean, broadcasts to (..., n, m); True = may attend. Query i sees m_i keys; the others get weight 0.
    kind : ``"sigmoid"``, ``"relu"``, ``"squared_relu"`` or ``"square"``, in the order of the formula.

    Returns
    -------
    W : (..., n, m), >= 0. Rows do not sum to 1.
    vjp : dW -> dS.

    Raises
    ------
    ValueError
        If S is not floating point, there is no key, the kind is none of the four, the mask is not boolean or does not
        broadcast, or a query sees no key.

    References
    ----------
    Ramapuram et al. (2025), whose bias b is our minus log m; Wortsman et al. (2023), whose L is our m; Hua et al.
    (2022) for the squared ReLU. Chapter 9, eq:pointwise-weights.

    Examples
    --------
    >>> pointwise_weights(np.log([[3.0, 1.0, 0.6]]))[0]  # s = log 3 among three keys: e^s / (3 + e^s) = 1/2
    array([[0.5       , 0.25      , 0.16666667]])
    """
    _require.choice("kind", kind, require.KINDS)
    allowed = _allowed(S, mask)
    _refuse_empty_rows(allowed)
    seen = allowed.sum(-1, keepdims=True).astype(S.dtype)
    S = np.where(allowed, S, np.zeros((), S.dtype))
    if kind == "sigmoid":
        Z = S - np.log(seen)
        E = np.exp(-abs(Z))
        W = np.where(Z > 0, 1, E) / (1 + E)  # eq:pointwise-weights
        slope = E / (1 + E) ** 2
    elif kind == "relu":
        W, slope = np.maximum(S, 0) / seen, (S > 0) / seen
    elif kind == "squared_relu":
        W, slope = np.maximum(S, 0) ** 2 / seen, 2 * np.maximum(S, 0) / seen
    else:
        W, slope = S * S / seen, 2 * S / seen
    zero = np.zeros((), S.dtype)

    def vjp(dW):
        return np.where(allowed, slope * dW, zero)  # eq:pointwise-weights-vjp

    return np.where(allowed, W, zero), vjp


@differentiable
@half_in_float32
def sink_weights(
    S: Float[Array, "... n m"],
    sinks: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | bool = True,
) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Softmax with one more term in its denominator, so that a row may sum to less than 1.

    .. math:: w_{ij} = \frac{e^{s_{ij}}}{e^{b} + \sum_l e^{s_{il}}}

    Parameters
    ----------
    S : (..., n, m) scores in nats.
    sinks : b, broadcasts to S's leading axes, (h,) for one logit per head; None is 0, which is softmax off by one.
    mask : boolean, broadcasts to (..., n, m); True = may attend. A row that may attend to nothing is zeros.

    Returns
    -------
    W : (..., n, m) non-negative; a row sums to the sigmoid of its log-sum-exp less b.
    vjp : dW -> dS, or (dS, dsinks) if there are sinks.

    Raises
    ------
    ValueError
        If S is not floating point, there is no key, the sinks have another dtype or do not broadcast, or the mask is
        not boolean or does not broadcast.

    References
    ----------
    Miller (2023) for b = 0; OpenAI (2025) for one learned b per head. Chapter 9, eq:sink-weights.

    Examples
    --------
    >>> sink_weights(np.log([[1.0, 2.0]]))[0]
    array([[0.25, 0.5 ]])
    """
    allowed = _allowed(S, mask)
    require.sinks(sinks, S.shape[:-2], S)
    b = np.zeros((), S.dtype) if sinks is None else sinks[..., None, None]
    S = np.where(allowed, S, np.asarray(-np.inf, S.dtype))
    top = np.maximum(S.max(-1, keepdims=True), b)
    E, rest = np.exp(S - top), np.exp(b - top)
    Z = rest + E.sum(-1, keepdims=True)
    W = E / Z  # eq:sink-weights

    def vjp(dW):
        row = (W * dW).sum(-1, keepdims=True)
        dS = W * (dW - row)  # eq:sink-weights-vjp
        if sinks is None:
            return dS
        return dS, sum_to((-rest / Z * row).sum((-1, -2)), sinks.shape)

    return W, vjp


def _log_sum(X, axis):
    """The logarithm of the sum of exponentials along an axis that stays; 0 where there is no term."""
    top = X.max(axis, keepdims=True)
    nothing = np.isneginf(top)
    top = np.where(nothing, 0, top).astype(X.dtype)
    total = np.exp(X - top).sum(axis, keepdims=True)
    return np.where(nothing, 0, top + np.log(np.where(nothing, 1, total))).astype(X.dtype)


@differentiable
@half_in_float32
def sinkhorn_weights(
    S: Float[Array, "... n m"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    gradient: str = "unrolled",
    steps: int = 20,
) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Weights whose rows sum to 1 and whose columns all have the same sum, by Sinkhorn's iteration.

    .. math:: P_{ij} = e^{s_{ij} + u_i + v_j},\qquad e^{-u_i} = \sum_j e^{s_{ij} + v_j},\qquad
              c\,e^{-v_j} = \sum_i e^{s_{ij} + u_i},\qquad c = n/m

    Parameters
    ----------
    S : (..., n, m) finite scores in nats.
    mask : boolean, broadcasts to (..., n, m); True = may attend. Columns that no query sees stay 0, and m counts the
        others. With a causal mask the limit is the identity matrix.
    gradient : ``"unrolled"`` runs backward through the steps; ``"implicit"`` solves one linear system, and is the
        gradient of the limit: use it with enough steps. It is a first derivative only.
    steps : how often columns and then rows are normalised, after the rows once; 0 is softmax.

    Returns
    -------
    P : (..., n, m) non-negative; rows sum to 1, columns to n/m in the limit of many steps.
    vjp : dP -> dS.

    Raises
    ------
    ValueError
        If S is not floating point, there is no query or key, the gradient is none of the two, steps is no integer >= 0,
        the mask is not boolean or does not broadcast, or a row is empty.

    References
    ----------
    Sinkhorn (1964); Cuturi (2013), algorithm 1, in logarithms; Sander et al. (2022), where a step is half of
    ours. Chapter 9, eq:sinkhorn-weights.

    Examples
    --------
    >>> P, vjp = sinkhorn_weights(np.log([[4.0, 1.0], [1.0, 1.0]]))  # 4 * 1 / (1 * 1) = (2/3)^2 / (1/3)^2
    >>> P.round(4)
    array([[0.6667, 0.3333],
           [0.3333, 0.6667]])
    """
    _require.choice("gradient", gradient, require.GRADIENTS)
    require.steps(steps)
    allowed = _allowed(S, mask)
    _require.nonempty("S", S.shape, -2, S.shape[-2], "query")
    _refuse_empty_rows(allowed)
    there = allowed.any(-2, keepdims=True)
    c = (S.shape[-2] / np.maximum(there.sum(-1, keepdims=True), 1)).astype(S.dtype)  # what a column should sum to
    S = np.where(allowed, S, np.asarray(-np.inf, S.dtype))
    rows, columns = [-_log_sum(S, -1)], []
    for _ in range(steps):
        columns.append(
            np.where(there, np.log(c), 0).astype(S.dtype) - _log_sum(S + rows[-1], -2)
        )  # eq:sinkhorn-columns
        rows.append(-_log_sum(S + columns[-1], -1))  # eq:sinkhorn-rows
    P = np.exp(S + rows[-1] + (columns[-1] if steps else 0))  # eq:sinkhorn-weights

    def unrolled(dP):
        dS = dP * P
        du, dv = dS.sum(-1, keepdims=True), dS.sum(-2, keepdims=True)
        for t in reversed(range(steps)):
            A = np.exp(S + rows[t + 1] + columns[t]) * du  # eq:sinkhorn-rows-vjp
            dS, dv = dS - A, dv - A.sum(-2, keepdims=True)
            B = np.exp(S + rows[t] + columns[t]) / c * dv  # eq:sinkhorn-columns-vjp
            dS, du, dv = dS - B, -B.sum(-1, keepdims=True), np.zeros_like(dv)
        return dS - np.exp(S + rows[0]) * du

    def implicit(dP):
        G = dP * P
        return G - P * _balance(P, G, np.where(there, c, 1))  # eq:sinkhorn-implicit-vjp

    return P, unrolled if gradient == "unrolled" else implicit


def _balance(P, G, c):
    """x_i + y_j such that P (x + y) has the row sums and the column sums of G; P has the sums 1 and c."""
    root = c**-0.5
    half = root * P
    system = np.eye(P.shape[-1], dtype=P.dtype) - T(half) @ half  # singular: constants move from y to x
    inverse = np.linalg.pinv(system, rcond=10 * P.shape[-1] * np.finfo(P.dtype).eps, hermitian=True)
    a, b = G.sum(-1, keepdims=True), T(G.sum(-2, keepdims=True))
    y = T(root) * (inverse @ (T(root) * (b - T(P) @ a)))
    return a - P @ y + T(y)


@differentiable
@half_in_float32
def pointwise_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    kind: str = "sigmoid",
    scale: float | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention in which no key competes with another: sigmoid, ReLU or squared scores.

    .. math:: O_i = \sum_j w_{ij} v_j,\qquad w_{ij} = \sigma(q_i \cdot k_j / \sqrt{d_k} - \log m_i)

    Parameters
    ----------
    Q, K, V, mask, bias, scale : as in `attention`.
    kind : as in `pointwise_weights`.

    Returns
    -------
    O : (..., n, v); no average of the values, because weights do not sum to 1.
    vjp : dO -> (dQ, dK, dV), and dbias after them if there is a bias.

    Raises
    ------
    ValueError
        As `attention`, and if the kind is none of the four.

    References
    ----------
    Ramapuram et al. (2025); Wortsman et al. (2023). Chapter 9, eq:weighed.

    Examples
    --------
    >>> O, vjp = pointwise_attention(np.zeros((1, 2)), np.ones((3, 2)), np.array([[1.0], [3.0], [8.0]]))
    >>> O  # a score of 0 among three keys has the weight 1/4
    array([[3.]])
    """
    weigh = partial(pointwise_weights, mask=mask, kind=kind)
    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:weighed, eq:weighed-vjp


@differentiable
@half_in_float32
def sink_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    scale: float | None = None,
    sinks: Float[Array, "..."] | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention that may stay silent: one more key, whose score is b and whose value is zero.

    .. math:: O_i = \sum_j \frac{e^{s_{ij}}}{e^b + \sum_l e^{s_{il}}}\, v_j,\qquad s_{ij} = q_i \cdot k_j / \sqrt{d_k}

    Parameters
    ----------
    Q, K, V, mask, bias, scale : as in `attention`.
    sinks : b, as in `sink_weights`; None is 0.

    Returns
    -------
    O : (..., n, v), softmax attention times a gate between 0 and 1; zero for a query that may attend to nothing.
    vjp : dO -> (dQ, dK, dV), and after them dbias if there is a bias, and dsinks if there are sinks.

    Raises
    ------
    ValueError
        As `attention`, but for empty rows, and if the sinks have another dtype or do not broadcast.

    References
    ----------
    Miller (2023); OpenAI (2025); Xiao et al. (2024), section 3.3. Chapter 9, eq:weighed.

    Examples
    --------
    >>> O, vjp = sink_attention(np.zeros((1, 2)), np.ones((3, 2)), np.array([[1.0], [3.0], [8.0]]))
    >>> O
    array([[3.]])
    """
    weigh = partial(sink_weights, sinks=sinks, mask=mask)
    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:weighed, eq:weighed-vjp


@differentiable
@half_in_float32
def sinkhorn_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    gradient: str = "unrolled",
    scale: float | None = None,
    steps: int = 20,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention in which every key is used equally much: doubly stochastic weights.

    .. math:: O = P V,\qquad P = e^{S + u + v},\qquad P\,1 = 1,\qquad P^\top 1 = \tfrac nm 1

    Parameters
    ----------
    Q, K, V, mask, bias, scale : as in `attention`. A mask that is causal does not make the output causal: a row depends
        on later rows through the sums of columns.
    gradient, steps : as in `sinkhorn_weights`; 0 steps are softmax attention.

    Returns
    -------
    O : (..., n, v); each row lies in the convex hull of the rows of V.
    vjp : dO -> (dQ, dK, dV), and dbias after them if there is a bias.

    Raises
    ------
    ValueError
        As `attention` and `sinkhorn_weights`.

    References
    ----------
    Sander et al. (2022). Chapter 9, eq:weighed.

    Examples
    --------
    >>> Q = np.array([[1.0], [1.0]])  # both queries prefer the second key, and have to share it
    >>> sinkhorn_attention(Q, np.array([[0.0], [9.0]]), np.array([[1.0], [3.0]]))[0]
    array([[2.],
           [2.]])
    """
    weigh = partial(sinkhorn_weights, mask=mask, gradient=gradient, steps=steps)
    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:weighed, eq:weighed-vjp
