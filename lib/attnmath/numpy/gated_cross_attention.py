"""Gated layers that let a language model see: a joint with a gate, cross-attention to pictures, and the model whole."""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Integer

from attnmath import _require, wiring
from attnmath._require import gated_cross_attention as _ask
from attnmath.flamingo_shapes import gated_cross_attention_shapes, gated_sublayer_shapes
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.cores import recording
from attnmath.numpy.decoder import cross_attention, decoder_layer
from attnmath.numpy.feed_forward import feed_forward
from attnmath.numpy.masks import causal_mask
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.residuals import block, normalise, sublayer
from attnmath.numpy.transformer import logits, merge, token_embedding
from attnmath.numpy.types import Array, Vjp, differentiable, sum_to
from attnmath.shapes import declares
from attnmath.tree import child

PATIENT = partial(attention_fused, empty_rows="zero")  # a word before all pictures sees nothing


def picture_mask(
    marks: Bool[Array, "... n"], pictures: int, rows: int = 1, *, last: bool = True
) -> Bool[Array, "... n m"]:
    r"""Each word sees the last picture before it, or all pictures before it.

    .. math:: M_{i,\,jr+u} = [\,c_i = j + 1\,]\quad\text{or}\quad [\,c_i \ge j + 1\,],\qquad
              c_i = \sum_{k\le i} \text{marks}_k

    Parameters
    ----------
    marks : (..., n) boolean, True at the word that stands for a picture; c counts the pictures so far.
    pictures : how many pictures there are, at least as many as a text marks.
    rows : r, the rows of features that each picture has.
    last : True for the last picture only (Flamingo's rule), False for all so far.

    Returns
    -------
    M : (..., n, m) boolean, m = pictures r; give it one more axis, ``M[:, None]``, for the heads.

    Raises
    ------
    ValueError
        If marks is not boolean, a size is not positive, or a text marks more pictures than there are.

    References
    ----------
    Alayrac et al. (2022), section 2.3 and appendix A.1.3, whose phi is c. Chapter 8, eq:picture-mask.

    Examples
    --------
    >>> picture_mask(np.array([False, True, False, True]), 2).astype(int)
    array([[0, 0],
           [1, 0],
           [1, 0],
           [0, 1]])
    """
    _ask.marks(marks)
    _require.count("pictures", pictures)
    _require.count("rows", rows)
    c = marks.cumsum(-1)
    _ask.shown(int(c.max(initial=0)), pictures)
    number = 1 + np.arange(pictures * rows) // rows
    return c[..., None] == number if last else c[..., None] >= number  # eq:picture-mask


@declares(gated_sublayer_shapes)
@differentiable
def gated_sublayer(
    X: Float[Array, "... n d"], f: Callable, params: dict, *, norm: Callable = layer_norm
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""X plus a function of X that comes in through a gate: a joint, as `sublayer` is.

    .. math:: Y = X + \tanh(g) \odot f(\operatorname{norm}(X))

    Parameters
    ----------
    X : (..., n, d) rows.
    f : ``f(Z) -> (F, vjp)`` of X's shape, with ``vjp(dF) -> (dZ, …)``: attention or a feed-forward network.
    params : ``{"norm", "gate"}``: the parameters of the norm, and g, (1,) or (d,). At g = 0 the gate is closed, and
        Y = X exactly, whatever finite numbers f returns.
    norm : ``norm(X, gain[, bias]) -> (Y, vjp)``.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams, …), the dots being what f's vjp gives after dZ.

    Raises
    ------
    ValueError
        If the gate has another shape, and as ``norm`` and ``f``.

    References
    ----------
    Alayrac et al. (2022), figure 4, whose alpha is g. Chapter 8, eq:gated-sublayer.

    Examples
    --------
    >>> norm, X = {"gain": np.ones(2), "bias": np.zeros(2)}, np.array([[1.0, 3.0]])
    >>> times_5 = lambda Z: (5 * Z, lambda dF: (5 * dF,))
    >>> [gated_sublayer(X, times_5, {"norm": norm, "gate": np.array([g])})[0].round(3).tolist() for g in (0.0, 0.5)]
    [[[1.0, 3.0]], [[-1.311, 5.311]]]
    """
    _require.branches(params, ("norm", "gate"), name="params of the joint")
    _ask.gate(params["gate"], X)
    Z, norm_vjp = normalise(X, params["norm"], norm)
    F, f_vjp = f(Z)
    t = np.tanh(params["gate"])
    Y = X + t * F  # eq:gated-sublayer

    def vjp(dY):
        dgate = (1 - t * t) * _sum(dY * F, t.shape)  # eq:gated-sublayer-vjp
        dZ, *rest = f_vjp(t * dY)
        dX, dnorm = norm_vjp(dZ)
        return dY + dX, {"norm": dnorm, "gate": dgate}, *rest

    return Y, vjp


def _sum(dX, shape):
    """The cotangent of what every row uses, summed in float32 at least: float16 stops at 2048."""
    return sum_to(dX.astype(np.promote_types(dX.dtype, np.float32)), shape).astype(dX.dtype)


@declares(gated_cross_attention_shapes)
@differentiable
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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Words look at pictures, then think about it; both come in through gates.

    .. math:: A &= X + \tanh(g)\operatorname{multihead}(\operatorname{norm}(X), M, M)\\
              Y &= A + \tanh(g')\operatorname{feedforward}(\operatorname{norm}(A))

    Parameters
    ----------
    X : (..., n, d) rows of words.
    memory : (..., m, e), M, the features of the pictures.
    params : ``{"cross_attention", "cross_attention_norm", "feed_forward", "feed_forward_norm"}``, see
        `attnmath.flamingo_shapes.gated_cross_attention_shapes`; the norms' are those of `gated_sublayer`.
    heads : h.
    mask : boolean, broadcasts to (..., h, n, m); True = may attend, such as ``picture_mask(…)[:, None]``.
    attend : the core; None is `attention_fused`, with zeros for a word that may attend to nothing.
    attention, feed_forward : as in `decoder_layer`.
    norm : of both joints.

    Returns
    -------
    Y : (..., n, d); X itself if both gates are 0.
    vjp : dY -> (dX, dmemory, dparams).

    Raises
    ------
    ValueError
        As `gated_sublayer` and `multi_head_attention`.

    References
    ----------
    Alayrac et al. (2022), section 2.2 and figure 4. Chapter 8, eq:gated-cross-attention.

    Examples
    --------
    >>> from attnmath.shapes import random_tree
    >>> params = random_tree(gated_cross_attention_shapes(4, 8, 3), np.random.default_rng(0))
    >>> Y, vjp = gated_cross_attention(np.eye(3, 4), np.ones((5, 3)), params, heads=2)
    >>> Y.shape
    (3, 4)
    """
    steps = {  # eq:gated-cross-attention
        "cross_attention": cross_attention(attention, memory, heads, mask, attend or PATIENT),
        "feed_forward": feed_forward,
    }
    Y, block_vjp = block(X, params, steps, partial(gated_sublayer, norm=norm))

    def vjp(dY):
        dX, dparams, rest = block_vjp(dY)
        return dX, rest["cross_attention"][0], dparams

    return Y, vjp


