"""16 bits in, 16 bits out, and float32 between."""

import functools
from collections.abc import Callable

import numpy as np

from attnmath._cast import first_dtype, float_parameters, recast


def half_in_float32(f: Callable) -> Callable:
    """Have a component compute float16 arguments in float32, and round its value and its cotangents once, at the end.

    In float16 a score beyond 65504 is infinite, and a sum of ones stops at 2048.

    Parameters
    ----------
    f : a component, ``f(*arrays) -> (y, vjp)``, with annotated parameters.

    Returns
    -------
    The same function; arguments of other dtypes, and of several, are passed on as they are.

    Examples
    --------
    >>> @half_in_float32
    ... def mean_square(X: "Float[]"):
    ...     return (X * X).mean() / 8, lambda dy: dy * X / 4 / X.size
    >>> mean_square(np.full(3, 300, np.float16))[0]  # although a square is 90000
    np.float16(1.125e+04)
    """
    parameters = float_parameters(f)

    @functools.wraps(f)
    def component(*args, **options):
        if first_dtype(parameters[0], args, options) != np.float16:
            return f(*args, **options)
        kinds = set()
        wide = recast(parameters, args, options, lambda X: kinds.add(X.dtype) or np.asarray(X, np.float32))
        if len(kinds) > 1:  # f itself names the argument that does not fit
            return f(*args, **options)
        y, vjp = f(*wide[0], **wide[1])
        return y.astype(np.float16), lambda dy: _rounded(vjp(np.asarray(dy, np.float32)))

    return component


def _rounded(cotangents):
    if isinstance(cotangents, tuple):
        return tuple(map(_rounded, cotangents))
    return cotangents.astype(np.float16)
