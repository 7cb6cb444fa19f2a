"""The masked language model: BERT's encoder, and the head that says which token stood behind a blank."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require import masked_language_model as _ask
from attnmath.masked_shapes import masked_language_model_shapes
from attnmath.torch.activations import gelu
from attnmath.torch.bert import bert
from attnmath.torch.linear import affine
from attnmath.torch.modules import ParamTree
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.transformer import lm_head
from attnmath.torch.types import Array


def masked_head(
    H: Float[Array, "... n d"],
    params: dict,
    table: Float[Array, "t d"],
    *,
    activation: Callable = gelu,
    eps: float = 1e-12,
) -> Float[Array, "... n t"]:
    r"""A score for each token of the vocabulary: a transform of the row, and its dot products with the word vectors.

    .. math:: Z = T E^\top + c,\qquad T = \operatorname{norm}(a(H W + b))

    Parameters, errors and source as in `attnmath.numpy.masked_language_model.masked_head`.

    Examples
    --------
    >>> model = MaskedLanguageModel(11, 5, 1, 4, 2, 8, layers=1)
    >>> masked_head(torch.eye(3, 4), model.head.tree(), model.embeddings.word).shape
    torch.Size([3, 11])
    """
    _require.branches(params, ("transform", "norm", "bias"))
    _require.branches(params["norm"], ("gain", "bias"), name="params['norm']")
    _require.shapes(H=(H, "... n d"), table=(table, "t d"), bias=(params["bias"], "t"))
    B = activation(affine(H, params["transform"]))
    T = layer_norm(B, params["norm"]["gain"], params["norm"]["bias"], eps)
    return lm_head(T, table) + params["bias"]  # eq:masked-head


def masked_language_model(
    ids: Integer[Array, "... n"],
    params: dict,
    heads: int,
    mask: Bool[Array, "... n"] | None = None,
    chosen: Bool[Array, "... n"] | None = None,
    *,
    activation: Callable = gelu,
    eps: float = 1e-12,
    **encoder,
) -> Float[Array, "... t"]:
    r"""The logits of the token at each place, or at the chosen ones, from the words on both sides.

    .. math:: Z = \operatorname{head}\bigl(\operatorname{bert}(\hat x)\bigr)

    Parameters, errors and source as in `attnmath.numpy.masked_language_model.masked_language_model`.

    Examples
    --------
    >>> model = MaskedLanguageModel(11, 5, 1, 4, 2, 8, layers=1)
    >>> model(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 11])
    """
    _require.integers(ids)
    _require.branches(params, ("embeddings", "layers", "head"))
    if chosen is not None:
        _ask.chosen(chosen, ids)
    own = {name: branch for name, branch in params["head"].items() if name != "table"}
    table = params["head"].get("table", params["embeddings"]["word"])
    tower = {name: params[name] for name in ("embeddings", "layers")}
    H = bert(ids, tower, heads, mask, eps=eps, **encoder)
    return masked_head(H if chosen is None else H[chosen], own, table, activation=activation, eps=eps)


class MaskedLanguageModel(ParamTree):
    """`masked_language_model` that holds its parameters, the head's matrix tied to the word vectors."""

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        segments: int,
        d: int,
        heads: int,
        f: int,
        layers: int,
        **options,
    ):
        _require.divides(heads, d, "the module")
        parts = {name: options[name] for name in ("attention", "feed_forward", "join") if name in options}
        super().__init__(
            masked_language_model_shapes(vocabulary, positions, segments, d, f, layers, heads=heads, **parts)
        )
        self.heads, self.options = heads, options

    def forward(self, ids, mask: torch.Tensor | None = None, chosen: torch.Tensor | None = None, **options):
        return masked_language_model(ids, self.tree(), self.heads, mask, chosen, **self.options | options)
