"""What a change of low rank is given: a rank that a matrix can have, and maps to be changed."""

from attnmath._require.numbers import integral


def rank(r, shape, name="W"):
    """At least 1, and at most what a matrix of this shape can have."""
    limit = min(shape)
    if not integral(r) or not 1 <= r <= limit:
        raise ValueError(
            f"the rank is {r!r}, but {name} of shape {tuple(shape)} has changes of rank 1 to {limit}: give 1 <= r <= "
            f"{limit}"
        )


def chosen(found, patterns, known):
    """The patterns name at least one linear map."""
    if not found:
        names = ", ".join(known[:3]) + (", …" if len(known) > 3 else "")
        raise ValueError(
            f"names is {tuple(patterns)!r}, which fits no linear map; the model has " + (names or "none at all")
        )
