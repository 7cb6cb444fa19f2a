"""State spaces whose steps depend on the input: the scan of Mamba, its dual as masked attention, and their layers."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import state_space as require
from attnmath.shapes import declares
from attnmath.state_shapes import mamba2_shapes, mamba_shapes
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.linear import affine
from attnmath.torch.look import can_look
from attnmath.torch.normalisation import rms_norm
from attnmath.torch.types import Array, T

FORMS = ("sequential", "parallel")


@cast_by_autocast
@half_in_float32
def linear_scan(
    A: Float[Array, "... n s"], B: Float[Array, "... n s"], *, form: str = "sequential"
) -> Float[Array, "... n s"]:
    r"""A recurrence that is linear in its state, each number on its own.

    .. math:: h_t = a_t h_{t-1} + b_t,\qquad h_0 = 0

    Parameters, errors and source as in `attnmath.numpy.selective_scan.linear_scan`.

    Examples
    --------
    >>> linear_scan(torch.full((3, 1), 0.5), torch.tensor([[8.0], [0.0], [1.0]]), form="parallel").ravel()
    tensor([8., 4., 3.])
    """
    _require.shapes(A=(A, "... n s"), B=(B, "... n s"))
    _require.choice("form", form, FORMS)
    if can_look(A, B):
        require.numbers(A=A, B=B)
    A, B = torch.broadcast_tensors(A, B)
    return _scans[form](A, B, -2)


def scan_sequential(A, B, axis):
    """One step after another along an axis."""
    h, H = 0, []
    for a, b in zip(A.unbind(axis), B.unbind(axis), strict=True):
        h = a * h + b  # eq:linear-scan
        H.append(h)
    return torch.stack(H, axis) if H else B


def scan_parallel(A, B, axis):
    """Neighbours are joined to pairs, the pairs are scanned, and every second state follows from the one before."""
    A, B = A.movedim(axis, 0), B.movedim(axis, 0)
    n = len(A)
    if n < 2:
        return B.movedim(0, axis)
    first = slice(0, n - 1, 2)
    pairs = A[1::2] * A[first], A[1::2] * B[first] + B[1::2]  # alg-parallel-scan
    second = scan_parallel(*pairs, 0)
    rest = A[2::2] * second[: (n - 1) // 2] + B[2::2]
    H = torch.cat([B[:1], rest])
    woven = torch.stack([H[: n // 2], second], 1).flatten(0, 1)
    return torch.cat([woven, H[n // 2 :]]).movedim(0, axis)


_scans = {"sequential": scan_sequential, "parallel": scan_parallel}


@cast_by_autocast
@half_in_float32
def selective_scan(
    U: Float[Array, "... n d"],
    step: Float[Array, "... n d"],
    A: Float[Array, "d s"],
    B: Float[Array, "... n s"],
    C: Float[Array, "... n s"],
    *,
    chunk: int = 64,
    form: str = "sequential",
) -> Float[Array, "... n d"]:
    r"""A state space for each channel whose step, and what it writes and reads, change from row to row.

    .. math:: h_t = e^{\Delta_t A} \odot h_{t-1} + \Delta_t u_t B_t,\qquad y_t = h_t C_t

    Parameters, errors and source as in `attnmath.numpy.selective_scan.selective_scan`. Autograd holds all states; under
    `attnmath.torch.checkpoint` it computes them again. Numbers are looked at where they can be
    (`attnmath.torch.look.can_look`).

    Examples
    --------
    >>> U, step = torch.tensor([[3.0], [9.0], [0.0]]), torch.tensor([[1.0], [0.0], [1.0]])
    >>> selective_scan(U, step, -torch.ones(1, 1), torch.ones(3, 1), torch.ones(3, 1)).ravel()
    tensor([3.0000, 3.0000, 1.1036])
    """
    specs = {"U": (U, "... n d"), "step": (step, "... n d"), "A": (A, "d s"), "B": (B, "... n s"), "C": (C, "... n s")}
    lead = _require.shapes(**specs)["..."]
    if can_look(U, step, A, B, C):
        require.steps(step, "nonnegative")
        require.decays("A", A)
        require.numbers(U=U, B=B, C=C)
    _require.count("chunk", chunk)
    _require.choice("form", form, FORMS)
    h, Y = U.new_zeros(*lead, 1, *A.shape), []
    for t in range(0, U.shape[-2], chunk):
        block = slice(t, t + chunk)
        E = torch.exp(step[..., block, :, None] * A)
        new = (step[..., block, :] * U[..., block, :])[..., None] * B[..., block, None, :]
        E, new = E.expand(*lead, *E.shape[-3:]), new.expand(*lead, *new.shape[-3:])
        start = E[..., :1, :, :] * h + new[..., :1, :, :]
        H = _scans[form](E, torch.cat([start, new[..., 1:, :, :]], -3), -3)  # eq:selective-scan
        Y.append((H @ C[..., block, :, None])[..., 0])
        h = H[..., -1:, :, :]
    return torch.cat(Y, -2) if Y else U.expand(*lead, *U.shape[-2:])


@cast_by_autocast
@half_in_float32
def state_space_dual(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    decay: Float[Array, "..."] | None = None,
    chunk: int | None = None,
) -> Float[Array, "... n v"]:
    r"""A core of attention without a softmax, whose mask decays: a state space with one decay for each position.

    .. math:: O = (L \odot Q K^\top)\, V,\quad L_{ij} = e^{g_{j+1} + \dots + g_i}\,[j \le i]
              \qquad\text{or}\qquad H_t = e^{g_t} H_{t-1} + K_t^\top V_t,\quad O_t = Q_t H_t

    Parameters, errors and source as in `attnmath.numpy.selective_scan.state_space_dual`. Numbers and masks are looked
    at where they can be (`attnmath.torch.look.can_look`).

    Examples
    --------
    >>> I, V = torch.ones(3, 1), torch.tensor([[8.0], [0.0], [1.0]])
    >>> state_space_dual(I, I, V, decay=torch.full((3,), 0.5).log()).ravel()
    tensor([8., 4., 3.])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    lead, n, m = sizes["..."], sizes["n"], sizes["m"]
    require.sizes(n, m, chunk)
    mask = mask if mask is True else torch.as_tensor(mask, device=Q.device)
    _require.mask(mask, (*lead, n, m))
    g = Q.new_zeros(1) if decay is None else decay
    require.per_position(g, (*lead, m), Q)
    look = can_look(Q, K, V, g, mask)
    if look:
        require.numbers(Q=Q, K=K, V=V)
        require.decays("decay", g)
    g = g.expand(*lead, m)
    if chunk is None:
        return (_decays(g, n, mask) * (Q @ T(K))) @ V  # eq:state-space-dual
    keys = True if mask is True else mask.expand(*lead, n, m)[..., -1, :, None]
    if look:
        require.hides_keys(mask, keys, lambda n, m: torch.ones(n, m, device=Q.device).tril())
    return dual_chunked(Q, K if keys is True else K * keys, V, g, chunk)


