"""The Transformer's decoder: one layer, with or without an encoder to look at, and the stack of them."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float

from attnmath import _require, shapes, wiring
from attnmath.cache import kept, length
from attnmath.torch.attention import attention_fused
from attnmath.torch.cores import cached, recording
from attnmath.torch.encoder import own_attention
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.modules import ParamTree
from attnmath.torch.multi_head import multi_head_attention
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.relative_positions import relative_bias
from attnmath.torch.residuals import block, normalise, sublayer
from attnmath.torch.types import Array
from attnmath.tree import child

ATTENTIONS = ("attention", "cross_attention")


def cross_attention(attention: Callable, memory, heads: int, mask, attend: Callable) -> Callable:
    """Attention to a memory as a step of a `block`: ``f(Z, params) -> F``."""
    keys = None if getattr(attend, "start", 0) else memory  # a cached core that has seen the memory keeps its keys
    return lambda Z, params: attention(Z, keys, keys, params, heads, mask, attend=attend)


@shapes.declares(shapes.decoder_layer_shapes)
def decoder_layer(
    X: Float[Array, "... n d"],
    memory: Float[Array, "... m e"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    memory_mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable | dict = attention_fused,
    attention: Callable | dict = multi_head_attention,
    feed_forward: Callable = feed_forward,
    join: Callable = sublayer,
) -> Float[Array, "... n d"]:
    r"""Self-attention, attention to the encoder's output, and a feed-forward network, each with its residual and norm.

    .. math:: A &= \operatorname{norm}(X + \operatorname{multihead}(X, X, X))\\
              C &= \operatorname{norm}(A + \operatorname{multihead}(A, M, M))\\
              Y &= \operatorname{norm}(C + \operatorname{feedforward}(C))

    Parameters, errors and source as in `attnmath.numpy.decoder.decoder_layer`; the functions return tensors.

    Examples
    --------
    >>> DecoderLayer(4, 2, 8)(torch.eye(3, 4), torch.eye(5, 4)).shape
    torch.Size([3, 4])
    """
    own, across = ([wiring.part_of(parts, 0, name) for parts in (attention, attend)] for name in ATTENTIONS)
    steps = {"attention": own_attention(own[0], heads, mask, own[1])}  # eq:decoder-self
    if memory is not None:
        steps["cross_attention"] = cross_attention(across[0], memory, heads, memory_mask, across[1])  # eq:decoder-cross
    steps["feed_forward"] = feed_forward  # eq:decoder-feed-forward
    return block(X, params, steps, join)


def decoder(
    X: Float[Array, "... n d"],
    memory: Float[Array, "... m e"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    memory_mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable | dict | list = attention_fused,
    norm: Callable = layer_norm,
    relative: Callable = relative_bias,
    cache: dict | None = None,
    record: dict | None = None,
    **layer,
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
    wiring.stack(params)
    B = None
    if "relative" in params:
        B = relative(params["relative"], X.shape[-2], X.shape[-2] + length(cache), causal=True)
    for i in range(len(params["layers"])):
        cores = {name: wiring.part_of(attend, i, name) for name in ATTENTIONS}
        if B is not None:
            cores["attention"] = partial(cores["attention"], bias=B)
        for name in cores if memory is not None else ATTENTIONS[:1]:
            if record is not None:
                cores[name] = recording(cores[name], child(record, "layers", str(i), name))
            if cache is not None:
                cores[name] = cached(cores[name], kept(child(cache, "layers", str(i)), name))
        X = decoder_layer(X, memory, params["layers"][str(i)], heads, mask, memory_mask, attend=cores, **layer)
    return normalise(X, params["norm"], norm) if "norm" in params else X


class DecoderLayer(ParamTree):
    """`decoder_layer` that holds its parameters; options are its keywords, and decide the parameters' shapes."""

    def __init__(self, d: int, heads: int, f: int, key_heads: int | None = None, **options):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.of(partial(decoder_layer, **options), d, f, heads, key_heads))
        self.heads, self.options = heads, options

    def forward(self, X, memory, mask: torch.Tensor | bool = True, memory_mask: torch.Tensor | bool = True, **options):
        return decoder_layer(X, memory, self.tree(), self.heads, mask, memory_mask, **self.options | options)
