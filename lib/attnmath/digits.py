"""scikit-learn's handwritten digits as pictures, split by writers, and what can be done to a picture.

The 1,797 pictures of 8 x 8 pixels are the test part of E. Alpaydin and C. Kaynak's optical recognition of handwritten
digits (UCI, 1998), which scikit-learn carries. They seem to be grouped by writer (scikit-learn's own tests say so), so a split by order
should keep most writers on one side, and a random split does not.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

TRAIN, HALF = 748, 898  # pictures to learn from; the rest of the first half is for choices, the second half is the test
SIDE = 8


class Part(NamedTuple):
    """Pictures (N, 1, 8, 8), grey from 0 to 1, and the digits (N,) that they show."""

    X: np.ndarray
    y: np.ndarray


class Digits(NamedTuple):
    """The parts: to learn from, for choices, and for the result."""

    train: Part
    validation: Part
    test: Part


@cache
def digits() -> Digits:
    """The pictures as float32, in their own order: 748 for training, 150 for choices, and the 899 of the second half.

    The halves are those of scikit-learn's example "Recognizing hand-written digits".

    Examples
    --------
    >>> [len(part.y) for part in digits()], digits().test.X.shape
    ([748, 150, 899], (899, 1, 8, 8))
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X, y = (X / 16).astype(np.float32).reshape(-1, 1, SIDE, SIDE), y.astype(np.int64)
    cuts = ((0, TRAIN), (TRAIN, HALF), (HALF, len(y)))
    return Digits(*(Part(X[a:b], y[a:b]) for a, b in cuts))


def shifted(X, down: int, right: int):
    """The pictures (..., y, x) moved by whole pixels; white comes in from the other side.

    Examples
    --------
    >>> shifted(np.array([[1, 2], [3, 4]]), 1, -1)
    array([[0, 0],
           [2, 0]])
    """
    Y, (y, x) = np.zeros_like(X), X.shape[-2:]
    into, out = [], []
    for size, step in ((y, down), (x, right)):
        if abs(step) >= size:
            raise ValueError(f"a step of {step} would move a picture of {size} pixels out of sight")
        into.append(slice(max(step, 0), size + min(step, 0)))
        out.append(slice(max(-step, 0), size + min(-step, 0)))
    Y[..., into[0], into[1]] = X[..., out[0], out[1]]
    return Y


def turned(X, degrees: float | int):
    """The pictures (..., y, x) turned against the clock about their middle, between pixels linearly.

    Examples
    --------
    >>> turned(np.array([[1.0, 2], [3, 4]]), 90).round(6)
    array([[2., 4.],
           [1., 3.]])
    """
    from scipy.ndimage import rotate

    return rotate(X, degrees, axes=(-1, -2), reshape=False, order=1).astype(X.dtype)


def scrambled(X, order, size: int):
    """The pictures (..., c, y, x) with their patches in another order: patch i of the result is patch ``order[i]``.

    Examples
    --------
    >>> scrambled(np.arange(8.0).reshape(1, 2, 4), [1, 0], 2)[0]
    array([[2., 3., 0., 1.],
           [6., 7., 4., 5.]])
    """
    from attnmath.numpy.vision_transformer import patches

    P, back = patches(X, size)
    if sorted(np.asarray(order).tolist()) != list(range(P.shape[-2])):
        raise ValueError(f"order is no order of the {P.shape[-2]} patches: each number from 0 must occur once")
    return back(P[..., np.asarray(order), :]).copy()  # what a vjp returns may not be written to
