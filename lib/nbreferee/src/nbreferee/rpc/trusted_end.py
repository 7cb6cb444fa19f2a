"""The trusted end of the conversation: what comes from the student's process is plain or a proxy, or ends it.

What the student's code may ask is to call a function of the test's that it was given, to go on with an iterator, and
what a plug-in needs for gradients; nothing else is answered.
"""

import contextlib
import sys
from collections.abc import Iterator

from .arguments import Arguments
from .calls import TEXT
from .exchange import Exchange, unflat
from .line import TURN, Line
from .nodes import pickled
from .plugins import CannotSend, Garbled
from .proxies import CallableProxy, Proxy, number_of
from .raised import MESSAGE, StudentError, StudentLost, bases, clean, name_of, student_error

__all__ = ["TrustedEnd"]

_MODES = {"errors", "grad", "inference", "dtype", "device"}


class TrustedEnd(Exchange):
    """The end of an `Exchange` that does not trust the other.

    Parameters
    ----------
    channel : a `nbreferee.rpc.framing.Channel` to a process that runs `nbreferee.rpc.agent.serve`.
    output_limit : characters of printed text that are kept for each question.

    Attributes
    ----------
    output : what the student's code printed since this was last set.
    echo : whether that is printed here too.
    may_change : whether the student's code may change arrays, lists, … that it is given.
    """

    def __init__(self, channel, output_limit):
        super().__init__(channel, trusted=True)
        self.line, self.arguments = Line(channel), Arguments(self)
        self.output_limit, self.output, self.may_change = output_limit, "", False
        self.echo, self.echoed = False, 0
        self.raised, self.verdict = [], None  # what functions of the test raised; the assertion that failed in one

    # ---- the line

    def out_of_turn(self):
        """The process has said what makes no sense, and is not listened to any more."""
        self.line.lose("crashed", TURN)

    def garbled(self, why):
        self.out_of_turn()

    def broke(self, error):
        if not isinstance(error, Garbled | StudentLost):
            with contextlib.suppress(StudentLost):
                self.line.lose("crashed", "the conversation with the student's process was broken off")

    def post(self, data):
        self.line.send(data)

    def collect(self):
        return self.line.receive()

    def hear(self, label=""):
        try:
            kind, verb, state, node, unpack = super().hear(label)
        except (Garbled, StudentLost):
            raise
        except Exception as error:
            raise Garbled(str(error)) from None

        def careful(node):
            try:
                return unpack(node)
            except Garbled:
                raise
            except Exception as error:
                raise Garbled(str(error)) from None

        return kind, verb, state, node, careful

    def heard(self, printed):
        if not printed:
            return
        text = clean(printed, self.output_limit)
        self.output = (self.output + text)[: self.output_limit]
        if self.echo and self.echoed < 10 * self.output_limit:
            self.echoed += len(text)
            sys.stdout.write(text)

    # ---- what crosses

    def lasting(self, link, value):
        if link.key % 2 or self.may_change:  # made over there: a model may change its own weights
            return True
        self.arguments.touch(link, value)
        return False

    def known(self, kind, number, flags, label):
        if not 0 < number < 2**63:
            raise Garbled("no number")
        make = CallableProxy if flags & 1 else Proxy
        return self.one_proxy(number, lambda: make(self, kind, number, label[:TEXT]))

    def number_of(self, value):
        return number_of(value, self)

    def outward(self, packer, value):
        """An object that is no plain value: a library's goes by pickle, a function of the test stays here."""
        if isinstance(value, Iterator):
            return self._handle(packer, value, 2)
        node = pickled(value)
        if node is not None:
            return node
        if any(kind.__module__ == "sqlite3" for kind in type(value).__mro__):  # a connection can be called, too
            raise CannotSend(
                f"an SQLite {type(value).__name__.lower()} cannot be given to the answer, because it belongs to the "
                "test's process; make it in a given cell and list its name under asks, give the path of its file, or "
                "run this test sandboxed"
            )
        if callable(value):
            return self._handle(packer, value, 1)
        raise CannotSend(
            f"an object of type {type(value).__name__} cannot be given to the answer, because the test defines it; "
            "give plain values, functions, or objects of an installed library, or run this test sandboxed"
        )

    def _handle(self, packer, value, flags):
        handle = packer.keep(value)
        name = getattr(value, "__name__", "")
        return ("h", name if type(name) is str and name.isidentifier() else handle.kind, handle.number, flags)

    # ---- what the student's code may ask

    def serve(self, verb, node, state, unpack):
        payload, modes = unpack(node), unpack(state)
        if modes is None:
            modes = {}
        if type(payload) is not tuple or type(modes) is not dict or not all(type(key) is str for key in modes):
            raise Garbled("no question")
        if not modes.keys() <= _MODES:
            raise Garbled("no modes")
        answer = self._answers(verb, payload, node)
        try:
            with contextlib.ExitStack() as stack:
                for plugin in self.plugins:
                    plugin.applied(modes, stack)
                found = answer()
        except (Garbled, StudentLost):
            raise
        except StopIteration:
            found = ()
        except BaseException as error:
            self._refer(error)
            return
        try:
            self.say("=", "", found)
        except CannotSend as error:
            self._refer(error)

    def _answers(self, verb, payload, node):
        """What answers a question: a function without arguments."""
        if verb in ("call", "next"):
            if len(payload) != 3 or type(node[1]) is not tuple or node[1][0] != "r":
                raise Garbled("a question about nothing of ours")
            target, args, kwargs = payload
            kwargs = unflat(kwargs)
            if type(args) is not tuple:
                raise Garbled("no arguments")
            return (lambda: (next(target),)) if verb == "next" else lambda: target(*args, **kwargs)
        for plugin in self.plugins:
            if verb in plugin.verbs:
                method = plugin.verbs[verb]
                if len(payload) != method.__code__.co_argcount - 1:
                    raise Garbled("a question with other parts")
                return lambda: method(*payload)
        raise Garbled("a question that is not allowed")

    def _refer(self, error):
        """Tell the student's code that the test's function raised."""
        self.raised.append(error)
        if isinstance(error, AssertionError) or not isinstance(error, Exception):
            self.verdict = self.verdict or error
        message = error.message if isinstance(error, StudentError) else str(error)[:MESSAGE]
        self.say("!", "", (name_of(error), bases(error), message, "", len(self.raised)))

    def failure(self, told):
        if type(told) is not tuple or len(told) != 5:
            raise Garbled("no error")
        ename, names, message, trace, number = told
        if not all(type(x) is str for x in (ename, message, trace)) or type(number) is not int:
            raise Garbled("no error")
        if type(names) is not tuple or len(names) > 50 or not all(type(x) is str and len(x) <= 80 for x in names):
            raise Garbled("no error")
        if 0 < number <= len(self.raised):
            return self.raised[number - 1]
        return student_error(ename, names, message, trace)
