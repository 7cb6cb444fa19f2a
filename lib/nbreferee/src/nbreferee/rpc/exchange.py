"""Objects shared by two processes that take turns: what both ends of a channel have in common.

One side asks, the other answers, and may ask in its turn before it does. Since only one of them runs at a time, an
array, tensor, list, dict or set that has crossed can be kept equal on both sides: every message says which of them
changed since the last one. So an argument changed in place is changed for its owner too, and what comes back is the
same object that was sent. Functions and other objects never cross; the other side gets a number that it may call.

A message is one value of the codec, ``(kind, verb, state, node, table, changes, drops, printed)``; nodes and the table
are described in `nbreferee.rpc.nodes`. *state* are the modes under which the question is to be answered.
"""

import sys
import weakref

import numpy as np

from . import codec, nodes
from .codec import CodecError, Registry
from .links import DEAD, HISTORY, OBJECT, Links
from .plugins import CannotSend, Changed, Garbled, Plugins

__all__ = ["TOO_MUCH", "Exchange", "flat", "unflat"]

ASIDE = frozenset({"begin", "files", "input"})  # what the two sides arrange between the questions of a test
NESTED = 300  # questions inside one another, those of both sides counted
FRAMES = 8_000  # of Python on each side: a question and its answer take about twenty
RECEIVED = 512 << 20  # bytes that one question with all its callbacks may bring
TOO_MUCH = (
    f"your code gave the test more than {nodes.VALUES} values, each counted as often as it stands there, "
    f"or ranges of more than {nodes.LENGTH} numbers"
)
_USUAL_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def flat(kwargs):
    """Keywords and values in turn."""
    return tuple(x for pair in kwargs.items() for x in pair)


def unflat(pairs):
    """What `flat` was given."""
    if type(pairs) is not tuple or len(pairs) % 2 or not all(type(key) is str for key in pairs[::2]):
        raise Garbled("no keywords")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


