"""What a dictionary of directions is asked: how many of its units may speak at once, and units that point somewhere."""

from attnmath._require.numbers import count


def top(top, units):
    """At least one unit speaks, and no more than there are; None for any number."""
    if top is None:
        return
    count("top", top)
    if top > units:
        raise ValueError(f"top is {top}, but there are only {units} units; give at most {units}, or None for all")


def directions(name, n, m):
    """Directions are rows, at least two of them, in at least one dimension."""
    if n < 2 or m < 1:
        raise ValueError(f"{name} is {n} directions in {m} dimensions; at least 2 directions in 1 dimension are needed")


def probability(name, p):
    """A probability that something is there, above 0."""
    if not 0 < p <= 1:
        raise ValueError(f"{name} is {p!r}; it must be a probability > 0 and <= 1")


def importance(r):
    """How much the second feature counts, against 1 for the first."""
    if not 0 < r <= 1:
        raise ValueError(
            f"importance is {r!r}; the second feature counts at most as much as the first: give 0 < r <= 1"
        )
