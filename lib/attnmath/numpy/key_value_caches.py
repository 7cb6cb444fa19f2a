"""Keys and values that take less memory: latent ones, from which all heads are made, and rounded ones."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, UInt8

from attnmath import _require, latent, wiring
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.cores import grouped
from attnmath.numpy.linear import affine
from attnmath.numpy.multi_head import merge_heads, split_heads
from attnmath.numpy.normalisation import rms_norm
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to
from attnmath.shapes import declares


@declares(latent.latent_shapes)
@differentiable
def latent_attention(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m d"],
    V: Float[Array, "... m d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable = attention_fused,
    turn: Callable | None = None,
    absorbed: bool = False,
    scale: float | None = None,
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""Multi-head latent attention: the keys and values of all heads are made from one short row per token.

    .. math:: C &= \operatorname{norm}(K W_d),\qquad R = \operatorname{turn}(K W_r)\\
              H_i &= \operatorname{attention}\bigl([Q_i, \operatorname{turn}(Q_i^r)],\; [C U_i, R],\; C Z_i\bigr)\\
                  &= \operatorname{attention}\bigl([Q_i U_i^\top, \operatorname{turn}(Q_i^r)],\; [C, R],\; C\bigr)\, Z_i

    Parameters
    ----------
    Q, K : (..., n, d) and (..., m, d) tokens that ask, tokens that are asked.
    V : (..., m, d), not read: values come from K too. It is an argument because those of all attentions are alike.
    params : ``{"query", "down", "norm", "up", "output"}``, and for queries with a latent of their own ``{"query_down",
        "query_norm"}``; widths as in `attnmath.latent.latent_shapes`. ``up`` has no bias.
    heads : h.
    mask : boolean, broadcasts to (..., h, n, m); True = may attend.
    attend : the core. In the absorbed form it gets one head of keys [C, R] and of values C: with a
        `attnmath.caches.LatentCache` around it, c + r numbers are kept for each token.
    turn : as in `multi_head_attention`, for the r components R and :math:`Q^r`.
    absorbed : whether to compute the second line, where no key or value of a head is ever made.
    scale : what multiplies dot products; None is :math:`1/\sqrt{k + r}`.

    Returns
    -------
    O : (..., n, o), the same in both forms up to rounding.
    vjp : dO -> (dQ, dK, dV, dparams), dV being zeros.

    Raises
    ------
    ValueError
        If a parameter is missing, widths do not fit together, or shapes or dtypes disagree.

    References
    ----------
    DeepSeek-AI (2024), section 2.1: their W^DKV and W^KR stand side by side in ``down``, W^UK and W^UV in ``up``, W^UQ
    and W^QR in ``query``. Chapter 7, eq:latent-attention and eq:latent-absorbed.

    Examples
    --------
    >>> from attnmath import shapes
    >>> rng = np.random.default_rng(0)
    >>> params, X = shapes.random_tree(latent.latent_shapes(8, 2), rng, 0.3), rng.standard_normal((3, 8))
    >>> plain, absorbed = (latent_attention(X, X, X, params, 2, absorbed=a)[0] for a in (False, True))
    >>> bool(abs(plain - absorbed).max() < 1e-12), abs(plain).max().round(4)
    (True, np.float64(0.5604))
    """
    k, r, c, v = latent.sizes(params, heads)
    wiring.inputs(Q, K, V, 0)
    start, f = getattr(attend, "start", 0), (k + r) ** -0.5 if scale is None else scale
    queries, query_vjp = _queries(Q, params)
    q = split_heads(queries, heads)  # (..., h, n, k + r)
    down, down_vjp = affine(K, params["down"])
    C, norm_vjp = rms_norm(down[..., :c], params["norm"]["gain"])  # eq:latent
    R, key_turn = _turned(down[..., None, :, c:], turn, start)  # eq:latent-turned
    turned, query_turn = _turned(q[..., k:], turn, start)
    U = params["up"]["weight"].reshape(c, heads, k + v).swapaxes(0, 1)  # (h, c, k + v)
    Uk, Uv, one = U[..., :k], U[..., k:], C[..., None, :, :]
    if absorbed:
        first, keys, values = q[..., :k] @ T(Uk), np.concatenate([one, R], -1), one
    else:
        made = one @ U  # (..., h, m, k + v)
        first, values = q[..., :k], made[..., k:]
        shared = np.broadcast_to(R, (*made.shape[:-1], r))
        keys = np.concatenate([made[..., :k], shared], -1)
    f = f * keys.shape[-1] ** 0.5  # a core divides by the root of its keys' width
    asked = f * np.concatenate([first, turned], -1)
    options = {} if mask is True else {"mask": mask}
    L, core_vjp = grouped(attend)(asked, keys, values, **options)
    H = L @ Uv if absorbed else L  # eq:latent-attention, eq:latent-absorbed
    O, out_vjp = affine(merge_heads(H), params["output"])

    def vjp(dO):
        dH, dparams = out_vjp(dO)
        dH, dparams = split_heads(dH, heads), {"output": dparams}
        dasked, dkeys, dvalues = core_vjp(dH @ T(Uv) if absorbed else dH)[:3]
        wide = dasked.shape[-1] - r
        dfirst, dturned = f * dasked[..., :wide], query_turn(f * dasked[..., wide:])
        dR = key_turn(sum_to(dkeys[..., wide:], R.shape))
        if absorbed:
            dC = (dkeys[..., :c] + dvalues)[..., 0, :, :]  # eq:latent-absorbed-vjp
            dU = np.concatenate([T(dfirst) @ q[..., :k], T(L) @ dH], -1)
            dfirst = dfirst @ Uk
        else:
            dmade = np.concatenate([dkeys[..., :k], dvalues], -1)  # eq:latent-attention-vjp
            dC, dU = (dmade @ T(U)).sum(-3), T(one) @ dmade
        dparams["up"] = {"weight": sum_to(dU, U.shape).swapaxes(0, 1).reshape(c, -1)}
        dlatent, dgain = norm_vjp(dC)
        dparams["norm"] = {"gain": dgain}
        dK, dparams["down"] = down_vjp(np.concatenate([dlatent, dR[..., 0, :, :]], -1))
        dQ, dquery = query_vjp(merge_heads(np.concatenate([dfirst, dturned], -1)))
        return dQ, dK, np.zeros_like(V), {name: (dparams | dquery)[name] for name in params}

    return O, vjp


