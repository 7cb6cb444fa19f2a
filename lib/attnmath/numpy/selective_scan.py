"""State spaces whose steps depend on the input: the scan of Mamba, its dual as masked attention, and their layers."""

from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import state_space as require
from attnmath.numpy.activations import silu
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.linear import affine
from attnmath.numpy.normalisation import rms_norm
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to
from attnmath.shapes import declares
from attnmath.state_shapes import mamba2_shapes, mamba_shapes

FORMS = ("sequential", "parallel")


@differentiable
@half_in_float32
def linear_scan(
    A: Float[Array, "... n s"], B: Float[Array, "... n s"], *, form: str = "sequential"
) -> tuple[Float[Array, "... n s"], Vjp]:
    r"""A recurrence that is linear in its state, each number on its own.

    .. math:: h_t = a_t h_{t-1} + b_t,\qquad h_0 = 0

    Parameters
    ----------
    A, B : (..., n, s) factors and inputs.
    form : ``"sequential"`` takes n steps; ``"parallel"`` about 2 log n, each of them on many entries at once.

    Returns
    -------
    H : (..., n, s).
    vjp : dH -> (dA, dB); it is a scan from the other end.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, anything is NaN, or the form is another.

    References
    ----------
    Blelloch (1990), section 1.4.1. Chapter 7, eq:linear-scan, alg-parallel-scan.

    Examples
    --------
    >>> H, vjp = linear_scan(np.array([[0.5], [0.5], [0.5]]), np.array([[8.0], [0.0], [1.0]]), form="parallel")
    >>> H.ravel()
    array([8., 4., 3.])
    """
    _require.shapes(A=(A, "... n s"), B=(B, "... n s"))
    _require.choice("form", form, FORMS)
    require.numbers(A=A, B=B)
    shapes = A.shape, B.shape
    A, B = np.broadcast_arrays(A, B)
    scan = _scans[form]
    H = scan(A, B, -2)

    def vjp(dH):
        later = np.concatenate([A[..., 1:, :], np.ones_like(A[..., :1, :])], -2)
        dB = scan(later[..., ::-1, :], dH[..., ::-1, :], -2)[..., ::-1, :]  # eq:linear-scan-vjp
        before = np.concatenate([np.zeros_like(H[..., :1, :]), H[..., :-1, :]], -2)
        return sum_to(dB * before, shapes[0]), sum_to(dB, shapes[1])

    return H, vjp


def scan_sequential(A, B, axis):
    """One step after another along an axis."""
    A, B = np.moveaxis(A, axis, 0), np.moveaxis(B, axis, 0)
    H = np.empty_like(B)
    h = 0
    for t in range(len(A)):
        h = H[t] = A[t] * h + B[t]  # eq:linear-scan
    return np.moveaxis(H, 0, axis)


def scan_parallel(A, B, axis):
    """Neighbours are joined to pairs, the pairs are scanned, and every second state follows from the one before."""
    A, B = np.moveaxis(A, axis, 0), np.moveaxis(B, axis, 0)
    if len(A) < 2:
        return np.moveaxis(B.copy(), 0, axis)
    first, second = slice(0, len(A) - 1, 2), slice(1, None, 2)
    pairs = A[second] * A[first], A[second] * B[first] + B[second]  # alg-parallel-scan
    H = np.empty_like(B)
    H[second] = scan_parallel(*pairs, 0)
    H[0], H[2::2] = B[0], A[2::2] * H[1:-1:2] + B[2::2]
    return np.moveaxis(H, 0, axis)


_scans = {"sequential": scan_sequential, "parallel": scan_parallel}


