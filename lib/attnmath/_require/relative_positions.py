"""Tables of offsets and buckets; frequencies of rotations."""

from attnmath._require.arrays import floats


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


def pairs(name, frequencies, width):
    """A frequency for each pair of components."""
    floats(**{name: frequencies})
    if tuple(frequencies.shape) != (width // 2,):
        raise ValueError(
            f"{name} has shape {tuple(frequencies.shape)}; expected ({width // 2},), one for each pair of the {width} "
            "components"
        )


def progression(name, frequencies, least):
    """Frequencies of at least so many pairs."""
    floats(**{name: frequencies})
    if len(frequencies.shape) != 1 or len(frequencies) < least:
        raise ValueError(f"{name} has shape {tuple(frequencies.shape)}; expected (r,) with r >= {least} pairs")


def at_least_one(name, value):
    """A factor by which a text is longer than those of training."""
    if not (isinstance(value, int | float) or hasattr(value, "__float__")) or not value >= 1:
        raise ValueError(f"{name} is {value!r}; it must be >= 1: how many times longer the texts are than in training")


def ramp_ends(slow, fast):
    """A ramp has a beginning before its end."""
    if not 0 <= slow < fast:
        raise ValueError(f"slow is {slow!r} and fast {fast!r}; turns in training, expected 0 <= slow < fast")
