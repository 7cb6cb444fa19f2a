"""The layers around attention: linear maps, norms, GELU, feed-forward networks."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float

from attnmath import _require, shapes
from attnmath.torch.activations import silu
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array


def linear(X: Float[Array, "... n i"], W: Float[Array, "i o"], b: Float[Array, " o"]) -> Float[Array, "... n o"]:
    r"""An affine map of each row.

    .. math:: Y = X W + b

    Parameters, errors and source as in `attnmath.numpy.layers.linear`.

    Examples
    --------
    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [10.0]]), torch.tensor([0.5]))
    tensor([[21.5000]])
    """
    _require.shapes(X=(X, "... n i"), W=(W, "i o"), b=(b, "o"))
    return F.linear(X, W.T, b)  # eq:linear


def affine(X: Float[Array, "... n i"], leaf: dict) -> Float[Array, "... n o"]:
    r"""`linear` with its parameters in a dict, where the bias may be missing.

    .. math:: Y = X W + b,\qquad b = 0 \text{ if the leaf has none}

    Parameters, errors and source as in `attnmath.numpy.layers.affine`.

    Examples
    --------
    >>> affine(torch.tensor([[1.0, 2.0]]), {"weight": torch.tensor([[1.0], [10.0]])})
    tensor([[21.]])
    """
    _require.leaf(leaf)
    W = leaf["weight"]
    if "bias" in leaf:
        return linear(X, W, leaf["bias"])
    _require.shapes(X=(X, "... n i"), weight=(W, "i o"))
    return F.linear(X, W.T)


def layer_norm(
    X: Float[Array, "... d"], gain: Float[Array, " d"], bias: Float[Array, " d"], eps: float = 1e-5
) -> Float[Array, "... d"]:
    r"""Give each row mean 0 and variance 1, then a learned gain and bias.

    .. math:: Y = \gamma \odot \frac{X - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta

    Parameters, errors and source as in `attnmath.numpy.layers.layer_norm`.

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

    Parameters, errors and source as in `attnmath.numpy.layers.rms_norm`.

    Examples
    --------
    >>> rms_norm(torch.tensor([1.0, 7.0]), torch.ones(2))
    tensor([0.2000, 1.4000])
    """
    sizes = _require.shapes(X=(X, "... d"), gain=(gain, "d"))
    _require.nonempty("X", X.shape, -1, sizes["d"], "component")
    _require.positive("eps", eps)
    return gain * (X * torch.rsqrt((X * X).mean(-1, keepdim=True) + eps))  # eq:rms-norm


def gelu(X: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The Gaussian error linear unit, exact.

    .. math:: \operatorname{gelu}(x) = x\,\Phi(x),\qquad \Phi \text{ the standard normal distribution function}

    Parameters, errors and source as in `attnmath.numpy.layers.gelu`.

    Examples
    --------
    >>> gelu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    _require.floats(X=X)
    return F.gelu(X)  # eq:gelu


def feed_forward(X: Float[Array, "... n d"], params: dict, activation: Callable = gelu) -> Float[Array, "... n e"]:
    r"""A network with one hidden layer, applied to each position.

    .. math:: Y = a(X W_1 + b_1)\, W_2 + b_2

    Parameters, errors and source as in `attnmath.numpy.layers.feed_forward`.

    Examples
    --------
    >>> one = {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}
    >>> feed_forward(torch.tensor([[1.0]]), {"up": one, "down": one})
    tensor([[0.8413]])
    """
    H = activation(affine(X, params["up"]))
    return affine(H, params["down"])  # eq:feed-forward


def gated_feed_forward(
    X: Float[Array, "... n d"], params: dict, activation: Callable = silu
) -> Float[Array, "... n e"]:
    r"""A feed-forward network whose hidden layer is a product of an activated and a linear map.

    .. math:: Y = \bigl(a(X W_g + b_g) \odot (X W_1 + b_1)\bigr)\, W_2 + b_2

    Parameters, errors and source as in `attnmath.numpy.layers.gated_feed_forward`.

    Examples
    --------
    >>> one = {"weight": torch.ones(1, 1)}
    >>> gated_feed_forward(torch.tensor([[2.0]]), {"gate": one, "up": one, "down": one})
    tensor([[3.5232]])
    """
    G = activation(affine(X, params["gate"]))
    U = affine(X, params["up"])
    _require.shapes(gate=(G, "... n f"), up=(U, "... n f"))
    return affine(G * U, params["down"])  # eq:gated-feed-forward


class LayerNorm(ParamTree):
    """`layer_norm` that holds its gain (ones) and bias (zeros)."""

    def __init__(self, d: int, eps: float = 1e-5):
        super().__init__(shapes.norm_shapes(d))
        self.eps = eps

    def forward(self, X):
        return layer_norm(X, self.gain, self.bias, self.eps)


class FeedForward(ParamTree):
    """`feed_forward` that holds its parameters."""

    def __init__(self, d: int, f: int, activation: Callable = gelu):
        super().__init__(shapes.feed_forward_shapes(d, f))
        self.activation = activation

    def forward(self, X):
        return feed_forward(X, self.tree(), self.activation)
