"""The names that signatures use, and the two array idioms that every gradient needs."""

from collections.abc import Callable
from typing import Any

import numpy as np

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
