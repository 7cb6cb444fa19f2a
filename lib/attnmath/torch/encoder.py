"""The Transformer's encoder: one layer, and the stack of them."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float

from attnmath import _require, shapes, wiring
from attnmath.torch.attention import attention_fused
from attnmath.torch.cores import recording
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.modules import ParamTree
from attnmath.torch.multi_head import multi_head_attention
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.relative_positions import relative_bias
from attnmath.torch.residuals import block, normalise, sublayer
from attnmath.torch.types import Array
from attnmath.tree import child


def own_attention(attention: Callable, heads: int, mask, attend: Callable) -> Callable:
    """Self-attention as a step of a `block`: ``f(Z, params) -> F``."""
    return lambda Z, params: attention(Z, Z, Z, params, heads, mask, attend=attend)


@shapes.declares(shapes.encoder_layer_shapes)
def encoder_layer(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable = attention_fused,
    attention: Callable = multi_head_attention,
    feed_forward: Callable = feed_forward,
    join: Callable = sublayer,
) -> Float[Array, "... n d"]:
    r"""Self-attention and a feed-forward network, each added to its input and normalised.

    .. math:: A = \operatorname{norm}(X + \operatorname{multihead}(X, X, X)),\qquad
              Y = \operatorname{norm}(A + \operatorname{feedforward}(A))

    Parameters, errors and source as in `attnmath.numpy.encoder.encoder_layer`; the functions return tensors.

    Examples
    --------
    >>> EncoderLayer(4, 2, 8)(torch.eye(3, 4)).shape
    torch.Size([3, 4])
    """
    attention, attend = (wiring.part_of(parts, 0, "attention") for parts in (attention, attend))
    steps = {
        "attention": own_attention(attention, heads, mask, attend),  # eq:encoder-attention
        "feed_forward": feed_forward,  # eq:encoder-feed-forward
    }
    return block(X, params, steps, join)


def encoder(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable | dict | list = attention_fused,
    norm: Callable = layer_norm,
    relative: Callable = relative_bias,
    record: dict | None = None,
    **layer,
) -> Float[Array, "... n d"]:
    r"""Encoder layers, one after the other.

    .. math:: X^{l+1} = \operatorname{layer}_l(X^l),\qquad Y = \operatorname{norm}(X^L)\text{ if there is a last norm}

    Parameters, errors and source as in `attnmath.numpy.encoder.encoder`.

    Examples
    --------
    >>> params = ParamTree(shapes.encoder_shapes(4, 8, layers=2, norm=layer_norm)).tree()
    >>> encoder(torch.eye(3, 4), params, 2, join=partial(sublayer, norm_first=True)).shape
    torch.Size([3, 4])
    """
    wiring.stack(params)
    B = relative(params["relative"], X.shape[-2], X.shape[-2]) if "relative" in params else None
    for i in range(len(params["layers"])):
        core = wiring.part_of(attend, i, "attention")
        core = partial(core, bias=B) if B is not None else core
        core = core if record is None else recording(core, child(record, "layers", str(i), "attention"))
        X = encoder_layer(X, params["layers"][str(i)], heads, mask, attend=core, **layer)
    return normalise(X, params["norm"], norm) if "norm" in params else X


class EncoderLayer(ParamTree):
    """`encoder_layer` that holds its parameters; options are its keywords, and decide the parameters' shapes."""

    def __init__(self, d: int, heads: int, f: int, key_heads: int | None = None, **options):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.of(partial(encoder_layer, **options), d, f, heads, key_heads))
        self.heads, self.options = heads, options

    def forward(self, X, mask: torch.Tensor | bool = True, **options):
        return encoder_layer(X, self.tree(), self.heads, mask, **self.options | options)
