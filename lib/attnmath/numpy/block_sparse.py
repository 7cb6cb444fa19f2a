"""Block-sparse attention: only the tiles that a layout lets somebody see are computed."""

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.layouts import Layout, as_layout
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to

GROUP = 1 << 16  # scores worked on at a time: heads are taken together until there are so many


@differentiable
@half_in_float32
def block_sparse_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    layout: Layout | Bool[Array, "a b"],
    size: int = 64,
    empty_rows: str = "error",
    scale: float | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention within a layout, whose work is that of the tiles in which the layout allows something.

    .. math:: O_i = \sum_{j\in A(i)} P_{ij} V_j,\qquad
              P_{ij} = \frac{e^{S_{ij}}}{\sum_{l\in A(i)} e^{S_{il}}},\quad S = Q K^\top / \sqrt{d_k}

    For each strip of ``size`` queries, the keys of the tiles that are not empty are gathered; from there on it is
    attention with fewer keys. Neither pass holds an array n x m.

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.
    V : (..., m, v) values.
    mask : boolean, broadcasts to (..., n, m); True = may attend, where the layout allows it too.
    layout : A, where a query may attend, one of `attnmath.layouts`; or booleans (ceil(n / size), ceil(m / size)), each
        for a whole tile.
    size : queries and keys in a tile.
    empty_rows : a query that may attend to nothing is an ``"error"``, or gets an output of zeros with ``"zero"``.
    scale : as in `attention_weights`.

    Returns
    -------
    O : (..., n, v), equal to `attention`'s with ``layout.mask(n, m) & mask``, up to rounding.
    vjp : dO -> (dQ, dK, dV); it computes the scores of the tiles again.

    Raises
    ------
    ValueError
        As `attention`; and if the layout is of neither kind, the booleans do not fit the tiles, or size < 1.

    References
    ----------
    Child et al. (2019), section 5.4; Zaheer et al. (2020), appendix D. Chapter 7, eq:block-sparse.

    Examples
    --------
    >>> from attnmath.layouts import window
    >>> V = np.array([[1.0], [3.0], [8.0], [9.0]])
    >>> O, vjp = block_sparse_attention(np.zeros((4, 1)), np.ones((4, 1)), V, layout=window(1), size=2)
    >>> O.T
    array([[2.        , 4.        , 6.66666667, 8.5       ]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    shapes, n, m = [X.shape for X in (Q, K, V)], sizes["n"], sizes["m"]
    _require.nonempty("K", K.shape, -2, m, "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    _require.mask(mask, (*sizes["..."], n, m))
    _require.count("size", size)
    lead, c = sizes["..."], factor(scale, sizes["k"])
    Q, K, V = (_tiled(np.broadcast_to(X, (*lead, *X.shape[-2:])), size) for X in (c * Q, K, V))
    mask = None if mask is True else _square_tiles(mask, lead, n, m, size)
    work = list(_work(layout, n, m, size, len(Q)))

    def weights(heads, rows, keys, columns, hidden, top=None):
        """The exponentials of some strips' scores, less the row's maximum, and that maximum."""
        E = Q[heads, rows] @ T(keys)  # (heads, strips, size, keys)
        tiles = E.reshape(*E.shape[:-1], columns.shape[1], size).transpose(
            1, 3, 0, 2, 4
        )  # a view: (strips, tiles, heads, size, size)
        for at, where in hidden:
            np.copyto(tiles[at], -np.inf, where=where)
        if mask is not None:
            own = mask if len(mask) == 1 else mask[heads]
            own = own[:, rows[:, None], columns].transpose(1, 2, 0, 3, 4)
            np.copyto(tiles, -np.inf, where=~own)
        if top is None:
            top = E.max(-1, keepdims=True)
            top = np.where(np.isneginf(top), 0, top).astype(E.dtype) if hidden or mask is not None else top
        E -= top
        return np.exp(E, out=E), top

    top, z = np.zeros((2, *Q.shape[:-1], 1), Q.dtype)
    O = np.zeros((*Q.shape[:-1], sizes["v"]), Q.dtype)
    for heads, rows, columns, hidden in work:
        E, top[heads, rows] = weights(heads, rows, _gathered(K[heads], columns), columns, hidden)
        z[heads, rows] = E.sum(-1, keepdims=True)
        O[heads, rows] = E @ _gathered(V[heads], columns)
    empty = z.reshape(len(z), z.shape[1] * size)[:, :n] == 0
    if empty.any() and empty_rows == "error":
        row = np.argwhere(empty.reshape(*lead, n))[0].tolist()
        _require.no_empty_row(tuple(row), "empty_rows='zero'")
    z[z == 0] = 1
    O /= z  # eq:block-sparse

    def vjp(dO):
        share = _tiled(dO, size) / z
        row = (share * O).sum(-1, keepdims=True)
        dQ, dK, dV = (np.zeros(X.shape, X.dtype) for X in (Q, K, V))
        for heads, rows, columns, hidden in work:
            keys = _gathered(K[heads], columns)
            E, _ = weights(heads, rows, keys, columns, hidden, top[heads, rows])
            dS = share[heads, rows] @ T(_gathered(V[heads], columns))
            dS -= row[heads, rows]
            dS *= E
            _scatter(dV[heads], columns, T(E) @ share[heads, rows])  # eq:block-sparse-vjp
            dQ[heads, rows] = dS @ keys
            _scatter(dK[heads], columns, T(dS) @ Q[heads, rows])  # eq:block-gather-vjp
        dQ *= c
        dinputs = (_rows(dX, lead, shape[-2]) for dX, shape in zip((dQ, dK, dV), shapes, strict=True))
        return tuple(dX if dX.shape == shape else sum_to(dX, shape) for dX, shape in zip(dinputs, shapes, strict=True))

    return _rows(O, lead, n), vjp


def strips(layout, n: int, m: int, size: int):
    """The work of a layout: strips of ``size`` queries that see the same number of tiles stand together.

    Parameters
    ----------
    layout, size : as in `block_sparse_attention`.
    n, m : how many queries and keys.

    Returns
    -------
    A list of ``(rows (s,), columns (s, t), hidden)``: the numbers of s strips, the t tiles that each of them sees, and
    a list of ``((strip, tile), booleans)`` with True where a pair of that tile may not be seen. Strips that see
    nothing stand in none.

    Raises
    ------
    ValueError
        As `block_sparse_attention`.

    Examples
    --------
    >>> from attnmath.layouts import causal
    >>> [(rows.tolist(), columns.tolist()) for rows, columns, hidden in strips(causal(), 4, 4, 2)]
    [([0], [[0]]), ([1], [[0, 1]])]
    """
    return _planned(as_layout(layout, size), n, m, size)


@lru_cache(maxsize=32)  # a model asks the same of every layer and step
def _planned(layout, n, m, size):
    if not n:
        return []
    grades, looks, plan = layout.tiles(n, m, size), {}, []
    count = (grades > 0).sum(1)
    for t in np.unique(count[count > 0]):
        rows = (count == t).nonzero()[0]
        columns = (grades[rows] > 0).nonzero()[1].reshape(len(rows), t)
        some = np.argwhere((np.take_along_axis(grades[rows], columns, 1) == 1) | _ragged(columns, m, size))
        hidden = [((s, k), _hidden(layout, rows[s], columns[s, k], n, m, size, looks)) for s, k in some.tolist()]
        plan.append((rows, columns, hidden))
    return plan


def _ragged(b, count, size):
    """Whether a tile's last rows or columns lie behind the end."""
    return (b + 1) * size > count


def _hidden(layout, a, b, n, m, size, looks):
    """True where a pair of tile (a, b) may not be seen; a layout that repeats itself is asked once."""
    key = b - a if layout.repeats and not _ragged(a, n, size) and not _ragged(b, m, size) else (a, b)
    if key not in looks:
        looks[key] = np.ones((size, size), bool)
        part = layout.part(slice(a * size, (a + 1) * size), slice(b * size, (b + 1) * size), n, m)
        looks[key][: part.shape[0], : part.shape[1]] = ~part
    return looks[key]


def _work(layout, n, m, size, heads):
    """The strips, cut into as many heads and strips together as make GROUP scores."""
    for rows, columns, hidden in strips(layout, n, m, size):
        together = max(1, GROUP // (size * size * columns.shape[1]))
        step, group = min(together, len(rows)), max(1, together // len(rows))
        of = [[] for _ in range(0, len(rows), step)]
        for (s, k), where in hidden:
            of[s // step].append(((s % step, k), where))
        for first in range(0, heads, group):
            for piece, own in enumerate(of):
                at = slice(piece * step, (piece + 1) * step)
                yield slice(first, first + group), rows[at], columns[at], own


def _tiled(X, size):
    """(..., n, k) to (heads, ceil(n / size), size, k), with zeros behind the last row."""
    n, k = X.shape[-2:]
    heads, count = int(np.prod(X.shape[:-2])), -(-n // size)
    X = X.reshape(heads, n, k)
    if n % size:
        X, whole = np.zeros((heads, count * size, k), X.dtype), X
        X[:, :n] = whole
    return X.reshape(heads, count, size, k)


def _rows(X, lead, n):
    """(heads, tiles, size, k) to (..., n, k), without the rows behind the last one."""
    return X.reshape(len(X), X.shape[1] * X.shape[2], X.shape[3])[:, :n].reshape(*lead, n, X.shape[-1])


def _square_tiles(mask, lead, n, m, size):
    """A mask to (heads or 1, ceil(n / size), ceil(m / size), size, size)."""
    heads = lead if mask.ndim > 2 and max(mask.shape[:-2]) > 1 else (1,) * len(lead)
    mask = np.broadcast_to(mask, (*heads, n, m)).reshape(int(np.prod(heads)), n, m)
    mask = np.pad(mask, ((0, 0), (0, -n % size), (0, -m % size)))
    return mask.reshape(len(mask), mask.shape[1] // size, size, mask.shape[2] // size, size).transpose(0, 1, 3, 2, 4)


def _gathered(X, columns):
    """Tiles of keys, (heads, tiles, size, k), to those of each strip, (heads, strips, keys, k)."""
    return np.take(X, columns, 1).reshape(len(X), len(columns), columns.shape[1] * X.shape[2], X.shape[3])


def _scatter(dX, columns, dkeys):
    """Add what strips found to the tiles that they had gathered: the transpose of `_gathered`."""
    dkeys = dkeys.reshape(*dkeys.shape[:2], columns.shape[1], *dX.shape[-2:])
    for s, tiles in enumerate(columns):
        dX[:, tiles] += dkeys[:, s]