@differentiable
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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""A state space for each channel whose step, and what it writes and reads, change from row to row.

    .. math:: h_t = e^{\Delta_t A} \odot h_{t-1} + \Delta_t u_t B_t,\qquad y_t = h_t C_t

    Parameters
    ----------
    U : (..., n, d) inputs.
    step : (..., n, d) :math:`\Delta \ge 0`; 0 leaves the state as it is.
    A : (d, s) rates <= 0.
    B, C : (..., n, s) what an input writes into the state of each channel, and how the state is read.
    chunk : rows whose states, (chunk, d, s), are held at a time; it need not divide n.
    form : inside a chunk, as in `linear_scan`.

    Returns
    -------
    Y : (..., n, d); the state before the first row is 0.
    vjp : dY -> (dU, dstep, dA, dB, dC). It holds the state at the start of each chunk and computes the others again.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, a step is negative, a rate is positive, anything is NaN, chunk is not a positive
        integer, or the form is another.

    References
    ----------
    Gu and Dao (2024), equation 2 and algorithm 2, whose code writes with :math:`\Delta B` as here. Chapter 7,
    eq:selective-scan.

    Examples
    --------
    >>> U, step = np.array([[3.0], [9.0], [0.0]]), np.array([[1.0], [0.0], [1.0]])
    >>> Y, vjp = selective_scan(U, step, np.array([[-1.0]]), np.ones((3, 1)), np.ones((3, 1)))
    >>> Y.ravel().round(4)
    array([3.    , 3.    , 1.1036])
    """
    U, step, B, C, lead, shapes = _prepared(U, step, A, B, C)
    _require.count("chunk", chunk)
    _require.choice("form", form, FORMS)
    blocks = [slice(t, t + chunk) for t in range(0, U.shape[-2], chunk)]
    scan = _scans[form]

    def states(block, start):
        """The decays of a block and its states, (..., c, d, s), from the state before it."""
        E = np.exp(step[..., block, :, None] * A)
        new = (step[..., block, :] * U[..., block, :])[..., None] * B[..., block, None, :]
        new[..., 0, :, :] += E[..., 0, :, :] * start
        return E, scan(E, new, -3)  # eq:selective-scan

    starts, Y = [np.zeros((*lead, *A.shape), U.dtype)], np.empty_like(U)
    for block in blocks:
        _, H = states(block, starts[-1])
        Y[..., block, :] = (H @ C[..., block, :, None])[..., 0]
        starts.append(H[..., -1, :, :].copy())
    del starts[-1]

    def vjp(dY):
        dY = np.broadcast_to(dY, U.shape)
        dU, dstep, dA = np.empty_like(U), np.empty_like(U), np.zeros_like(A)
        dB, dC = np.empty_like(B), np.empty_like(C)
        carry = np.zeros((*lead, *A.shape), U.dtype)
        for block, start in zip(reversed(blocks), reversed(starts), strict=True):
            E, H = states(block, start)
            dH = dY[..., block, :, None] * C[..., block, None, :]
            dH[..., -1, :, :] += carry
            later = np.concatenate([E[..., 1:, :, :], np.ones_like(E[..., :1, :, :])], -3)
            G = np.flip(scan(np.flip(later, -3), np.flip(dH, -3), -3), -3)  # eq:selective-scan-vjp
            carry = E[..., 0, :, :] * G[..., 0, :, :]
            before = np.concatenate([start[..., None, :, :], H[..., :-1, :, :]], -3)
            dlog = G * E * before  # the cotangent of step * A
            through = (G @ B[..., block, :, None])[..., 0]  # of step * U
            dU[..., block, :] = step[..., block, :] * through
            dstep[..., block, :] = U[..., block, :] * through + (dlog * A).sum(-1)
            dA += sum_to(dlog * step[..., block, :, None], A.shape)
            dB[..., block, :] = ((step[..., block, :] * U[..., block, :])[..., None, :] @ G)[..., 0, :]
            dC[..., block, :] = (dY[..., block, None, :] @ H)[..., 0, :]
        cotangents = (dU, dstep, dA, dB, dC)
        return tuple(sum_to(g, shape) for g, shape in zip(cotangents, shapes, strict=True))

    return Y, vjp


def _prepared(U, step, A, B, C):
    """The arguments checked, and with one leading shape."""
    specs = {"U": (U, "... n d"), "step": (step, "... n d"), "A": (A, "d s"), "B": (B, "... n s"), "C": (C, "... n s")}
    lead = _require.shapes(**specs)["..."]
    require.steps(step, "nonnegative")
    require.decays("A", A)
    require.numbers(U=U, B=B, C=C)
    whole = (np.broadcast_to(X, (*lead, *X.shape[-2:])) for X in (U, step, B, C))
    return *whole, lead, [X.shape for X in (U, step, A, B, C)]


@differentiable
@half_in_float32
def state_space_dual(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    decay: Float[Array, "..."] | None = None,
    chunk: int | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""A core of attention without a softmax, whose mask decays: a state space with one decay for each position.

    .. math:: O = (L \odot Q K^\top)\, V,\quad L_{ij} = e^{g_{j+1} + \dots + g_i}\,[j \le i]
              \qquad\text{or}\qquad H_t = e^{g_t} H_{t-1} + K_t^\top V_t,\quad O_t = Q_t H_t

    Parameters
    ----------
    Q : (..., n, k) what reads the state (C of a state space); the last query stands where the last key does.
    K : (..., m, k) what writes into it (B), m >= n.
    V : (..., m, v) what is written (step times input).
    mask : boolean, broadcasts to (..., n, m); True = may attend. What comes later is hidden in any case.
    decay : :math:`g \le 0`, logarithms, broadcast to (..., m); None is 0, so that nothing decays.
    chunk : None computes the n x m products; a number works on so many rows at a time and carries H, (k, v), from one
        to the next. It need not divide n. The mask may then hide keys from all queries alike, and n = m.

    Returns
    -------
    O : (..., n, v), equal in both forms up to rounding. The weights may be negative, and their sum is not 1.
    vjp : dO -> (dQ, dK, dV), and ddecay after them if there is a decay.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there are more queries than keys, a decay is positive, anything is NaN, chunk is
        not a positive integer, or with a chunk the mask hides a key from some queries only.

    References
    ----------
    Dao and Gu (2024), equation 3 and section 6. Chapter 7, eq:state-space-dual; C, B and X there are Q, K and V here.

    Examples
    --------
    >>> I, V = np.ones((3, 1)), np.array([[8.0], [0.0], [1.0]])
    >>> O, vjp = state_space_dual(I, I, V, decay=np.log(np.full(3, 0.5)))
    >>> O.ravel().round(4)
    array([8., 4., 3.])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    lead, n, m = sizes["..."], sizes["n"], sizes["m"]
    require.sizes(n, m, chunk)
    mask = mask if mask is True else np.asarray(mask)
    _require.mask(mask, (*lead, n, m))
    require.numbers(Q=Q, K=K, V=V)
    g = np.zeros(1, Q.dtype) if decay is None else decay
    require.per_position(g, (*lead, m), Q)
    require.decays("decay", g)
    g = np.broadcast_to(g, (*lead, m))
    keys = True
    if chunk is None:
        O, attend_vjp = dual_quadratic(Q, K, V, mask, g)
    else:
        keys = True if mask is True else np.broadcast_to(mask, (*lead, n, m))[..., -1, :, None]
        require.hides_keys(mask, keys, np.tri)
        O, attend_vjp = dual_chunked(Q, K if keys is True else K * keys, V, g, chunk)

    def vjp(dO):
        dQ, dK, dV = attend_vjp(dO)
        moved = -(dV * V).sum(-1)
        moved[..., m - n :] += (dO * O).sum(-1)
        dg = np.cumsum(moved[..., ::-1], -1)[..., ::-1]  # eq:dual-decay-vjp
        dK = dK if keys is True else dK * keys
        cotangents = tuple(sum_to(dX, X.shape) for dX, X in ((dQ, Q), (dK, K), (dV, V)))
        return cotangents if decay is None else (*cotangents, sum_to(dg, decay.shape))

    return O, vjp


def _decays(g, n, mask=True):
    """The mask L of the last n rows, (..., n, m), from the logarithms of the decays (..., m)."""
    m = g.shape[-1]
    G = np.cumsum(g, -1)
    seen = np.tri(n, m, m - n, dtype=bool)
    between = G[..., m - n :, None] - G[..., None, :]
    return np.exp(np.where(seen if mask is True else seen & mask, between, np.asarray(-np.inf, g.dtype)))


def dual_quadratic(Q, K, V, mask, g):
    L = _decays(g, Q.shape[-2], mask)
    W = L * (Q @ T(K))
    O = W @ V  # eq:state-space-dual

    def vjp(dO):
        dS = L * (dO @ T(V))
        return dS @ K, T(dS) @ Q, T(W) @ dO  # eq:state-space-dual-vjp

    return O, vjp


def dual_chunked(Q, K, V, g, chunk):
    """The same by chunks: products inside, and a state from one to the next; the vjp holds the states at the starts."""
    lead, n, k, v = g.shape[:-1], g.shape[-1], Q.shape[-1], V.shape[-1]
    whole = tuple(np.broadcast_to(X, (*lead, *X.shape[-2:])) for X in (Q, K, V))
    blocks = [slice(t, t + chunk) for t in range(0, n, chunk)]

    def parts(block):
        """The rows of a block, its mask, and how far its start has decayed at each row, each row at its end."""
        G = np.cumsum(g[..., block], -1)[..., None]
        rows = (X[..., block, :] for X in whole)
        return *rows, _decays(g[..., block], G.shape[-2]), np.exp(G), np.exp(G[..., -1:, :] - G)

    H, starts, O = np.zeros((*lead, k, v), V.dtype), [], np.empty((*lead, n, v), V.dtype)
    for block in blocks:
        q, key, val, L, since, until = parts(block)
        starts.append(H)
        O[..., block, :] = (L * (q @ T(key))) @ val + since * (q @ H)  # eq:dual-chunk
        H = since[..., -1:, :] * H + T(until * key) @ val

    def vjp(dO):
        dQ, dK, dV = (np.empty_like(X, shape=X.shape) for X in whole)
        dH = np.zeros_like(H)
        for block, start in zip(reversed(blocks), reversed(starts), strict=True):
            q, key, val, L, since, until = parts(block)
            do = np.broadcast_to(dO, O.shape)[..., block, :]
            dS = L * (do @ T(val))
            dQ[..., block, :] = dS @ key + since * (do @ T(start))  # eq:dual-chunk-vjp
            dK[..., block, :] = T(dS) @ q + until * (val @ T(dH))
            dV[..., block, :] = T(L * (q @ T(key))) @ do + until * (key @ dH)
            dH = since[..., -1:, :] * dH + T(since * q) @ do
        return dQ, dK, dV

    return O, vjp


def _softplus(X):
    """log(1 + e^x), and its vjp."""
    return np.logaddexp(0, X).astype(X.dtype), lambda dY: dY / (1 + np.exp(-np.maximum(X, -80)))


def _depthwise(X, leaf):
    """A causal convolution of each channel on its own; the last tap meets the present."""
    W = leaf["weight"]
    n, behind = X.shape[-2], len(W) - 1
    past = np.concatenate([np.zeros((*X.shape[:-2], behind, X.shape[-1]), X.dtype), X], -2)
    Y = sum(past[..., s : s + n, :] * w for s, w in enumerate(W)) + leaf["bias"]

    def vjp(dY):
        dpast = np.zeros_like(past)
        for s, w in enumerate(W):
            dpast[..., s : s + n, :] += dY * w
        dW = np.stack([sum_to(dY * past[..., s : s + n, :], (X.shape[-1],)) for s in range(len(W))])
        return dpast[..., behind:, :], {"weight": dW, "bias": sum_to(dY, leaf["bias"].shape)}

    return Y, vjp


@declares(mamba_shapes)
@differentiable
def mamba(
    X: Float[Array, "... n d"], params: dict, *, chunk: int = 64, form: str = "sequential"
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Mamba's layer: a step of a `block`, in the place of attention and of the feed-forward network.

    .. math:: (U, Z) = X W_{in},\quad U' = \operatorname{silu}(\operatorname{conv}(U)),\quad
              (T, B, C) = U' W_s,\\
              Y = \bigl(\operatorname{scan}(U', \operatorname{softplus}(T W_\Delta + b_\Delta), -e^R, B, C)
              + D \odot U'\bigr) \odot \operatorname{silu}(Z)\; W_{out}

    Parameters
    ----------
    X : (..., n, d) rows.
    params : the tree of `attnmath.state_shapes.mamba_shapes`: ``{"input", "conv", "select", "step", "rate", "skip",
        "output"}``; ``"rate"`` is R, ``"skip"`` is D.
    chunk, form : as in `selective_scan`.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams).

    Raises
    ------
    ValueError
        If params lack a branch or have another, widths disagree, and as `selective_scan`.

    References
    ----------
    Gu and Dao (2024), section 3.4. Chapter 7, eq:mamba. transformers' ``MambaMixer``.

    Examples
    --------
    >>> from attnmath.shapes import random_tree
    >>> Y, vjp = mamba(np.eye(3, 4), random_tree(mamba_shapes(4, 8, 5, 1), np.random.default_rng(0)))
    >>> Y.shape
    (3, 4)
    """
    _require.branches(params, tuple(mamba_shapes(1, 1, 1, 1)))
    rank, inner = params["step"]["weight"].shape
    both, input_vjp = affine(X, params["input"])
    U, conv_vjp = _depthwise(both[..., :inner], params["conv"])
    U, silu_vjp = silu(U)
    select, select_vjp = affine(U, params["select"])
    s = (select.shape[-1] - rank) // 2
    B, C = select[..., rank : rank + s], select[..., rank + s :]
    low, step_vjp = affine(select[..., :rank], params["step"])
    step, softplus_vjp = _softplus(low)
    rate = -np.exp(params["rate"])
    scanned, scan_vjp = selective_scan(U, step, rate, B, C, chunk=chunk, form=form)
    scanned = scanned + params["skip"] * U
    gate, gate_vjp = silu(both[..., inner:])
    Y, output_vjp = affine(scanned * gate, params["output"])  # eq:mamba

    def vjp(dY):
        dgated, doutput = output_vjp(dY)
        dscanned = dgated * gate
        dU, dstep, drate, dB, dC = scan_vjp(dscanned)  # eq:mamba-vjp
        dlow, dstep_leaf = step_vjp(softplus_vjp(dstep))
        through, dselect = select_vjp(np.concatenate([dlow, dB, dC], -1))
        dconv_out = silu_vjp(dU + params["skip"] * dscanned + through)
        dpresent, dconv = conv_vjp(dconv_out)
        dX, dinput = input_vjp(np.concatenate([dpresent, gate_vjp(dgated * scanned)], -1))
        own = {"conv": dconv, "select": dselect, "step": dstep_leaf, "input": dinput, "output": doutput}
        own |= {"rate": drate * rate, "skip": sum_to(dscanned * U, params["skip"].shape)}
        return dX, {name: own[name] for name in params}

    return Y, vjp


