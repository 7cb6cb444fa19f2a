"""The names that signatures use, the array idioms that gradients need, and what every component promises."""

import functools
from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from attnmath import check

Array = np.ndarray
Generator = np.random.Generator
Vjp = Callable[..., Any]


def T(X: Array) -> Array:
    """Swap the last two axes."""
    return np.swapaxes(X, -1, -2)


def sum_to(X: Array, shape: tuple[int, ...]) -> Array:
    """Undo broadcasting: the cotangent of a value used along an axis is the sum along it."""
    X = X.sum(tuple(range(X.ndim - len(shape))))
    ones = tuple(i for i, size in enumerate(shape) if size == 1 and X.shape[i] != 1)
    return X.sum(ones, keepdims=True) if ones else X


_VALUES = (np.ndarray, np.generic)


def differentiable(f: Callable) -> Callable:
    r"""Make a component ``f -> (y, vjp)`` keep its promise: its vjp takes cotangents of y's shape and no others.

    .. math:: \bar y \in \mathbb{R}^{\operatorname{shape}(y)}

    Without this, NumPy would broadcast a cotangent of another shape, and the gradients would belong to no loss.
    In `attnmath.check.read_only`, the value and the cotangents are moreover returned as read-only arrays.

    Parameters
    ----------
    f : a function that returns (y, vjp). What returns anything else, or a y that is neither array nor number, is passed
        on as it is.

    Returns
    -------
    The same function with the same signature, docstring and source. Its vjp holds nothing that f's own does not hold.

    Raises
    ------
    ValueError
        By the vjp, if the cotangent has not the shape of y; a number serves where y is a number.

    Examples
    --------
    >>> @differentiable
    ... def double(X):
    ...     return 2 * X, lambda dY: 2 * dY
    >>> Y, vjp = double(np.array([1.0, 2.0]))
    >>> vjp(np.array([[1.0, 1.0]]))
    Traceback (most recent call last):
    ...
    ValueError: double's vjp was given a cotangent of shape (1, 2); expected an array of y's shape (2,)
    """

    @functools.wraps(f)
    def component(*args, **options):
        result = f(*args, **options)
        if type(result) is not tuple or len(result) != 2 or not isinstance(result[0], _VALUES):
            return result
        y, vjp = result
        shape = y.shape  # the closure below holds the shape only: y itself may be let go

        def checked_vjp(dy):
            if getattr(dy, "shape", None) != shape and not (shape == () and isinstance(dy, Number)):
                raise ValueError(_refusal(f.__name__, dy, shape))
            return _read_only(vjp(dy)) if check.read_only_contexts else vjp(dy)

        return (_read_only(y) if check.read_only_contexts else y), checked_vjp

    return component


def _refusal(name, dy, shape):
    found = f"of shape {tuple(dy.shape)}" if hasattr(dy, "shape") else f"that is a {type(dy).__name__}"
    return f"{name}'s vjp was given a cotangent {found}; expected an array of y's shape {shape}"


def _read_only(result):
    """The arrays of a value or of cotangents as read-only views; the arrays themselves stay as they are."""
    if isinstance(result, np.ndarray):
        result = result.view()
        result.flags.writeable = False
        return result
    if isinstance(result, dict):
        return {key: _read_only(part) for key, part in result.items()}
    return tuple(_read_only(part) for part in result) if type(result) is tuple else result
