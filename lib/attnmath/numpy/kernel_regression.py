"""Attention as kernel regression: lines instead of averages, errors without a query's own value, Taylor's features."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require, monomials
from attnmath._require import kernel_regression as require
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.softmax import softmax
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def local_linear_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bandwidth: float = 1.0,
    ridge: float = 1e-6,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Gaussian attention that fits a line around each query, and answers with the line's value at the query.

    .. math:: O_i = a,\quad (a, b) = \arg\min \sum_j w_{ij} \lVert v_j - a - b(k_j - q_i)\rVert^2
              + \rho h^2 \lVert b\rVert^2,\quad w_i = \operatorname{softmax}_j(-\lVert k_j - q_i\rVert^2 / 2h^2)

    With b = 0 it would be the weighted average. It reproduces values that are a linear function of the keys, also
    where all keys lie on one side of the query. Its weights sum to 1, and some may be negative.

    Parameters
    ----------
    Q : (..., n, k) queries, places in the space of the keys.
    K : (..., m, k) keys.
    V : (..., m, v) values.
    mask : boolean, broadcasts to (..., n, m); True = may attend.
    bandwidth : h > 0, in the unit of the keys.
    ridge : rho > 0, holds back the slopes in directions in which the keys that count do not differ. In float32 it
        should stay above 1e-6 unless there are such keys in all directions.

    Returns
    -------
    O : (..., n, v). It holds n m k numbers.
    vjp : dO -> (dQ, dK, dV).

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no key, the mask is not boolean or does not broadcast, a row is empty, or
        bandwidth or ridge is not positive.

    References
    ----------
    Cleveland (1979); Fan (1992), equation 2.2, whose h_n is our bandwidth. Chapter 9, eq:local-linear.

    Examples
    --------
    >>> K = np.array([[4.0], [5.0], [6.0]])
    >>> local_linear_attention(np.array([[4.0]]), K, 100 * K)[0].round(2)
    array([[400.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    _require.positive("bandwidth", bandwidth)
    _require.positive("ridge", ridge)
    D = K[..., None, :, :] - Q[..., :, None, :]  # (..., n, m, k), from each query to each key
    S = (D * D).sum(-1) / (-2 * bandwidth**2)
    w, softmax_vjp = softmax(S if mask is True else np.where(mask, S, np.asarray(-np.inf, S.dtype)))
    mean = (w[..., None, :] @ D)[..., 0, :]  # (..., n, k)
    E = D - mean[..., None, :]
    A = T(E) @ (w[..., None] * E) + (ridge * bandwidth**2) * np.eye(sizes["k"], dtype=D.dtype)
    u = np.linalg.solve(A, mean[..., None])[..., 0]
    tilt = 1 - (E @ u[..., None])[..., 0]  # (..., n, m)
    L = w * tilt  # eq:local-linear

    def vjp(dO):
        dL = sum_to(dO @ T(V), L.shape)
        dtilt = dL * w
        du = -(dtilt[..., None, :] @ E)[..., 0, :]
        g = np.linalg.solve(A, du[..., None])[..., 0]
        Eu, Eg = 1 - tilt, (E @ g[..., None])[..., 0]
        dw = dL * tilt - Eg * Eu
        dE = -(dtilt + w * Eg)[..., None] * u[..., None, :] - (w * Eu)[..., None] * g[..., None, :]
        dmean = g - dE.sum(-2)
        dw = dw + (D @ dmean[..., None])[..., 0]
        dS = softmax_vjp(dw)
        dD = dE + w[..., None] * dmean[..., None, :] - (dS / bandwidth**2)[..., None] * D  # eq:local-linear-vjp
        return sum_to(-dD.sum(-2), Q.shape), sum_to(dD.sum(-3), K.shape), sum_to(T(L) @ dO, V.shape)

    return L @ V, vjp


@differentiable
@half_in_float32
def leave_one_out(P: Float[Array, "... n n"], V: Float[Array, "... n v"]) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""What each value would have differed from its prediction, had the prediction been made without it.

    .. math:: R_i = v_i - \frac{\sum_{j \ne i} P_{ij} v_j}{\sum_{j \ne i} P_{ij}} = \frac{v_i - (PV)_i}{1 - P_{ii}}

    Parameters
    ----------
    P : (..., n, n), rows sum to 1: row i predicts at key i. The weights of attention, or of local lines.
    V : (..., n, v) values.

    Returns
    -------
    R : (..., n, v), the errors of n predictions, each from the other n - 1 pairs.
    vjp : dR -> (dP, dV); the diagonal of dP is 0.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, or a row gives nothing to the others.

    References
    ----------
    Craven and Wahba (1979), lemma 3.1, for a smoother with a penalty. Chapter 9, eq:leave-one-out.

    Examples
    --------
    >>> P, V = np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]), np.array([[1.0], [2.0], [4.0]])
    >>> leave_one_out(P, V)[0].T
    array([[-2., -2.,  3.]])
    """
    _require.shapes(P=(P, "... n n"), V=(V, "... n v"))
    others = np.where(np.eye(P.shape[-1], dtype=bool), np.zeros((), P.dtype), P)
    s = others.sum(-1, keepdims=True)
    if (s == 0).any():
        require.no_others(tuple(np.argwhere(s[..., 0] == 0)[0].tolist()))
    others = others / s
    predicted = others @ V

    def vjp(dR):
        dP = ((dR * predicted).sum(-1, keepdims=True) - dR @ T(V)) / s
        dP = np.where(np.eye(P.shape[-1], dtype=bool), np.zeros((), P.dtype), dP)  # eq:leave-one-out-vjp
        return sum_to(dP, P.shape), sum_to(dR - T(others) @ dR, V.shape)

    return V - predicted, vjp  # eq:leave-one-out


