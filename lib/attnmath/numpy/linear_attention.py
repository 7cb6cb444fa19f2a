"""Linear attention: a kernel that is a product of features, so that one sum over the keys serves all queries."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import linear_attention as require
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.masks import causal_mask
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def elu_plus_one(X: Float[Array, "..."]) -> tuple[Float[Array, "..."], Vjp]:
    r"""The feature map of the first linear attention: positive, and smooth at 0.

    .. math:: \phi(x) = x + 1 \text{ for } x > 0,\qquad e^x \text{ otherwise}

    Parameters
    ----------
    X : (...) numbers.

    Returns
    -------
    F : (...), > 0 as long as no exponential underflows: x > -745 in float64, x > -103 in float32.
    vjp : dF -> dX.

    Raises
    ------
    ValueError
        If X is no array of floats; convert it.

    References
    ----------
    Katharopoulos et al. (2020), equation 7. Chapter 7, eq:elu-plus-one.

    Examples
    --------
    >>> elu_plus_one(np.array([-np.log(2), 0.0, 2.0]))[0]
    array([0.5, 1. , 3. ])
    """
    _require.floats(X=X)
    F = np.exp(np.minimum(X, 0)) + np.maximum(X, 0)  # eq:elu-plus-one
    return F, lambda dF: dF * np.minimum(F, 1)  # eq:elu-plus-one-vjp


@differentiable
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
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention whose kernel is a product of features, in time and memory that grow linearly with the keys.

    .. math:: O_i = \frac{\phi(q_i) \sum_j \phi(k_j)^\top v_j}{\phi(q_i) \sum_j \phi(k_j)^\top}

    Parameters
    ----------
    Q : (..., n, k) queries; nothing divides them.
    K : (..., m, k) keys.
    V : (..., m, v) values.
    mask : boolean, broadcasts to (..., n, m); True = may attend. The forms that sum over keys honour a mask of keys,
        (..., 1, m) or with equal rows, a causal one, and both together; ``form="parallel"`` honours any. A mask with n
        rows has n m entries that are looked at: ``causal=True`` says the same at no cost.
    causal : whether a query sees the keys up to its own position only, the last query standing at the last key.
    chunk : keys and queries in a block, >= 1; the last block may be shorter. The other forms do not use it.
    feature : ``feature(X) -> (F, vjp)``, row by row, (..., n, k) to (..., n, f).
    form : ``"parallel"`` makes all n x m products, ``"recurrent"`` adds one key after the other to a state of f x v
        numbers, ``"chunked"`` a block of keys. All three compute the same.
    normalise : whether the weights of a query are divided by their sum.

    Returns
    -------
    O : (..., n, v); with positive features each row lies in the convex hull of the rows of V.
    vjp : dO -> (dQ, dK, dV). Of the states it keeps none: it runs forward again for dQ, and backward for dK and dV.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no key, the form is none of the three, chunk < 1, the mask is one that
        the form cannot honour, or the weights of a query sum to 0; the message says what to do.

    References
    ----------
    Katharopoulos et al. (2020), equations 5 to 15; for chunks Hua et al. (2022) and Yang et al. (2024).
    Chapter 7, eq:linear-attention.

    Examples
    --------
    >>> O, vjp = linear_attention(np.zeros((1, 2)), np.zeros((2, 2)), np.array([[1.0, 0.0], [3.0, 2.0]]))
    >>> O
    array([[2., 1.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    lead, n, m, v = sizes["..."], sizes["n"], sizes["m"], sizes["v"]
    _require.nonempty("K", K.shape, -2, m, "key")
    _require.mask(mask, (*lead, n, m))
    require.options(form, chunk, causal, n, m)
    FQ, query_vjp = feature(Q)
    FK, key_vjp = feature(K)
    require.features(FQ, FK)
    if form == "parallel":
        keys, causal, allowed = True, False, _both(mask, causal, n, m)
    else:
        keys, causal = _separate(mask, causal, n, m)
    hidden = None if keys is True else T(~keys)  # (..., m, 1)
    values = np.concatenate([V, np.ones((*V.shape[:-1], 1), V.dtype)], -1) if normalise else V
    shown = FK if hidden is None else np.where(hidden, np.zeros((), FK.dtype), FK)
    A, B, C = (np.broadcast_to(X, (*lead, *X.shape[-2:])) for X in (FQ, shown, values))
    if form == "parallel":
        U, sums_vjp = parallel_sums(A, B, C, allowed)
    elif form == "recurrent":
        U, sums_vjp = recurrent_sums(A, B, C, causal)
    else:
        U, sums_vjp = chunked_sums(A, B, C, causal, int(chunk))
    if normalise:
        z = U[..., v:]
        if (z == 0).any():
            require.no_sum_of_zero(tuple(np.argwhere(z[..., 0] == 0)[0].tolist()))
        O = U[..., :v] / z  # eq:linear-attention
    else:
        O = U

    def vjp(dO):
        dU = dO
        if normalise:
            share = dO / z
            dU = np.concatenate([share, -(share * O).sum(-1, keepdims=True)], -1)  # eq:linear-attention-vjp
        dA, dB, dC = sums_vjp(dU)
        dB = sum_to(dB, shown.shape)
        dB = dB if hidden is None else np.where(hidden, np.zeros((), dB.dtype), dB)
        return query_vjp(sum_to(dA, FQ.shape)), key_vjp(sum_to(dB, FK.shape)), sum_to(dC[..., :v], V.shape)

    return O, vjp


def _both(mask, causal, n, m):
    """The mask of all pairs; True if every pair is allowed."""
    if causal:
        return causal_mask(n, m) & mask
    return mask if mask is True else np.asarray(mask)


def _separate(mask, causal, n, m):
    """A mask as one of keys, (..., 1, m), or True, and whether it is causal besides."""
    if mask is True:
        return True, causal
    mask = np.asarray(mask)
    mask = mask.reshape((1,) * (2 - mask.ndim) + mask.shape)
    keys = np.broadcast_to(mask[..., -1:, :], (*mask.shape[:-2], 1, m))
    if mask.shape[-2] == 1:
        return keys, causal
    given = _both(mask, causal, n, m)
    if (given == keys).all():
        return keys, causal
    require.separable(n <= m and (given == (keys & causal_mask(n, m))).all())
    return keys, True


def parallel_sums(Q, K, V, allowed):
    """All products of features, then all sums over keys: u = (Q K' * mask) V."""

    def products():
        A = Q @ T(K)
        return A if allowed is True else np.where(allowed, A, np.zeros((), A.dtype))

    def vjp(dU):
        dA = dU @ T(V)
        dA = dA if allowed is True else np.where(allowed, dA, np.zeros((), dA.dtype))
        return dA @ K, T(dA) @ Q, T(products()) @ dU  # eq:linear-parallel-vjp

    return products() @ V, vjp  # eq:linear-parallel


def _outer(x, y):
    return x[..., :, None] * y[..., None, :]


def _times(x, S):
    return (x[..., None, :] @ S)[..., 0, :]


def _state(Q, V):
    """Zeros for a state of f x v numbers."""
    return np.zeros((*V.shape[:-2], Q.shape[-1], V.shape[-1]), V.dtype)


def recurrent_sums(Q, K, V, causal):
    """One key after the other, and what a query reads from the sum so far."""
    n, m = Q.shape[-2], K.shape[-2]
    before = m - n if causal else m  # keys that every query sees

    def read(X, K, V):
        """x S for each row x of X, S the sum of k' v over the keys seen."""
        S, Y = _state(K, V), np.empty((*X.shape[:-1], V.shape[-1]), V.dtype)
        for j in range(before):
            S += _outer(K[..., j, :], V[..., j, :])
        for i in range(n):
            if causal:
                j = before + i
                S += _outer(K[..., j, :], V[..., j, :])  # eq:linear-state
            Y[..., i, :] = _times(X[..., i, :], S)  # eq:linear-read
        return Y

    def vjp(dU):
        dQ = read(dU, V, K)  # eq:linear-read-vjp
        dK, dV, dS = np.empty_like(K), np.empty_like(V), _state(Q, dU)
        for i in reversed(range(n)):
            dS += _outer(Q[..., i, :], dU[..., i, :])  # eq:linear-state-vjp
            if causal:
                j = before + i
                dK[..., j, :], dV[..., j, :] = _times(V[..., j, :], T(dS)), _times(K[..., j, :], dS)
        dK[..., :before, :] = V[..., :before, :] @ T(dS)
        dV[..., :before, :] = K[..., :before, :] @ dS
        return dQ, dK, dV

    return read(Q, K, V), vjp


def chunked_sums(Q, K, V, causal, chunk):
    """Block by block: a product of what is within the block, and the state for what lies before it."""
    n, m = Q.shape[-2], K.shape[-2]
    before = m - n if causal else m
    blocks = [slice(i, min(i + chunk, n)) for i in range(0, n, chunk)] if causal else []
    lower = np.tril(np.ones((min(chunk, n),) * 2, V.dtype))

    def within(X, Y):
        """x_i . y_j for j <= i, and 0 elsewhere."""
        A = X @ T(Y)
        A *= lower[: A.shape[-1], : A.shape[-1]]
        return A

    def read(X, K, V):
        S = _state(K, V)
        for j in range(0, before, chunk):
            ahead = slice(j, min(j + chunk, before))
            S += T(K[..., ahead, :]) @ V[..., ahead, :]
        if not causal:
            return X @ S
        Y, K, V = np.empty((*X.shape[:-1], V.shape[-1]), V.dtype), K[..., before:, :], V[..., before:, :]
        for block in blocks:
            x, k, v = X[..., block, :], K[..., block, :], V[..., block, :]
            Y[..., block, :] = x @ S + within(x, k) @ v  # eq:linear-chunk
            S += T(k) @ v  # eq:linear-chunk-state
        return Y

    def vjp(dU):
        dQ = read(dU, V, K)
        dK, dV, dS = np.empty_like(K), np.empty_like(V), _state(Q, dU)
        if not causal:
            dS = T(Q) @ dU
        for block in reversed(blocks):
            q, du = Q[..., block, :], dU[..., block, :]
            own = slice(before + block.start, before + block.stop)
            k, v = K[..., own, :], V[..., own, :]
            dK[..., own, :] = v @ T(dS) + T(within(du, v)) @ q  # eq:linear-chunk-vjp
            dV[..., own, :] = k @ dS + T(within(q, k)) @ du
            dS += T(q) @ du
        dK[..., :before, :] = V[..., :before, :] @ T(dS)
        dV[..., :before, :] = K[..., :before, :] @ dS
        return dQ, dK, dV

    return read(Q, K, V), vjp
