"""Functions of single numbers, applied to a large array one block at a time."""

from collections.abc import Callable

import numpy as np

from attnmath.numpy.types import Array

BLOCK = 1 << 15  # numbers worked on at a time: what a formula needs on its way stays in a core's cache


def blockwise(f: Callable, *arrays: Array) -> Array:
    r"""Apply a function to corresponding entries of arrays, one block of entries after the other.

    .. math:: Y_i = f(X_i, Z_i, \dots)

    A formula of ten operations on a large array passes ten times through memory. Block by block it passes once: what
    the operations hand to one another is small enough to stay in the cache. A block of float16 is handed over as
    float32, so that only the result is rounded.

    Parameters
    ----------
    f : ``f(x, …, out)``, an elementwise function of arrays with one axis, which writes its values into ``out``. It may
        use ``out`` for what it needs on the way, and it may not write into the others.
    arrays : of one shape.

    Returns
    -------
    Y : a new array of the first array's shape and dtype.

    Examples
    --------
    >>> blockwise(np.multiply, np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[3., 8.]])
    """
    shape, dtype = arrays[0].shape, arrays[0].dtype
    wide = np.promote_types(dtype, np.float32)
    flat = [np.ascontiguousarray(X).reshape(-1) for X in arrays]
    Y = np.empty(flat[0].size, dtype)
    for start in range(0, Y.size, BLOCK):
        block = slice(start, start + BLOCK)
        out = Y[block].astype(wide, copy=False)  # a view of Y, unless Y is narrower
        f(*(X[block].astype(wide, copy=False) for X in flat), out)
        if dtype != wide:
            Y[block] = out
    return Y.reshape(shape)
