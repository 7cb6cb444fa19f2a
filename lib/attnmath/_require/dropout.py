"""A probability of being dropped, and a mask of what is kept."""

from attnmath._require.arrays import broadcast


def probability(p):
    """A probability that leaves something."""
    if not 0 <= p < 1:
        raise ValueError(f"p is {p!r}; the probability of being dropped must be >= 0 and < 1")


def keep(keep, shape):
    """A boolean mask of what is kept, which broadcasts to the array's shape without enlarging it."""
    kind = getattr(keep, "dtype", type(keep).__name__)
    if "bool" not in str(kind) or broadcast(tuple(keep.shape), tuple(shape)) != tuple(shape):
        raise ValueError(
            f"keep has shape {getattr(keep, 'shape', None)} and dtype {kind}; expected booleans, True for what is "
            f"kept, that broadcast to X's shape {tuple(shape)}"
        )
