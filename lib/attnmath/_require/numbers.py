"""Options that are numbers or words."""

from operator import index

_NO_NUMBERS = (type(None), str, list, tuple, dict)  # comparing them with 0 would raise a sentence of Python's own


def choice(name, value, allowed):
    """A keyword takes one of a few words."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}")


def positive(name, value):
    """A strictly positive number."""
    if isinstance(value, _NO_NUMBERS) or not value > 0:
        raise ValueError(f"{name} is {value!r}; it must be > 0")


def nonnegative(name, value):
    """Zero or more."""
    if isinstance(value, _NO_NUMBERS) or not value >= 0:
        raise ValueError(f"{name} is {value!r}; it must be >= 0")


def integral(value):
    """Whether a value counts: an integer of any type that Python can index with, and no truth value."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    try:
        index(value)
    except TypeError:
        return False
    return "bool" not in str(getattr(value, "dtype", ""))


def count(name, value):
    """How many: 1, 2, …"""
    if not integral(value) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be an integer >= 1")


def even(name, value):
    """A width whose components form pairs."""
    if not integral(value) or value < 2 or value % 2:
        raise ValueError(f"{name} is {value!r}; it must be an even number >= 2, because components are taken in pairs")


def divides(heads, d, name):
    """The number of heads divides the width."""
    if not integral(heads) or heads < 1 or d % heads:
        raise ValueError(f"heads is {heads!r}; it must be a positive integer that divides the width {d} of {name}")
