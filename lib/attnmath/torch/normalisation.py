"""Norms: each row brought to a common size."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float

from attnmath import _require, shapes
from attnmath.torch.look import can_look
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array


@shapes.declares(shapes.norm_shapes)
def layer_norm(
    X: Float[Array, "... d"], gain: Float[Array, " d"], bias: Float[Array, " d"], eps: float = 1e-5
) -> Float[Array, "... d"]:
    r"""Give each row mean 0 and variance 1, then a learned gain and bias.

    .. math:: Y = \gamma \odot \frac{X - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta

    Parameters, errors and source as in `attnmath.numpy.normalisation.layer_norm`. Away from the CPU, rows with numbers
    beyond about 1e18 are nan in float32: norm those in float64.

    Examples
    --------
    >>> layer_norm(torch.tensor([1.0, 3.0]), torch.ones(2), torch.zeros(2))
    tensor([-1.0000,  1.0000])
    """
    sizes = _require.shapes(X=(X, "... d"), gain=(gain, "d"), bias=(bias, "d"))
    _require.nonempty("X", X.shape, -1, sizes["d"], "component")
    _require.positive("eps", eps)
    W, s = _in_range(X)
    if s is None:
        return F.layer_norm(X, gain.shape, gain, bias, eps)  # eq:layer-norm
    C = W - W.mean(-1, keepdim=True)
    return gain * C * _reciprocal_root(C, eps / s / s) + bias


@shapes.declares(shapes.gain_shapes)
def rms_norm(X: Float[Array, "... d"], gain: Float[Array, " d"], eps: float = 1e-6) -> Float[Array, "... d"]:
    r"""Give each row the root mean square 1, then a learned gain.

    .. math:: Y = \gamma \odot \frac{X}{\sqrt{\tfrac1d\sum_i X_i^2 + \epsilon}}

    Parameters, errors and source as in `attnmath.numpy.normalisation.rms_norm`. Away from the CPU, rows with numbers
    beyond about 1e18 are 0 in float32: norm those in float64.

    Examples
    --------
    >>> rms_norm(torch.tensor([1.0, 7.0]), torch.ones(2))
    tensor([0.2000, 1.4000])
    """
    sizes = _require.shapes(X=(X, "... d"), gain=(gain, "d"))
    _require.nonempty("X", X.shape, -1, sizes["d"], "component")
    _require.positive("eps", eps)
    W, s = _in_range(X.to(torch.promote_types(X.dtype, torch.float32)))
    Y = gain * (W * _reciprocal_root(W, eps if s is None else eps / s / s))  # eq:rms-norm
    return Y.to(X.dtype)


def _reciprocal_root(X, eps):
    """One over the root of the mean square of each row, plus epsilon, (..., 1)."""
    return torch.rsqrt((X * X).mean(-1, keepdim=True) + eps)


def _in_range(X):
    """Rows X / s whose squares can be summed, and s; X and None if those of X can.

    Looks at tensors on the CPU only, since a GPU would have to be waited for.
    """
    if X.device.type != "cpu" or X.dtype.itemsize < 4 or not X.numel() or not can_look(X):
        return X, None
    limit = math.sqrt(math.sqrt(torch.finfo(X.dtype).max))  # autograd takes the reciprocal root to the third power
    low, high = X.detach().aminmax()
    if high <= limit and low >= -limit:
        return X, None
    s = X.detach().abs().amax(-1, keepdim=True)
    s = torch.where(s > limit, s, 1)
    return X / s, s


class LayerNorm(ParamTree):
    """`layer_norm` that holds its gain (ones) and bias (zeros)."""

    def __init__(self, d: int, eps: float = 1e-5):
        super().__init__(shapes.norm_shapes(d))
        self.eps = eps

    def forward(self, X):
        return layer_norm(X, self.gain, self.bias, self.eps)
