"""Keys and values kept while a decoder generates, so that each row's are computed once. For either world.

cache = {}
Z = decoder_only(ids, params, heads, cache=cache)              # the prompt
Z = decoder_only(next_ids, params, heads, cache=cache)         # then one token at a time
"""

import numpy as np

from attnmath import _require


class KeyValueCache:
    """Keys and values of the rows so far, in buffers that double when they are full.

    Attributes
    ----------
    length : rows kept.
    kept : ``(K, V)``, (..., g, length, k) and (..., g, length, v): views of the buffers. After `append` they are still
        the rows that they were.

    Examples
    --------
    >>> cache = KeyValueCache()
    >>> K, V = cache.append(np.ones((2, 3, 1)), np.ones((2, 3, 4)))
    >>> K, V = cache.append(np.ones((2, 1, 1)), np.ones((2, 1, 4)))
    >>> K.shape, V.shape
    ((2, 4, 1), (2, 4, 4))
    """

    def __init__(self):
        self.length, self._buffers = 0, None

    @property
    def kept(self):
        return tuple(buffer[..., : self.length, :] for buffer in self._buffers)

    def append(self, K, V):
        """Add rows, (..., g, n, k) and (..., g, n, v); return all of them.

        Raises
        ------
        ValueError
            If a gradient is wanted: buffers are written in place.
        """
        if getattr(K, "requires_grad", False) or getattr(V, "requires_grad", False):
            raise ValueError("a cache is for inference: call the model under torch.no_grad(), or without cache")
        for X, buffer in zip((K, V), self._buffers or (K, V), strict=True):
            _require.cache_rows(X, buffer)
        end = self.length + K.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < end:
            kept = (None, None) if self._buffers is None else self.kept
            self._buffers = tuple(
                _grown(X, old, max(end, 2 * self.length)) for X, old in zip((K, V), kept, strict=True)
            )
        for buffer, X in zip(self._buffers, (K, V), strict=True):
            buffer[..., self.length : end, :] = X
        self.length = end
        return self.kept

    def select(self, rows):
        """Go on with these sequences of the first axis, in this order, as a beam search does."""
        if self._buffers is not None:
            self._buffers = tuple(buffer[rows] for buffer in self._buffers)


def _grown(X, old, capacity):
    """A buffer like X with room for ``capacity`` rows, that begins with the old ones."""
    shape = (*X.shape[:-2], capacity, X.shape[-1])
    buffer = X.new_empty(shape) if hasattr(X, "new_empty") else np.empty(shape, X.dtype)
    if old is not None:
        buffer[..., : old.shape[-2], :] = old
    return buffer


def kept(cache: dict | None, name: str) -> KeyValueCache | None:
    """The keys and values that one attention of a layer keeps; None without a cache."""
    return None if cache is None else cache.setdefault(name, KeyValueCache())


def filled(cache: KeyValueCache | None) -> bool:
    """Whether it holds rows already."""
    return cache is not None and cache.length > 0


def length(cache: dict | None) -> int:
    """How many rows a decoder's cache, or a layer's, holds.

    >>> length(None), length({})
    (0, 0)
    """
    while cache and "attention" not in cache:
        cache = cache["layers"].get("0")
    return cache["attention"].length if cache else 0


def select(cache: dict, rows) -> None:
    """Keep these sequences of every layer's cache, in this order; ``rows`` are indices of the first axis."""
    for value in cache.values():
        select(value, rows) if isinstance(value, dict) else value.select(rows)


def no_vjp(*_):
    """The vjp of what was computed with a cache."""
    raise ValueError("what a cache helped to compute has no gradient: call the model without cache to train it")
