"""The Transformer's decoder: one layer, with or without an encoder to look at, and the stack of them."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float

from attnmath.cache import filled, kept, length
from attnmath.numpy.activations import gelu
from attnmath.numpy.encoder import attend
from attnmath.numpy.feed_forward import feed_forward
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.relative_positions import relative_bias
from attnmath.numpy.residuals import normalise, sublayer
from attnmath.numpy.types import Array, Vjp
from attnmath.tree import child


def attend_to(memory, params, heads, mask, **options):
    """Cross-attention as a function of the queries' input alone; vjp: dY -> (dX, dparams, dmemory)."""

    def f(X):
        keys = None if filled(options.get("cache")) else memory
        H, attention_vjp = multi_head_attention(X, keys, keys, params, heads, mask, **options)

        def vjp(dH):
            dQ, dK, dV, dparams = attention_vjp(dH)
            return dQ, dparams, dK + dV

        return H, vjp

    return f


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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Self-attention, attention to the encoder's output, and a feed-forward network, each with its residual and norm.

    .. math:: A &= \operatorname{norm}(X + \operatorname{multihead}(X, X, X))\\
              C &= \operatorname{norm}(A + \operatorname{multihead}(A, M, M))\\
              Y &= \operatorname{norm}(C + \operatorname{feedforward}(C))

    Parameters
    ----------
    X : (..., n, d).
    memory : (..., m, e), M, what the encoder made of the source. None leaves the second step out: a decoder-only block.
    params : ``{"attention", "attention_norm", "cross_attention", "cross_attention_norm", "feed_forward",
        "feed_forward_norm"}``, see `attnmath.shapes.decoder_layer_shapes`.
    heads : h, divides the width of the queries.
    mask : boolean, broadcasts to (..., h, n, n); True = may attend. A decoder that generates needs `causal_mask`.
    memory_mask : boolean, broadcasts to (..., h, n, m): the source's padding.
    norm_first : False normalises each sum (post-norm), True each sub-layer's input (pre-norm).
    norm : ``norm(X, gain[, bias], eps) -> (Y, vjp)``, such as `layer_norm`.
    eps : of every norm.
    feed_forward : ``feed_forward(X, params, activation) -> (Y, vjp)``.
    activation : ``a(X) -> (Y, vjp)``, element by element.
    key_heads, rotate, bias : of the self-attention, as in `multi_head_attention`.
    drop : ``drop(X) -> (Y, vjp)``, applied to each sub-layer's value before the sum, such as `random_dropout`.
    drop_weights : the same for attention weights.
    cache : a dict, empty at first, that receives the keys and values of the rows so far, ``X`` being the next ones;
        their self-attention sees both, and the memory's keys and values are computed once. There is no vjp then.
    record : a dict that receives ``["attention"]["weights"]`` and ``["cross_attention"]["weights"]``.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dmemory, dparams), and dbias after them if there is a bias; dmemory is None without memory.

    Raises
    ------
    ValueError
        As `multi_head_attention`, `layer_norm` and `feed_forward`.

    References
    ----------
    Vaswani et al. (2017), section 3.1. Chapter 5, eq:decoder-self, eq:decoder-cross, eq:decoder-feed-forward.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import decoder_layer_shapes, random_tree
    >>> params = random_tree(decoder_layer_shapes(4, 8), np.random.default_rng(0))
    >>> Y, vjp = decoder_layer(np.eye(3, 4), np.eye(5, 4), params, heads=2)
    >>> Y.shape
    (3, 4)
    """
    joint = {"norm_first": norm_first, "norm": norm, "eps": eps, "drop": drop}
    options = {"key_heads": key_heads, "drop_weights": drop_weights}
    own = {"rotate": rotate, "bias": bias, "record": child(record, "attention"), "cache": kept(cache, "attention")}
    attention = attend(params["attention"], heads, mask, **options, **own)
    A, attention_vjp = sublayer(X, attention, params["attention_norm"], **joint)  # eq:decoder-self
    C, cross_vjp = A, None
    if memory is not None:
        own = {"record": child(record, "cross_attention"), "cache": kept(cache, "cross_attention")}
        cross = attend_to(memory, params["cross_attention"], heads, memory_mask, **options, **own)
        C, cross_vjp = sublayer(A, cross, params["cross_attention_norm"], **joint)  # eq:decoder-cross
    network = partial(feed_forward, params=params["feed_forward"], activation=activation)
    Y, network_vjp = sublayer(C, network, params["feed_forward_norm"], **joint)  # eq:decoder-feed-forward

    def vjp(dY):
        dparams, dmemory = {}, None
        dX, dparams["feed_forward_norm"], dparams["feed_forward"] = network_vjp(dY)
        if cross_vjp:
            dX, dparams["cross_attention_norm"], dparams["cross_attention"], dmemory = cross_vjp(dX)
        dX, dparams["attention_norm"], dparams["attention"], *dbias = attention_vjp(dX)
        return dX, dmemory, dparams, *dbias

    return Y, vjp


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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Decoder layers, one after the other, all looking at the same memory.

    .. math:: X^{l+1} = \operatorname{layer}_l(X^l, M),\qquad
              Y = \operatorname{norm}(X^L)\text{ if there is a last norm}

    Parameters
    ----------
    X : (..., n, d) embedded tokens.
    memory : (..., m, e), M, or None.
    params : ``{"layers": {"0", "1", …}}``; with ``"norm"`` the sum at the end is normalised, as pre-norm needs; with
        ``"relative"`` (buckets, h) every layer's self-attention gets that causal `relative_bias`.
    heads, mask, memory_mask, norm, eps : as in `decoder_layer`.
    distance : of `relative_bias`.
    cache : as in `decoder_layer`, for all layers; `attnmath.cache.length` says how many rows it holds.
    record : a dict that receives ``["layers"]["0"]["attention"]["weights"]`` and so on.
    options : further keywords of `decoder_layer`.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dmemory, dparams); dmemory, the sum over the layers, is None without memory.

    Raises
    ------
    ValueError
        As `decoder_layer`.

    References
    ----------
    Vaswani et al. (2017), section 3.1. Chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import decoder_shapes, random_tree
    >>> params = random_tree(decoder_shapes(4, 8, layers=2), np.random.default_rng(0))
    >>> Y, vjp = decoder(np.eye(3, 4), np.eye(5, 4), params, 2)
    >>> Y.shape
    (3, 4)
    """
    vjps, shared, shared_vjp, norm_vjp = [], {}, None, None
    if "relative" in params:
        n, m = X.shape[-2], X.shape[-2] + length(cache)
        shared["bias"], shared_vjp = relative_bias(params["relative"], n, m, distance, causal=True)
    for i in range(len(params["layers"])):
        ours = {"record": child(record, "layers", str(i)), "cache": child(cache, "layers", str(i))}
        layer = {"norm": norm, "eps": eps, **ours, **shared, **options}
        X, layer_vjp = decoder_layer(X, memory, params["layers"][str(i)], heads, mask, memory_mask, **layer)
        vjps.append(layer_vjp)
    if "norm" in params:
        X, norm_vjp = normalise(X, params["norm"], norm, eps)

    def vjp(dX):
        dparams, dbias, dmemories = {"layers": {}}, [], []
        if norm_vjp:
            dX, dparams["norm"] = norm_vjp(dX)
        for i in reversed(range(len(vjps))):
            dX, dmemory, dparams["layers"][str(i)], *dshared = vjps[i](dX)
            dmemories.append(dmemory)
            dbias += dshared
        if shared_vjp:
            dparams["relative"] = shared_vjp(sum(dbias))
        return dX, None if memory is None else sum(dmemories), dparams

    return X, vjp
