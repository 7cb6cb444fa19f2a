"""Tables of offsets and buckets."""


def odd(name, shape, axis):
    """A table of offsets -w to w has 2 w + 1 rows."""
    if shape[axis] % 2 == 0:
        raise ValueError(
            f"{name} has shape {tuple(shape)}; its axis {axis} counts the offsets -w to w and must be odd, 2 w + 1"
        )


def bucket_sizes(count, exact, distance):
    """A bucket of its own for one offset at least, and a larger distance."""
    if not 1 <= exact < distance:
        raise ValueError(
            f"count is {count} and distance {distance}, which makes {exact} buckets of one offset; "
            "at least one is needed, and fewer than the distance"
        )
