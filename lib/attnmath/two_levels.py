"""A machine with a small fast memory and a large slow one, which counts every number that moves between them."""

from contextlib import contextmanager

import numpy as np

from attnmath import _require
from attnmath.tiles import cuts


class TwoLevels:
    """Slow memory without a bound, fast memory for ``size`` numbers, and a count of what moves.

    Arrays in slow memory are ordinary arrays. A program reads parts of them, computes with what it has read and with
    what it has made room for, and writes results back. What fast memory cannot hold is refused.

    Parameters
    ----------
    size : M, how many numbers fit into fast memory at once.

    Attributes
    ----------
    reads, writes : numbers moved so far from slow to fast memory, and back.
    used, peak : numbers in fast memory now, and at most so far.

    Raises
    ------
    ValueError
        If size is not an integer >= 1.
    MemoryError
        By `read` and `room`, if the numbers do not fit.

    References
    ----------
    Hong and Kung (1981); Dao et al. (2022), section 3.2. Chapter 7, "Exact and tiled".

    Examples
    --------
    >>> memory, slow = TwoLevels(4), np.arange(6.0)
    >>> with memory.scope():
    ...     part = memory.read(slow[:4])
    ...     memory.write(slow[4:], part[:2] + part[2:])
    >>> slow[4:], memory.reads, memory.writes, memory.used, memory.peak
    (array([2., 4.]), 4, 2, 0, 4)
    """

    def __init__(self, size: int):
        _require.count("size", size)
        self.size, self.reads, self.writes, self.used, self.peak = size, 0, 0, 0, 0

    @property
    def transfers(self) -> int:
        """Reads and writes together."""
        return self.reads + self.writes

    def read(self, X):
        """A copy in fast memory of an array in slow memory."""
        copy = self.room(*X.shape)
        copy[...] = X
        self.reads += X.size
        return copy

    def room(self, *shape, fill=0.0):
        """An array in fast memory that comes from nowhere; it costs room and no transfer."""
        X = np.full(shape, fill)
        if self.used + X.size > self.size:
            raise MemoryError(
                f"fast memory holds {self.size} numbers, {self.used} are in use and {X.size} more are asked for; take "
                "smaller tiles"
            )
        self.used += X.size
        self.peak = max(self.peak, self.used)
        return X

    def write(self, slow, X):
        """Write numbers from fast memory into an array in slow memory."""
        slow[...] = X
        self.writes += slow.size

    @contextmanager
    def scope(self):
        """What is read or made inside leaves fast memory at the end."""
        before = self.used
        try:
            yield self
        finally:
            self.used = before


def rows_that_fit(size: int, k: int, v: int) -> int:
    r"""The most queries in a tile whose loop over single keys fits into fast memory.

    .. math:: B = \Bigl\lfloor \frac{M - (d_k + d_v)}{d_k + d_v + 4} \Bigr\rfloor

    Each query needs itself, its output, maximum, sum, score and one factor; beside them stand one key and its value.

    Parameters
    ----------
    size, k, v : M, the numbers that fit; widths of keys and values.

    Raises
    ------
    ValueError
        If not one query fits, M < 2 (k + v) + 4.

    References
    ----------
    Chapter 7, eq:tiled-rows.

    Examples
    --------
    >>> rows_that_fit(4096, 16, 16)
    112
    """
    if size < 2 * (k + v) + 4:
        raise ValueError(
            f"size is {size}; for widths {k} and {v} it must be at least 2 (k + v) + 4 = {2 * (k + v) + 4}"
        )
    return (size - k - v) // (k + v + 4)  # eq:tiled-rows


