"""The network with one hidden layer that each position passes, plain and gated."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath import _require, shapes
from attnmath.torch.activations import gelu, silu
from attnmath.torch.linear import affine
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array


@shapes.declares(shapes.feed_forward_shapes)
def feed_forward(X: Float[Array, "... n d"], params: dict, activation: Callable = gelu) -> Float[Array, "... n e"]:
    r"""A network with one hidden layer, applied to each position.

    .. math:: Y = a(X W_1 + b_1)\, W_2 + b_2

    Parameters, errors and source as in `attnmath.numpy.feed_forward.feed_forward`.

    Examples
    --------
    >>> import torch
    >>> one = {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}
    >>> feed_forward(torch.tensor([[1.0]]), {"up": one, "down": one})
    tensor([[0.8413]])
    """
    _require.branches(params, ("up", "down"))
    H = activation(affine(X, params["up"]))
    return affine(H, params["down"])  # eq:feed-forward


@shapes.declares(shapes.gated_feed_forward_shapes)
def gated_feed_forward(
    X: Float[Array, "... n d"], params: dict, activation: Callable = silu
) -> Float[Array, "... n e"]:
    r"""A feed-forward network whose hidden layer is a product of an activated and a linear map.

    .. math:: Y = \bigl(a(X W_g + b_g) \odot (X W_1 + b_1)\bigr)\, W_2 + b_2

    Parameters, errors and source as in `attnmath.numpy.feed_forward.gated_feed_forward`.

    Examples
    --------
    >>> import torch
    >>> one = {"weight": torch.ones(1, 1)}
    >>> gated_feed_forward(torch.tensor([[2.0]]), {"gate": one, "up": one, "down": one})
    tensor([[3.5232]])
    """
    _require.branches(params, ("gate", "up", "down"))
    G = activation(affine(X, params["gate"]))
    U = affine(X, params["up"])
    _require.shapes(gate=(G, "... n f"), up=(U, "... n f"))
    return affine(G * U, params["down"])  # eq:gated-feed-forward


class FeedForward(ParamTree):
    """`feed_forward` that holds its parameters."""

    def __init__(self, d: int, f: int, activation: Callable = gelu):
        super().__init__(shapes.feed_forward_shapes(d, f))
        self.activation = activation

    def forward(self, X):
        return feed_forward(X, self.tree(), self.activation)
