"""A causal convolution: the other layer that attention is measured against."""

import torch.nn.functional as F
from jaxtyping import Float

from attnmath import _require
from attnmath.torch.types import Array


def causal_conv(
    X: Float[Array, "... n d"], W: Float[Array, "r d o"], b: Float[Array, " o"], dilation: int = 1
) -> Float[Array, "... n o"]:
    r"""Each position reads itself and r - 1 earlier ones, ``dilation`` steps apart.

    .. math:: y_t = b + \sum_{s=0}^{r-1} x_{t - s\delta}\, W_s,\qquad x_t = 0 \text{ before the start}

    Parameters, errors and source as in `attnmath.numpy.convolution.causal_conv`.

    Examples
    --------
    >>> import torch
    >>> causal_conv(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[[1.0]], [[10.0]]]), torch.zeros(1)).ravel()
    tensor([ 1., 12., 23.])
    """
    _require.shapes(X=(X, "... n d"), W=(W, "r d o"), b=(b, "o"))
    _require.nonempty("W", W.shape, 0, len(W), "tap")
    _require.count("dilation", dilation)
    n = X.shape[-2]
    past = (F.pad(X, (0, 0, s * dilation, 0))[..., :n, :] for s in range(len(W)))
    return sum((Xs @ Ws for Xs, Ws in zip(past, W, strict=True)), b)  # eq:causal-conv
