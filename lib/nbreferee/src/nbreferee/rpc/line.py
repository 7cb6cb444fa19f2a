"""The trusted side's line to the student's process: every wait has an end, and what is lost stays lost."""

import time

from .framing import Channel, PeerClosed, TimedOut, TooLong, WireError
from .plugins import CannotSend
from .raised import StudentLost

__all__ = ["TURN", "Line"]

TURN = "the student's process spoke out of turn"


class Line:
    """A channel to the student's process, and whether there still is one.

    Parameters
    ----------
    channel : the `nbreferee.rpc.framing.Channel`.

    Attributes
    ----------
    deadline : value of ``time.monotonic()`` at which whatever is under way is given up; at first a minute from now.
    lost : (state, reason) if the process is of no use any more, or None.
    """

    def __init__(self, channel: Channel):
        self.channel, self.deadline, self.lost = channel, time.monotonic() + 60, None

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
        left = self.deadline - time.monotonic()
        if left <= 0:
            self.lose("timeout", "the time was over")
        try:
            return action(*args, left)
        except TooLong:
            raise
        except TimedOut:
            self.lose("timeout", "the time was over")
        except PeerClosed:
            self.lose("crashed", "the student's process has ended")
        except WireError:
            self.lose("crashed", TURN)
