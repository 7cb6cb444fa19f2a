"""Memories that decay and correct: linear attention with gates and with the delta rule, step by step and in chunks."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import fast_weights as require
from attnmath._require.attention import factor
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.types import Array, T


@cast_by_autocast
@half_in_float32
def fast_weights(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    decay: Float[Array, "..."] | None = None,
    beta: Float[Array, "..."] | None = None,
    state: Float[Array, "..."] | None = None,
    chunk: int = 64,
    scale: float | None = 1.0,
) -> Float[Array, "... n v"]:
    r"""Causal attention by a memory of k x v numbers that decays and corrects itself, in time linear in n.

    .. math:: S_t = \operatorname{diag}(a_t)\,S_{t-1} + k_t^\top u_t,\qquad o_t = c\,q_t S_t

    Parameters, errors and sources as in `attnmath.numpy.fast_weights.fast_weights`. Gates and masks are looked at where
    that is possible, see `attnmath.torch.look.can_look`. Autograd keeps every chunk's matrices.

    Examples
    --------
    >>> K, V = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[3.0], [5.0]])  # one key, written twice
    >>> fast_weights(K, K, V).ravel(), fast_weights(K, K, V, beta=torch.ones(2, 1)).ravel()
    (tensor([3., 8.]), tensor([3., 5.]))
    """
    _require.count("chunk", chunk)
    arrays, S, first = _prepare(Q, K, V, mask, decay, beta, state, scale)
    O = []
    for i in range(0, K.shape[-2], chunk):
        o, S = memory_chunk(*(None if X is None else X[..., i : i + chunk, :] for X in arrays), S)  # eq:memory-output
        O.append(o)
    return torch.cat(O, -2)[..., first:, :]


@cast_by_autocast
@half_in_float32
def fast_weights_recurrent(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    decay: Float[Array, "..."] | None = None,
    beta: Float[Array, "..."] | None = None,
    state: Float[Array, "..."] | None = None,
    chunk: int = 64,
    scale: float | None = 1.0,
) -> Float[Array, "... n v"]:
    r"""`fast_weights`, key by key: the definition, and what a decoder does.

    .. math:: S_t = \operatorname{diag}(a_t)\,S_{t-1} + k_t^\top u_t,\qquad o_t = c\,q_t S_t

    Parameters, errors and sources as in `attnmath.numpy.fast_weights.fast_weights_recurrent`; autograd keeps every
    memory, so ``chunk`` changes nothing here.

    Examples
    --------
    >>> X = torch.ones(3, 1)
    >>> fast_weights_recurrent(X, X, X, decay=torch.tensor([[0.5]])).ravel()
    tensor([1.0000, 1.5000, 1.7500])
    """
    _require.count("chunk", chunk)
    arrays, S, first = _prepare(Q, K, V, mask, decay, beta, state, scale)
    O = []
    for t in range(K.shape[-2]):
        q, key, u, a, b = (None if X is None else X[..., t, :, None] for X in arrays)
        S = S if a is None else a * S
        u = T(u) if b is None else b * (T(u) - T(key) @ S)  # eq:fast-weights
        S = S + key @ u  # eq:fast-weights
        O.append(T(q) @ S)
    return torch.cat(O, -2)[..., first:, :]


@cast_by_autocast
@half_in_float32
def fast_weights_state(
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    decay: Float[Array, "..."] | None = None,
    beta: Float[Array, "..."] | None = None,
    state: Float[Array, "..."] | None = None,
    chunk: int = 64,
) -> Float[Array, "... k v"]:
    r"""What `fast_weights` holds after the last key: all that a decoder keeps of the text.

    .. math:: S_m = \operatorname{diag}(a_m)\,S_{m-1} + k_m^\top u_m

    Parameters, errors and sources as in `attnmath.numpy.fast_weights.fast_weights_state`.

    Examples
    --------
    >>> fast_weights_state(torch.ones(2, 1), torch.tensor([[3.0], [5.0]]), beta=torch.ones(2, 1))
    tensor([[5.]])
    """
    _require.count("chunk", chunk)
    _require.shapes(K=(K, "... m k"), V=(V, "... m v"))
    arrays, S, _ = _prepare(K[..., -1:, :], K, V, mask, decay, beta, state, 1.0)
    for i in range(0, K.shape[-2], chunk):
        _, S = memory_chunk(*(None if X is None else X[..., i : i + chunk, :] for X in arrays), S)
    return S


def retention_decays(h: int) -> Float[Array, "h 1 1"]:
    r"""The fixed decays of a retentive network's heads: half-lives of about 22, 44, 88, … keys.

    .. math:: \gamma_i = 1 - 2^{-5-i},\qquad i = 0, \dots, h-1

    Parameters, errors and source as in `attnmath.numpy.fast_weights.retention_decays`.

    Examples
    --------
    >>> retention_decays(3).ravel()
    tensor([0.9688, 0.9844, 0.9922], dtype=torch.float64)
    """
    _require.count("h", h)
    return 1 - 2.0 ** -(5 + torch.arange(h, dtype=torch.float64)[:, None, None])  # eq:retention-decays


def memory_chunk(Q, K, V, a, b, S):
    """Some keys at once, from the memory before them: outputs, and the memory after them."""
    C = K.shape[-2]
    if a is None:
        among = torch.ones(1, C, C, dtype=K.dtype, device=K.device).tril()
        Qs, Ks, Ke, whole = Q, K, K, 1.0
    else:
        W = memory_decays(a)
        among, since, until, whole = W[..., 1:, 1:], T(W[..., 1:, 0]), T(W[..., -1, 1:]), W[..., -1, 0][..., None]
        Qs, Ks, Ke = since * Q, since * K, until * K
    U = V
    if b is not None:
        L = b * _pairs(K, K, among.tril(-1))
        U = b * (V - Ks @ S)
        U = torch.linalg.solve_triangular(L, U, upper=False, unitriangular=True)  # eq:memory-solve
    A = _pairs(Q, K, among)  # eq:memory-scores
    return Qs @ S + A @ U, whole * S + T(Ke) @ U  # eq:memory-output, eq:memory-state


def memory_decays(a):
    """Products of decays (..., C, c): what position i still has of what stood at j, (..., c, C + 1, C + 1)."""
    C = a.shape[-2]
    rows = torch.cat([torch.ones_like(a[..., :1, :]), a], -2)
    later = torch.ones(C + 1, C + 1, dtype=torch.bool, device=a.device).tril(-1)
    factors = torch.where(later, T(rows)[..., None], torch.ones((), dtype=a.dtype, device=a.device))
    return factors.cumprod(-2).tril()  # eq:memory-decays


def _pairs(X, K, D):
    """Products of rows of X and K, component by component times D (..., c, i, j), c = 1 or k."""
    if D.shape[-3] == 1:
        return X @ T(K) * D[..., 0, :, :]
    return (T(X)[..., :, None] * D * T(K)[..., None, :]).sum(-3)


def _prepare(Q, K, V, mask, decay, beta, state, scale):
    """The arrays of the recurrence with all their axes, queries at the last keys; the first memory; rows to cut off."""
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    lead, n, m, k, v = (sizes[axis] for axis in ("...", "n", "m", "k", "v"))
    _require.causal_sizes(n, m)
    c = factor(scale, k)
    a = b = None
    if decay is not None:
        require.gate_shape("decay", decay, K, ((*lead, m, 1), (*lead, m, k)))
        if can_look(decay):
            require.gate_values("decay", decay, 1)
        a = decay
    if beta is not None:
        require.gate_shape("beta", beta, K, ((*lead, m, 1),))
        if can_look(beta):
            require.gate_values("beta", beta, 2)
        b = beta.expand(*lead, m, 1)
    if state is not None:
        require.state(state, K, (*lead, k, v))
    _require.mask(mask, (*lead, n, m))
    if mask is not True:
        keep = _kept(torch.as_tensor(mask, device=K.device), n, m)
        K = K * keep.to(K.dtype)
        a = None if a is None else torch.where(keep, a, torch.ones((), dtype=K.dtype, device=K.device))
    if a is not None:
        a = a.expand(*lead, m, decay.shape[-1] if decay.ndim else 1)
    Q, K, V = (c * Q).expand(*lead, n, k), K.expand(*lead, m, k), V.expand(*lead, m, v)
    if n < m:
        Q = torch.cat([Q.new_zeros(*lead, m - n, k), Q], -2)
    S = K.new_zeros(*lead, k, v) if state is None else state.expand(*lead, k, v)
    return (Q, K, V, a, b), S, m - n


def _kept(mask, n, m):
    """Which keys a mask lets in; the others it hides from all queries, (..., m, 1)."""
    rows = mask.expand(*mask.shape[:-2], n, m)
    kept = rows[..., -1:, :]
    if can_look(mask) and ((rows != kept) & torch.ones(n, m, dtype=torch.bool, device=mask.device).tril(m - n)).any():
        require.no_such_mask()
    return T(kept)
