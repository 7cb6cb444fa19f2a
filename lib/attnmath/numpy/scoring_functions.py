"""Four ways to score a query against a key. Rows are vectors, so the text's W^T q is q @ W here."""

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
def dot_score(Q: Float[Array, "... n k"], K: Float[Array, "... m k"]) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Dot-product scores.

    .. math:: S = Q K^\top

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.

    Returns
    -------
    S : (..., n, m).
    vjp : dS -> (dQ, dK).

    Raises
    ------
    ValueError
        If the widths k differ, the leading axes do not broadcast, or the dtypes are not one floating type.

    References
    ----------
    Luong et al. (2015), section 3.1, "dot". Chapter 2, eq:dot-score.

    Examples
    --------
    >>> S, vjp = dot_score(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [2.0, -1.0]]))
    >>> S
    array([[11.,  0.]])
    """
    _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"))
    S = Q @ T(K)  # eq:dot-score

    def vjp(dS):
        dQ, dK = dS @ K, T(dS) @ Q  # eq:dot-score-vjp
        return sum_to(dQ, Q.shape), sum_to(dK, K.shape)

    return S, vjp


@differentiable
@half_in_float32
def scaled_dot_score(
    Q: Float[Array, "... n k"], K: Float[Array, "... m k"], *, scale: float | None = None
) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Scaled dot-product scores.

    .. math:: S = c\, Q K^\top,\qquad c = 1/\sqrt{d_k}

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.
    scale : c > 0; None is :math:`1/\sqrt{d_k}`. T5 uses 1, Gemma-2 a number of its own.

    Returns
    -------
    S : (..., n, m), with None of variance 1 if queries and keys have independent entries of mean 0 and variance 1.
    vjp : dS -> (dQ, dK).

    Raises
    ------
    ValueError
        As `dot_score`, and if k is 0 or the scale is not positive and finite.

    References
    ----------
    Vaswani et al. (2017), equation 1. Chapter 2, eq:scaled-dot-score.

    Examples
    --------
    >>> S, vjp = scaled_dot_score(np.ones((1, 4)), np.ones((2, 4)))
    >>> S
    array([[2., 2.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"))
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    c = factor(scale, sizes["k"])
    S = c * (Q @ T(K))  # eq:scaled-dot-score

    def vjp(dS):
        dQ, dK = c * (dS @ K), c * (T(dS) @ Q)  # eq:scaled-dot-score-vjp
        return sum_to(dQ, Q.shape), sum_to(dK, K.shape)

    return S, vjp


@differentiable
def multiplicative_score(
    Q: Float[Array, "... n q"], K: Float[Array, "... m k"], W: Float[Array, "q k"]
) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Bilinear scores; queries and keys may differ in width.

    .. math:: S = Q W K^\top

    Parameters
    ----------
    Q : (..., n, q) queries.
    K : (..., m, k) keys.
    W : (q, k) learned.

    Returns
    -------
    S : (..., n, m).
    vjp : dS -> (dQ, dK, dW).

    Raises
    ------
    ValueError
        If the widths do not meet W's, the leading axes do not broadcast, or the dtypes differ.

    References
    ----------
    Luong et al. (2015), section 3.1, "general", :math:`h_t^\top W_a \bar h_s`. Chapter 2, eq:multiplicative-score.

    Examples
    --------
    >>> S, vjp = multiplicative_score(np.array([[1.0, 2.0]]), np.array([[3.0]]), np.array([[1.0], [10.0]]))
    >>> S
    array([[63.]])
    """
    _require.shapes(Q=(Q, "... n q"), K=(K, "... m k"), W=(W, "q k"))
    QW = Q @ W
    S = QW @ T(K)  # eq:multiplicative-score

    def vjp(dS):
        dQ, dK, dW = dS @ K @ W.T, T(dS) @ QW, T(Q) @ dS @ K  # eq:multiplicative-score-vjp
        return sum_to(dQ, Q.shape), sum_to(dK, K.shape), sum_to(dW, W.shape)

    return S, vjp


@differentiable
@half_in_float32
def additive_score(
    Q: Float[Array, "... n q"],
    K: Float[Array, "... m k"],
    Wq: Float[Array, "q a"],
    Wk: Float[Array, "k a"],
    w: Float[Array, " a"],
) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Scores of a network with one hidden layer.

    .. math:: S_{ij} = \tanh(Q_i W_q + K_j W_k)\, w

    Parameters
    ----------
    Q : (..., n, q) queries.
    K : (..., m, k) keys.
    Wq, Wk, w : (q, a), (k, a), (a,) learned; a is the hidden width.

    Returns
    -------
    S : (..., n, m), each at most the 1-norm of w in absolute value.
    vjp : dS -> (dQ, dK, dWq, dWk, dw). It holds n m a numbers, where the other scores hold none of that size.

    Raises
    ------
    ValueError
        If the widths do not agree, the leading axes do not broadcast, or the dtypes differ.

    References
    ----------
    Bahdanau et al. (2015), appendix A.1.2, :math:`v_a^\top\tanh(W_a s_{i-1} + U_a h_j)`. Chapter 2,
    eq:additive-score.

    Examples
    --------
    >>> S, vjp = additive_score(np.zeros((1, 2)), np.ones((1, 2)), np.ones((2, 1)), np.ones((2, 1)), np.ones(1))
    >>> S.round(3)
    array([[0.964]])
    """
    _require.shapes(Q=(Q, "... n q"), K=(K, "... m k"), Wq=(Wq, "q a"), Wk=(Wk, "k a"), w=(w, "a"))
    H = np.tanh((Q @ Wq)[..., :, None, :] + (K @ Wk)[..., None, :, :])  # (..., n, m, a)
    S = H @ w  # eq:additive-score

    def vjp(dS):
        dA = dS[..., None] * w * (1 - H * H)  # eq:additive-score-vjp
        dQ, dK = dA.sum(-2), dA.sum(-3)  # cotangents of Q Wq and K Wk
        dw = (dS[..., None] * H).sum(tuple(range(H.ndim - 1)))
        return (
            sum_to(dQ @ Wq.T, Q.shape),
            sum_to(dK @ Wk.T, K.shape),
            sum_to(T(Q) @ dQ, Wq.shape),
            sum_to(T(K) @ dK, Wk.shape),
            dw,
        )

    return S, vjp