def tiled_transfers(n: int, m: int, k: int, v: int, rows: int) -> int:
    r"""What attention in tiles moves: keys and values once for every tile of queries, all else once.

    .. math:: n (d_k + d_v + 1) + \lceil n / B \rceil\, m\, (d_k + d_v)

    Parameters
    ----------
    n, m, k, v : queries, keys, key width, value width.
    rows : B, queries in a tile; how many keys are in one makes no difference.

    Returns
    -------
    Numbers read and written, nothing masked.

    References
    ----------
    Dao (2024), algorithm 1. Chapter 7, eq:tiled-transfers.

    Examples
    --------
    >>> tiled_transfers(n=4, m=6, k=2, v=3, rows=2)
    84
    """
    return n * (k + v + 1) + -(-n // rows) * m * (k + v)  # eq:tiled-transfers


def tiled_vjp_transfers(n: int, m: int, k: int, v: int, columns: int) -> int:
    r"""What the backward pass in tiles moves: for every tile of keys all queries, and their gradients there and back.

    .. math:: n\,(2 d_v + 1) + 2 m\,(d_k + d_v) + \lceil m / B \rceil\, n\,(3 d_k + d_v + 2)

    Parameters
    ----------
    n, m, k, v : queries, keys, key width, value width.
    columns : B, keys in a tile.

    Returns
    -------
    Numbers read and written, nothing masked.

    References
    ----------
    Dao (2024), algorithm 2. Chapter 7, eq:tiled-vjp-transfers.

    Examples
    --------
    >>> tiled_vjp_transfers(n=4, m=6, k=2, v=3, columns=2)
    220
    """
    return n * (2 * v + 1) + 2 * m * (k + v) + -(-m // columns) * n * (3 * k + v + 2)  # eq:tiled-vjp-transfers


def plain_transfers(n: int, m: int, k: int, v: int, rows: int) -> int:
    r"""What attention in three steps moves: the scores out and in twice, the weights out and in, and the products.

    .. math:: 5 n m + n (d_k + d_v) + \lceil n / B \rceil\, m\, (d_k + d_v)

    Parameters
    ----------
    n, m, k, v : queries, keys, key width, value width.
    rows : B, queries in a tile of either product.

    Returns
    -------
    Numbers read and written.

    References
    ----------
    Dao et al. (2022), algorithm 0. Chapter 7, eq:plain-transfers.

    Examples
    --------
    >>> plain_transfers(n=4, m=6, k=2, v=3, rows=2)
    200
    """
    return 5 * n * m + n * (k + v) + -(-n // rows) * m * (k + v)  # eq:plain-transfers


def tiled_forward(memory: TwoLevels, Q, K, V, rows: int, columns: int = 1, layout=None):
    """Attention in tiles, run on the machine: what the loop of `attnmath.numpy.tiled_attention` would move.

    A program of its own, because that loop computes on ordinary arrays; it visits the same tiles in the same order.

    Parameters
    ----------
    memory : the machine.
    Q, K, V : (n, k), (m, k), (m, v) in slow memory.
    rows, columns : queries and keys in a tile.
    layout : `attnmath.tiles.Layout`, a rule that is known without reading; tiles it hides are skipped. None hides
        nothing.

    Returns
    -------
    O, L : (n, v) and (n, 1) in slow memory, outputs and logarithms of the sums of exponentials.

    Raises
    ------
    MemoryError
        If a tile does not fit.

    Examples
    --------
    >>> memory = TwoLevels(60)
    >>> O, L = tiled_forward(memory, np.ones((4, 2)), np.ones((6, 2)), np.ones((6, 3)), rows=2)
    >>> memory.transfers == tiled_transfers(n=4, m=6, k=2, v=3, rows=2)
    True
    """
    n, m, v, c = len(Q), len(K), V.shape[1], Q.shape[1] ** -0.5
    O, L = np.empty((n, v)), np.empty((n, 1))
    for block in cuts(n, rows):
        with memory.scope():
            q = memory.read(Q[block])
            t, z = memory.room(len(q), 1, fill=-np.inf), memory.room(len(q), 1)
            a, shrink = memory.room(len(q), v), memory.room(len(q), 1)
            for part in cuts(m, columns):
                if layout is not None and not layout.part(block, part, n, m).any():
                    continue
                with memory.scope():
                    keys, values = memory.read(K[part]), memory.read(V[part])
                    E = memory.room(len(q), len(keys))
                    E[...] = c * (q @ keys.T)
                    if layout is not None:
                        E[~layout.part(block, part, n, m)] = -np.inf
                    shrink[...] = np.maximum(t, E.max(1, keepdims=True))
                    t[...], shrink[...] = shrink, np.exp(t - np.where(np.isneginf(shrink), 0, shrink))
                    E[...] = np.exp(E - np.where(np.isneginf(t), 0, t))
                    z[...] = shrink * z + E.sum(1, keepdims=True)
                    a[...] = shrink * a + E @ values
            memory.write(O[block], a / z)
            memory.write(L[block], t + np.log(z))
    return O, L


def tiled_backward(memory: TwoLevels, Q, K, V, O, L, dO, columns: int, rows: int = 1):
    """The backward pass in tiles, run on the machine: a tile of keys stays, the queries pass by.

    Parameters
    ----------
    memory : the machine.
    Q, K, V, O, L, dO : in slow memory, as `tiled_forward` takes and gives them, and the cotangent of O.
    columns, rows : keys and queries in a tile.

    Returns
    -------
    dQ, dK, dV : in slow memory.

    Raises
    ------
    MemoryError
        If a tile does not fit.

    Examples
    --------
    >>> memory, Q, K, V = TwoLevels(90), np.ones((4, 2)), np.ones((6, 2)), np.ones((6, 3))
    >>> O, L = tiled_forward(TwoLevels(60), Q, K, V, rows=2)
    >>> dQ, dK, dV = tiled_backward(memory, Q, K, V, O, L, np.ones((4, 3)), columns=2)
    >>> memory.transfers == tiled_vjp_transfers(n=4, m=6, k=2, v=3, columns=2)
    True
    """
    n, m, c = len(Q), len(K), Q.shape[1] ** -0.5
    row, dQ, dK, dV = np.empty((n, 1)), np.zeros_like(Q), np.empty_like(K), np.empty_like(V)
    for i in range(n):
        with memory.scope():
            memory.write(row[i], memory.read(dO[i]) @ memory.read(O[i]))
    for part in cuts(m, columns):
        with memory.scope():
            k, v = memory.read(K[part]), memory.read(V[part])
            dk, dv = memory.room(*k.shape), memory.room(*v.shape)
            for block in cuts(n, rows):
                with memory.scope():
                    q, do, dq = (memory.read(X[block]) for X in (Q, dO, dQ))
                    top, r = memory.read(L[block]), memory.read(row[block])
                    P, dS = memory.room(len(q), len(k)), memory.room(len(q), len(k))
                    P[...] = np.exp(c * (q @ k.T) - top)
                    dS[...] = P * (do @ v.T - r)
                    dk += c * (dS.T @ q)
                    dv += P.T @ do
                    memory.write(dQ[block], dq + c * (dS @ k))
            memory.write(dK[part], dk)
            memory.write(dV[part], dv)
    return dQ, dK, dV


def plain_forward(memory: TwoLevels, Q, K, V, rows: int):
    """Attention in three steps, run on the machine: scores and weights lie in slow memory between them.

    Parameters
    ----------
    memory : the machine.
    Q, K, V : (n, k), (m, k), (m, v) in slow memory.
    rows : queries in a tile of either product; keys, scores and weights pass one after the other.

    Returns
    -------
    O : (n, v) in slow memory.

    Raises
    ------
    MemoryError
        If a tile does not fit.

    Examples
    --------
    >>> memory = TwoLevels(60)
    >>> O = plain_forward(memory, np.ones((4, 2)), np.ones((6, 2)), np.ones((6, 3)), rows=2)
    >>> memory.transfers == plain_transfers(n=4, m=6, k=2, v=3, rows=2)
    True
    """
    n, m, v, c = len(Q), len(K), V.shape[1], Q.shape[1] ** -0.5
    S, P, O = np.empty((n, m)), np.empty((n, m)), np.empty((n, v))
    for block in cuts(n, rows):  # 1. S = c Q K^T
        with memory.scope():
            q = memory.read(Q[block])
            for j in range(m):
                with memory.scope():
                    memory.write(S[block, j], c * (q @ memory.read(K[j])))
    for i in range(n):  # 2. P = softmax(S): once for the row's maximum and sum, once for the weights
        t, z = -np.inf, 0.0
        for j in range(m):
            with memory.scope():
                s = memory.read(S[i, j : j + 1])[0]
                top = max(t, s)
                t, z = top, z * np.exp(t - top) + np.exp(s - top)
        for j in range(m):
            with memory.scope():
                memory.write(P[i, j : j + 1], np.exp(memory.read(S[i, j : j + 1]) - t) / z)
    for block in cuts(n, rows):  # 3. O = P V
        with memory.scope():
            a = memory.room(len(Q[block]), v)
            for j in range(m):
                with memory.scope():
                    a += memory.read(P[block, j])[:, None] * memory.read(V[j])
            memory.write(O[block], a)
    return O
