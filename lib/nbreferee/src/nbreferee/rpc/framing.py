"""Messages over a socket or a pair of pipes, each in a frame that says how long it is.

A frame is ``NBR1``, the length of the message (4 bytes, unsigned, big-endian) and the message. Nothing is read beyond
the end of a frame, nothing is allocated because of a length that was only announced, and every wait has an end.
"""

import os
import select
import struct
import time

from ..errors import NbrefereeError

__all__ = ["Channel", "Garbage", "PeerClosed", "TimedOut", "TooLong", "WireError"]

_MAGIC = b"NBR1"
_header = struct.Struct(">4sI")
_CHUNK = 1 << 20


class WireError(NbrefereeError):
    """A message did not pass. Every error of a channel is one of these, with a text of one line."""


class PeerClosed(WireError):
    """The other side has closed its end, or has died."""


class TimedOut(WireError):
    """The other side did not send, or did not read, in time."""


class TooLong(WireError):
    """A message is longer than the channel allows."""


class Garbage(WireError):
    """What arrived is no frame."""


def _number(file):
    return file if isinstance(file, int) else file.fileno()


def _seconds(timeout_s):
    return "its time" if callable(timeout_s) else f"{timeout_s:g} s"


class Channel:
    """A line to one other process, for one message at a time in each direction.

    The descriptors are made non-blocking. A channel whose stream can no longer be understood (after garbage, a message
    that was too long, or one of which only a part was sent) refuses everything from then on. After a time-out a reader
    can try again: what has arrived of a frame is kept.

    Parameters
    ----------
    reader : a socket, an open file or a descriptor to read from.
    writer : the same to write to; by default ``reader``, which is then a socket.
    limit : the longest message in bytes, in either direction.

    Examples
    --------
    >>> import socket
    >>> here, there = (Channel(s) for s in socket.socketpair())
    >>> here.send(b"How are you?", timeout_s=1)
    >>> there.receive(timeout_s=1)
    b'How are you?'
    >>> here.close()
    >>> there.receive(timeout_s=1)
    Traceback (most recent call last):
    ...
    nbreferee.rpc.framing.PeerClosed: the other side has closed the connection
    >>> there.close()
    """

    def __init__(self, reader, writer=None, limit: int = 64 << 20):
        if not 0 < limit < 2**32:
            raise ValueError(f"limit is {limit}; it must be positive and below 2**32")
        self.limit = limit
        self._reader, self._writer = reader, reader if writer is None else writer
        self._inbox = bytearray()
        self._broken = None
        for file in (self._reader, self._writer):
            os.set_blocking(_number(file), False)

    def _fail(self, kind, text):
        self._broken = text
        raise kind(text)

    def _check(self, timeout_s):
        """``left() -> seconds`` of a time-out, which may be such a function itself."""
        if self._broken:
            raise WireError(f"this channel has failed before: {self._broken}")
        if callable(timeout_s):
            return timeout_s
        if not timeout_s >= 0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be 0 or more")
        end = time.monotonic() + timeout_s
        return lambda: end - time.monotonic()

    def _wait(self, file, event, left):
        """Wait until the descriptor is ready, or until it is time to ask again; False when the time is over."""
        seconds = left()
        if seconds <= 0:
            return False
        poll = select.poll()
        poll.register(_number(file), event)
        poll.poll(int(min(seconds, 60) * 1000) + 1)
        return True

    def send(self, message: bytes, timeout_s: float) -> None:
        """Send a message, all of it.

        Parameters
        ----------
        message : what to send.
        timeout_s : after so many seconds the attempt is given up; or a function that is asked, before each wait, for
            how long to wait until it is asked again, and says 0 or less when the time is over.

        Raises
        ------
        TooLong : the message exceeds the limit; nothing was sent.
        TimedOut : the other side did not read it in time.
        PeerClosed : there is no other side any more.
        WireError : the channel is closed or has failed before.
        """
        left = self._check(timeout_s)
        if len(message) > self.limit:
            raise TooLong(f"a message of {len(message)} bytes was to be sent; the limit is {self.limit}")
        frame = memoryview(_header.pack(_MAGIC, len(message)) + message)
        sent = 0
        while sent < len(frame):
            try:
                sent += os.write(_number(self._writer), frame[sent : sent + _CHUNK])
                continue
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                self._fail(PeerClosed, "the other side has closed the connection")
            except (OSError, ValueError) as error:
                self._fail(WireError, f"this end cannot be written to: {error}")
            if not self._wait(self._writer, select.POLLOUT, left):
                text = f"the other side read {sent} of {len(frame)} bytes in {_seconds(timeout_s)}"
                if sent:
                    self._fail(TimedOut, text)
                raise TimedOut(text)

    def receive(self, timeout_s: float) -> bytes:
        """Wait for the next message.

        Parameters
        ----------
        timeout_s : how many seconds to wait for the whole message, however slowly it comes; 0 takes what is there. Or a
            function, as in `send`.

        Returns
        -------
        the message.

        Raises
        ------
        TimedOut : no whole message in time; the call can be repeated.
        PeerClosed : there is no other side any more.
        TooLong : the message announced exceeds the limit.
        Garbage : what arrived is no frame.
        WireError : the channel is closed or has failed before.
        """
        left = self._check(timeout_s)
        self._fill(_header.size, left, timeout_s)
        magic, length = _header.unpack_from(self._inbox)
        if magic != _MAGIC:
            self._fail(Garbage, "what arrived does not begin like a message")
        if length > self.limit:
            self._fail(TooLong, f"a message of {length} bytes is announced; the limit is {self.limit}")
        self._fill(_header.size + length, left, timeout_s)
        message = bytes(memoryview(self._inbox)[_header.size :])
        self._inbox = bytearray()
        return message

    def _fill(self, want, left, timeout_s):
        """Read until the inbox holds ``want`` bytes, and no more."""
        while len(self._inbox) < want:
            try:
                data = os.read(_number(self._reader), min(want - len(self._inbox), _CHUNK))
            except BlockingIOError:
                data = None
            except ConnectionResetError:
                data = b""
            except (OSError, ValueError) as error:
                self._fail(WireError, f"this end cannot be read from: {error}")
            if data == b"":
                part = f" after {len(self._inbox)} bytes of a message" if self._inbox else ""
                self._fail(PeerClosed, f"the other side has closed the connection{part}")
            if data:
                self._inbox += data
                late = timeout_s and len(self._inbox) < want and left() <= 0
            else:
                late = not self._wait(self._reader, select.POLLIN, left)
            if late:
                raise TimedOut(f"no whole message came in {_seconds(timeout_s)}")

    def close(self) -> None:
        """Close both descriptors; a second call does nothing."""
        self._broken = self._broken or "it was closed"
        for file in {id(f): f for f in (self._reader, self._writer)}.values():
            if isinstance(file, int):
                try:
                    os.close(file)
                except OSError:
                    pass
            else:
                file.close()
