"""Activations: functions of one number, applied to every entry."""

import torch
import torch.nn.functional as F
from jaxtyping import Float

from attnmath import _require
from attnmath.torch.types import Array


def relu(X: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The rectified linear unit.

    .. math:: \operatorname{relu}(x) = \max(x, 0)

    Parameters, errors and source as in `attnmath.numpy.activations.relu`.

    Examples
    --------
    >>> relu(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    _require.floats(X=X)
    return torch.relu(X)  # eq:relu


def swish(X: Float[Array, "..."], beta: float = 1.0) -> Float[Array, "..."]:
    r"""Each number times its sigmoid.

    .. math:: \operatorname{swish}_\beta(x) = x\,\sigma(\beta x),\qquad \sigma(x) = \frac1{1+e^{-x}}

    Parameters, errors and source as in `attnmath.numpy.activations.swish`.

    Examples
    --------
    >>> swish(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    _require.floats(X=X)
    _require.positive("beta", beta)
    return X * torch.sigmoid(beta * X)  # eq:swish


def silu(X: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""`swish` with beta = 1, under the name that PyTorch and the gated networks use.

    .. math:: \operatorname{silu}(x) = x\,\sigma(x)

    Parameters, errors and source as in `attnmath.numpy.activations.silu`.

    Examples
    --------
    >>> silu(torch.tensor([1.0]))
    tensor([0.7311])
    """
    return swish(X)


def gelu_tanh(X: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The Gaussian error linear unit with a hyperbolic tangent in place of the normal distribution function.

    .. math:: \operatorname{gelu}_{\tanh}(x) = \tfrac x2\bigl(1 + \tanh(\sqrt{2/\pi}\,(x + 0.044715\,x^3))\bigr)

    Parameters, errors and source as in `attnmath.numpy.activations.gelu_tanh`.

    Examples
    --------
    >>> gelu_tanh(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1588,  0.0000,  0.8412])
    """
    _require.floats(X=X)
    return F.gelu(X, approximate="tanh")  # eq:gelu-tanh


def gelu(X: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The Gaussian error linear unit, exact.

    .. math:: \operatorname{gelu}(x) = x\,\Phi(x),\qquad \Phi \text{ the standard normal distribution function}

    Parameters, errors and source as in `attnmath.numpy.activations.gelu`.

    Examples
    --------
    >>> gelu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    _require.floats(X=X)
    return F.gelu(X)  # eq:gelu
