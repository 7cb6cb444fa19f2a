"""The masked language model: BERT's encoder, and the head that says which token stood behind a blank."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require import masked_language_model as _ask
from attnmath.numpy.activations import gelu
from attnmath.numpy.bert import bert
from attnmath.numpy.linear import affine
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.transformer import lm_head, merge
from attnmath.numpy.types import Array, Vjp, differentiable


@differentiable
def masked_head(
    H: Float[Array, "... n d"],
    params: dict,
    table: Float[Array, "t d"],
    *,
    activation: Callable = gelu,
    eps: float = 1e-12,
) -> tuple[Float[Array, "... n t"], Vjp]:
    r"""A score for each token of the vocabulary: a transform of the row, and its dot products with the word vectors.

    .. math:: Z = T E^\top + c,\qquad T = \operatorname{norm}(a(H W + b))

    Parameters
    ----------
    H : (..., n, d) hidden states.
    params : ``{"transform": {"weight" (d, d), "bias" (d,)}, "norm": {"gain" (d,), "bias" (d,)}, "bias" (t,)}``.
    table : (t, d), E, the word vectors that also embed the input.
    activation : ``a(X) -> (Y, vjp)``, element by element.
    eps : of the norm.

    Returns
    -------
    Z : (..., n, t) logits.
    vjp : dZ -> (dH, dparams, dtable); the table's other use, as embedding, adds its own cotangent.

    Raises
    ------
    ValueError
        If the tree has other branches, the widths do not agree or the dtypes differ.

    References
    ----------
    Devlin et al. (2019); the transform is that of their published code. Chapter 8, eq:masked-head.

    Examples
    --------
    >>> one = {"weight": np.eye(2), "bias": np.zeros(2)}
    >>> norm = {"gain": np.ones(2), "bias": np.zeros(2)}
    >>> Z, vjp = masked_head(np.array([[1.0, 3.0]]), {"transform": one, "norm": norm, "bias": np.zeros(2)}, np.eye(2))
    >>> Z
    array([[-1.,  1.]])
    """
    _require.branches(params, ("transform", "norm", "bias"))
    _require.branches(params["norm"], ("gain", "bias"), name="params['norm']")
    _require.shapes(H=(H, "... n d"), table=(table, "t d"), bias=(params["bias"], "t"))
    A, affine_vjp = affine(H, params["transform"])
    B, activation_vjp = activation(A)
    T, norm_vjp = layer_norm(B, params["norm"]["gain"], params["norm"]["bias"], eps)
    S, table_vjp = lm_head(T, table)
    Z = S + params["bias"]  # eq:masked-head

    def vjp(dZ):
        dT, dtable = table_vjp(dZ)
        dB, dgain, dbias = norm_vjp(dT)
        dH, dtransform = affine_vjp(activation_vjp(dB))
        dc = dZ.sum(tuple(range(dZ.ndim - 1)))  # eq:masked-head-vjp
        return dH, {"transform": dtransform, "norm": {"gain": dgain, "bias": dbias}, "bias": dc}, dtable

    return Z, vjp


@differentiable
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
) -> tuple[Float[Array, "... t"], Vjp]:
    r"""The logits of the token at each place, or at the chosen ones, from the words on both sides.

    .. math:: Z = \operatorname{head}\bigl(\operatorname{bert}(\hat x)\bigr)

    Parameters
    ----------
    ids : (..., n) token ids, blanks among them.
    params : ``{"embeddings", "layers", "head"}``, see `attnmath.masked_shapes`. The head's matrix is the table of the
        words, unless ``params["head"]`` has a ``"table"`` of its own.
    heads : h.
    mask : (..., n) boolean, True for a token, False for padding; None if there is no padding.
    chosen : (..., n) boolean, the places whose logits are wanted; None for all. The head computes nothing for others.
    activation, eps : of the head; eps also of every other norm.
    encoder : further keywords of `bert`: ``embed``, ``record``, ``attend``, ``attention``, ``feed_forward``, ``join``.

    Returns
    -------
    Z : (..., n, t) logits; with ``chosen`` (c, t), a row for each chosen place in their order.
    vjp : dZ -> dparams.

    Raises
    ------
    ValueError
        As `bert` and `masked_head`, and if chosen is no array of booleans of the shape of ids.

    References
    ----------
    Devlin et al. (2019), section 3.1. Chapter 8, eq:masked-head.

    Examples
    --------
    >>> from attnmath.masked_shapes import masked_language_model_shapes
    >>> from attnmath.shapes import random_tree
    >>> params = random_tree(masked_language_model_shapes(11, 5, 1, 4, 8, 2), np.random.default_rng(0))
    >>> ids, chosen = np.array([[3, 1, 4]]), np.array([[False, True, False]])
    >>> Z, vjp = masked_language_model(ids, params, 2, None, chosen)
    >>> Z.shape
    (1, 11)
    """
    _require.integers(ids)
    _require.branches(params, ("embeddings", "layers", "head"))
    if chosen is not None:
        _ask.chosen(chosen, ids)
    own = {name: branch for name, branch in params["head"].items() if name != "table"}
    tied = "table" not in params["head"]
    table = params["embeddings"]["word"] if tied else params["head"]["table"]
    tower = {name: params[name] for name in ("embeddings", "layers")}
    H, bert_vjp = bert(ids, tower, heads, mask, eps=eps, **encoder)
    Z, head_vjp = masked_head(H if chosen is None else H[chosen], own, table, activation=activation, eps=eps)

    def vjp(dZ):
        dR, dhead, dtable = head_vjp(dZ)
        dH = dR
        if chosen is not None:
            dH = np.zeros_like(H)
            dH[chosen] = dR
        dtied = {"embeddings": {"word": dtable}} if tied else {"head": {"table": dtable}}
        return merge(bert_vjp(dH), {"head": dhead}, dtied)

    return Z, vjp
