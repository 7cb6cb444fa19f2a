"""What attention in tiles asks of a mask: which tiles may be passed over, and which need no mask at all."""

from typing import Protocol, runtime_checkable

NOTHING, SOME, ALL = 0, 1, 2  # of a tile's scores may be seen


@runtime_checkable
class Layout(Protocol):
    """A mask that is a rule instead of an array: it says what any part of it looks like.

    Attention in tiles takes a layout in the place of a mask, and so never holds an n x m array. Any object with these
    three methods is one.
    """

    def mask(self, n: int, m: int):
        """The whole mask of n queries and m keys, boolean (n, m), True = may attend."""

    def part(self, rows: slice, columns: slice, n: int, m: int):
        """The rows and columns of that mask, boolean."""

    def tiles(self, n: int, m: int, size: int):
        """For each tile of that mask how much of it may be seen: 0 nothing, 1 some, 2 all; uint8."""


def cuts(length: int, size: int) -> list[slice]:
    """A range in slices of one size; the last may be shorter.

    Examples
    --------
    >>> cuts(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
