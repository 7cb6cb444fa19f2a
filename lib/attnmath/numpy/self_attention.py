"""One head of self-attention: queries, keys and values are three linear maps of one sequence."""

from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.attention import attention
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def self_attention(
    X: Float[Array, "... n d"],
    Wq: Float[Array, "d k"],
    Wk: Float[Array, "d k"],
    Wv: Float[Array, "d v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    empty_rows: str = "error",
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention of a sequence to itself.

    .. math:: O = \operatorname{attention}(X W_q,\; X W_k,\; X W_v)

    Parameters
    ----------
    X : (..., n, d) one row per position.
    Wq, Wk : (d, k) what a position asks for, and what it offers.
    Wv : (d, v) what it says when it is attended to.
    mask : boolean, broadcasts to (..., n, n); True = may attend.
    empty_rows : a position that may attend to nothing is an ``"error"``, or gets zeros with ``"zero"``.

    Returns
    -------
    O : (..., n, v).
    vjp : dO -> (dX, dWq, dWk, dWv).

    Raises
    ------
    ValueError
        If the widths do not agree, the dtypes differ, or the mask is wrong.

    References
    ----------
    Vaswani et al. (2017), section 3.2; Lin et al. (2017). Chapter 3, eq:self-attention.

    Examples
    --------
    >>> import numpy as np
    >>> I = np.eye(2)
    >>> O, vjp = self_attention(np.array([[2.0, 0.0], [0.0, 2.0]]), I, I, I)
    >>> O.round(3)
    array([[1.888, 0.112],
           [0.112, 1.888]])
    """
    _require.shapes(X=(X, "... n d"), Wq=(Wq, "d k"), Wk=(Wk, "d k"), Wv=(Wv, "d v"))
    Q, K, V = X @ Wq, X @ Wk, X @ Wv  # eq:self-projections
    O, attention_vjp = attention(Q, K, V, mask, empty_rows=empty_rows)  # eq:self-attention

    def vjp(dO):
        dQ, dK, dV = attention_vjp(dO)
        dX = dQ @ Wq.T + dK @ Wk.T + dV @ Wv.T  # eq:self-attention-vjp
        return dX, *(sum_to(T(X) @ dY, W.shape) for dY, W in ((dQ, Wq), (dK, Wk), (dV, Wv)))

    return O, vjp