class Exchange:
    """One end of the conversation. Subclasses say what a question does, and what becomes of errors.

    Parameters
    ----------
    channel : a `nbreferee.rpc.framing.Channel`.
    trusted : whether this is the side that must not trust the other.
    """

    def __init__(self, channel, trusted):
        sys.setrecursionlimit(max(FRAMES, sys.getrecursionlimit()))  # or Python ends a nested question half-way
        self.channel, self.trusted = channel, trusted
        self.registry = Registry()  # objects of this side that the other one may call
        self.proxies = weakref.WeakValueDictionary()  # objects of the other side, by number
        self.plugins = Plugins(self)
        self.links = Links(self, 0 if trusted else 1)
        self.level = 0
        self.received = 0

    # ---- what subclasses add

    def post(self, data):  # pragma: no cover
        raise NotImplementedError

    def collect(self):  # pragma: no cover
        raise NotImplementedError

    def serve(self, verb, node, state, unpack):  # pragma: no cover
        raise NotImplementedError

    def failure(self, told):  # pragma: no cover
        raise NotImplementedError

    def known(self, kind, number, flags, label):  # pragma: no cover
        raise NotImplementedError

    def number_of(self, value):  # pragma: no cover
        raise NotImplementedError

    def outward(self, packer, value):  # pragma: no cover
        raise NotImplementedError

    def broke(self, error):
        """A question was sent, and its answer cannot be waited for any more."""

    def heard(self, printed):
        """What the other side has printed."""

    def lasting(self, link, value):
        """The other side is about to change this object; whether for good."""
        return True

    def garbled(self, why):
        raise Garbled(why)

    def one_proxy(self, number, make):
        """The proxy of an object of the other side, made when it is first told of; its end is told over there."""
        proxy = self.proxies.get(number)
        if proxy is None:
            proxy = self.proxies[number] = make()
            self.links.drops.pop((number, OBJECT), None)
            weakref.finalize(proxy, self._dropped, number).atexit = False
        return proxy

    def _dropped(self, number):
        if number not in self.proxies:
            self.links.drops[number, OBJECT] = None

    # ---- the conversation

    def ask(self, verb, payload, label=""):
        """Send a question, serve what the other side asks meanwhile, and return its answer."""
        if self.level >= NESTED:
            raise RecursionError(f"more than {NESTED} calls from one process into the other, inside one another")
        self.level += 1
        self.links.begin(verb in ASIDE)
        try:
            if self.level == 1:
                self.received = 0
            self.say("?", verb, payload)  # if this raises, nothing was sent
            answered = False
            try:
                while True:
                    kind, verb, state, node, unpack = self.hear(label)
                    if kind in ("?", ""):
                        self._answer(kind, verb, state, node, unpack)
                        continue
                    answered = True
                    if kind == "=":
                        return unpack(node)
                    raise self.failure(unpack(node))
            except BaseException as error:
                if not answered:
                    self.broke(error)
                raise
        finally:
            self.over()

    def _answer(self, kind, verb, state, node, unpack):
        """Answer a question of the other side's, or tell the error that it is."""
        self.level += 1
        try:
            if kind:
                self.serve(verb, node, state, unpack)
            else:
                self.say("!", "", unpack(node))
        finally:
            self.over()

    def over(self):
        """The present question has ended, whoever asked."""
        self.level -= 1
        self.links.end()

    def say(self, kind, verb, payload, printed=""):
        """Pack and send. ``payload`` is a value of this side.

        Raises
        ------
        CannotSend : it cannot be sent. Nothing was, and all is as before.
        """
        self.links.prune()
        drops, self.links.drops = self.links.drops, {}
        packer = nodes.Packer(self, kind)
        try:
            try:
                data = codec.encode(packer.message(verb, payload, list(drops), printed))
            except CodecError as error:
                raise CannotSend(str(error)) from None
            self.post(data)
        except BaseException:
            self.links.drops = drops | self.links.drops
            packer.undo()
            raise

    def hear(self, label=""):
        """Receive: (kind, verb, state, node, unpack). What has changed is changed before this returns.

        A question that is answered by an error at once has no kind; the node is the error.
        """
        data = self.collect()
        self.received += len(data)
        if self.trusted and self.received > RECEIVED:
            raise Garbled(f"it sent more than {RECEIVED >> 20} MB for one question")
        message = self._decoded(data)
        if type(message) is not tuple or len(message) != 8:
            raise Garbled("no message of eight parts")
        kind, verb, state, node, table, changes, drops, printed = message
        if kind not in ("?", "=", "!") or type(kind) is not str or type(verb) is not str or type(printed) is not str:
            raise Garbled("no kind of message")
        if not type(table) is type(changes) is type(drops) is list:
            raise Garbled("a message without its lists")
        for dropped in drops:
            self._release(dropped)
        if kind == "?":
            self.links.begin(verb in ASIDE)
        reader = nodes.Reader(self, label)
        for entry in table:
            reader.entry(entry)
        self.heard(printed)
        changed = None
        for entry in changes:
            try:
                reader.change(entry)
            except Changed as error:
                changed = changed or error
        if changed is not None and kind == "=":
            return "!", verb, state, _error(str(changed)), reader.value
        if not self.trusted or kind == "!":
            return kind, verb, state, node, reader.value
        value = reader.value(node)
        if self._too_much(value, reader.altered):
            return "!" if kind == "=" else "", verb, state, _error(TOO_MUCH), reader.value
        return kind, verb, state, node, lambda each: value if each is node else reader.value(each)

    def _too_much(self, value, altered):
        """Whether going through what the other side has made takes for ever: in C code no alarm interrupts that."""
        known = {}
        if nodes.weight(value, known, self.plugins) > nodes.VALUES:
            return True
        held = self.links.containers() if altered else ()
        return any(nodes.weight(each, known, self.plugins) > nodes.VALUES for each in held)

    def _decoded(self, data):
        try:
            return codec.decode(data)
        except CodecError as error:
            if "torch is not imported" not in str(error):
                raise Garbled(str(error)) from None
        try:
            __import__("torch")
            return codec.decode(data)
        except (CodecError, ImportError) as error:
            raise Garbled(str(error)) from None

    def _release(self, dropped):
        """The other side needs an object, a history or a link no more."""
        if type(dropped) is not tuple or len(dropped) != 2 or not all(type(part) is int for part in dropped):
            raise Garbled("no number to be dropped")
        number, kind = dropped
        if kind == OBJECT:
            self.registry.drop(number)
        elif kind == DEAD:
            self.links.dead(number)
        elif kind == HISTORY:
            for plugin in self.plugins:
                plugin.forget(number)
        else:
            raise Garbled("nothing that is dropped")

    def modes(self):
        """Modes of NumPy and of the libraries that differ from the usual ones, or None."""
        errors = np.geterr()
        out = {} if errors == _USUAL_ERRORS else {"errors": errors}
        for plugin in self.plugins:
            out.update(plugin.modes())
        return out or None


def _error(text):
    """The node of an error that this side tells in the name of the other."""
    return ("t", "ValueError", ("t", "ValueError"), text, "", 0)
