"""Gated layers that let a language model see: a joint with a gate, cross-attention to pictures, and the model whole."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Integer

from attnmath import _require, wiring
from attnmath._require import gated_cross_attention as _ask
from attnmath.flamingo_shapes import gated_cross_attention_shapes, gated_sublayer_shapes
from attnmath.shapes import declares
from attnmath.torch.attention import attention_fused
from attnmath.torch.cores import recording
from attnmath.torch.decoder import cross_attention, decoder_layer
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.look import can_look
from attnmath.torch.masks import causal_mask
from attnmath.torch.modules import ParamTree
from attnmath.torch.multi_head import multi_head_attention
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.residuals import block, normalise, sublayer
from attnmath.torch.transformer import logits, token_embedding
from attnmath.torch.types import Array
from attnmath.tree import child

PATIENT = partial(attention_fused, empty_rows="zero")  # a word before all pictures sees nothing


def picture_mask(
    marks: Bool[Array, "... n"], pictures: int, rows: int = 1, *, last: bool = True
) -> Bool[Array, "... n m"]:
    r"""Each word sees the last picture before it, or all pictures before it.

    .. math:: M_{i,\,jr+u} = [\,c_i = j + 1\,]\quad\text{or}\quad [\,c_i \ge j + 1\,],\qquad
              c_i = \sum_{k\le i} \text{marks}_k

    Parameters, errors and source as in `attnmath.numpy.gated_cross_attention.picture_mask`; that a text marks no more
    pictures than there are is checked where values can be looked at.

    Examples
    --------
    >>> picture_mask(torch.tensor([False, True, False, True]), 2).int()
    tensor([[0, 0],
            [1, 0],
            [1, 0],
            [0, 1]], dtype=torch.int32)
    """
    _ask.marks(marks)
    _require.count("pictures", pictures)
    _require.count("rows", rows)
    c = marks.cumsum(-1)
    if c.numel() and can_look(marks):
        _ask.shown(int(c.max()), pictures)
    number = 1 + torch.arange(pictures * rows, device=marks.device) // rows
    return c[..., None] == number if last else c[..., None] >= number  # eq:picture-mask


@declares(gated_sublayer_shapes)
def gated_sublayer(
    X: Float[Array, "... n d"], f: Callable, params: dict, *, norm: Callable = layer_norm
) -> Float[Array, "... n d"]:
    r"""X plus a function of X that comes in through a gate: a joint, as `sublayer` is.

    .. math:: Y = X + \tanh(g) \odot f(\operatorname{norm}(X))

    Parameters, errors and source as in `attnmath.numpy.gated_cross_attention.gated_sublayer`; ``f`` returns a tensor.

    Examples
    --------
    >>> norm, X = {"gain": torch.ones(2), "bias": torch.zeros(2)}, torch.tensor([[1.0, 3.0]])
    >>> gated_sublayer(X, lambda Z: 5 * Z, {"norm": norm, "gate": torch.zeros(1)})
    tensor([[1., 3.]])
    """
    _require.branches(params, ("norm", "gate"), name="params of the joint")
    _ask.gate(params["gate"], X)
    F = f(normalise(X, params["norm"], norm))
    return X + torch.tanh(params["gate"]) * F  # eq:gated-sublayer


@declares(gated_cross_attention_shapes)
def gated_cross_attention(
    X: Float[Array, "... n d"],
    memory: Float[Array, "... m e"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable | None = None,
    attention: Callable = multi_head_attention,
    feed_forward: Callable = feed_forward,
    norm: Callable = layer_norm,
) -> Float[Array, "... n d"]:
    r"""Words look at pictures, then think about it; both come in through gates.

    .. math:: A &= X + \tanh(g)\operatorname{multihead}(\operatorname{norm}(X), M, M)\\
              Y &= A + \tanh(g')\operatorname{feedforward}(\operatorname{norm}(A))

    Parameters, errors and source as in `attnmath.numpy.gated_cross_attention.gated_cross_attention`; the functions
    return tensors.

    Examples
    --------
    >>> GatedCrossAttention(4, 2, 8, 3)(torch.eye(3, 4), torch.ones(5, 3)).equal(torch.eye(3, 4))
    True
    """
    steps = {  # eq:gated-cross-attention
        "cross_attention": cross_attention(attention, memory, heads, mask, attend or PATIENT),
        "feed_forward": feed_forward,
    }
    return block(X, params, steps, partial(gated_sublayer, norm=norm))


def flamingo(
    ids: Integer[Array, "... n"],
    memory: Float[Array, "... m e"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    gated: Callable = gated_cross_attention,
    norm: Callable = layer_norm,
    record: dict | None = None,
    **layer,
) -> Float[Array, "... n t"]:
    r"""A language model with gated layers in front of some of its own: the logits of each next word.

    .. math:: X^{l+1} = \operatorname{layer}_l(\operatorname{gated}_l(X^l, M))

    Parameters, errors and source as in `attnmath.numpy.gated_cross_attention.flamingo`.

    Examples
    --------
    >>> from attnmath import flamingo_shapes, shapes
    >>> language = shapes.decoder_only_shapes(11, 4, 8, layers=2, positions=5)
    >>> sizes = flamingo_shapes.flamingo_shapes(language, gated_cross_attention_shapes(4, 8, 3))
    >>> flamingo(torch.tensor([[3, 1, 4]]), torch.ones(1, 7, 3), ParamTree(sizes).tree(), 2).shape
    torch.Size([1, 3, 11])
    """
    _require.integers(ids)
    _require.branches(params, ("embeddings", "layers", "gated"), optional=("norm", "head"))
    wiring.stack({"layers": params["layers"]})
    _ask.gated_layers(params["gated"], params["layers"])
    layer.setdefault("join", partial(sublayer, norm_first=True))
    X = token_embedding(ids, params["embeddings"])
    causal = causal_mask(ids.shape[-1])
    for name in map(str, range(len(params["layers"]))):
        if memory is not None and name in params["gated"]:
            look = _recorded(gated, record, name)
            X = look(X, memory, params["gated"][name], heads, mask)  # eq:flamingo
        X = decoder_layer(X, None, params["layers"][name], heads, causal, **layer)
    return logits(normalise(X, params["norm"], norm) if "norm" in params else X, params)


def _recorded(gated, record, name):
    """A gated layer whose core writes its weights down, if there is a record."""
    if record is None:
        return gated
    core = getattr(gated, "keywords", {}).get("attend") or PATIENT
    return partial(gated, attend=recording(core, child(record, "gated", name)))


class GatedCrossAttention(ParamTree):
    """`gated_cross_attention` that holds its parameters, its gates closed at first; options are its keywords.

    Parameters
    ----------
    d, heads, f, e : width of the words, heads, hidden width, width of the pictures' rows (None: d).
    """

    def __init__(self, d: int, heads: int, f: int, e: int | None = None, **options):
        _require.divides(heads, d, "the module")
        parts = {name: options[name] for name in ("norm", "feed_forward") if name in options}
        super().__init__(gated_cross_attention_shapes(d, f, e, heads=heads, **parts))
        self.heads, self.options = heads, options

    def forward(self, X, memory, mask: torch.Tensor | bool = True, **options):
        return gated_cross_attention(X, memory, self.tree(), self.heads, mask, **self.options | options)