@differentiable
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
) -> tuple[Float[Array, "... n t"], Vjp]:
    r"""A language model with gated layers in front of some of its own: the logits of each next word.

    .. math:: X^{l+1} = \operatorname{layer}_l(\operatorname{gated}_l(X^l, M))

    Parameters
    ----------
    ids : (..., n) token ids.
    memory : (..., m, e), M, the features of the pictures; None for a text without any: the gated layers are left out,
        and the language model is what it was.
    params : those of `decoder_only`, and ``"gated": {"0", …}``, see `attnmath.flamingo_shapes.flamingo_shapes`.
    heads : h, of all layers.
    mask : boolean, broadcasts to (..., h, n, m), of the words for the pictures, such as ``picture_mask(…)[:, None]``.
    gated : ``partial(gated_cross_attention, …)`` with other options.
    norm : of the language model's last norm.
    record : a dict that receives ``["gated"]["0"]["weights"]`` and so on: of the pictures' rows, for each word.
    layer : further keywords of `decoder_layer`: ``attend``, ``attention``, ``feed_forward``, ``join``; joined with the
        norm first if no joint is given.

    Returns
    -------
    Z : (..., n, t) logits.
    vjp : dZ -> (dmemory, dparams); dmemory is None, and dparams lack the gated layers, without memory.

    Raises
    ------
    ValueError
        If a gated layer has no layer behind it, and as `decoder_only` and `gated_cross_attention`.

    References
    ----------
    Alayrac et al. (2022), section 2.2 and figure 3. Chapter 8, eq:flamingo.

    Examples
    --------
    >>> from attnmath import flamingo_shapes, shapes
    >>> language = shapes.decoder_only_shapes(11, 4, 8, layers=2, positions=5)
    >>> sizes = flamingo_shapes.flamingo_shapes(language, gated_cross_attention_shapes(4, 8, 3))
    >>> params = shapes.random_tree(sizes, np.random.default_rng(0))
    >>> Z, vjp = flamingo(np.array([[3, 1, 4]]), np.ones((1, 7, 3)), params, heads=2)
    >>> Z.shape
    (1, 3, 11)
    """
    _require.integers(ids)
    _require.branches(params, ("embeddings", "layers", "gated"), optional=("norm", "head"))
    wiring.stack({"layers": params["layers"]})
    _ask.gated_layers(params["gated"], params["layers"])
    layer.setdefault("join", partial(sublayer, norm_first=True))
    X, embedding_vjp = token_embedding(ids, params["embeddings"])
    causal, vjps, norm_vjp = causal_mask(ids.shape[-1]), [], None
    for name in map(str, range(len(params["layers"]))):
        if memory is not None and name in params["gated"]:
            look = _recorded(gated, record, name)
            X, gated_vjp = look(X, memory, params["gated"][name], heads, mask)  # eq:flamingo
            vjps.append(("gated", name, gated_vjp))
        X, layer_vjp = decoder_layer(X, None, params["layers"][name], heads, causal, **layer)
        vjps.append(("layers", name, layer_vjp))
    if "norm" in params:
        X, norm_vjp = normalise(X, params["norm"], norm)
    Z, head_vjp = logits(X, params)

    def vjp(dZ):
        dX, dparams = head_vjp(dZ)
        dmemory = None if memory is None else np.zeros_like(memory)
        if norm_vjp:
            dX, dparams["norm"] = norm_vjp(dX)
        for branch, name, own_vjp in reversed(vjps):
            dX, dM, dlayer = own_vjp(dX)[:3]
            dparams = merge(dparams, {branch: {name: dlayer}})
            dmemory = dmemory if dM is None else dmemory + dM
        return dmemory, merge(dparams, {"embeddings": embedding_vjp(dX)})

    return Z, vjp


def _recorded(gated, record, name):
    """A gated layer whose core writes its weights down, if there is a record."""
    if record is None:
        return gated
    core = getattr(gated, "keywords", {}).get("attend") or PATIENT
    return partial(gated, attend=recording(core, child(record, "gated", name)))