def _queries(Q, params):
    """The queries of all heads side by side, directly or through a latent of their own; vjp: dY -> (dQ, dparams)."""
    if "query_down" not in params:
        Y, linear_vjp = affine(Q, params["query"])

        def direct(dY):
            dQ, dleaf = linear_vjp(dY)
            return dQ, {"query": dleaf}

        return Y, direct
    small, down_vjp = affine(Q, params["query_down"])
    normed, norm_vjp = rms_norm(small, params["query_norm"]["gain"])
    Y, up_vjp = affine(normed, params["query"])

    def through(dY):
        dparams = {}
        dnormed, dparams["query"] = up_vjp(dY)
        dsmall, dgain = norm_vjp(dnormed)
        dQ, dparams["query_down"] = down_vjp(dsmall)
        return dQ, dparams | {"query_norm": {"gain": dgain}}

    return Y, through


def _turned(X, turn, start):
    """X by its positions; without a turn, X itself."""
    return (X, lambda dX: dX) if turn is None else turn(X, start=start)


def quantised(
    X: Float[Array, "... n k"], bits: int = 8, *, axis: int = -1
) -> tuple[UInt8[Array, "... n k"], Float[Array, "..."], Float[Array, "..."]]:
    r"""Round numbers to evenly spaced levels between the least and the greatest along an axis.

    .. math:: \ell = \min X,\qquad \Delta = \frac{\max X - \min X}{2^b - 1},\qquad
              Z = \operatorname{round}\Bigl(\frac{X - \ell}{\Delta}\Bigr)

    Parameters
    ----------
    X : (..., n, k) keys or values.
    bits : b, 1 to 8.
    axis : along which one least number and one step hold: -1 for each token its own, -2 for each channel.

    Returns
    -------
    Z, low, step : the levels as bytes, and what `dequantised` needs, of X's dtype and with the axis kept; a step is 0
        where all numbers are equal.

    Raises
    ------
    ValueError
        If bits is not 1 to 8, axis is neither -1 nor -2, or the axis is empty.

    References
    ----------
    Liu et al. (2024), section 3.1. Chapter 7, eq:quantised.

    Examples
    --------
    >>> Z, low, step = quantised(np.array([[0.0, 0.4, 3.0]]), 2)
    >>> Z, low, step
    (array([[0, 0, 3]], dtype=uint8), array([[0.]]), array([[1.]]))
    """
    _require.shapes(X=(X, "... n k"))
    _require.choice("bits", bits, tuple(range(1, 9)))
    _require.choice("axis", axis, (-1, -2))
    _require.nonempty("X", X.shape, axis, X.shape[axis], "number")
    low = X.min(axis, keepdims=True)
    step = (X.max(axis, keepdims=True) - low) / (2**bits - 1)  # eq:quantised
    Z = np.round((X - low) / np.where(step > 0, step, 1))
    return Z.clip(0, 2**bits - 1).astype(np.uint8), low, step


def dequantised(
    Z: UInt8[Array, "... n k"], low: Float[Array, "..."], step: Float[Array, "..."]
) -> Float[Array, "... n k"]:
    r"""The numbers for which levels stand, each within half a step of what was rounded.

    .. math:: \hat X = \ell + \Delta Z

    Parameters
    ----------
    Z, low, step : as `quantised` gives them.

    Returns
    -------
    X : (..., n, k), of low's dtype.

    Raises
    ------
    ValueError
        If low and step are not floats.

    References
    ----------
    Liu et al. (2024), section 3.1. Chapter 7, eq:dequantised.

    Examples
    --------
    >>> dequantised(*quantised(np.array([[0.0, 0.4, 3.0]]), 2))
    array([[0., 0., 3.]])
    """
    _require.floats(low=low, step=step)
    return low + step * np.asarray(Z).astype(low.dtype)  # eq:dequantised