@differentiable
@half_in_float32
def taylor_features(X: Float[Array, "... n k"], degree: int = 2) -> tuple[Float[Array, "... n f"], Vjp]:
    r"""Monomials whose dot products are Taylor's polynomial of the exponential of a dot product.

    .. math:: \phi(x)_\alpha = \frac{x^\alpha}{\sqrt{\alpha!}},\qquad
              \phi(x) \cdot \phi(y) = \sum_{m \le M} \frac{(x \cdot y)^m}{m!}

    Parameters
    ----------
    X : (..., n, k) queries or keys; divide both by the fourth root of k for the kernel of attention.
    degree : M >= 1. With an even M all products are positive, with an odd one some are not.

    Returns
    -------
    F : (..., n, f), f the number of monomials, k + M over M.
    vjp : dF -> dX.

    Raises
    ------
    ValueError
        If X is no array of floats, or the degree is no integer >= 1.

    References
    ----------
    Cotter, Keshet and Srebro (2011), section 4. Chapter 9, eq:taylor-features.

    Examples
    --------
    >>> F, vjp = taylor_features(np.array([[0.5, 1.0], [1.0, 0.5]]), degree=2)
    >>> F.shape, float(F[0] @ F[1])  # 1 + 1 + 1/2
    ((2, 6), 2.5)
    """
    k = _require.shapes(X=(X, "... n k"))["k"]
    _require.count("degree", degree)
    alpha = monomials.exponents(k, int(degree))
    powers = np.stack([X**e for e in range(degree + 1)], -1)  # (..., n, k, M + 1)
    lengths = monomials.lengths(k, int(degree)).astype(X.dtype)
    F = powers[..., np.arange(k), alpha].prod(-1) * lengths  # eq:taylor-features

    def vjp(dF):
        dX = np.empty_like(X)
        for i, (has, less, exponent) in enumerate(monomials.lower(k, int(degree))):
            dX[..., i] = (dF[..., has] * F[..., less]) @ np.sqrt(exponent).astype(X.dtype)  # eq:taylor-features-vjp
        return dX

    return F, vjp
