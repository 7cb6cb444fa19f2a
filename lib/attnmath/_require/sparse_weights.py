"""What is asked of the parameter of a family of weights, and of rows that are said to be weights."""

import math

from attnmath._require.arrays import broadcast, floats
from attnmath._require.numbers import positive

_CURE = "1 is softmax, 1.5 lies between, 2 is sparsemax"


def number(alpha):
    """One finite alpha, at least 1."""
    positive("alpha", alpha)
    if not 1 <= alpha < math.inf:
        raise ValueError(f"alpha is {alpha!r}; it must be a finite number >= 1: {_CURE}")


def above_one(alpha):
    """One finite alpha that is above 1."""
    number(alpha)
    if alpha == 1:
        raise ValueError("alpha is 1, where there is no threshold to bisect for; take softmax, which is this case")


def array(alpha, S):
    """Several, in the scores' dtype, one for each row or for rows that share it."""
    floats(S=S, alpha=alpha)
    own, shape = tuple(alpha.shape), (*tuple(S.shape)[:-1], 1)
    if not own or broadcast(own, shape) != shape:
        raise ValueError(
            f"alpha has shape {own}; expected one for each row of scores, a shape that broadcasts to {shape}"
        )


def array_values(alpha):
    """All above 1 and finite."""
    right = (alpha > 1) & (alpha < math.inf)
    if not bool(right.all()):
        bad = float(alpha[~right].reshape(-1)[0])
        raise ValueError(f"alpha holds {bad:.4g}; each must be finite and > 1, and for 1 take softmax")


def weights(Y):
    """No weight is negative, and the weights of each row sum to 1, up to 1e-3."""
    if bool((Y < 0).any()) or not bool((abs(Y.sum(-1) - 1) < 1e-3).all()):
        raise ValueError(
            "Y has a row that is no distribution: its entries must be >= 0 and sum to 1; divide by the sum"
        )
