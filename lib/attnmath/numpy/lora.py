"""Low-rank adaptation (LoRA): a linear map that stays as it is, and a change of it that is a product of two factors."""

from jaxtyping import Float

from attnmath import _require
from attnmath._require.lora import rank
from attnmath.lora import lora_scale
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.linear import linear
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def lora_linear(
    X: Float[Array, "... n i"],
    W: Float[Array, "i o"],
    b: Float[Array, " o"],
    A: Float[Array, "... i r"],
    B: Float[Array, "... r o"],
    *,
    alpha: float = 1.0,
    stabilised: bool = False,
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""An affine map of each row, plus a change of rank at most r, whose matrix is never formed.

    .. math:: Y = X W + b + s\,(X A)\, B,\qquad s = \alpha / r

    It takes 2 n r (i + o) operations more than the map. With leading axes, A and B hold an adapter for each part of a
    batch.

    Parameters
    ----------
    X : (..., n, i) rows.
    W : (i, o) and b : (o,), the map. In training they stay, and their cotangents are not used.
    A : (..., i, r) and B : (..., r, o), the factors; 1 <= r <= min(i, o).
    alpha, stabilised : give s, see `attnmath.lora.lora_scale`.

    Returns
    -------
    Y : (..., n, o).
    vjp : dY -> (dX, dW, db, dA, dB).

    Raises
    ------
    ValueError
        If the widths do not agree, the dtypes differ, or no change of W has the rank r.

    References
    ----------
    Hu et al. (2022), equation 3, whose h, W_0, B, A are the transposes of our Y, W, A, B: what is called B there starts
    at 0, as our B does. Chapter 8, eq:lora.

    Examples
    --------
    >>> import numpy as np
    >>> X, W, b = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2)
    >>> Y, vjp = lora_linear(X, W, b, A=np.array([[1.0], [1.0]]), B=np.array([[0.0, 10.0]]))
    >>> Y
    array([[ 1., 32.]])
    """
    specs = {"A": (A, "... i r"), "B": (B, "... r o")}
    sizes = _require.shapes(X=(X, "... n i"), W=(W, "i o"), b=(b, "o"), **specs)
    rank(sizes["r"], W.shape)
    s = lora_scale(sizes["r"], alpha, stabilised)
    Y, linear_vjp = linear(X, W, b)
    H = X @ A
    shape = Y.shape
    Y = Y + s * H @ B  # eq:lora

    def vjp(dY):
        dX, dW, db = linear_vjp(sum_to(dY, shape))
        dH = s * dY @ T(B)
        dA, dB = T(X) @ dH, s * T(H) @ dY  # eq:lora-vjp-factors
        dX = dX + sum_to(dH @ T(A), X.shape)  # eq:lora-vjp-inputs
        return dX, dW, db, sum_to(dA, A.shape), sum_to(dB, B.shape)

    return Y, vjp


@differentiable
@half_in_float32
def lora_merge(
    W: Float[Array, "i o"],
    A: Float[Array, "... i r"],
    B: Float[Array, "... r o"],
    *,
    alpha: float = 1.0,
    stabilised: bool = False,
) -> tuple[Float[Array, "... i o"], Vjp]:
    r"""The adapter put into the matrix, after which the map costs what it did before.

    .. math:: W' = W + s\, A B

    Parameters
    ----------
    W : (i, o) the matrix.
    A, B, alpha, stabilised : as in `lora_linear`.

    Returns
    -------
    W' : (..., i, o).
    vjp : dW' -> (dW, dA, dB).

    Raises
    ------
    ValueError
        If the widths do not agree, the dtypes differ, or no change of W has the rank r.

    References
    ----------
    Hu et al. (2022), section 4.1. Chapter 8, eq:lora-merge.

    Examples
    --------
    >>> import numpy as np
    >>> lora_merge(np.eye(2), np.array([[1.0], [1.0]]), np.array([[0.0, 10.0]]))[0]
    array([[ 1., 10.],
           [ 0., 11.]])
    """
    sizes = _require.shapes(W=(W, "i o"), A=(A, "... i r"), B=(B, "... r o"))
    rank(sizes["r"], W.shape)
    s = lora_scale(sizes["r"], alpha, stabilised)

    def vjp(dM):
        dA, dB = s * dM @ T(B), s * T(A) @ dM  # eq:lora-merge-vjp
        return sum_to(dM, W.shape), sum_to(dA, A.shape), sum_to(dB, B.shape)

    return W + s * A @ B, vjp  # eq:lora-merge


@differentiable
@half_in_float32
def lora_unmerge(
    M: Float[Array, "... i o"],
    A: Float[Array, "... i r"],
    B: Float[Array, "... r o"],
    *,
    alpha: float = 1.0,
    stabilised: bool = False,
) -> tuple[Float[Array, "... i o"], Vjp]:
    r"""The matrix without its adapter, up to rounding: what `lora_merge` did, undone.

    .. math:: W = W' - s\, A B

    Parameters
    ----------
    M : (..., i, o) the merged matrix W'.
    A, B, alpha, stabilised : as in `lora_linear`.

    Returns
    -------
    W : (..., i, o). Keep a copy of the matrix instead if it has to come back bit for bit.
    vjp : dW -> (dW', dA, dB).

    Raises
    ------
    ValueError
        As `lora_merge`.

    References
    ----------
    Chapter 8, eq:lora-merge.

    Examples
    --------
    >>> import numpy as np
    >>> A, B = np.array([[1.0], [1.0]]), np.array([[0.0, 10.0]])
    >>> lora_unmerge(lora_merge(np.eye(2), A, B)[0], A, B)[0]
    array([[1., 0.],
           [0., 1.]])
    """
    sizes = _require.shapes(M=(M, "... i o"), A=(A, "... i r"), B=(B, "... r o"))
    rank(sizes["r"], M.shape[-2:], "M")
    s = lora_scale(sizes["r"], alpha, stabilised)

    def vjp(dW):
        dA, dB = -s * dW @ T(B), -s * T(A) @ dW
        return sum_to(dW, M.shape), sum_to(dA, A.shape), sum_to(dB, B.shape)

    return M - s * A @ B, vjp
