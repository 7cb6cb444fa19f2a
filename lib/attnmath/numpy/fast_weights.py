"""Memories that decay and correct: linear attention with gates and with the delta rule, step by step and in chunks."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import fast_weights as require
from attnmath._require.attention import factor
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
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
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Causal attention by a memory of k x v numbers that decays and corrects itself, in time linear in n.

    .. math:: D_t = \operatorname{diag}(a_t)\,S_{t-1},\qquad S_t = D_t + k_t^\top u_t,\qquad o_t = c\,q_t S_t,\\
              u_t = \begin{cases} v_t & \text{without beta}\\
              \beta_t\,(v_t - k_t D_t) & \text{with beta}\end{cases}

    Within a chunk this is a product of matrices and one triangular system; between chunks only the memory is passed on.
    A chunk of n keys is the parallel form.

    Parameters
    ----------
    Q : (..., n, k) queries, n <= m; the last one stands where the last key does.
    K : (..., m, k) keys; with beta of length 1, or at most the root of 2 / beta, or the memory may grow without bound.
    V : (..., m, v) values.
    mask : True or a causal mask, perhaps with keys hidden from every query; a hidden key neither writes nor decays. The
        recurrence is causal by itself: a query sees no later key whatever the mask says.
    decay : a, in [0, 1], broadcasts to (..., m, 1), one number a key, or (..., m, k), one a component; None keeps all.
    beta : in [0, 2], broadcasts to (..., m, 1); 1 replaces what is stored under a key, 0 writes nothing. None adds.
    state : broadcasts to (..., k, v), the memory before the first key; None is empty.
    chunk : keys worked on at a time, >= 1; the last chunk may be shorter.
    scale : c; None is one over the root of k.

    Returns
    -------
    O : (..., n, v).
    vjp : dO -> (dQ, dK, dV), and ddecay, dbeta, dstate after them, of those that are given. It keeps the memory at the
        start of each chunk and computes the rest again.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there are more queries than keys, a gate lies outside its interval or is NaN, the
        mask hides a key from some queries only, or the chunk is not an integer >= 1.

    References
    ----------
    Schlag, Irie and Schmidhuber (2021), section 4.2, whose W is the transpose of S; Yang et al. (2024, gated linear
    attention), section 4, whose alpha is a; Yang et al. (2024, DeltaNet), section 3; Yang, Kautz and Hatamizadeh
    (2025), section 3, whose alpha is a. Chapter 7, eq:fast-weights.

    Examples
    --------
    >>> K, V = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[3.0], [5.0]])  # one key, written twice
    >>> fast_weights(K, K, V)[0].ravel(), fast_weights(K, K, V, beta=np.ones((2, 1)))[0].ravel()
    (array([3., 8.]), array([3., 5.]))
    """
    _require.count("chunk", chunk)
    (q, k, v, a, b, S), undo = _prepare(Q, K, V, mask, decay, beta, state, scale)
    chunks = [slice(i, i + chunk) for i in range(0, k.shape[-2], chunk)]
    O, starts = np.empty(v.shape, v.dtype), []
    for at in chunks:
        starts.append(S)
        O[..., at, :], S, _ = memory_chunk(*_rows(at, q, k, v, a, b), S)  # eq:memory-output

    def vjp(dO):
        dO, dS = undo.pad(dO), np.zeros_like(S)
        grads = [None if X is None else np.empty_like(X) for X in (q, k, v, a, b)]
        for at, start in zip(reversed(chunks), reversed(starts), strict=True):
            _, _, chunk_vjp = memory_chunk(*_rows(at, q, k, v, a, b), start)
            *parts, dS = chunk_vjp(dO[..., at, :], dS)
            for grad, part in zip(grads, parts, strict=True):
                if grad is not None:
                    grad[..., at, :] = part
        return undo(*grads, dS)

    return O[..., undo.first :, :], vjp


