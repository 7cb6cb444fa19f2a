"""What random features ask of their directions."""

from attnmath._require.numbers import integral

KINDS = ("positive", "trigonometric")


def sizes(r, k):
    """Numbers of directions and of components."""
    for name, size in (("r", r), ("k", k)):
        if not integral(size) or size < 1:
            raise ValueError(f"{name} is {size!r}; it must be an integer >= 1")


def directions(W, name):
    """At least one direction."""
    if W.shape[0] == 0:
        raise ValueError(
            f"{name} has shape {tuple(W.shape)}; at least one direction is needed: draw_directions(r, k, rng)"
        )
