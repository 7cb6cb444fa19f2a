"""The trusted side's line to the student's process: every wait has an end, and what is lost stays lost."""

import time

from .framing import Channel, PeerClosed, TimedOut, TooLong, WireError
from .plugins import CannotSend
from .raised import StudentLost

__all__ = ["TURN", "Line", "Until"]

TURN = "the student's process spoke out of turn"


class Until:
    """The plainest clock: it stops at a value of ``time.monotonic()``."""

    over = "the time was over"

    def __init__(self, end: float):
        self.end = end

    def left(self) -> float:
        return self.end - time.monotonic()


class Line:
    """A channel to the student's process, and whether there still is one.

    Parameters
    ----------
    channel : the `nbreferee.rpc.framing.Channel`.

    Attributes
    ----------
    clock : tells when whatever is under way is given up: ``left()`` says for how many seconds to wait before it is
        asked again, and 0 or less when the time is over; ``over`` says so in words. At first a minute from now.
    lost : (state, reason) if the process is of no use any more, or None.
    """

    def __init__(self, channel: Channel):
        self.channel, self.clock, self.lost = channel, Until(time.monotonic() + 60), None

    def lose(self, state, reason):
        """The process is of no use any more, unless it was so before."""
        self.lost = self.lost or (state, reason)
        raise StudentLost(*self.lost) from None

    def check(self):
        if self.lost is not None:
            raise StudentLost(*self.lost)

    def send(self, data):
        try:
            self._in_time(self.channel.send, data)
        except TooLong as error:
            raise CannotSend(str(error)) from None

    def receive(self):
        try:
            return self._in_time(self.channel.receive)
        except TooLong:
            self.lose("crashed", TURN)

    def _in_time(self, action, *args):
        self.check()
        if self.clock.left() <= 0:
            self.lose("timeout", self.clock.over)
        try:
            return action(*args, self.clock.left)
        except TooLong:
            raise
        except TimedOut:
            self.lose("timeout", self.clock.over)
        except PeerClosed:
            self.lose("crashed", "the student's process has ended")
        except WireError:
            self.lose("crashed", TURN)
