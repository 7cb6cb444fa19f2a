"""Layouts: where each query may attend, said by a rule instead of n x m booleans.

A layout has three methods. ``mask(n, m)`` writes the booleans down, ``part(rows, columns, n, m)`` a rectangle of them,
and ``tiles(n, m, size)`` says of each square of ``size`` queries and keys whether nothing (0), some (1) or all (2) of
it may be seen. A core asks for the tiles first, leaves out those with a 0, and needs the booleans of those with a 1
alone. Layouts are combined by ``|`` (or) and ``&`` (and). ``python -m attnmath.layouts`` counts pairs and layers of the
patterns of Chapter 7.

The last query stands where the last key does: query i of n stands at position p = i + m - n among m keys, as in
`attnmath.numpy.cores.windowed`. Plain NumPy, for both worlds; there is nothing to differentiate.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from attnmath import _require


class Layout:
    """What all layouts share. A subclass has ``_rule(p, j, n, m)``, and ``tiles`` where it can be had for less."""

    repeats = False  # whether two tiles as far from the diagonal look alike

    def __init__(self, name: str):
        self.name = name

    def __repr__(self):
        return self.name

    def _rule(self, p, j, n, m):
        """Whether the query at position p sees key j: arrays that broadcast, and so does the answer."""
        raise NotImplementedError

    def part(self, rows: slice, columns: slice, n: int, m: int):
        """The booleans of some rows and columns, (r, c)."""
        return self.pairs(np.arange(*rows.indices(n))[:, None], np.arange(*columns.indices(m)), n, m)

    def pairs(self, i, j, n: int, m: int):
        """The booleans of any queries i and keys j, arrays of numbers that broadcast; in their broadcast shape."""
        i, j = np.asarray(i), np.asarray(j)
        return np.array(np.broadcast_to(self._rule(i + (m - n), j, n, m), np.broadcast_shapes(i.shape, j.shape)))

    def mask(self, n: int, m: int | None = None):
        """The booleans of all n queries and m keys (None: n), (n, m); an error if a query sees no key."""
        m = n if m is None else m
        _sizes(n, m)
        mask = self.part(slice(None), slice(None), n, m)
        if not mask.any(-1).all():
            raise ValueError(_empty(self, int(mask.any(-1).argmin()), n, m))
        return mask

    def tiles(self, n: int, m: int, size: int):
        """0, 1 or 2 for each tile of size x size: nothing, some or all of it may be seen, (ceil(n/s), ceil(m/s))."""
        rows, columns = _edges(n, m, size)
        out = np.zeros((len(rows) - 1, len(columns) - 1), np.uint8)
        self._look(out, np.argwhere(np.ones(out.shape, bool)), n, m, size)
        return out

    def _look(self, out, where, n, m, size):
        """Write into ``out`` what some tiles hold, by looking at each of their entries."""
        for a, b in where.tolist():
            inside = self.part(slice(a * size, (a + 1) * size), slice(b * size, (b + 1) * size), n, m)
            out[a, b] = 2 if inside.all() else inside.any()

    def density(self, n: int, m: int | None = None) -> float:
        """The part of the n m pairs that may be seen; a strip of rows is written down at a time."""
        m = n if m is None else m
        _sizes(n, m)
        strips = (self.part(slice(a, a + 256), slice(None), n, m) for a in range(0, n, 256))
        return sum(int(strip.sum()) for strip in strips) / (n * m)

    def __or__(self, other):
        return _combined(self, other, "|")

    def __and__(self, other):
        return _combined(self, other, "&")


class _Difference(Layout):
    """A rule of the difference p - j: n + m - 1 booleans say everything."""

    repeats = True

    def __init__(self, name, allowed: Callable):
        super().__init__(name)
        self.allowed = allowed

    def _rule(self, p, j, n, m):
        return self.allowed(p - j)

    def tiles(self, n, m, size):
        rows, columns = _edges(n, m, size)
        seen = _prefix(self.allowed(np.arange(1 - n, m)))
        low = rows[:-1, None] + m - n - (columns[1:] - 1)  # every difference from low to high occurs in the tile
        high = rows[1:, None] - 1 + m - n - columns[:-1]
        return _grade(seen[high + n] - seen[low + n - 1], high - low + 1)


class _Tokens(Layout):
    """Some positions see all keys, or are seen by all queries, or both."""

    def __init__(self, name, chosen: Callable, asking: bool, asked: bool):
        super().__init__(name)
        self.chosen, self.asking, self.asked = chosen, asking, asked

    def _rule(self, p, j, n, m):
        return (self.asking & self._at(p)) | (self.asked & self._at(j))

    def _at(self, position):
        return (position >= 0) & self.chosen(position)

    def tiles(self, n, m, size):
        rows, columns = _edges(n, m, size)
        asking, asked = (
            _prefix(self.asking & self._at(np.arange(m - n, m))),
            _prefix(self.asked & self._at(np.arange(m))),
        )
        down, across = (_grade(np.diff(X[at]), np.diff(at)) for X, at in ((asking, rows), (asked, columns)))
        return np.maximum(down[:, None], across)  # a tile is full only if all its rows are or all its columns are


class _Segments(Layout):
    """Positions of one segment see each other."""

    def __init__(self, length):
        super().__init__(f"segments({length})")
        self.length = length

    def _rule(self, p, j, n, m):
        return p // self.length == j // self.length

    def tiles(self, n, m, size):
        rows, columns = _edges(n, m, size)
        first, last = (rows[:-1] + m - n) // self.length, (rows[1:] - 1 + m - n) // self.length
        left, right = columns[:-1] // self.length, (columns[1:] - 1) // self.length
        some = (first[:, None] <= right) & (left <= last[:, None])
        return some + (some & (first == last)[:, None] & (left == right)).astype(np.uint8)


class _Blocks(Layout):
    """A square of queries and keys is seen whole or not at all; ``pattern(n, m)`` has a boolean for each."""

    def __init__(self, name, pattern: Callable, size: int, by_position: bool):
        super().__init__(name)
        self.pattern, self.size, self.by_position = pattern, size, by_position

    def _first(self, n, m):
        return m - n if self.by_position else 0

    def _rule(self, p, j, n, m):
        row = (p + self._first(n, m) - (m - n)) // self.size
        pattern = self.pattern(n, m)
        return (row >= 0) & pattern[np.maximum(row, 0), j // self.size]

    def tiles(self, n, m, size):
        rows, columns = _edges(n, m, size)
        first = self._first(n, m)
        if first < 0:
            return super().tiles(n, m, size)
        pattern = self.pattern(n, m)
        total = np.zeros((pattern.shape[0] + 1, pattern.shape[1] + 1), int)
        total[1:, 1:] = pattern.cumsum(0).cumsum(1)
        top, left = (rows[:-1] + first)[:, None] // self.size, columns[:-1] // self.size
        bottom, right = (rows[1:] - 1 + first)[:, None] // self.size + 1, (columns[1:] - 1) // self.size + 1
        count = total[bottom, right] - total[top, right] - total[bottom, left] + total[top, left]
        return _grade(count, (bottom - top) * (right - left))


class _Combined(Layout):
    """Two layouts joined by ``|`` or ``&``; where the tiles of both say "some", the entries decide."""

    def __init__(self, one, other, sign):
        super().__init__(f"({one} {sign} {other})")
        self.one, self.other, self.sign = one, other, sign

    def _rule(self, p, j, n, m):
        one, other = self.one._rule(p, j, n, m), self.other._rule(p, j, n, m)
        return one | other if self.sign == "|" else one & other

    def tiles(self, n, m, size):
        one, other = self.one.tiles(n, m, size), self.other.tiles(n, m, size)
        out = np.maximum(one, other) if self.sign == "|" else np.minimum(one, other)
        self._look(out, np.argwhere((one == 1) & (other == 1)), n, m, size)
        return out


def _combined(one, other, sign):
    if not isinstance(other, Layout):
        raise ValueError(f"a layout is combined with a layout, not with a {type(other).__name__}: see attnmath.layouts")
    if isinstance(one, _Difference) and isinstance(other, _Difference):
        f, g = one.allowed, other.allowed
        both = (lambda d: f(d) | g(d)) if sign == "|" else (lambda d: f(d) & g(d))
        return _Difference(f"({one} {sign} {other})", both)
    return _Combined(one, other, sign)


def _sizes(n, m):
    _require.count("n", n)
    _require.count("m", m)


def _edges(n, m, size):
    """Where the tiles begin, and where the last one ends."""
    _sizes(n, m)
    _require.count("size", size)
    return np.append(np.arange(0, n, size), n), np.append(np.arange(0, m, size), m)


def _prefix(allowed):
    return np.append(0, np.cumsum(allowed))


def _grade(count, whole):
    return ((count > 0) + (count == whole).astype(np.uint8)).astype(np.uint8)


def _empty(layout, row, n, m):
    cure = (
        "give at least as many keys as queries, because the last query stands at the last key"
        if row < n - m
        else "add | window(0), with which each query sees the key at its own position"
    )
    return f"row {row} of {layout} may attend to no key (n = {n} queries, m = {m} keys): {cure}"


def everything() -> Layout:
    """Each query sees every key.

    Examples
    --------
    >>> everything().tiles(3, 5, 2)
    array([[2, 2, 2],
           [2, 2, 2]], dtype=uint8)
    """
    return _Difference("everything()", lambda d: d == d)


def causal() -> Layout:
    r"""Each query sees the keys up to its own position.

    .. math:: j \le p,\qquad p = i + m - n

    Returns
    -------
    A layout, `attnmath.numpy.masks.causal_mask` as a rule.

    Examples
    --------
    >>> causal().mask(2, 3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    >>> causal().tiles(4, 4, 2)
    array([[1, 0],
           [2, 1]], dtype=uint8)
    """
    return _Difference("causal()", lambda d: d >= 0)


def window(width: int, causal: bool = False) -> Layout:
    r"""Each query sees the keys at most ``width`` steps away, with ``causal`` those before it only.

    .. math:: |p - j| \le w,\qquad\text{or}\quad 0 \le p - j \le w

    Parameters
    ----------
    width : w >= 0.
    causal : whether keys after the query are hidden.

    Raises
    ------
    ValueError
        If the width is no integer >= 0.

    References
    ----------
    Beltagy, Peters and Cohan (2020), section 3.1.

    Examples
    --------
    >>> window(1).mask(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    _whole("width", width)
    return _Difference(f"window({width}{_also(causal)})", lambda d: (abs(d) <= width) & ((d >= 0) | (not causal)))


def dilated(width: int | None, stride: int, causal: bool = False) -> Layout:
    r"""A window with gaps: each query sees every ``stride``-th key, ``width`` of them on each side.

    .. math:: (p - j) \bmod s = 0,\qquad |p - j| \le w s

    Parameters
    ----------
    width : w >= 0 keys on each side; None is all of them.
    stride : s >= 1, the distance from one to the next; 1 is `window`.
    causal : whether keys after the query are hidden.

    Raises
    ------
    ValueError
        If the width is no integer >= 0 or the stride none >= 1.

    References
    ----------
    Beltagy, Peters and Cohan (2020), section 3.1. Without width and causal: the second head of Child et al. (2019).

    Examples
    --------
    >>> dilated(1, 2).mask(4).astype(int)
    array([[1, 0, 1, 0],
           [0, 1, 0, 1],
           [1, 0, 1, 0],
           [0, 1, 0, 1]])
    """
    if width is not None:
        _whole("width", width)
    _require.count("stride", stride)
    name = f"dilated({width}, {stride}{_also(causal)})"

    def allowed(d):
        near = True if width is None else abs(d) <= width * stride
        return (d % stride == 0) & near & ((d >= 0) | (not causal))

    return _Difference(name, allowed)


def strided(stride: int) -> Layout:
    r"""The last ``stride`` keys, and before them every ``stride``-th: the strided pattern of the Sparse Transformer.

    .. math:: 0 \le p - j \le s \quad\text{or}\quad j \le p,\ (p - j) \bmod s = 0

    Parameters
    ----------
    stride : s >= 1; near the root of the number of keys, a row has about twice that many.

    Returns
    -------
    A layout, ``window(s, causal=True) | dilated(None, s, causal=True)``; the paper gives each half a head or a layer.

    Raises
    ------
    ValueError
        If the stride is no integer >= 1.

    References
    ----------
    Child et al. (2019), section 4.2: their l is s, and their first head ends at i - l.

    Examples
    --------
    >>> strided(2).mask(6)[5].astype(int)
    array([0, 1, 0, 1, 1, 1])
    """
    _require.count("stride", stride)
    both = window(stride, causal=True) | dilated(None, stride, causal=True)
    both.name = f"strided({stride})"
    return both


def segments(length: int) -> Layout:
    r"""Positions are cut into segments of ``length``, and a query sees the keys of its own one.

    .. math:: \lfloor p / l \rfloor = \lfloor j / l \rfloor

    Raises
    ------
    ValueError
        If the length is no integer >= 1.

    Examples
    --------
    >>> segments(2).mask(4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 1],
           [0, 0, 1, 1]])
    """
    _require.count("length", length)
    return _Segments(length)


def summaries(length: int, count: int = 1) -> Layout:
    r"""Every query sees the last ``count`` keys of each segment of ``length``.

    .. math:: j \bmod l \ge l - c

    Raises
    ------
    ValueError
        If the count is not between 1 and the length.

    Examples
    --------
    >>> summaries(3).mask(1, 6).astype(int)
    array([[0, 0, 1, 0, 0, 1]])
    """
    _require.count("length", length)
    _require.count("count", count)
    if count > length:
        raise ValueError(f"count is {count}, but a segment has {length} keys; take at most as many")
    return _Tokens(f"summaries({length}, {count})", lambda j: j % length >= length - count, False, True)


def fixed(stride: int, count: int = 1) -> Layout:
    r"""The own segment, and the last ``count`` keys of each earlier one: the fixed pattern of the Sparse Transformer.

    .. math:: j \le p \quad\text{and}\quad
              \bigl(\lfloor p / s \rfloor = \lfloor j / s \rfloor \ \text{or}\ j \bmod s \ge s - c\bigr)

    Parameters
    ----------
    stride : s >= 1, the length of a segment.
    count : c from 1 to s, the keys of a segment that stand for it.

    Returns
    -------
    A layout, ``(segments(s) | summaries(s, c)) & causal()``.

    Raises
    ------
    ValueError
        If the stride is no integer >= 1 or the count is not between 1 and the stride.

    References
    ----------
    Child et al. (2019), section 4.2: their l is s.

    Examples
    --------
    >>> fixed(2).mask(6)[4:].astype(int)
    array([[0, 1, 0, 1, 1, 0],
           [0, 1, 0, 1, 1, 1]])
    """
    _require.count("stride", stride)
    both = (segments(stride) | summaries(stride, count)) & causal()
    both.name = f"fixed({stride}, {count})"
    return both


def global_tokens(tokens: int | Sequence[int]) -> Layout:
    r"""Some positions see every key and are seen by every query; add a `window` for all others.

    .. math:: p \in G \quad\text{or}\quad j \in G

    Parameters
    ----------
    tokens : G, a list of positions; a number g is the first g of them.

    Raises
    ------
    ValueError
        If a position is negative, or there is none.

    References
    ----------
    Beltagy, Peters and Cohan (2020), section 3.1.

    Examples
    --------
    >>> (global_tokens(1) | window(0)).mask(4).astype(int)
    array([[1, 1, 1, 1],
           [1, 1, 0, 0],
           [1, 0, 1, 0],
           [1, 0, 0, 1]])
    """
    if _require.integral(tokens):
        _require.count("tokens", tokens)
        return _Tokens(f"global_tokens({tokens})", lambda j: j < tokens, True, True)
    chosen = np.array(tokens)
    if not chosen.size or chosen.dtype.kind not in "iu" or (chosen < 0).any():
        raise ValueError(f"tokens is {tokens!r}; it must be a number >= 1, or a list of positions >= 0")
    name = f"global_tokens({chosen.tolist()})"
    return _Tokens(name, lambda j: np.isin(j, chosen), True, True)


def longformer(width: int, tokens: int | Sequence[int]) -> Layout:
    """A window for everybody, and some global tokens.

    Parameters
    ----------
    width, tokens : as in `window` and `global_tokens`.

    References
    ----------
    Beltagy, Peters and Cohan (2020), section 3.1, whose w counts both sides: w = 2 width.

    Examples
    --------
    >>> longformer(1, 1).mask(4)[3].astype(int)
    array([1, 0, 1, 1])
    """
    return window(width) | global_tokens(tokens)


def sinks(count: int, width: int) -> Layout:
    r"""The first ``count`` keys and the last ``width`` before the query: what is kept while a text streams.

    .. math:: j \le p \quad\text{and}\quad (j < c \ \text{or}\ p - j \le w)

    Parameters
    ----------
    count : c >= 1 sinks.
    width : w >= 0.

    Raises
    ------
    ValueError
        If the count is no integer >= 1 or the width none >= 0.

    References
    ----------
    Xiao et al. (2024), section 3.2.

    Examples
    --------
    >>> sinks(1, 1).mask(5).astype(int)
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [1, 1, 1, 0, 0],
           [1, 0, 1, 1, 0],
           [1, 0, 0, 1, 1]])
    """
    _require.count("count", count)
    first = _Tokens(f"first({count})", lambda j: j < count, False, True)
    both = (first & causal()) | window(width, causal=True)
    both.name = f"sinks({count}, {width})"
    return both


def blocks(pattern, size: int) -> Layout:
    r"""Squares of ``size`` queries and keys that are seen whole or not at all.

    .. math:: B_{\lfloor i/s \rfloor,\ \lfloor j/s \rfloor}

    Parameters
    ----------
    pattern : B, booleans (ceil(n / s), ceil(m / s)), whose rows count from the first query.
    size : s >= 1.

    Raises
    ------
    ValueError
        If the pattern is not a matrix of booleans, or has not a boolean for each square of the n queries and m keys.

    Examples
    --------
    >>> blocks(np.array([[True, False], [True, True]]), 2).mask(3, 4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 1]])
    """
    _require.count("size", size)
    pattern = np.array(pattern)
    if pattern.ndim != 2 or pattern.dtype != bool:
        raise ValueError(
            f"pattern has shape {pattern.shape} and dtype {pattern.dtype}; expected booleans (ceil(n / size), "
            "ceil(m / size)), True = may attend"
        )

    def fits(n, m):
        if pattern.shape != (-(-n // size), -(-m // size)):
            raise ValueError(
                f"pattern has shape {pattern.shape}, but {n} queries and {m} keys are {-(-n // size)} by "
                f"{-(-m // size)} squares of {size}: give it a boolean for each"
            )
        return pattern

    return _Blocks(f"blocks({pattern.shape[0]} x {pattern.shape[1]}, {size})", fits, size, by_position=False)


def as_layout(layout, size: int) -> Layout:
    """A layout as it is; booleans for whole tiles of ``size``, an array or a tensor, as `blocks`.

    Examples
    --------
    >>> as_layout(causal(), 2), as_layout(np.ones((2, 2), bool), 2)
    (causal(), blocks(2 x 2, 2))
    """
    if isinstance(layout, Layout):
        return layout
    if "bool" not in str(getattr(layout, "dtype", None)):
        raise ValueError(
            f"layout is a {type(layout).__name__}; expected one of attnmath.layouts, or booleans for whole tiles"
        )
    tiles = layout.cpu().numpy() if hasattr(layout, "cpu") else np.asarray(layout)
    return _same_layout(tiles.tobytes(), tiles.shape, size)


@lru_cache(maxsize=32)
def _same_layout(data, shape, size):
    """One layout for equal booleans, so that what was planned for it is found again."""
    return blocks(np.frombuffer(data, bool).reshape(shape), size)


def bigbird(size: int, width: int = 1, ends: int = 1, random: int = 3, seed: int = 0) -> Layout:
    r"""In squares of ``size``: a window, global blocks at the beginning, and random ones, drawn once for each row.

    .. math:: |a - b| \le w \quad\text{or}\quad a < g \quad\text{or}\quad b < g \quad\text{or}\quad b \in R_a

    Parameters
    ----------
    size : s >= 1, positions in a block.
    width : w >= 0 blocks on each side.
    ends : g >= 0 global blocks.
    random : blocks drawn for each row from those that it does not see yet; all of them if fewer are left.
    seed : the draw depends on it and on the number of blocks, and on nothing else.

    Raises
    ------
    ValueError
        If a number is negative or no integer, or the size is 0.

    References
    ----------
    Zaheer et al. (2020), section 2 and appendix D.

    Examples
    --------
    >>> bigbird(2, width=0, random=1).mask(8)[::2, ::2].astype(int)
    array([[1, 1, 1, 1],
           [1, 1, 1, 0],
           [1, 0, 1, 1],
           [1, 1, 0, 1]])
    """
    _require.count("size", size)
    for name, value in (("width", width), ("ends", ends), ("random", random)):
        _whole(name, value)

    def pattern(n, m):
        count = -(-m // size)
        a, b = np.arange(count)[:, None], np.arange(count)
        seen = (abs(a - b) <= width) | (a < ends) | (b < ends)
        order = np.where(seen, np.inf, np.random.default_rng((seed, count)).random((count, count))).argsort(-1)
        np.put_along_axis(drawn := np.zeros_like(seen), order[:, :random], True, -1)
        return seen | drawn

    return _Blocks(f"bigbird({size}, {width}, {ends}, {random}, {seed})", pattern, size, by_position=True)


def _whole(name, value):
    _require.nonnegative(name, value)
    if not _require.integral(value):
        raise ValueError(f"{name} is {value!r}; it must be an integer >= 0")


def _also(causal):
    return ", causal=True" if causal else ""


def reached(*masks, layers: int):
    r"""Which tokens a token can have heard of after some layers, if each passes its own state on by its residual.

    .. math:: R_0 = I,\qquad R_{l+1} = (M_l \lor I)\, R_l\quad\text{(boolean product)}

    Parameters
    ----------
    masks : one or more (n, n) booleans, True = may attend; the layers take them in turn, beginning with the first.
    layers : how many layers, >= 0.

    Returns
    -------
    R : (n, n) boolean; ``R[i, j]`` says that a path of at most so many steps leads from token j to token i.

    Raises
    ------
    ValueError
        If there is no mask, or one is not square and boolean.

    References
    ----------
    Chapter 7, eq:reach.

    Examples
    --------
    >>> reached(window(1).mask(4), layers=2)[0].astype(int)
    array([1, 1, 1, 0])
    """
    _square(masks)
    R = np.eye(len(masks[0]), dtype=bool)
    for layer in range(layers):
        R = _step(masks[layer % len(masks)], R)  # eq:reach
    return R


def layers_to_reach(*masks, wanted=None) -> int:
    r"""After how many layers every wanted pair is connected, counted by boolean powers of the masks.

    .. math:: \min\{L : R_L \ge W\}

    Parameters
    ----------
    masks : as in `reached`.
    wanted : W (n, n) boolean, the pairs to connect; None is every pair, or j <= i if no mask lets a token look ahead.

    Returns
    -------
    L : the number of layers.

    Raises
    ------
    ValueError
        If a wanted pair is connected by no number of layers; it names the first.

    References
    ----------
    Chapter 7, eq:reach.

    Examples
    --------
    >>> layers_to_reach(window(1).mask(9)), layers_to_reach(longformer(1, 1).mask(9))
    (8, 2)
    """
    n = _square(masks)
    if wanted is None:
        ahead = any(np.triu(mask, 1).any() for mask in masks)
        wanted = np.ones((n, n), bool) if ahead else np.tril(np.ones((n, n), bool))
    R, layer, last_change = np.eye(n, dtype=bool), 0, 0
    while not (R | ~wanted).all():
        R, before = _step(masks[layer % len(masks)], R), R
        layer += 1
        last_change = last_change if np.array_equal(R, before) else layer
        if layer - last_change >= len(masks):
            i, j = np.argwhere(wanted & ~R)[0].tolist()
            raise ValueError(
                f"query {i} never hears of key {j}, whatever the number of layers: add a layout that leads there, or "
                "pass wanted, the pairs to connect"
            )
    return layer


def _step(mask, R):
    """(M or I) R, as a product of floats, which is fast."""
    return R | ((mask.astype(np.float32) @ R.astype(np.float32)) > 0)


def _square(masks):
    for mask in masks:
        if str(getattr(mask, "dtype", None)) != "bool" or mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
            raise ValueError(
                f"a mask has shape {getattr(mask, 'shape', None)} and dtype {getattr(mask, 'dtype', None)}; expected "
                "booleans (n, n), such as layout.mask(n)"
            )
    if not masks or len({mask.shape for mask in masks}) > 1:
        raise ValueError(f"masks have shapes {[mask.shape for mask in masks]}; give at least one, all of one size")
    return len(masks[0])


def counted(n: int) -> list[tuple[str, float, int]]:
    """Which part of the pairs each pattern of Chapter 7 keeps, and after how many layers all are connected.

    Parameters
    ----------
    n : the number of tokens, >= 64.

    Returns
    -------
    rows : for each pattern its name, the part of the n n pairs that may be seen, and the number of layers.

    Raises
    ------
    ValueError
        If n is no integer >= 64.

    Examples
    --------
    >>> counted(128)[2]
    ('bigbird(64, 1, 1, 3, 0)', 1.0, 1)
    """
    if not _require.integral(n) or n < 64:
        raise ValueError(f"n is {n!r}; give at least 64 tokens")
    width = 64
    patterns = (window(width), longformer(width, 1), bigbird(width), strided(32), fixed(32), sinks(4, width))
    masks = [(pattern.name, pattern.mask(n)) for pattern in patterns]
    return [(name, round(float(mask.mean()), 4), layers_to_reach(mask)) for name, mask in masks]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m attnmath.layouts", description=counted.__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=1024, help="the number of tokens, 64 or more")
    n = parser.parse_args(arguments).tokens
    try:
        rows = counted(n)
    except ValueError as error:
        parser.error(str(error))
    print(f"{f'{n} tokens':32} pairs  layers until all are connected")
    for name, share, layers in rows:
        print(f"{name:32}{share:6.1%}{layers:8}")


if __name__ == "__main__":
    main()
