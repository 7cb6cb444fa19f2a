"""Caches of keys and values that hold less than all rows. For either world.

Each is a `KeyValueCache` to the core and to the models that it is given to.
"""

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
