"""A causal convolution: the other layer that attention is measured against."""

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
def causal_conv(
    X: Float[Array, "... n d"], W: Float[Array, "r d o"], b: Float[Array, " o"], dilation: int = 1
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""Each position reads itself and r - 1 earlier ones, ``dilation`` steps apart.

    .. math:: y_t = b + \sum_{s=0}^{r-1} x_{t - s\delta}\, W_s,\qquad x_t = 0 \text{ before the start}

    Parameters
    ----------
    X : (..., n, d).
    W : (r, d, o), r >= 1; ``W[0]`` meets the present, ``W[s]`` the position s steps of the dilation before.
    b : (o,).
    dilation : :math:`\delta`, a positive integer.

    Returns
    -------
    Y : (..., n, o).
    vjp : dY -> (dX, dW, db).

    Raises
    ------
    ValueError
        If the widths do not agree, the dtypes differ, r is 0, or the dilation is not positive.

    References
    ----------
    van den Oord et al. (2016), section 2.1. Chapter 3, eq:causal-conv. ``F.conv1d`` holds the taps in the opposite
    order, as (o, d, r).

    Examples
    --------
    >>> Y, vjp = causal_conv(np.array([[1.0], [2.0], [3.0]]), np.array([[[1.0]], [[10.0]]]), np.zeros(1))
    >>> Y.ravel()
    array([ 1., 12., 23.])
    """
    _require.shapes(X=(X, "... n d"), W=(W, "r d o"), b=(b, "o"))
    _require.nonempty("W", W.shape, 0, len(W), "tap")
    _require.count("dilation", dilation)
    past = [_delayed(X, s * dilation) for s in range(len(W))]
    Y = sum((Xs @ Ws for Xs, Ws in zip(past, W, strict=True)), b)  # eq:causal-conv

    def vjp(dY):
        dX = sum(_advanced(dY @ Ws.T, s * dilation) for s, Ws in enumerate(W))  # eq:causal-conv-vjp
        dW = np.stack([sum_to(T(Xs) @ dY, W.shape[1:]) for Xs in past])
        return dX, dW, sum_to(dY, b.shape)

    return Y, vjp


def _delayed(X, steps):
    """Row t becomes row t + steps; zeros come in at the start."""
    Y = np.zeros_like(X)
    Y[..., steps:, :] = X[..., : max(X.shape[-2] - steps, 0), :]
    return Y


def _advanced(Y, steps):
    """The transpose of `_delayed`: row t + steps becomes row t."""
    X = np.zeros_like(Y)
    X[..., : max(Y.shape[-2] - steps, 0), :] = Y[..., steps:, :]
    return X
