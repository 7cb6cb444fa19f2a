"""What the student's code does to the arguments of a test.

A numerical gradient adds a step to an entry, asks, and takes it away again. So a change counts while the question goes
on, for the functions of the test that are called meanwhile, and is judged when the question ends: what then differs by
more than rounding was changed. In any case the test has its numbers back.
"""

from . import links

__all__ = ["Arguments"]


class Arguments:
    """The objects of the trusted side that the student's code has changed in the present question.

    Parameters
    ----------
    exchange : the trusted end, whose links and plug-ins are used.
    """

    def __init__(self, exchange):
        self._here = exchange
        self._before = {}  # key: (object, letter, what it was like)

    def touch(self, link, value):
        """An object is about to be changed from over there."""
        if link.key not in self._before:
            self._before[link.key] = value, link.letter, links.snapshot(link.letter, value, self._plugin(link.letter))

    def put_back(self) -> bool:
        """The question has ended: all is as it was before. Whether anything had been changed for good."""
        before, self._before = self._before, {}
        changed = False
        for value, letter, was in before.values():  # the next message tells the other side what it is like again
            changed = links.put_back(letter, value, was, self._plugin(letter)) or changed
        return changed

    def _plugin(self, letter):
        return None if letter in "ldsa" else self._here.plugins.lettered(letter)
