"""Caches of keys and values that hold fewer rows, fewer numbers, fewer bits, or no room in vain. For either world.

Each is a `KeyValueCache` to the core and to the models that it is given to.
"""

import numpy as np

from attnmath import _require
from attnmath.cache import KeyValueCache


class SinkCache(KeyValueCache):
    """The first rows and the last ones: what lies between is forgotten.

    Parameters
    ----------
    sinks : how many first rows are kept for good.
    width : how many last rows are kept besides.

    Attributes
    ----------
    length : rows kept between two calls, at most ``sinks + width``; not the length of the text. So rows must not be
        turned by positions before they come here: the core `turned_attention` turns them by their places here.

    Raises
    ------
    ValueError
        If sinks or width is negative.

    References
    ----------
    Xiao et al. (2024), section 3.2. Chapter 7, lem-sink-distance.

    Examples
    --------
    >>> import numpy as np
    >>> cache = SinkCache(1, 2)
    >>> for p in range(5):
    ...     K, V = cache.append(np.full((1, 1, 1), p), np.ones((1, 1, 1)))
    >>> K[0, :, 0], cache.length  # what row 4 sees, and how much is kept of it for row 5
    (array([0, 2, 3, 4]), 3)
    """

    def __init__(self, sinks: int, width: int):
        _require.nonnegative("sinks", sinks)
        _require.nonnegative("width", width)
        super().__init__()
        self.sinks, self.width = sinks, width

    def append(self, K, V):
        """Add rows, (..., g, n, k) and (..., g, n, v); return what they see: the kept rows and themselves."""
        seen = super().append(K, V)
        if self.length > self.sinks + self.width:
            rows = [*range(self.sinks), *range(self.length - self.width, self.length)]
            self._buffers, self.length = tuple(X[..., rows, :] for X in seen), len(rows)
        return seen


class LatentCache(KeyValueCache):
    """Rows whose values are the first components of their keys, kept once.

    For ``latent_attention(…, absorbed=True)``: it keeps c + r numbers for each token.

    Attributes
    ----------
    length : rows kept.

    References
    ----------
    DeepSeek-AI (2024), section 2.1. Chapter 7, prop-latent-count.

    Examples
    --------
    >>> cache, C = LatentCache(), np.ones((1, 2, 3))
    >>> K, V = cache.append(np.concatenate([C, 2 * C], -1), C)
    >>> V.shape, np.shares_memory(K, V)
    ((1, 2, 3), True)
    """

    def __init__(self):
        super().__init__()
        self._rows, self._width = KeyValueCache(), 0

    def append(self, K, V):
        """Add rows, (..., g, n, c + r) and (..., g, n, c), where V is K's beginning; return all of them."""
        self._width = V.shape[-1]
        self._rows.append(K, V[..., :0])
        self.length = self._rows.length
        return self.kept

    @property
    def kept(self):
        K = self._rows.kept[0]
        return K, K[..., : self._width]

    def select(self, rows):
        """As `KeyValueCache.select`."""
        self._rows.select(rows)


class QuantisedCache(KeyValueCache):
    """Rows kept in few bits: keys rounded channel by channel in groups of rows, values row by row.

    Parameters
    ----------
    world : `attnmath.numpy` or `attnmath.torch`, whose `quantised` it uses.
    bits : 1 to 8, of each number; a level takes a byte here.
    group : how many rows share the least number and the step of each channel of the keys. The last, incomplete group
        of keys is kept as it is.

    Attributes
    ----------
    length : rows kept.

    Raises
    ------
    ValueError
        If group is not a positive integer; bits are checked with the first rows.

    References
    ----------
    Liu et al. (2024), section 3.2 (KIVI). Chapter 7, thm-quantised-attention.

    Examples
    --------
    >>> import attnmath.numpy as an
    >>> cache, rows = QuantisedCache(an, bits=2, group=2), np.array([[[0.0], [3.0], [9.0]]])
    >>> K, V = cache.append(rows, np.concatenate([rows, 4 - rows], -1))
    >>> K[0, :, 0], V[0, 1]
    (array([0., 3., 9.]), array([3., 1.]))
    """

    def __init__(self, world, bits: int = 4, group: int = 32):
        _require.count("group", group)
        super().__init__()
        self.world, self.bits, self.group = world, bits, group
        self._keys, self._values, self._exact = [], [], None

    def append(self, K, V):
        """Add rows, (..., g, n, k) and (..., g, n, v); return all of them, the older ones as they were rounded."""
        if getattr(K, "requires_grad", False) or getattr(V, "requires_grad", False):
            raise ValueError("a cache is for inference: call the model under torch.no_grad(), or without cache")
        self._values.append(self.world.quantised(V, self.bits))
        exact = K if self._exact is None else self._joined([self._exact, K])
        while exact.shape[-2] >= self.group:
            self._keys.append(self.world.quantised(exact[..., : self.group, :], self.bits, axis=-2))
            exact = exact[..., self.group :, :]
        self._exact, self.length = exact, self.length + K.shape[-2]
        return self.kept

    @property
    def kept(self):
        keys, values = ([self.world.dequantised(*part) for part in parts] for parts in (self._keys, self._values))
        return self._joined([*keys, self._exact]), self._joined(values)

    def select(self, rows):
        """As `KeyValueCache.select`."""
        if self.length:
            self._exact = self._exact[rows]
            self._keys, self._values = (
                [tuple(X[rows] for X in part) for part in parts] for parts in (self._keys, self._values)
            )

    def _joined(self, parts):
        """One array of the rows of several."""
        rows = sum(part.shape[-2] for part in parts)
        whole = _blocks(parts[0], 1, rows)[0]
        end = 0
        for part in parts:
            end += part.shape[-2]
            whole[..., end - part.shape[-2] : end, :] = part
        return whole


