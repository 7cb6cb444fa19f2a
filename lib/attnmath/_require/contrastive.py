"""Pairs of two kinds of things, such as pictures and captions."""

from attnmath._require.arrays import nonempty


def pairs(S):
    """Row i and column i belong together, so there are as many rows as columns, and at least one."""
    n, m = S.shape
    if n != m:
        raise ValueError(
            f"there are {n} pictures and {m} captions; row i of the one belongs to row i of the other: give as many "
            "captions as pictures"
        )
    nonempty("S", S.shape, 0, n, "pair")


def scale(log_scale, dtype):
    """The logarithm of the scale is one number of the vectors' dtype."""
    kind = getattr(log_scale, "dtype", None)
    shape = tuple(getattr(log_scale, "shape", ()))
    if kind is None or shape or kind != dtype:
        raise ValueError(
            f"log_scale is a {type(log_scale).__name__} of shape {shape} and dtype {kind}; expected one number of the "
            f"vectors' dtype {dtype}"
        )


def finite_scale(log_scale, value):
    """The scale can be held in its dtype."""
    if not 0 < value < float("inf"):
        raise ValueError(
            f"log_scale is {float(log_scale):.4g}, whose exponential the dtype {log_scale.dtype} does not hold; keep "
            "it below log(100), as CLIP does"
        )


def ended(ids, found):
    """Each sentence has the token whose row speaks for it."""
    if not bool(found.all()):
        row = found.reshape(-1).tolist().index(False)
        raise ValueError(f"sentence {row} of ids has no end-of-text token: put one behind its last word")
