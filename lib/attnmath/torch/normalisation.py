"""Norms: each row brought to a common size."""

import torch
import torch.nn.functional as F
from jaxtyping import Float

from attnmath import _require, shapes
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array


def layer_norm(
    X: Float[Array, "... d"], gain: Float[Array, " d"], bias: Float[Array, " d"], eps: float = 1e-5
) -> Float[Array, "... d"]:
    r"""Give each row mean 0 and variance 1, then a learned gain and bias.

    .. math:: Y = \gamma \odot \frac{X - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta

    Parameters, errors and source as in `attnmath.numpy.normalisation.layer_norm`.

    Examples
    --------
    >>> layer_norm(torch.tensor([1.0, 3.0]), torch.ones(2), torch.zeros(2))
    tensor([-1.0000,  1.0000])
    """
    sizes = _require.shapes(X=(X, "... d"), gain=(gain, "d"), bias=(bias, "d"))
    _require.nonempty("X", X.shape, -1, sizes["d"], "component")
    _require.positive("eps", eps)
    return F.layer_norm(X, gain.shape, gain, bias, eps)  # eq:layer-norm


def rms_norm(X: Float[Array, "... d"], gain: Float[Array, " d"], eps: float = 1e-6) -> Float[Array, "... d"]:
    r"""Give each row the root mean square 1, then a learned gain.

    .. math:: Y = \gamma \odot \frac{X}{\sqrt{\tfrac1d\sum_i X_i^2 + \epsilon}}

    Parameters, errors and source as in `attnmath.numpy.normalisation.rms_norm`.

    Examples
    --------
    >>> rms_norm(torch.tensor([1.0, 7.0]), torch.ones(2))
    tensor([0.2000, 1.4000])
    """
    sizes = _require.shapes(X=(X, "... d"), gain=(gain, "d"))
    _require.nonempty("X", X.shape, -1, sizes["d"], "component")
    _require.positive("eps", eps)
    return gain * (X * torch.rsqrt((X * X).mean(-1, keepdim=True) + eps))  # eq:rms-norm


class LayerNorm(ParamTree):
    """`layer_norm` that holds its gain (ones) and bias (zeros)."""

    def __init__(self, d: int, eps: float = 1e-5):
        super().__init__(shapes.norm_shapes(d))
        self.eps = eps

    def forward(self, X):
        return layer_norm(X, self.gain, self.bias, self.eps)
