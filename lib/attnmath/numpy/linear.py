"""Linear maps, with and without a bias."""

import math

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.types import Array, Vjp, differentiable


@differentiable
def linear(
    X: Float[Array, "... n i"], W: Float[Array, "i o"], b: Float[Array, " o"]
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""An affine map of each row.

    .. math:: Y = X W + b

    Parameters
    ----------
    X : (..., n, i) rows.
    W : (i, o); the transpose of ``torch.nn.Linear.weight``.
    b : (o,).

    Returns
    -------
    Y : (..., n, o).
    vjp : dY -> (dX, dW, db).

    Raises
    ------
    ValueError
        If the widths do not agree or the dtypes differ.

    References
    ----------
    Appendix B, eq:linear.

    Examples
    --------
    >>> Y, vjp = linear(np.array([[1.0, 2.0]]), np.array([[1.0], [10.0]]), np.array([0.5]))
    >>> Y
    array([[21.5]])
    """
    _require.shapes(X=(X, "... n i"), W=(W, "i o"), b=(b, "o"))
    n = math.prod(X.shape[:-1])  # not -1, which NumPy cannot resolve where the width is 0
    rows = X.reshape(n, X.shape[-1])  # one product of two matrices, however many leading axes
    total = np.promote_types(b.dtype, np.float32)  # float16 would stop counting at 2048
    Y = rows @ W
    Y += b  # eq:linear

    def vjp(dY):
        dY = dY.reshape(n, dY.shape[-1])
        dX, dW, db = dY @ W.T, rows.T @ dY, dY.sum(0, total)  # eq:linear-vjp
        return dX.reshape(X.shape), dW, db.astype(b.dtype, copy=False)

    return Y.reshape(*X.shape[:-1], W.shape[1]), vjp


@differentiable
def affine(X: Float[Array, "... n i"], leaf: dict) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""`linear` with its parameters in a dict, where the bias may be missing.

    .. math:: Y = X W + b,\qquad b = 0 \text{ if the leaf has none}

    Parameters
    ----------
    X : (..., n, i) rows.
    leaf : ``{"weight": (i, o), "bias": (o,)}`` or ``{"weight": (i, o)}``.

    Returns
    -------
    Y : (..., n, o).
    vjp : dY -> (dX, dleaf); dleaf has the leaf's keys.

    Raises
    ------
    ValueError
        If the leaf has other keys, the widths do not agree or the dtypes differ.

    References
    ----------
    Appendix B, eq:linear.

    Examples
    --------
    >>> Y, vjp = affine(np.array([[1.0, 2.0]]), {"weight": np.array([[1.0], [10.0]])})
    >>> Y
    array([[21.]])
    """
    _require.leaf(leaf)
    W = leaf["weight"]
    b = leaf["bias"] if "bias" in leaf else np.zeros(np.shape(W)[-1:], getattr(W, "dtype", None))
    Y, linear_vjp = linear(X, W, b)

    def vjp(dY):
        dX, dW, db = linear_vjp(dY)
        return dX, {"weight": dW} | ({"bias": db} if "bias" in leaf else {})

    return Y, vjp
