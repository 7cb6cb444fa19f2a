"""The Transformer's encoder: one layer, and the stack of them."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float

from attnmath import _require, shapes
from attnmath.torch.activations import gelu
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.modules import ParamTree
from attnmath.torch.multi_head import multi_head_attention
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.relative_positions import relative_bias
from attnmath.torch.residuals import normalise, sublayer
from attnmath.torch.types import Array
from attnmath.tree import child


def attend(params, heads, mask, **options):
    """Self-attention as a function of its input alone."""
    return lambda X: multi_head_attention(X, X, X, params, heads, mask, **options)


def encoder_layer(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    norm_first: bool = False,
    norm: Callable = layer_norm,
    eps: float = 1e-5,
    feed_forward: Callable = feed_forward,
    activation: Callable = gelu,
    key_heads: int | None = None,
    rotate: Callable | None = None,
    bias: Float[Array, "..."] | None = None,
    drop: Callable | None = None,
    drop_weights: Callable | None = None,
    record: dict | None = None,
) -> Float[Array, "... n d"]:
    r"""Self-attention and a feed-forward network, each added to its input and normalised.

    .. math:: A = \operatorname{norm}(X + \operatorname{multihead}(X, X, X)),\qquad
              Y = \operatorname{norm}(A + \operatorname{feedforward}(A))

    Parameters, errors and source as in `attnmath.numpy.encoder.encoder_layer`.

    Examples
    --------
    >>> EncoderLayer(4, 2, 8)(torch.eye(3, 4)).shape
    torch.Size([3, 4])
    """
    joint = {"norm_first": norm_first, "norm": norm, "eps": eps, "drop": drop}
    options = {"key_heads": key_heads, "drop_weights": drop_weights}
    own = {"rotate": rotate, "bias": bias, "record": child(record, "attention")}
    attention = attend(params["attention"], heads, mask, **options, **own)
    A = sublayer(X, attention, params["attention_norm"], **joint)  # eq:encoder-attention
    network = partial(feed_forward, params=params["feed_forward"], activation=activation)
    return sublayer(A, network, params["feed_forward_norm"], **joint)  # eq:encoder-feed-forward


def encoder(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    norm: Callable = layer_norm,
    eps: float = 1e-5,
    distance: int = 128,
    record: dict | None = None,
    **options,
) -> Float[Array, "... n d"]:
    r"""Encoder layers, one after the other.

    .. math:: X^{l+1} = \operatorname{layer}_l(X^l),\qquad Y = \operatorname{norm}(X^L)\text{ if there is a last norm}

    Parameters, errors and source as in `attnmath.numpy.encoder.encoder`.

    Examples
    --------
    >>> params = ParamTree(shapes.encoder_shapes(4, 8, layers=2, norm=True)).tree()
    >>> encoder(torch.eye(3, 4), params, 2, norm_first=True).shape
    torch.Size([3, 4])
    """
    shared = {}
    if "relative" in params:
        shared["bias"] = relative_bias(params["relative"], X.shape[-2], X.shape[-2], distance)
    for i in range(len(params["layers"])):
        layer = {"norm": norm, "eps": eps, "record": child(record, "layers", str(i)), **shared, **options}
        X = encoder_layer(X, params["layers"][str(i)], heads, mask, **layer)
    return normalise(X, params["norm"], norm, eps) if "norm" in params else X


class EncoderLayer(ParamTree):
    """`encoder_layer` that holds its parameters; options are `encoder_layer`'s keywords."""

    def __init__(self, d: int, heads: int, f: int, eps: float = 1e-5, **options):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.encoder_layer_shapes(d, f))
        self.heads, self.options = heads, {"eps": eps, **options}

    def forward(self, X, mask: torch.Tensor | bool = True, **options):
        return encoder_layer(X, self.tree(), self.heads, mask, **self.options, **options)
