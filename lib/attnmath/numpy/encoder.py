"""The Transformer's encoder: one layer, and the stack of them."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float

from attnmath.numpy.activations import gelu
from attnmath.numpy.feed_forward import feed_forward
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.relative_positions import relative_bias
from attnmath.numpy.residuals import normalise, sublayer
from attnmath.numpy.types import Array, Vjp
from attnmath.tree import child


def attend(params, heads, mask, **options):
    """Self-attention as a function of its input alone; vjp: dY -> (dX, dparams[, dbias])."""

    def f(X):
        H, attention_vjp = multi_head_attention(X, X, X, params, heads, mask, **options)

        def vjp(dH):
            dQ, dK, dV, *rest = attention_vjp(dH)
            return dQ + dK + dV, *rest

        return H, vjp

    return f


def encoder_layer(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
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
    record: dict | None = None,
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
    norm_first : False normalises each sum (post-norm), True each sub-layer's input (pre-norm).
    norm : ``norm(X, gain[, bias], eps) -> (Y, vjp)``, such as `layer_norm`.
    eps : of every norm.
    feed_forward : ``feed_forward(X, params, activation) -> (Y, vjp)``.
    activation : ``a(X) -> (Y, vjp)``, element by element.
    key_heads, rotate, bias : of the self-attention, as in `multi_head_attention`.
    drop : ``drop(X) -> (Y, vjp)``, applied to each sub-layer's value before the sum, such as `random_dropout`.
    drop_weights : the same for attention weights.
    record : a dict that receives ``["attention"]["weights"]``.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams), and dbias after them if there is a bias.

    Raises
    ------
    ValueError
        As `multi_head_attention`, `layer_norm` and `feed_forward`.

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
    joint = {"norm_first": norm_first, "norm": norm, "eps": eps, "drop": drop}
    options = {"key_heads": key_heads, "drop_weights": drop_weights}
    own = {"rotate": rotate, "bias": bias, "record": child(record, "attention")}
    attention = attend(params["attention"], heads, mask, **options, **own)
    A, attention_vjp = sublayer(X, attention, params["attention_norm"], **joint)  # eq:encoder-attention
    network = partial(feed_forward, params=params["feed_forward"], activation=activation)
    Y, network_vjp = sublayer(A, network, params["feed_forward_norm"], **joint)  # eq:encoder-feed-forward

    def vjp(dY):
        dparams = {}
        dA, dparams["feed_forward_norm"], dparams["feed_forward"] = network_vjp(dY)
        dX, dparams["attention_norm"], dparams["attention"], *dbias = attention_vjp(dA)
        return dX, dparams, *dbias

    return Y, vjp


def encoder(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    norm: Callable = layer_norm,
    eps: float = 1e-5,
    distance: int = 128,
    record: dict | None = None,
    **options,
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Encoder layers, one after the other.

    .. math:: X^{l+1} = \operatorname{layer}_l(X^l),\qquad Y = \operatorname{norm}(X^L)\text{ if there is a last norm}

    Parameters
    ----------
    X : (..., n, d) embedded tokens.
    params : ``{"layers": {"0", "1", …}}``; with ``"norm"`` the sum at the end is normalised, as pre-norm needs; with
        ``"relative"`` (buckets, h) every layer gets that `relative_bias`.
    heads, mask, norm, eps : as in `encoder_layer`.
    distance : of `relative_bias`.
    record : a dict that receives ``["layers"]["0"]["attention"]["weights"]`` and so on.
    options : further keywords of `encoder_layer`.

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
    >>> params = random_tree(encoder_shapes(4, 8, layers=2, norm=True), np.random.default_rng(0))
    >>> Y, vjp = encoder(np.eye(3, 4), params, 2, norm_first=True)
    >>> Y.shape
    (3, 4)
    """
    vjps, shared, shared_vjp, norm_vjp = [], {}, None, None
    if "relative" in params:
        shared["bias"], shared_vjp = relative_bias(params["relative"], X.shape[-2], X.shape[-2], distance)
    for i in range(len(params["layers"])):
        layer = {"norm": norm, "eps": eps, "record": child(record, "layers", str(i)), **shared, **options}
        X, layer_vjp = encoder_layer(X, params["layers"][str(i)], heads, mask, **layer)
        vjps.append(layer_vjp)
    if "norm" in params:
        X, norm_vjp = normalise(X, params["norm"], norm, eps)

    def vjp(dX):
        dparams, dbias = {"layers": {}}, []
        if norm_vjp:
            dX, dparams["norm"] = norm_vjp(dX)
        for i in reversed(range(len(vjps))):
            dX, dparams["layers"][str(i)], *dshared = vjps[i](dX)
            dbias += dshared
        if shared_vjp:
            dparams["relative"] = shared_vjp(sum(dbias))
        return dX, dparams

    return X, vjp
