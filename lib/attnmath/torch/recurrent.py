"""A plain recurrent network: what attention is measured against."""

import torch
from jaxtyping import Float

from attnmath import _require
from attnmath.torch.types import Array


def rnn(
    X: Float[Array, "... n d"],
    h0: Float[Array, "... h"],
    W: Float[Array, "d h"],
    U: Float[Array, "h h"],
    b: Float[Array, " h"],
) -> Float[Array, "... n h"]:
    r"""Elman's network, one step per position.

    .. math:: h_t = \tanh(x_t W + h_{t-1} U + b)

    Parameters, errors and source as in `attnmath.numpy.recurrent.rnn`.

    Examples
    --------
    >>> rnn(torch.ones(2, 1), torch.zeros(1), torch.ones(1, 1), torch.zeros(1, 1), torch.zeros(1)).ravel()
    tensor([0.7616, 0.7616])
    """
    _require.shapes(X=(X, "... n d"), h0=(h0, "... h"), W=(W, "d h"), U=(U, "h h"), b=(b, "h"))
    if X.shape[:-2] != h0.shape[:-1]:
        raise ValueError(f"X has shape {tuple(X.shape)}, h0 {tuple(h0.shape)}; they share their leading axes")
    A = X @ W + b
    h, H = h0, []
    for t in range(X.shape[-2]):
        h = torch.tanh(A[..., t, :] + h @ U)  # eq:rnn
        H.append(h)
    return torch.stack(H, -2) if H else A
