"""Keys and values that take less memory: latent ones, from which all heads are made, and rounded ones."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, UInt8

from attnmath import _require, latent, wiring
from attnmath.shapes import declares
from attnmath.torch.attention import attention_fused
from attnmath.torch.cores import grouped
from attnmath.torch.linear import affine
from attnmath.torch.multi_head import merge_heads, split_heads
from attnmath.torch.normalisation import rms_norm
from attnmath.torch.types import Array, T


@declares(latent.latent_shapes)
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
) -> Float[Array, "... n o"]:
    r"""Multi-head latent attention: the keys and values of all heads are made from one short row per token.

    .. math:: C &= \operatorname{norm}(K W_d),\qquad R = \operatorname{turn}(K W_r)\\
              H_i &= \operatorname{attention}\bigl([Q_i, \operatorname{turn}(Q_i^r)],\; [C U_i, R],\; C Z_i\bigr)\\
                  &= \operatorname{attention}\bigl([Q_i U_i^\top, \operatorname{turn}(Q_i^r)],\; [C, R],\; C\bigr)\, Z_i

    Parameters, errors and source as in `attnmath.numpy.key_value_caches.latent_attention`.

    Examples
    --------
    >>> from attnmath.torch.modules import ParamTree
    >>> params, X = ParamTree(latent.latent_shapes(8, 2)).tree(), torch.eye(3, 8)
    >>> plain, absorbed = (latent_attention(X, X, X, params, 2, absorbed=a) for a in (False, True))
    >>> bool((plain - absorbed).abs().max() < 1e-6)
    True
    """
    k, r, c, v = latent.sizes(params, heads)
    wiring.inputs(Q, K, V, 0)
    start, f = getattr(attend, "start", 0), (k + r) ** -0.5 if scale is None else scale
    q = split_heads(_queries(Q, params), heads)  # (..., h, n, k + r)
    down = affine(K, params["down"])
    C = rms_norm(down[..., :c], params["norm"]["gain"])[..., None, :, :]  # eq:latent
    R, turned = down[..., None, :, c:], q[..., k:]
    if turn is not None:
        R, turned = turn(R, start=start), turn(turned, start=start)  # eq:latent-turned
    U = params["up"]["weight"].reshape(c, heads, k + v).transpose(0, 1)  # (h, c, k + v)
    if absorbed:
        first, keys, values = q[..., :k] @ T(U[..., :k]), torch.cat([C, R], -1), C
    else:
        made = C @ U  # (..., h, m, k + v)
        first, values = q[..., :k], made[..., k:]
        keys = torch.cat([made[..., :k], R.expand(*made.shape[:-1], r)], -1)
    f = f * keys.shape[-1] ** 0.5  # a core divides by the root of its keys' width
    asked = f * torch.cat([first, turned], -1)
    L = grouped(attend)(asked, keys, values, **({} if mask is True else {"mask": mask}))
    H = L @ U[..., k:] if absorbed else L  # eq:latent-attention, eq:latent-absorbed
    return affine(merge_heads(H), params["output"])


def _queries(Q, params):
    """The queries of all heads side by side, directly or through a latent of their own."""
    if "query_down" in params:
        Q = rms_norm(affine(Q, params["query_down"]), params["query_norm"]["gain"])
    return affine(Q, params["query"])


def quantised(
    X: Float[Array, "... n k"], bits: int = 8, *, axis: int = -1
) -> tuple[UInt8[Array, "... n k"], Float[Array, "..."], Float[Array, "..."]]:
    r"""Round numbers to evenly spaced levels between the least and the greatest along an axis.

    .. math:: \ell = \min X,\qquad \Delta = \frac{\max X - \min X}{2^b - 1},\qquad
              Z = \operatorname{round}\Bigl(\frac{X - \ell}{\Delta}\Bigr)

    Parameters, errors and source as in `attnmath.numpy.key_value_caches.vjp`.

    Examples
    --------
    >>> Z, low, step = quantised(torch.tensor([[0.0, 0.4, 3.0]]), 2)
    >>> Z, low, step
    (tensor([[0, 0, 3]], dtype=torch.uint8), tensor([[0.]]), tensor([[1.]]))
    """
    _require.shapes(X=(X, "... n k"))
    _require.choice("bits", bits, tuple(range(1, 9)))
    _require.choice("axis", axis, (-1, -2))
    _require.nonempty("X", X.shape, axis, X.shape[axis], "number")
    low = X.amin(axis, keepdim=True)
    step = (X.amax(axis, keepdim=True) - low) / (2**bits - 1)  # eq:quantised
    Z = torch.round((X - low) / torch.where(step > 0, step, 1))
    return Z.clip(0, 2**bits - 1).to(torch.uint8), low, step


def dequantised(
    Z: UInt8[Array, "... n k"], low: Float[Array, "..."], step: Float[Array, "..."]
) -> Float[Array, "... n k"]:
    r"""The numbers for which levels stand, each within half a step of what was rounded.

    .. math:: \hat X = \ell + \Delta Z

    Parameters, errors and source as in `attnmath.numpy.key_value_caches.dequantised`.

    Examples
    --------
    >>> dequantised(*quantised(torch.tensor([[0.0, 0.4, 3.0]]), 2))
    tensor([[0., 0., 3.]])
    """
    _require.floats(low=low, step=step)
    return low + step * Z.to(low.dtype)  # eq:dequantised
