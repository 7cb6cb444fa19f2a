"""Linear attention: a kernel that is a product of features, so that one sum over the keys serves all queries."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import linear_attention as require
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.masks import causal_mask
from attnmath.torch.types import Array, T


@half_in_float32
def elu_plus_one(X: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The feature map of the first linear attention: positive, and smooth at 0.

    .. math:: \phi(x) = x + 1 \text{ for } x > 0,\qquad e^x \text{ otherwise}

    Parameters, errors and source as in `attnmath.numpy.linear_attention.elu_plus_one`. It is not ``F.elu(X) + 1``,
    which rounds a feature below the spacing of numbers near 1 to 0.

    Examples
    --------
    >>> elu_plus_one(torch.tensor([-1000.0, 0.0, 2.0]))
    tensor([0., 1., 3.])
    """
    _require.floats(X=X)
    return X.clamp(max=0).exp() + X.relu()  # eq:elu-plus-one


@cast_by_autocast
@half_in_float32
def linear_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    causal: bool = False,
    chunk: int = 128,
    feature: Callable = elu_plus_one,
    form: str = "chunked",
    normalise: bool = True,
) -> Float[Array, "... n v"]:
    r"""Attention whose kernel is a product of features, in time and memory that grow linearly with the keys.

    .. math:: O_i = \frac{\phi(q_i) \sum_j \phi(k_j)^\top v_j}{\phi(q_i) \sum_j \phi(k_j)^\top}

    Parameters, errors and source as in `attnmath.numpy.linear_attention.linear_attention`, ``feature`` returning a
    tensor. Where no value can be looked at (`attnmath.torch.look.can_look`), the mask is one of keys unless the form is
    parallel, and a sum of 0 is not noticed. For its backward pass PyTorch keeps the states between the chunks.

    Examples
    --------
    >>> linear_attention(torch.zeros(1, 2), torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    tensor([[2., 1.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    lead, n, m, v = sizes["..."], sizes["n"], sizes["m"], sizes["v"]
    _require.nonempty("K", K.shape, -2, m, "key")
    _require.mask(mask, (*lead, n, m))
    require.options(form, chunk, causal, n, m)
    FQ, FK = feature(Q), feature(K)
    require.features(FQ, FK)
    values = torch.cat([V, torch.ones_like(V[..., :1])], -1) if normalise else V
    if form == "parallel":
        U = parallel_sums(FQ, FK, values, _both(mask, causal, n, m, Q.device))
    else:
        keys, causal = _separate(mask, causal, n, m, Q.device)
        FK = FK if keys is True else FK.masked_fill(~T(keys), 0)
        FQ, FK, values = (X.expand(*lead, *X.shape[-2:]) for X in (FQ, FK, values))
        U = (
            recurrent_sums(FQ, FK, values, causal)
            if form == "recurrent"
            else chunked_sums(FQ, FK, values, causal, int(chunk))
        )
    if not normalise:
        return U
    z = U[..., v:]
    if can_look(z) and bool((z == 0).any()):
        require.no_sum_of_zero(tuple((z[..., 0] == 0).nonzero()[0].tolist()))
    return U[..., :v] / z  # eq:linear-attention


def _both(mask, causal, n, m, device):
    """The mask of all pairs; True if every pair is allowed."""
    mask = mask if mask is True else torch.as_tensor(mask, device=device)
    return causal_mask(n, m).to(device) & mask if causal else mask


def _separate(mask, causal, n, m, device):
    """A mask as one of keys, (..., 1, m), or True, and whether it is causal besides."""
    if mask is True:
        return True, causal
    mask = torch.as_tensor(mask, device=device)
    mask = mask.reshape((1,) * (2 - mask.ndim) + tuple(mask.shape))
    keys = mask[..., -1:, :].expand(*mask.shape[:-2], 1, m)
    if mask.shape[-2] == 1:
        return keys, causal
    require.can_be_read(can_look(mask))
    given = _both(mask, causal, n, m, device)
    if bool((given == keys).all()):
        return keys, causal
    require.separable(n <= m and bool((given == (keys & causal_mask(n, m).to(device))).all()))
    return keys, True


def parallel_sums(Q, K, V, allowed):
    """All products of features, then all sums over keys: u = (Q K' * mask) V."""
    A = Q @ T(K)
    return (A if allowed is True else A.masked_fill(~allowed, 0)) @ V  # eq:linear-parallel


def recurrent_sums(Q, K, V, causal):
    """One key after the other, and what a query reads from the sum so far."""
    n, m = Q.shape[-2], K.shape[-2]
    before = m - n if causal else m  # keys that every query sees
    S, U = Q.new_zeros(*Q.shape[:-2], Q.shape[-1], V.shape[-1]), []
    for j in range(before):
        S = S + K[..., j, :, None] * V[..., j, None, :]
    for i in range(n):
        if causal:
            j = before + i
            S = S + K[..., j, :, None] * V[..., j, None, :]  # eq:linear-state
        U.append(Q[..., i, None, :] @ S)  # eq:linear-read
    return torch.cat(U, -2) if U else Q @ S


def chunked_sums(Q, K, V, causal, chunk):
    """All blocks at once: products within each, and for what lies before it the sum of the blocks before."""
    n, m = Q.shape[-2], K.shape[-2]
    if not causal:
        return Q @ (T(K) @ V)
    chunk = min(chunk, n)
    before, pad = m - n, -n % chunk
    S = T(K[..., :before, :]) @ V[..., :before, :]
    q, k, v = (F.pad(X, (0, 0, 0, pad)).unflatten(-2, (-1, chunk)) for X in (Q, K[..., before:, :], V[..., before:, :]))
    own = T(k) @ v  # (..., blocks, f, v)
    S = torch.cat([S[..., None, :, :], own[..., :-1, :, :]], -3).cumsum(-3)  # eq:linear-chunk-state
    U = q @ S + (q @ T(k)).tril() @ v  # eq:linear-chunk
    return U.flatten(-3, -2)[..., :n, :]
