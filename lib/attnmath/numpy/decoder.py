"""The Transformer's decoder: one layer, with or without an encoder to look at, and the stack of them."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float

from attnmath import wiring
from attnmath.cache import kept, length
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.cores import cached, recording
from attnmath.numpy.encoder import own_attention
from attnmath.numpy.feed_forward import feed_forward
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.relative_positions import relative_bias
from attnmath.numpy.residuals import block, normalise, sublayer
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.shapes import declares, decoder_layer_shapes
from attnmath.tree import child

ATTENTIONS = ("attention", "cross_attention")


def cross_attention(attention: Callable, memory, heads: int, mask, attend: Callable) -> Callable:
    """Attention to a memory as a step of a `block`: ``f(Z, params) -> (F, vjp)``, vjp: dF -> (dZ, dparams, dmemory)."""
    keys = None if getattr(attend, "start", 0) else memory  # a cached core that has seen the memory keeps its keys

    def f(Z, params):
        F, attention_vjp = attention(Z, keys, keys, params, heads, mask, attend=attend)

        def vjp(dF):
            dQ, dK, dV, dparams, *rest = attention_vjp(dF)
            return dQ, dparams, dK + dV, *rest

        return F, vjp

    return f


@declares(decoder_layer_shapes)
@differentiable
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
    attend, attention : as in `encoder_layer`, or a dict of two, ``{"attention", "cross_attention"}``.
    feed_forward, join : as in `encoder_layer`.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dmemory, dparams), and after them what the vjp of self-attention's core has to say, such as dbias;
        dmemory is None without memory.

    Raises
    ------
    ValueError
        As `encoder_layer`.

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
    own, across = ([wiring.part_of(parts, 0, name) for parts in (attention, attend)] for name in ATTENTIONS)
    steps = {"attention": own_attention(own[0], heads, mask, own[1])}  # eq:decoder-self
    if memory is not None:
        steps["cross_attention"] = cross_attention(across[0], memory, heads, memory_mask, across[1])  # eq:decoder-cross
    steps["feed_forward"] = feed_forward  # eq:decoder-feed-forward
    Y, block_vjp = block(X, params, steps, join)

    def vjp(dY):
        dX, dparams, rest = block_vjp(dY)
        dmemory = rest["cross_attention"][0] if "cross_attention" in rest else None
        return dX, dmemory, dparams, *rest["attention"]

    return Y, vjp


@differentiable
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
    heads, mask, memory_mask : as in `decoder_layer`.
    attend : the core as in `decoder_layer`, a dict of two, or a list of these, one for each layer.
    norm : of the sum at the end, ``norm(X, gain[, bias]) -> (Y, vjp)``.
    relative : ``relative(table, n, m, causal=True) -> (B, vjp)``, such as ``partial(relative_bias, distance=64)``.
    cache : a dict, empty at first, that receives the keys and values of the rows so far, ``X`` being the next ones;
        their self-attention sees both, and the memory's keys and values are computed once. There is no vjp then.
        `attnmath.cache.length` says how many rows it holds.
    record : a dict that receives ``["layers"]["0"]["attention"]["weights"]`` and so on, and those of cross-attention.
    layer : further keywords of `decoder_layer`: ``attention``, ``feed_forward``, ``join``.

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
    wiring.stack(params)
    vjps, B, bias_vjp, norm_vjp = [], None, None, None
    if "relative" in params:
        n, m = X.shape[-2], X.shape[-2] + length(cache)
        B, bias_vjp = relative(params["relative"], n, m, causal=True)
    for i in range(len(params["layers"])):
        cores = {name: wiring.part_of(attend, i, name) for name in ATTENTIONS}
        if B is not None:
            cores["attention"] = partial(cores["attention"], bias=B)
        for name in cores if memory is not None else ATTENTIONS[:1]:
            if record is not None:
                cores[name] = recording(cores[name], child(record, "layers", str(i), name))
            if cache is not None:
                cores[name] = cached(cores[name], kept(child(cache, "layers", str(i)), name))
        X, layer_vjp = decoder_layer(
            X, memory, params["layers"][str(i)], heads, mask, memory_mask, attend=cores, **layer
        )
        vjps.append(layer_vjp)
    if "norm" in params:
        X, norm_vjp = normalise(X, params["norm"], norm)

    def vjp(dX):
        dparams, dbias, dmemories = {"layers": {}}, [], []
        if norm_vjp:
            dX, dparams["norm"] = norm_vjp(dX)
        for i in reversed(range(len(vjps))):
            dX, dmemory, dparams["layers"][str(i)], *rest = vjps[i](dX)
            dmemories.append(dmemory)
            dbias += rest[-1:]
        if bias_vjp:
            dparams["relative"] = bias_vjp(sum(dbias))
        return dX, None if memory is None else sum(dmemories), dparams

    return X, vjp
