"""The Transformer's decoder: one layer, with or without an encoder to look at, and the stack of them."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float

from attnmath import _require, shapes
from attnmath.cache import filled, kept, length
from attnmath.torch.activations import gelu
from attnmath.torch.encoder import attend
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.modules import ParamTree
from attnmath.torch.multi_head import multi_head_attention
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.relative_positions import relative_bias
from attnmath.torch.residuals import normalise, sublayer
from attnmath.torch.types import Array
from attnmath.tree import child


def attend_to(memory, params, heads, mask, **options):
    """Cross-attention as a function of the queries' input alone."""
    keys = None if filled(options.get("cache")) else memory
    return lambda X: multi_head_attention(X, keys, keys, params, heads, mask, **options)


def decoder_layer(
    X: Float[Array, "... n d"],
    memory: Float[Array, "... m e"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    memory_mask: Bool[Array, "..."] | bool = True,
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
    cache: dict | None = None,
    record: dict | None = None,
) -> Float[Array, "... n d"]:
    r"""Self-attention, attention to the encoder's output, and a feed-forward network, each with its residual and norm.

    .. math:: A &= \operatorname{norm}(X + \operatorname{multihead}(X, X, X))\\
              C &= \operatorname{norm}(A + \operatorname{multihead}(A, M, M))\\
              Y &= \operatorname{norm}(C + \operatorname{feedforward}(C))

    Parameters, errors and source as in `attnmath.numpy.decoder.decoder_layer`.

    Examples
    --------
    >>> DecoderLayer(4, 2, 8)(torch.eye(3, 4), torch.eye(5, 4)).shape
    torch.Size([3, 4])
    """
    joint = {"norm_first": norm_first, "norm": norm, "eps": eps, "drop": drop}
    options = {"key_heads": key_heads, "drop_weights": drop_weights}
    own = {"rotate": rotate, "bias": bias, "record": child(record, "attention"), "cache": kept(cache, "attention")}
    attention = attend(params["attention"], heads, mask, **options, **own)
    A = sublayer(X, attention, params["attention_norm"], **joint)  # eq:decoder-self
    C = A
    if memory is not None:
        own = {"record": child(record, "cross_attention"), "cache": kept(cache, "cross_attention")}
        cross = attend_to(memory, params["cross_attention"], heads, memory_mask, **options, **own)
        C = sublayer(A, cross, params["cross_attention_norm"], **joint)  # eq:decoder-cross
    network = partial(feed_forward, params=params["feed_forward"], activation=activation)
    return sublayer(C, network, params["feed_forward_norm"], **joint)  # eq:decoder-feed-forward


def decoder(
    X: Float[Array, "... n d"],
    memory: Float[Array, "... m e"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    memory_mask: Bool[Array, "..."] | bool = True,
    *,
    norm: Callable = layer_norm,
    eps: float = 1e-5,
    distance: int = 128,
    cache: dict | None = None,
    record: dict | None = None,
    **options,
) -> Float[Array, "... n d"]:
    r"""Decoder layers, one after the other, all looking at the same memory.

    .. math:: X^{l+1} = \operatorname{layer}_l(X^l, M),\qquad
              Y = \operatorname{norm}(X^L)\text{ if there is a last norm}

    Parameters, errors and source as in `attnmath.numpy.decoder.decoder`.

    Examples
    --------
    >>> params = ParamTree(shapes.decoder_shapes(4, 8, layers=2)).tree()
    >>> decoder(torch.eye(3, 4), torch.eye(5, 4), params, 2).shape
    torch.Size([3, 4])
    """
    shared = {}
    if "relative" in params:
        n, m = X.shape[-2], X.shape[-2] + length(cache)
        shared["bias"] = relative_bias(params["relative"], n, m, distance, causal=True)
    for i in range(len(params["layers"])):
        ours = {"record": child(record, "layers", str(i)), "cache": child(cache, "layers", str(i))}
        layer = {"norm": norm, "eps": eps, **ours, **shared, **options}
        X = decoder_layer(X, memory, params["layers"][str(i)], heads, mask, memory_mask, **layer)
    return normalise(X, params["norm"], norm, eps) if "norm" in params else X


class DecoderLayer(ParamTree):
    """`decoder_layer` that holds its parameters; options are `decoder_layer`'s keywords."""

    def __init__(self, d: int, heads: int, f: int, **options):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.decoder_layer_shapes(d, f))
        self.heads, self.options = heads, options

    def forward(self, X, memory, mask: torch.Tensor | bool = True, memory_mask: torch.Tensor | bool = True, **options):
        return decoder_layer(X, memory, self.tree(), self.heads, mask, memory_mask, **self.options, **options)