@differentiable
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
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""`fast_weights`, key by key: the definition, and what a decoder does.

    .. math:: S_t = \operatorname{diag}(a_t)\,S_{t-1} + k_t^\top u_t,\qquad o_t = c\,q_t S_t

    Parameters
    ----------
    Q, K, V, mask, decay, beta, state, scale : as in `fast_weights`.
    chunk : for the vjp, which keeps each chunk's first memory and computes the others again, one chunk at a time.

    Returns
    -------
    O : (..., n, v), equal to `fast_weights`' up to rounding.
    vjp : dO -> (dQ, dK, dV), and ddecay, dbeta, dstate after them, of those that are given.

    Raises
    ------
    ValueError
        As `fast_weights`.

    References
    ----------
    As `fast_weights`. Chapter 7, eq:fast-weights.

    Examples
    --------
    >>> X = np.ones((3, 1))
    >>> fast_weights_recurrent(X, X, X, decay=np.array([[0.5]]))[0].ravel()
    array([1.  , 1.5 , 1.75])
    """
    _require.count("chunk", chunk)
    (q, k, v, a, b, S), undo = _prepare(Q, K, V, mask, decay, beta, state, scale)

    def step(S, t):
        """The memory after its decay, what is written into it, and the memory after that."""
        D = S if a is None else a[..., t, :, None] * S
        u = v[..., t, :] if b is None else b[..., t, :] * (v[..., t, :] - _read(D, k[..., t, :]))  # eq:fast-weights
        return D, u, D + k[..., t, :, None] * u[..., None, :]  # eq:fast-weights

    O, starts = np.empty(v.shape, v.dtype), []
    for t in range(k.shape[-2]):
        if t % chunk == 0:
            starts.append(S)
        S = step(S, t)[-1]
        O[..., t, :] = _read(S, q[..., t, :])

    def vjp(dO):
        dO, dS = undo.pad(dO), np.zeros_like(S)
        dq, dk, dv, da, db = (None if X is None else np.empty_like(X) for X in (q, k, v, a, b))
        for i, start in reversed(list(enumerate(starts))):
            memories, steps = [start], range(i * chunk, min((i + 1) * chunk, k.shape[-2]))
            for t in steps:
                memories.append(step(memories[-1], t)[-1])
            for t in reversed(steps):
                after, before = memories.pop(), memories[-1]
                D, u, _ = step(before, t)
                key, do = k[..., t, :], dO[..., t, :]
                dq[..., t, :] = _write(after, do)
                dS = dS + q[..., t, :, None] * do[..., None, :]
                du, dk[..., t, :] = _read(dS, key), _write(dS, u)
                if b is not None:
                    beta_du = b[..., t, :] * du
                    db[..., t, :] = (du * (v[..., t, :] - _read(D, key))).sum(-1, keepdims=True)
                    dk[..., t, :] -= _write(D, beta_du)
                    dS = dS - key[..., None] * beta_du[..., None, :]  # eq:fast-weights-vjp
                    du = beta_du
                dv[..., t, :] = du
                if a is not None:
                    da[..., t, :] = _fold((dS * before).sum(-1), a.shape[-1])
                    dS = a[..., t, :, None] * dS  # eq:fast-weights-vjp
        return undo(dq, dk, dv, da, db, dS)

    return O[..., undo.first :, :], vjp


@differentiable
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
) -> tuple[Float[Array, "... k v"], Vjp]:
    r"""What `fast_weights` holds after the last key: all that a decoder keeps of the text.

    .. math:: S_m = \operatorname{diag}(a_m)\,S_{m-1} + k_m^\top u_m

    Parameters
    ----------
    K, V, decay, beta, state, chunk : as in `fast_weights`.
    mask : True or keys that are hidden, broadcasts to (..., 1, m).

    Returns
    -------
    S : (..., k, v), the ``state`` of the next call.
    vjp : dS -> (dK, dV), and ddecay, dbeta, dstate after them, of those that are given.

    Raises
    ------
    ValueError
        As `fast_weights`.

    References
    ----------
    As `fast_weights`. Chapter 7, eq:memory-state.

    Examples
    --------
    >>> fast_weights_state(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[3.0], [5.0]]), beta=np.ones((2, 1)))[0]
    array([[5.],
           [0.]])
    """
    _require.count("chunk", chunk)
    _require.shapes(K=(K, "... m k"), V=(V, "... m v"))
    (q, k, v, a, b, S), undo = _prepare(K[..., -1:, :], K, V, mask, decay, beta, state, 1.0)
    chunks = [slice(i, i + chunk) for i in range(0, k.shape[-2], chunk)]
    starts = []
    for at in chunks:
        starts.append(S)
        _, S, _ = memory_chunk(*_rows(at, q, k, v, a, b), S)

    def vjp(dS):
        grads = [None if X is None else np.empty_like(X) for X in (q, k, v, a, b)]
        for at, start in zip(reversed(chunks), reversed(starts), strict=True):
            _, _, chunk_vjp = memory_chunk(*_rows(at, q, k, v, a, b), start)
            *parts, dS = chunk_vjp(np.zeros_like(v[..., at, :]), dS)
            for grad, part in zip(grads, parts, strict=True):
                if grad is not None:
                    grad[..., at, :] = part
        return undo(*grads, dS)[1:]

    return S, vjp


def retention_decays(h: int) -> Float[Array, "h 1 1"]:
    r"""The fixed decays of a retentive network's heads: half-lives of about 22, 44, 88, … keys.

    .. math:: \gamma_i = 1 - 2^{-5-i},\qquad i = 0, \dots, h-1

    Parameters
    ----------
    h : number of heads, >= 1.

    Returns
    -------
    decay : (h, 1, 1), which broadcasts to heads, keys and components.

    Raises
    ------
    ValueError
        If h is not an integer >= 1.

    References
    ----------
    Sun et al. (2023), section 2.2. Chapter 7, eq:retention-decays.

    Examples
    --------
    >>> retention_decays(3).ravel()
    array([0.96875  , 0.984375 , 0.9921875])
    """
    _require.count("h", h)
    return 1 - 2.0 ** -(5 + np.arange(h)[:, None, None])  # eq:retention-decays


def memory_chunk(Q, K, V, a, b, S):
    """Some keys at once, from the memory before them: outputs, the memory after them, vjp(dO, dS)."""
    C = K.shape[-2]
    W, decays_vjp = (np.tri(C + 1, dtype=K.dtype)[None], None) if a is None else memory_decays(a)
    among, since, until, whole = W[..., 1:, 1:], T(W[..., 1:, 0]), T(W[..., -1, 1:]), W[..., -1, 0][..., None]
    A, A_vjp = _pairs(Q, K, among)  # eq:memory-scores
    Qs, Ke = (Q, K) if a is None else (since * Q, until * K)
    if b is None:
        U = V
    else:
        B, B_vjp = _pairs(K, K, np.tril(among, -1))
        X = unit_lower_inverse(b * B)
        Ks = K if a is None else since * K
        R = V - Ks @ S
        U = X @ (b * R)  # eq:memory-solve
    O = A @ U  # eq:memory-output
    O += Qs @ S
    S_next = T(Ke) @ U  # eq:memory-state
    S_next += S if a is None else whole * S

    def vjp(dO, dS_next):
        dA, dU = dO @ T(U), T(A) @ dO + Ke @ dS_next
        dQs, dKe = dO @ T(S), U @ T(dS_next)
        dS = T(Qs) @ dO + whole * dS_next
        db, dV, dKs = None, dU, None
        dQ, dK, dD = A_vjp(dA)
        if b is not None:
            dbR = T(X) @ dU  # eq:memory-vjp
            dL = -dbR @ T(U)  # eq:memory-vjp
            db = (dbR * R).sum(-1, keepdims=True) + (dL * B).sum(-1, keepdims=True)
            dV = b * dbR
            dKs = -dV @ T(S)
            dS -= T(Ks) @ dV
            left, right, strict = B_vjp(b * dL)
            dK += left
            dK += right
        if a is None:
            dQ += dQs
            dK += dKe
            if dKs is not None:
                dK += dKs
            return dQ, dK, dV, None, db, dS
        dsince = dQs * Q
        dQ += since * dQs
        dK += until * dKe
        if b is not None:
            dD += np.tril(strict, -1)
            dsince += dKs * K
            dK += since * dKs
        c = a.shape[-1]
        dW = np.zeros(W.shape, W.dtype)
        dW[..., 1:, 1:] = dD
        dW[..., 1:, 0] = T(_fold(dsince, c))
        dW[..., -1, 1:] += T(_fold(dKe * K, c))
        dW[..., -1, 0] += _fold((dS_next * S).sum(-1), c)
        return dQ, dK, dV, decays_vjp(dW), db, dS

    return O, S_next, vjp


def memory_decays(a):
    """Products of decays (..., C, c): what position i still has of what stood at j, (..., c, C + 1, C + 1)."""
    C = a.shape[-2]
    factors = np.ones((*a.shape[:-2], a.shape[-1], C + 1, C + 1), a.dtype)
    np.copyto(factors[..., 1:, :], T(a)[..., None], where=np.tri(C, C + 1, dtype=bool))
    W = np.tril(np.cumprod(factors, -2, out=factors))  # eq:memory-decays

    def vjp(dW):
        back = dW @ T(W)
        return T((W[..., 1:] * back[..., :-1]).sum(-2))  # eq:memory-decays-vjp

    return W, vjp


def _pairs(X, K, D):
    """Products of rows of X and K, component by component times D (..., c, i, j), c = 1 or k; vjp -> dX, dK, dD."""
    if D.shape[-3] == 1:
        D = D[..., 0, :, :]
        P = X @ T(K)

        def vjp(dA):
            dP = dA * D
            return dP @ K, T(dP) @ X, (dA * P)[..., None, :, :]

        return P * D, vjp
    left, right = T(X)[..., :, None], T(K)[..., None, :]

    def vjp(dA):
        weighed = dA[..., None, :, :] * D
        return T((weighed * right).sum(-1)), T((weighed * left).sum(-2)), dA[..., None, :, :] * left * right

    return (left * D * right).sum(-3), vjp


BLOCK = 4  # larger blocks lose digits: their powers grow like binomials before they cancel


def unit_lower_inverse(L):
    r"""The inverse of I + L for L strictly lower triangular: of its blocks of 4, then of pairs of blocks, of pairs, ….

    .. math:: (I + L)^{-1} = (I - L)(I + L^2)\text{ if } L^4 = 0,\qquad
              \begin{pmatrix} A & 0\\ B & D\end{pmatrix}^{-1}
              = \begin{pmatrix} A^{-1} & 0\\ -D^{-1} B A^{-1} & D^{-1}\end{pmatrix}
    """
    C, width, size = L.shape[-1], BLOCK, BLOCK
    while width < C:
        width *= 2
    if width > C:
        padded = np.zeros((*L.shape[:-2], width, width), L.dtype)
        padded[..., :C, :C] = L
        L = padded
    X, N, eye = np.zeros(L.shape, L.dtype), _diagonal(L, size), np.eye(size, dtype=L.dtype)
    _diagonal(X, size)[...] = (eye - N) @ (eye + N @ N)
    while size < width:
        pairs, below = _diagonal(X, 2 * size), _diagonal(L, 2 * size)[..., size:, :size]
        A, D = pairs[..., :size, :size], pairs[..., size:, size:]
        pairs[..., size:, :size] = -D @ (below @ A)
        size *= 2
    return X[..., :C, :C]


def _diagonal(M, size):
    """The blocks on the diagonal, (..., blocks, size, size), as a view."""
    count = M.shape[-1] // size
    return np.einsum("...iaib->...iab", M.reshape(*M.shape[:-2], count, size, count, size))


def _read(S, q):
    """What a memory (..., k, v) answers to q (..., k)."""
    return (q[..., None, :] @ S)[..., 0, :]


def _write(S, u):
    """A memory applied from its other side: (..., k, v) to u (..., v)."""
    return (S @ u[..., None])[..., 0]


def _fold(dX, c):
    """The cotangent of a decay that is one number for all components."""
    return dX if dX.shape[-1] == c else dX.sum(-1, keepdims=True)


def _rows(at, *arrays):
    return [None if X is None else X[..., at, :] for X in arrays]


class _Undo:
    """The cotangents of what was given, from those of what it became."""

    def __init__(self, given, lead, first, keep, c):
        self.shapes = [None if X is None else X.shape for X in given]
        self.lead, self.first, self.keep, self.c = lead, first, keep, c

    def pad(self, dO):
        return _behind(np.broadcast_to(dO, (*self.lead, *dO.shape[-2:])), self.first)

    def __call__(self, dq, dk, dv, da, db, dS):
        dq = dq[..., self.first :, :] if self.c == 1 else self.c * dq[..., self.first :, :]
        if self.keep is not None:
            dk = dk * self.keep
            da = None if da is None else da * self.keep
        grads = zip((dq, dk, dv, da, db, dS), self.shapes, strict=True)
        return tuple(sum_to(dX, shape) for dX, shape in grads if shape is not None)


def _prepare(Q, K, V, mask, decay, beta, state, scale):
    """The six arrays of the recurrence with all their axes, queries at the last keys, and how cotangents come back."""
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    lead, n, m, k, v = (sizes[axis] for axis in ("...", "n", "m", "k", "v"))
    _require.causal_sizes(n, m)
    c = factor(scale, k)
    if decay is not None:
        require.gate_shape("decay", decay, K, ((*lead, m, 1), (*lead, m, k)))
        require.gate_values("decay", decay, 1)
    if beta is not None:
        require.gate_shape("beta", beta, K, ((*lead, m, 1),))
        require.gate_values("beta", beta, 2)
    if state is not None:
        require.state(state, K, (*lead, k, v))
    _require.mask(mask, (*lead, n, m))
    keep = None if mask is True else _kept(np.asarray(mask), n, m, K.dtype)
    q = _behind(np.broadcast_to(Q if c == 1 else c * Q, (*lead, n, k)), m - n)
    key = np.broadcast_to(K if keep is None else keep * K, (*lead, m, k))
    value = np.broadcast_to(V, (*lead, m, v))
    a = b = None
    if decay is not None:
        a = decay if keep is None else np.where(keep == 1, decay, np.ones((), K.dtype))
        a = np.broadcast_to(a, (*lead, m, decay.shape[-1] if decay.ndim else 1))
    if beta is not None:
        b = np.broadcast_to(beta, (*lead, m, 1))
    S = np.zeros((*lead, k, v), K.dtype) if state is None else np.broadcast_to(state, (*lead, k, v))
    return (q, key, value, a, b, S), _Undo((Q, K, V, decay, beta, state), lead, m - n, keep, c)


def _kept(mask, n, m, dtype):
    """1 for the keys that a mask lets in, 0 for those that it hides from all queries, (..., m, 1)."""
    rows = np.broadcast_to(mask, (*mask.shape[:-2], n, m))
    kept = rows[..., -1:, :]
    if ((rows != kept) & np.tri(n, m, m - n, dtype=bool)).any():
        require.no_such_mask()
    return T(kept).astype(dtype)


def _behind(X, first):
    """Rows of zeros, then X."""
    return X if first == 0 else np.concatenate([np.zeros((*X.shape[:-2], first, X.shape[-1]), X.dtype), X], -2)
