"""Scores from a distance: who is near is heard, with a bandwidth for each head."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import metric_attention as require
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


def _width(bandwidth, Q):
    """The bandwidth as an array; a plain number takes the dtype of the queries."""
    return np.asarray(bandwidth, Q.dtype) if isinstance(bandwidth, int | float) else bandwidth


@differentiable
@half_in_float32
def metric_score(
    Q: Float[Array, "... n k"], K: Float[Array, "... m k"], bandwidth: Float[Array, "..."] | float
) -> tuple[Float[Array, "... n m"], Vjp]:
    r"""Scores that fall with the squared distance between query and key.

    .. math:: S_{ij} = -\frac{\lVert q_i - k_j\rVert^2}{2\sigma^2}

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.
    bandwidth : :math:`\sigma > 0`, the unit in which distances count; a number, or an array that broadcasts with the
        leading axes, such as (h,) for a bandwidth of each head.

    Returns
    -------
    S : (..., n, m), at most 0. Distances are measured from the mean key, so that a common offset costs no digits.
    vjp : dS -> (dQ, dK, dbandwidth).

    Raises
    ------
    ValueError
        If the widths k differ, there is no key, leading axes do not broadcast, dtypes differ, or a bandwidth is not
        positive and finite; pass the exponential of a learned logarithm.

    References
    ----------
    Ruan and Zhang (2024) ask for a score from a learned metric; this is the Euclidean one. Chapter 9, eq:metric-score.

    Examples
    --------
    >>> S, vjp = metric_score(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [3.0, 0.0]]), 1.0)
    >>> S
    array([[-0.5, -2. ]])
    """
    bandwidth = _width(bandwidth, Q)
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), bandwidth=(bandwidth, "..."))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    require.bandwidth(bandwidth, np.isfinite)
    shapes, centre, width = (Q.shape, K.shape), K.mean(-2, keepdims=True), bandwidth[..., None, None]
    Q, K = (Q - centre) / width, (K - centre) / width
    D = (Q * Q).sum(-1)[..., :, None] + (K * K).sum(-1)[..., None, :] - 2 * (Q @ T(K))
    S = -np.maximum(D, 0) / 2  # eq:metric-score

    def vjp(dS):
        dQ = (dS @ K - dS.sum(-1)[..., None] * Q) / width  # eq:metric-score-vjp
        dK = (T(dS) @ Q - dS.sum(-2)[..., None] * K) / width
        dwidth = -2 * sum_to(dS * S, width.shape).reshape(bandwidth.shape) / bandwidth
        return sum_to(dQ, shapes[0]), sum_to(dK, shapes[1]), dwidth

    return S, vjp


@differentiable
@half_in_float32
def metric_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    bandwidth: Float[Array, "..."] | float,
    mask: Bool[Array, "..."] | bool = True,
    *,
    empty_rows: str = "error",
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention whose scores fall with the squared distance between query and key.

    .. math:: O_i = \sum_j \operatorname{softmax}_j\Bigl(-\frac{\lVert q_i - k_j\rVert^2}{2\sigma^2}\Bigr) V_j
              = \sum_j \operatorname{softmax}_j\Bigl(\frac{q_i\cdot k_j}{\sigma^2}
              - \frac{\lVert k_j\rVert^2}{2\sigma^2}\Bigr) V_j

    It is computed in the second form, by `attention_fused` with a bias of each key, so that no n x m array is kept. As
    a core it is given its bandwidth: ``partial(metric_attention, bandwidth=1.0)``.

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.
    V : (..., m, v) values.
    bandwidth : as in `metric_score`.
    mask : boolean, broadcasts to (..., n, m); True = may attend.
    empty_rows : a query that may attend to nothing is an ``"error"``, or gets an output of zeros with ``"zero"``.

    Returns
    -------
    O : (..., n, v); each row lies in the convex hull of the rows of V.
    vjp : dO -> (dQ, dK, dV, dbandwidth).

    Raises
    ------
    ValueError
        As `metric_score` and `attention_fused`.

    References
    ----------
    Ruan and Zhang (2024) ask for a score from a learned metric. Chapter 9, eq:metric-attention.

    Examples
    --------
    >>> Q, K, V = np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[1.0], [0.0]])
    >>> metric_attention(Q, K, V, 1.0)[0].round(4)
    array([[0.8808]])
    """
    bandwidth = _width(bandwidth, Q)
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"), bandwidth=(bandwidth, "..."))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    require.bandwidth(bandwidth, np.isfinite)
    shapes, centre, width = (Q.shape, K.shape), K.mean(-2, keepdims=True), bandwidth[..., None, None]
    Q, K = (Q - centre) / width, (K - centre) / width
    bias = -(K * K).sum(-1)[..., None, :] / 2
    O, core_vjp = attention_fused(Q, K, V, mask, bias=bias, empty_rows=empty_rows, scale=1.0)  # eq:metric-attention

    def vjp(dO):
        dQ, dK, dV, dbias = core_vjp(dO)
        dK = dK - T(dbias) * K  # eq:metric-attention-vjp
        dwidth = -(sum_to(dQ * Q, width.shape) + sum_to(dK * K, width.shape)).reshape(bandwidth.shape) / bandwidth
        return sum_to(dQ / width, shapes[0]), sum_to(dK / width, shapes[1]), dV, dwidth

    return O, vjp
