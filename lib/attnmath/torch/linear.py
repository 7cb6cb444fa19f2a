"""Linear maps, with and without a bias."""

import torch.nn.functional as F
from jaxtyping import Float

from attnmath import _require
from attnmath.torch.types import Array


def linear(X: Float[Array, "... n i"], W: Float[Array, "i o"], b: Float[Array, " o"]) -> Float[Array, "... n o"]:
    r"""An affine map of each row.

    .. math:: Y = X W + b

    Parameters, errors and source as in `attnmath.numpy.linear.linear`.

    Examples
    --------
    >>> import torch
    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [10.0]]), torch.tensor([0.5]))
    tensor([[21.5000]])
    """
    _require.shapes(X=(X, "... n i"), W=(W, "i o"), b=(b, "o"))
    return F.linear(X, W.T, b)  # eq:linear


def affine(X: Float[Array, "... n i"], leaf: dict) -> Float[Array, "... n o"]:
    r"""`linear` with its parameters in a dict, where the bias may be missing.

    .. math:: Y = X W + b,\qquad b = 0 \text{ if the leaf has none}

    Parameters, errors and source as in `attnmath.numpy.linear.affine`.

    Examples
    --------
    >>> import torch
    >>> affine(torch.tensor([[1.0, 2.0]]), {"weight": torch.tensor([[1.0], [10.0]])})
    tensor([[21.]])
    """
    _require.leaf(leaf)
    W = leaf["weight"]
    if "bias" in leaf:
        return linear(X, W, leaf["bias"])
    _require.shapes(X=(X, "... n i"), weight=(W, "i o"))
    return F.linear(X, W.T)