@declares(mamba2_shapes)
@differentiable
def mamba2(
    X: Float[Array, "... n d"], params: dict, *, chunk: int | None = 64, eps: float = 1e-5
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Mamba-2's layer: one step and one decay for each head, and the scan as a core of attention.

    .. math:: (Z, U, T) = X W_{in},\quad (U', B, C) = \operatorname{silu}(\operatorname{conv}(U)),\quad
              \Delta = \operatorname{softplus}(T + b),\\
              Y = \operatorname{rms}\bigl((\operatorname{dual}(C, B, \Delta U', g = -e^R \Delta) + D\,U')
              \odot \operatorname{silu}(Z)\bigr)\, W_{out}

    Parameters
    ----------
    X : (..., n, d) rows.
    params : the tree of `attnmath.state_shapes.mamba2_shapes`: ``{"input", "conv", "step", "rate", "skip", "norm",
        "output"}``; ``"step"`` is b, ``"rate"`` is R, ``"skip"`` is D, each with a number for each head.
    chunk : as in `state_space_dual`.
    eps : of the norm.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams).

    Raises
    ------
    ValueError
        If params lack a branch or have another, widths disagree, and as `state_space_dual`.

    References
    ----------
    Dao and Gu (2024), section 7. Chapter 7, eq:mamba2. transformers' ``Mamba2Mixer`` with one group.

    Examples
    --------
    >>> from attnmath.shapes import random_tree
    >>> Y, vjp = mamba2(np.eye(3, 4), random_tree(mamba2_shapes(4, 8, 5, 2), np.random.default_rng(0)))
    >>> Y.shape
    (3, 4)
    """
    _require.branches(params, tuple(mamba2_shapes(1, 1, 1, 1)))
    inner, heads = params["output"]["weight"].shape[0], len(params["rate"])
    _require.divides(heads, inner, "params['output']")
    all_of_it, input_vjp = affine(X, params["input"])
    Z, U, low = np.split(all_of_it, [inner, all_of_it.shape[-1] - heads], -1)
    U, conv_vjp = _depthwise(U, params["conv"])
    U, silu_vjp = silu(U)
    s = (U.shape[-1] - inner) // 2
    U, B, C = U[..., :inner], U[..., inner : inner + s], U[..., inner + s :]
    step, softplus_vjp = _softplus(low + params["step"])  # (..., n, h)
    rate = -np.exp(params["rate"])
    split = partial(_by_head, heads=heads)
    turned = np.moveaxis(step, -1, -2)  # (..., h, n)
    V = split(U) * turned[..., None]
    O, dual_vjp = state_space_dual(C[..., None, :, :], B[..., None, :, :], V, decay=turned * rate[:, None], chunk=chunk)
    skip = params["skip"][:, None, None]
    joined = _together(O + skip * split(U))
    gate, gate_vjp = silu(Z)
    N, norm_vjp = rms_norm(joined * gate, params["norm"]["gain"], eps)
    Y, output_vjp = affine(N, params["output"])  # eq:mamba2

    def vjp(dY):
        dN, doutput = output_vjp(dY)
        dgated, dgain = norm_vjp(dN)
        dO = split(dgated * gate)
        dC, dB, dV, dg = dual_vjp(dO)  # eq:mamba2-vjp
        dU = _together(dV * turned[..., None] + skip * dO)
        dturned = (dV * split(U)).sum(-1) + dg * rate[:, None]
        dlow = softplus_vjp(np.moveaxis(dturned, -2, -1))
        dpresent, dconv = conv_vjp(silu_vjp(np.concatenate([dU, dB[..., 0, :, :], dC[..., 0, :, :]], -1)))
        dX, dinput = input_vjp(np.concatenate([gate_vjp(dgated * joined), dpresent, dlow], -1))
        own = {"input": dinput, "conv": dconv, "norm": {"gain": dgain}, "output": doutput}
        own["step"] = sum_to(dlow, params["step"].shape)
        own["rate"] = rate * sum_to((dg * turned).sum(-1), rate.shape)
        own["skip"] = sum_to((dO * split(U)).sum((-1, -2)), rate.shape)
        return dX, {name: own[name] for name in params}

    return Y, vjp


def _by_head(X, heads):
    """(..., n, h p) to (..., h, n, p)."""
    return np.swapaxes(X.reshape(*X.shape[:-1], heads, -1), -2, -3)


def _together(X):
    """(..., h, n, p) to (..., n, h p)."""
    X = np.swapaxes(X, -2, -3)
    return X.reshape(*X.shape[:-2], -1)
