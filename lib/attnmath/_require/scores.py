"""Masks and biases of scores."""

from attnmath._require.arrays import broadcast, floats


def mask(mask, scores_shape):
    """A boolean mask that broadcasts to the scores' shape without enlarging it."""
    if isinstance(mask, bool):
        return
    if not hasattr(mask, "dtype") or "bool" not in str(mask.dtype):
        kind = getattr(mask, "dtype", type(mask).__name__)
        raise ValueError(
            f"mask has dtype {kind}; masks are boolean, True = may attend (from an additive mask M: mask = M == 0)"
        )
    scores_shape = tuple(scores_shape)
    if broadcast(tuple(mask.shape), scores_shape) != scores_shape:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, which does not broadcast to the scores' shape {scores_shape} "
            "(…, queries n, keys m)"
        )


def bias(bias, scores_shape, like):
    """An array that is added to the scores: their dtype, and a shape that broadcasts to theirs."""
    if bias is None:
        return
    floats(Q=like, bias=bias)
    shape, scores_shape = tuple(bias.shape), tuple(scores_shape)
    if broadcast(shape, scores_shape) != scores_shape:
        raise ValueError(
            f"bias has shape {shape}, which does not broadcast to the scores' shape {scores_shape} "
            "(…, queries n, keys m)"
        )


def no_empty_row(row, allowed):
    """Raise for the first row that may attend to nothing."""
    raise ValueError(
        f"row {row} may attend to no key: every score in it is -inf. Allow at least one key, or pass "
        f"{allowed} to get a row of zeros"
    )


def causal_sizes(n, m):
    """At least one query, and a key for the first of them."""
    if not 1 <= n <= m:
        raise ValueError(
            f"n = {n} queries and m = {m} keys; a causal mask needs 1 <= n <= m, because the last query sees the last "
            "key and each earlier one a key less: give at least as many keys as queries"
        )


def lengths(lengths, m):
    """Lengths of sequences are integers from 1 to m; returns m."""
    if "int" not in str(getattr(lengths, "dtype", None)) or len(lengths.shape) != 1:
        raise ValueError(f"lengths is {lengths!r}; expected a one-dimensional array of integers, tokens per sequence")
    m = int(lengths.max()) if m is None and len(lengths) else m
    if m is None or not bool(((lengths >= 1) & (lengths <= m)).all()):
        raise ValueError(f"lengths is {lengths.tolist()}; each must lie between 1 and m = {m}")
    return m