def _decays(g, n, mask=True):
    """The mask L of the last n rows, (..., n, m), from the logarithms of the decays (..., m)."""
    m = g.shape[-1]
    G = g.cumsum(-1)
    seen = torch.ones(n, m, dtype=torch.bool, device=g.device).tril(m - n)
    between = G[..., m - n :, None] - G[..., None, :]
    return between.masked_fill(~(seen if mask is True else seen & mask), -torch.inf).exp()


def dual_chunked(Q, K, V, g, chunk):
    """The same by chunks: products inside, and a state from one to the next."""
    H, O = 0, []
    lead = g.shape[:-1]
    Q, K, V = (X.expand(*lead, *X.shape[-2:]) for X in (Q, K, V))
    for t in range(0, g.shape[-1], chunk):
        block = slice(t, t + chunk)
        q, key, val = (X[..., block, :] for X in (Q, K, V))
        G = g[..., block].cumsum(-1)[..., None]
        H = q.new_zeros(*lead, key.shape[-1], val.shape[-1]) if t == 0 else H
        O.append((_decays(g[..., block], G.shape[-2]) * (q @ T(key))) @ val + G.exp() * (q @ H))  # eq:dual-chunk
        H = G[..., -1:, :].exp() * H + T((G[..., -1:, :] - G).exp() * key) @ val
    return torch.cat(O, -2) if O else V


def _depthwise(X, leaf):
    """A causal convolution of each channel on its own; the last tap meets the present."""
    W = leaf["weight"]
    past = F.pad(X, (0, 0, len(W) - 1, 0))
    return sum(past[..., s : s + X.shape[-2], :] * w for s, w in enumerate(W)) + leaf["bias"]