class BlockPool:
    """Memory for keys and values of many texts, in blocks of a few rows.

    Parameters
    ----------
    size : rows of a block.
    count : blocks.

    Attributes
    ----------
    free : the numbers of the blocks that nobody uses.

    References
    ----------
    Kwon et al. (2023), section 4. Chapter 7, prop-paged-waste.

    Examples
    --------
    >>> pool = BlockPool(size=4, count=3)
    >>> cache = PagedCache(pool)
    >>> K, V = cache.append(np.ones((2, 5, 1)), np.ones((2, 5, 1)))
    >>> cache.table, pool.free
    ([0, 1], [2])
    """

    def __init__(self, size: int, count: int):
        _require.count("size", size)
        _require.count("count", count)
        self.size, self.free, self.uses = size, list(range(count)), [0] * count
        self.buffers = None

    def take(self) -> int:
        """A free block.

        Raises
        ------
        ValueError
            If there is none.
        """
        if not self.free:
            raise ValueError(f"all {len(self.uses)} blocks are in use: release a text, or make a pool of more blocks")
        block = self.free.pop(0)
        self.uses[block] = 1
        return block

    def drop(self, block: int) -> None:
        """One user fewer; a block without users is free."""
        self.uses[block] -= 1
        if not self.uses[block]:
            self.free.append(block)

    def room(self, rows) -> None:
        """Make the buffers for rows like these, or check that they fit the buffers."""
        if self.buffers is None:
            self.buffers = tuple(_blocks(X, len(self.uses), self.size) for X in rows)
        for X, buffer in zip(rows, self.buffers, strict=True):
            _require.cache_rows(X, buffer[0])


class PagedCache(KeyValueCache):
    """The keys and values of one text, in blocks of a pool that lie anywhere; its table says where.

    Parameters
    ----------
    pool : `BlockPool`, shared with other texts.

    Attributes
    ----------
    length : rows kept.
    table : the numbers of its blocks, in the order of the text.

    References
    ----------
    Kwon et al. (2023), section 4. Chapter 7, prop-paged-waste.

    Examples
    --------
    >>> cache = PagedCache(BlockPool(size=2, count=4))
    >>> K, V = cache.append(np.arange(3.0).reshape(1, 3, 1), np.ones((1, 3, 1)))
    >>> other = cache.fork()
    >>> K, V = other.append(np.array([[[7.0]]]), np.ones((1, 1, 1)))
    >>> cache.table, other.table, K[0, :, 0]
    ([0, 1], [0, 2], array([0., 1., 2., 7.]))
    """

    def __init__(self, pool: BlockPool):
        super().__init__()
        self.pool, self.table = pool, []

    def append(self, K, V):
        """Add rows, (g, n, k) and (g, n, v), of one text; return all of them.

        Raises
        ------
        ValueError
            If there is a batch axis, the rows do not fit the pool's, or no block is free.
        """
        if len(K.shape) != 3 or len(V.shape) != 3:
            raise ValueError(
                f"K has shape {tuple(K.shape)}; a paged cache holds one text: give (g, n, k) and (g, n, v)"
            )
        self.pool.room((K, V))
        for i in range(K.shape[-2]):
            block, row = self._place()
            for X, buffer in zip((K, V), self.pool.buffers, strict=True):
                buffer[block, :, row] = X[:, i]
            self.length += 1
        return self.kept

    @property
    def kept(self):
        gathered = (buffer[self.table].swapaxes(0, 1) for buffer in self.pool.buffers)  # (g, blocks, size, k)
        return tuple(X.reshape(X.shape[0], -1, X.shape[-1])[:, : self.length] for X in gathered)

    def fork(self):
        """Another text that begins with the same rows, which are not copied."""
        other = PagedCache(self.pool)
        other.table, other.length = list(self.table), self.length
        for block in self.table:
            self.pool.uses[block] += 1
        return other

    def select(self, rows):
        """Refused: it holds one text."""
        raise ValueError("a paged cache holds one text and no batch to select from: fork() it for each continuation")

    def release(self) -> None:
        """Give all blocks back."""
        for block in self.table:
            self.pool.drop(block)
        self.table, self.length = [], 0

    def _place(self):
        """The block and the row of the next token: a new block at its first row, a copy where another text reads."""
        row = self.length % self.pool.size
        if row == 0:
            self.table.append(self.pool.take())
        elif self.pool.uses[self.table[-1]] > 1:
            own = self.pool.take()
            for buffer in self.pool.buffers:
                buffer[own] = buffer[self.table[-1]]
            self.pool.drop(self.table[-1])
            self.table[-1] = own
        return self.table[-1], row


def _blocks(X, count, size):
    """A buffer like X for so many blocks."""
    shape = (count, *X.shape[:-2], size, X.shape[-1])
    return X.new_empty(shape) if hasattr(X, "new_empty") else np.empty(shape, X.dtype)
