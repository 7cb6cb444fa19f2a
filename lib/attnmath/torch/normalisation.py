"""Norms: each row brought to a common size."""

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
    if not _looked_at(X):
        return F.layer_norm(X, gain.shape, gain, bias, eps)
    Y, _, r = torch.native_layer_norm(X, gain.shape, gain, bias, eps)  # eq:layer-norm
    if _in_range(r):
        return Y
    s = _size(X)
    C = X / s - (X / s).mean(-1, keepdim=True)
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
    W = X.to(torch.promote_types(X.dtype, torch.float32))
    r = _reciprocal_root(W, eps)
    if _looked_at(X) and not _in_range(r):
        s = _size(W)
        W, r = W / s, _reciprocal_root(W / s, eps / s / s)
    return (gain * (W * r)).to(X.dtype)  # eq:rms-norm


def _reciprocal_root(X, eps):
    """One over the root of the mean square of each row, plus epsilon, (..., 1)."""
    return torch.rsqrt((X * X).mean(-1, keepdim=True) + eps)


def _looked_at(X):
    """Whether rows are looked at for numbers whose squares overflow: on the CPU only, for a GPU would have to wait."""
    return X.device.type == "cpu" and X.dtype.itemsize >= 4 and X.numel() > 0 and can_look(X)


def _in_range(r):
    """Whether the squares could be summed, by the reciprocal roots; autograd takes these to the third power."""
    return bool((r.detach() > torch.finfo(r.dtype).max ** -0.25).all())


def _size(X):
    """The largest number of each row, (..., 1), or 1."""
    return X.detach().abs().amax(-1, keepdim=True).clamp(min=1)


class LayerNorm(ParamTree):
    """`layer_norm` that holds its gain (ones) and bias (zeros)."""

    def __init__(self, d: int, eps: float = 1e-5):
        super().__init__(shapes.norm_shapes(d))
        self.eps = eps

    def forward(self, X):
        return layer_norm(X, self.gain, self.bias, self.eps)
