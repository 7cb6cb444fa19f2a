"""A plain recurrent network: what attention is measured against."""

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
def rnn(
    X: Float[Array, "... n d"],
    h0: Float[Array, "... h"],
    W: Float[Array, "d h"],
    U: Float[Array, "h h"],
    b: Float[Array, " h"],
) -> tuple[Float[Array, "... n h"], Vjp]:
    r"""Elman's network, one step per position.

    .. math:: h_t = \tanh(x_t W + h_{t-1} U + b)

    Parameters
    ----------
    X : (..., n, d) inputs.
    h0 : (..., h) initial state, with X's leading axes.
    W, U, b : (d, h), (h, h), (h,).

    Returns
    -------
    H : (..., n, h), entries in (-1, 1).
    vjp : dH -> (dX, dh0, dW, dU, db), by backpropagation through time.

    Raises
    ------
    ValueError
        If the widths do not agree, the leading axes differ, or the dtypes differ.

    References
    ----------
    Elman (1990). Chapter 1, eq:rnn.

    Examples
    --------
    >>> H, vjp = rnn(np.ones((2, 1)), np.zeros(1), np.ones((1, 1)), np.zeros((1, 1)), np.zeros(1))
    >>> H.ravel().round(4)
    array([0.7616, 0.7616])
    """
    _require.shapes(X=(X, "... n d"), h0=(h0, "... h"), W=(W, "d h"), U=(U, "h h"), b=(b, "h"))
    if X.shape[:-2] != h0.shape[:-1]:
        raise ValueError(f"X has shape {X.shape}, h0 {h0.shape}; they share their leading axes")
    A = X @ W + b
    H = np.empty((*X.shape[:-1], len(b)), X.dtype)
    h = h0
    for t in range(X.shape[-2]):
        h = H[..., t, :] = np.tanh(A[..., t, :] + h @ U)  # eq:rnn

    def vjp(dH):
        dA, dh = np.empty_like(H), np.zeros_like(h0)
        for t in reversed(range(X.shape[-2])):
            dA[..., t, :] = (dH[..., t, :] + dh) * (1 - H[..., t, :] ** 2)
            dh = dA[..., t, :] @ U.T  # eq:rnn-vjp
        before = np.concatenate([h0[..., None, :], H[..., :-1, :]], -2)
        return dA @ W.T, dh, sum_to(T(X) @ dA, W.shape), sum_to(T(before) @ dA, U.shape), sum_to(dA, b.shape)

    return H, vjp
