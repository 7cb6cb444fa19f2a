"""The Transformer's encoder: one layer, and the stack of them."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float

from attnmath import wiring
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.cores import recording
from attnmath.numpy.feed_forward import feed_forward
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.relative_positions import relative_bias
from attnmath.numpy.residuals import block, normalise, sublayer
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.shapes import declares, encoder_layer_shapes
from attnmath.tree import child


def own_attention(attention: Callable, heads: int, mask, attend: Callable) -> Callable:
    """Self-attention as a step of a `block`: ``f(Z, params) -> (F, vjp)``, vjp: dF -> (dZ, dparams, …)."""

    def f(Z, params):
        F, attention_vjp = attention(Z, Z, Z, params, heads, mask, attend=attend)

        def vjp(dF):
            dQ, dK, dV, *rest = attention_vjp(dF)
            return dQ + dK + dV, *rest

        return F, vjp

    return f


@declares(encoder_layer_shapes)
@differentiable
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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Self-attention and a feed-forward network, each added to its input and normalised.

    .. math:: A = \operatorname{norm}(X + \operatorname{multihead}(X, X, X)),\qquad
              Y = \operatorname{norm}(A + \operatorname{feedforward}(A))

    Parameters
    ----------
    X : (..., n, d).
    params : ``{"attention", "attention_norm", "feed_forward", "feed_forward_norm"}``, see
        `attnmath.shapes.encoder_layer_shapes`.
    heads : h, divides the width of the queries.
    mask : boolean, broadcasts to (..., h, n, n); True = may attend.
    attend : the core, ``attend(Q, K, V, mask=…) -> (O, vjp)`` on heads, such as `attention_fused` or
        ``partial(attention, drop=…)``.
    attention : what surrounds the core, such as ``partial(multi_head_attention, turn=rotary)``.
    feed_forward : ``feed_forward(X, params) -> (Y, vjp)``, such as ``partial(feed_forward, activation=relu)``.
    join : how each of the two is joined to its input, such as ``partial(sublayer, norm_first=True, norm=rms_norm)``.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams), and after them what the core's vjp has to say, such as dbias.

    Raises
    ------
    ValueError
        As `multi_head_attention`, `layer_norm` and `feed_forward`; if params lack a branch or have another.

    References
    ----------
    Vaswani et al. (2017), section 3.1; Devlin et al. (2019). Appendix B, eq:encoder-attention, eq:encoder-feed-forward;
    Chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import encoder_layer_shapes, random_tree
    >>> params = random_tree(encoder_layer_shapes(4, 8), np.random.default_rng(0))
    >>> Y, vjp = encoder_layer(np.eye(3, 4), params, heads=2)
    >>> Y.shape
    (3, 4)
    """
    attention, attend = (wiring.part_of(parts, 0, "attention") for parts in (attention, attend))
    steps = {
        "attention": own_attention(attention, heads, mask, attend),  # eq:encoder-attention
        "feed_forward": feed_forward,  # eq:encoder-feed-forward
    }
    Y, block_vjp = block(X, params, steps, join)

    def vjp(dY):
        dX, dparams, rest = block_vjp(dY)
        return dX, dparams, *rest["attention"]

    return Y, vjp


@differentiable
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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Encoder layers, one after the other.

    .. math:: X^{l+1} = \operatorname{layer}_l(X^l),\qquad Y = \operatorname{norm}(X^L)\text{ if there is a last norm}

    Parameters
    ----------
    X : (..., n, d) embedded tokens.
    params : ``{"layers": {"0", "1", …}}``; with ``"norm"`` the sum at the end is normalised, as pre-norm needs; with
        ``"relative"`` (buckets, h) every layer gets that `relative_bias`.
    heads, mask : as in `encoder_layer`.
    attend : the core as in `encoder_layer`, or a list of cores, one for each layer.
    norm : of the sum at the end, ``norm(X, gain[, bias]) -> (Y, vjp)``.
    relative : ``relative(table, n, m) -> (B, vjp)``, such as ``partial(relative_bias, distance=64)``; the cores take B
        as ``bias``.
    record : a dict that receives ``["layers"]["0"]["attention"]["weights"]`` and so on.
    layer : further keywords of `encoder_layer`: ``attention``, ``feed_forward``, ``join``.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams).

    Raises
    ------
    ValueError
        As `encoder_layer`.

    References
    ----------
    Vaswani et al. (2017), section 3.1. Chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import encoder_shapes, random_tree
    >>> params = random_tree(encoder_shapes(4, 8, layers=2, norm=layer_norm), np.random.default_rng(0))
    >>> Y, vjp = encoder(np.eye(3, 4), params, 2, join=partial(sublayer, norm_first=True))
    >>> Y.shape
    (3, 4)
    """
    wiring.stack(params)
    vjps, B, bias_vjp, norm_vjp = [], None, None, None
    if "relative" in params:
        B, bias_vjp = relative(params["relative"], X.shape[-2], X.shape[-2])
    for i in range(len(params["layers"])):
        core = wiring.part_of(attend, i, "attention")
        core = partial(core, bias=B) if B is not None else core
        core = core if record is None else recording(core, child(record, "layers", str(i), "attention"))
        X, layer_vjp = encoder_layer(X, params["layers"][str(i)], heads, mask, attend=core, **layer)
        vjps.append(layer_vjp)
    if "norm" in params:
        X, norm_vjp = normalise(X, params["norm"], norm)

    def vjp(dX):
        dparams, dbias = {"layers": {}}, []
        if norm_vjp:
            dX, dparams["norm"] = norm_vjp(dX)
        for i in reversed(range(len(vjps))):
            dX, dparams["layers"][str(i)], *rest = vjps[i](dX)
            dbias += rest[-1:]
        if bias_vjp:
            dparams["relative"] = bias_vjp(sum(dbias))
        return dX, dparams

    return X, vjp
