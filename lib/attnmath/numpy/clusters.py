"""Words as particles: the velocity that self-attention gives to points on a sphere."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.attention import attention
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable


@differentiable
@half_in_float32
def sphere_attention_flow(
    X: Float[Array, "... n d"],
    B: Float[Array, "d d"] | None = None,
    V: Float[Array, "d d"] | None = None,
    mask: Bool[Array, "..."] | bool = True,
    *,
    beta: float = 1.0,
    attend: Callable = attention,
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""The velocity of tokens on the unit sphere, each pulled along the sphere towards what it attends to.

    .. math:: F_i = O_i - \langle x_i, O_i\rangle\, x_i,\qquad O_i = \sum_j P_{ij}\, x_j V,\qquad
              P = \operatorname{softmax}(\beta\, X B X^\top)

    Parameters
    ----------
    X : (..., n, d) tokens, rows of length 1; for other rows the formula is computed as it stands.
    B : (d, d), the queries' matrix times the transpose of the keys'; None is the identity.
    V : (d, d), the values' matrix; None is the identity, and minus the identity lets tokens repel each other.
    mask : boolean, broadcasts to (..., n, n); True = may attend.
    beta : :math:`\beta`, the inverse temperature; 0 attends to all tokens alike.
    attend : a core, ``attend(Q, K, V, mask, scale=1.0) -> (O, vjp)``.

    Returns
    -------
    F : (..., n, d), for rows of length 1 at right angles to them.
    vjp : dF -> dX, and after it dB and dV, of those that are given.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, beta is not finite, and as ``attend``.

    References
    ----------
    Geshkovski et al. (2025), equation (SA) for one head, whose Q^T K is B and whose V acts on columns, so that it is
    the transpose of ours. Chapter 9, eq:sphere-flow.

    Examples
    --------
    >>> F, vjp = sphere_attention_flow(np.array([[1.0, 0.0], [0.0, 1.0]]), beta=0.0)
    >>> F
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    given = {name: (A, "d d") for name, A in (("B", B), ("V", V)) if A is not None}
    _require.shapes(X=(X, "... n d"), **given)
    if not np.isfinite(beta):
        raise ValueError(f"beta is {beta}; it must be finite")
    XB, XV = (X if A is None else X @ A for A in (B, V))
    O, attend_vjp = attend(X.dtype.type(beta) * XB, X, XV, mask, scale=1.0)
    along = (X * O).sum(-1, keepdims=True)
    F = O - along * X  # eq:sphere-flow

    def vjp(dF):
        turn = (X * dF).sum(-1, keepdims=True)
        dQ, dK, dO_X = attend_vjp(dF - turn * X)
        dQ = X.dtype.type(beta) * dQ
        dX = dK + (dQ if B is None else dQ @ T(B)) + (dO_X if V is None else dO_X @ T(V))
        dX = dX - along * dF - turn * O  # eq:sphere-flow-vjp
        rows = X.reshape(-1, X.shape[-1])
        dmatrices = (T(rows) @ dA.reshape(rows.shape) for dA, A in ((dQ, B), (dO_X, V)) if A is not None)
        return (dX, *dmatrices) if given else dX

    return F, vjp
