"""What wraps a core of attention: heads that share keys, a record of the weights, a cache, a window.

A core is ``attend(Q, K, V, mask=…) -> (O, vjp)`` on heads, (..., h, n, k), (..., h, m, k) and (..., h, m, v), with
``vjp(dO) -> (dQ, dK, dV, …)``, the dots being cotangents of what is bound to it, such as a bias. `attention_fused` is
one. Each function here takes a core and returns one, so that models, layers and heads never learn which they have.
"""

import numpy as np

from attnmath import _require
from attnmath.cache import KeyValueCache, no_vjp
from attnmath.numpy.types import differentiable


def share_heads(X, times: int):
    """Repeat each key or value head for the queries of its group: (..., g, m, k) to (..., g times, m, k)."""
    return X if times == 1 else np.repeat(X, times, -3)  # eq:grouped-heads


def unshare_heads(dX, times: int):
    """The transpose of `share_heads`: a head used several times receives the sum of the cotangents."""
    return dX if times == 1 else dX.reshape(*dX.shape[:-3], -1, times, *dX.shape[-2:]).sum(-3)  # eq:grouped-heads-vjp


def grouped(core):
    """Let groups of query heads share the heads of keys and values.

    Parameters
    ----------
    core : ``attend(Q, K, V, …) -> (O, vjp)`` for as many heads of keys and values as of queries.

    Returns
    -------
    A core for Q (..., h, n, k), K (..., g, m, k) and V (..., g, m, v), g a divisor of h.

    References
    ----------
    Ainslie et al. (2023). Chapter 4, eq:grouped-heads.

    Examples
    --------
    >>> from attnmath.numpy.attention import attention
    >>> rng = np.random.default_rng(0)
    >>> Q, K = rng.standard_normal((6, 3, 4)), rng.standard_normal((2, 5, 4))
    >>> O, vjp = grouped(attention)(Q, K, K)
    >>> O.shape, vjp(O)[1].shape
    ((6, 3, 4), (2, 5, 4))
    """
    if getattr(core, "shares_heads", False):
        return core

    def attend(Q, K, V, **options):
        times = Q.shape[-3] // K.shape[-3]
        O, core_vjp = core(Q, share_heads(K, times), share_heads(V, times), **options)

        def vjp(dO):
            dQ, dK, dV, *rest = core_vjp(dO)
            return dQ, unshare_heads(dK, times), unshare_heads(dV, times), *rest

        return O, vjp

    attend.shares_heads = True
    return attend


def recording(core, into: dict):
    r"""Write down the weights with which a core attends.

    A core's output is linear in the values, so the identity matrix, as further values, shows the weights:

    .. math:: P\,[V, I] = [O, P]

    Parameters
    ----------
    core : ``attend(Q, K, V, …) -> (O, vjp)``, linear in V.
    into : a dict that receives ``"weights"``, P (..., h, n, m), after dropout if the core drops weights.

    Returns
    -------
    A core with the same values and cotangents.

    Examples
    --------
    >>> from attnmath.numpy.attention import attention
    >>> seen = {}
    >>> O, vjp = recording(attention, seen)(np.zeros((1, 2)), np.ones((2, 2)), np.array([[1.0], [3.0]]))
    >>> seen["weights"]
    array([[0.5, 0.5]])
    """

    @differentiable
    def attend(Q, K, V, **options):
        v, m = V.shape[-1], K.shape[-2]
        identity = np.broadcast_to(np.eye(m, dtype=V.dtype), (*V.shape[:-1], m))
        both, core_vjp = core(Q, K, np.concatenate([V, identity], -1), **options)
        into["weights"] = both[..., v:]

        def vjp(dO):
            dQ, dK, dV, *rest = core_vjp(np.concatenate([dO, np.zeros((*dO.shape[:-1], m), dO.dtype)], -1))
            return dQ, dK, dV[..., :v], *rest

        return both[..., :v], vjp

    return attend


class cached:
    """Keep keys and values: new ones join those of earlier rows, and the core attends to all.

    Parameters
    ----------
    core : ``attend(Q, K, V, …) -> (O, vjp)``.
    cache : where they are kept, with as many heads as were given.

    Attributes
    ----------
    start : the position of the first new row, by which multi-head attention turns queries and keys.

    Returns
    -------
    A core whose vjp raises; called with Q alone it attends to what is kept already.

    Examples
    --------
    >>> from attnmath.numpy.attention import attention
    >>> attend, X = cached(attention, KeyValueCache()), np.ones((1, 1, 2))
    >>> [float(attend(X, X, value * X)[0][0, 0, 0]) for value in (1, 3)], attend.start
    ([1.0, 2.0], 2)
    """

    shares_heads = True

    def __init__(self, core, cache: KeyValueCache):
        self.core, self.cache = grouped(core), cache

    @property
    def start(self) -> int:
        return self.cache.length

    def __call__(self, Q, K=None, V=None, **options):
        K, V = self.cache.kept if K is None else self.cache.append(K, V)
        O, _ = self.core(Q, K, V, **options)
        return O, no_vjp


def windowed(core, width: int):
    r"""Let each query see the keys at most ``width`` steps away, and leave out those that no query sees.

    .. math:: M_{ij} = [\,|i + m - n - j| \le w\,]

    Parameters
    ----------
    core : ``attend(Q, K, V, mask=…) -> (O, vjp)``.
    width : w >= 0; the last query stands where the last key does, so that a cache may come around it.

    Returns
    -------
    A core; a mask and a bias for all m keys are cut to the keys that are left.

    Raises
    ------
    ValueError
        If the width is negative.

    References
    ----------
    Beltagy, Peters and Cohan (2020), section 3.1. Chapter 3, eq:window-mask.

    Examples
    --------
    >>> from attnmath.numpy.attention import attention
    >>> O, vjp = windowed(attention, 1)(np.zeros((1, 2)), np.zeros((3, 2)), np.array([[1.0], [2.0], [4.0]]))
    >>> O
    array([[3.]])
    """
    _require.nonnegative("width", width)

    def attend(Q, K, V, mask=True, bias=None, **options):
        n, m = Q.shape[-2], K.shape[-2]
        first = max(0, m - n - width)

        def cut(X):
            return X[..., first:] if X.shape[-1:] == (m,) else X

        near = abs(np.arange(n)[:, None] + m - n - np.arange(first, m)) <= width
        near = near if mask is True else near & cut(np.asarray(mask))
        if bias is not None:
            options["bias"] = cut(bias)
        O, core_vjp = core(Q, K[..., first:, :], V[..., first:, :], mask=near, **options)

        def vjp(dO):
            dQ, dK, dV, *rest = core_vjp(dO)
            if bias is not None and bias.shape[-1] == m:
                rest[-1] = _behind(rest[-1], first, -1)
            return dQ, _behind(dK, first, -2), _behind(dV, first, -2), *rest

        return O, vjp

    return attend


def _behind(dX, first, axis):
    """Zeros for what was cut off, then dX."""
    ahead = list(dX.shape)
    ahead[axis] = first
    return np.concatenate([np.zeros(ahead, dX.dtype), dX], axis)