@declares(mamba_shapes)
def mamba(
    X: Float[Array, "... n d"], params: dict, *, chunk: int = 64, form: str = "sequential"
) -> Float[Array, "... n d"]:
    r"""Mamba's layer: a step of a `block`, in the place of attention and of the feed-forward network.

    .. math:: (U, Z) = X W_{in},\quad U' = \operatorname{silu}(\operatorname{conv}(U)),\quad
              (T, B, C) = U' W_s,\\
              Y = \bigl(\operatorname{scan}(U', \operatorname{softplus}(T W_\Delta + b_\Delta), -e^R, B, C)
              + D \odot U'\bigr) \odot \operatorname{silu}(Z)\; W_{out}

    Parameters, errors and source as in `attnmath.numpy.selective_scan.mamba`.

    Examples
    --------
    >>> params = {"input": {"weight": torch.ones(2, 4)}, "conv": {"weight": torch.ones(4, 2), "bias": torch.zeros(2)}}
    >>> params |= {"select": {"weight": torch.ones(2, 3)}, "rate": torch.zeros(2, 1), "skip": torch.zeros(2)}
    >>> params |= {"step": {"weight": torch.zeros(1, 2), "bias": torch.zeros(2)}}
    >>> mamba(torch.ones(1, 2), params | {"output": {"weight": torch.eye(2)}}).shape
    torch.Size([1, 2])
    """
    _require.branches(params, tuple(mamba_shapes(1, 1, 1, 1)))
    rank, inner = params["step"]["weight"].shape
    U, Z = affine(X, params["input"]).split(inner, -1)
    U = F.silu(_depthwise(U, params["conv"]))
    select = affine(U, params["select"])
    s = (select.shape[-1] - rank) // 2
    low, B, C = select.split([rank, s, s], -1)
    step = F.softplus(affine(low, params["step"]))
    scanned = selective_scan(U, step, -params["rate"].exp(), B, C, chunk=chunk, form=form)
    return affine((scanned + params["skip"] * U) * F.silu(Z), params["output"])  # eq:mamba


@declares(mamba2_shapes)
def mamba2(
    X: Float[Array, "... n d"], params: dict, *, chunk: int | None = 64, eps: float = 1e-5
) -> Float[Array, "... n d"]:
    r"""Mamba-2's layer: one step and one decay for each head, and the scan as a core of attention.

    .. math:: (Z, U, T) = X W_{in},\quad (U', B, C) = \operatorname{silu}(\operatorname{conv}(U)),\quad
              \Delta = \operatorname{softplus}(T + b),\\
              Y = \operatorname{rms}\bigl((\operatorname{dual}(C, B, \Delta U', g = -e^R \Delta) + D\,U')
              \odot \operatorname{silu}(Z)\bigr)\, W_{out}

    Parameters, errors and source as in `attnmath.numpy.selective_scan.mamba2`.

    Examples
    --------
    >>> from attnmath.shapes import map_tree
    >>> params = map_tree(lambda shape: torch.ones(shape), mamba2_shapes(2, 4, 3, 2))
    >>> mamba2(torch.ones(1, 2), params).shape
    torch.Size([1, 2])
    """
    _require.branches(params, tuple(mamba2_shapes(1, 1, 1, 1)))
    inner, heads = params["output"]["weight"].shape[0], len(params["rate"])
    _require.divides(heads, inner, "params['output']")
    all_of_it = affine(X, params["input"])
    Z, U, low = all_of_it.tensor_split([inner, all_of_it.shape[-1] - heads], -1)
    U = F.silu(_depthwise(U, params["conv"]))
    s = (U.shape[-1] - inner) // 2
    U, B, C = U.split([inner, s, s], -1)
    step = F.softplus(low + params["step"]).transpose(-1, -2)  # (..., h, n)
    U = U.unflatten(-1, (heads, -1)).transpose(-2, -3)  # (..., h, n, p)
    decay = -params["rate"].exp()[:, None] * step
    O = state_space_dual(C[..., None, :, :], B[..., None, :, :], U * step[..., None], decay=decay, chunk=chunk)
    O = (O + params["skip"][:, None, None] * U).transpose(-2, -3).flatten(-2)
    return affine(rms_norm(O * F.silu(Z), params["norm"]["gain"], eps), params["output"])  # eq:mamba2
