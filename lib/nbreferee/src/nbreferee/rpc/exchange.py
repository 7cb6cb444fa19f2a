"""Objects shared by two processes that take turns: what both ends of a channel have in common.

One side asks, the other answers, and may ask in its turn before it does. Since only one of them runs at a time, an
array, tensor, list, dict or set that has crossed can be kept equal on both sides: every message says which of them
changed since the last one. So an argument changed in place is changed for its owner too, and what comes back is the
same object that was sent. Functions and other objects never cross; the other side gets a number that it may call.

A message is one value of the codec, ``(kind, verb, state, node, table, changes, drops, printed)``. A *node* is a
scalar, or a tuple that begins with a letter:

======  ==================================================================
letter  what follows
======  ==================================================================
t z     nodes: a tuple, a frozenset
:       three nodes: a slice
o       a key: an array, tensor, list, dict or set that the table lists or both sides know
h       type's name, number, flags: an object that the sender keeps
r       number: an object that the receiver keeps
n       family and name: a constant such as a dtype
g       a key: the ``grad_fn`` of a tensor
p m     bytes, name: a pickle, a module. Only the trusted side writes them, only the other one reads them
======  ==================================================================

The table lists ``(key, letter, content)``: l, d, s, a, x for list, dict, set, array and tensor. An entry names only
keys that stand before it, so nothing contains itself.
"""

import io
import pickle
import re
import sys
import weakref
from collections import Counter, OrderedDict, defaultdict
from types import BuiltinFunctionType, FunctionType, ModuleType

import numpy as np

from ..errors import NbrefereeError
from . import codec
from .codec import CodecError, Registry

__all__ = ["Exchange", "Garbled", "Refused"]

DEPTH = 60  # containers inside one another
NESTED = 300  # questions inside one another, those of both sides counted
FRAMES = 8_000  # of Python on each side: a question and its answer take about twenty
LINKS = 4096  # arrays whose changes are followed after the question in which they crossed
FOLLOWED = 1 << 20  # bytes of such an array; larger ones are followed during the question alone
RECEIVED = 512 << 20  # bytes that one question with all its callbacks may bring
VALUES = codec.Limits().items  # values in what is received, each counted as often as it stands there
LENGTH = 10_000_000  # numbers in its ranges

_SCALAR = {type(None), bool, int, float, complex, str, bytes, type(Ellipsis), np.str_, np.bytes_}
_SCALAR |= {np.dtype(letter).type for letter in "?bBhHiIlLqQefdFD"}
_BUILTIN = {t.__name__: t for t in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, slice)}
_TYPES = _BUILTIN | {f"numpy.{np.dtype(c).type.__name__}": np.dtype(c).type for c in "?bBhHiIlLqQefdFD"}
_TYPES["numpy.ndarray"] = np.ndarray
_TYPE_NAMES = {id(t): name for name, t in _TYPES.items()}
_DTYPE = re.compile(r"[<>|=]([?bBhHiIlLqQefdFD]|[SU][1-9][0-9]{0,6})")
_KIND = re.compile(r"[A-Za-z0-9_.?]{1,80}")
_TORCH_DTYPES = tuple("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split())
_ONE = 1 << 14  # bytes of an array that count as one value
_DEFAULT_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


class Garbled(NbrefereeError):
    """What the other side sent makes no sense."""


class Refused(NbrefereeError, TypeError):
    """A value of this side that cannot go to the other one; the text says why."""


class Changed(NbrefereeError):
    """The other side changed an object in a way that cannot be repeated here."""


def torch_here():
    """The module, if this process has imported it already."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "nn") and hasattr(torch, "autograd") else None


def _bridge():
    from . import torch_values as bridge

    return bridge


class _Link:
    """An object that both sides have, under one key, and what it was like after the last message."""

    __slots__ = ("key", "letter", "number", "ref", "state", "strong")

    def __init__(self, key, letter, value, state, forget):
        self.key, self.letter, self.number, self.state, self.strong = key, letter, id(value), state, value
        self.ref = weakref.ref(value, forget) if letter in "ax" else None

    def get(self):
        return self.strong if self.strong is not None else self.ref and self.ref()


class _Pickler(pickle.Pickler):
    """Refuses whatever belongs to the test's own namespace."""

    def reducer_override(self, value):
        if isinstance(value, FunctionType | BuiltinFunctionType | type):
            if not _importable(value):
                raise pickle.PicklingError("defined in the test")
        elif isinstance(value, ModuleType):
            raise pickle.PicklingError("a module")
        return NotImplemented


def flat(kwargs):
    """Keywords and values in turn."""
    return tuple(x for pair in kwargs.items() for x in pair)


def unflat(pairs):
    if type(pairs) is not tuple or len(pairs) % 2 or not all(type(key) is str for key in pairs[::2]):
        raise Garbled("no keywords")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _importable(value):
    """Whether this function or class is found under its name in a module that was loaded from a file or is built in."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module is None and isinstance(value, BuiltinFunctionType):
        module = "builtins"
    found = sys.modules.get(module) if isinstance(module, str) and module != "__main__" else None
    if found is None or getattr(found, "__spec__", None) is None or not isinstance(name, str):
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


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
        self.links, self.keys, self.cuts = {}, {}, {}  # by key; key by id; key by id of tensors sent without history
        self.scope = {}  # objects that crossed in the present question: kept alive until it ends
        self.aging = []  # keys of what crossed in the question before and is followed still
        self.drops = []  # what the other side need not keep for us any more
        self.graphs = {}  # results with a history, by key: (tensor, leaves of the other side, own leaves)
        self.stash = []  # gradients of own leaves, before it is known whether they are wanted
        self.level = 0
        self.received = 0
        self._next = 0 if trusted else 1
        self._anchor = None
        self.task = None  # the backward pass under way on the side that began it

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
        pass

    def allow_change(self, value):
        """Whether the other side may change this object."""
        return True

    def garbled(self, why):
        raise Garbled(why)

    def one_proxy(self, number, make):
        """The proxy of an object of the other side, made when it is first told of; its end is told over there."""
        proxy = self.proxies.get(number)
        if proxy is None:
            proxy = self.proxies[number] = make()
            self.drops = [dropped for dropped in self.drops if dropped != (number, 0)]
            weakref.finalize(proxy, self._dropped, number).atexit = False
        return proxy

    def _dropped(self, number):
        if number not in self.proxies:
            self.drops.append((number, 0))

    # ---- the conversation

    def ask(self, verb, payload, label=""):
        """Send a question, serve what the other side asks meanwhile, and return its answer."""
        if self.level >= NESTED:
            raise RecursionError(f"more than {NESTED} calls from one process into the other, inside one another")
        self.level += 1
        try:
            if self.level == 1:
                self.received = 0
            self.say("?", verb, payload)  # if this raises, nothing was sent
            answered = False
            try:
                while True:
                    kind, verb, state, node, unpack = self.hear(label)
                    if kind == "":
                        self.say("!", "", unpack(node))
                        continue
                    if kind == "?":
                        self.level += 1
                        try:
                            self.serve(verb, node, state, unpack)
                        finally:
                            self.level -= 1
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
            self.level -= 1
            self.over()

    def over(self):
        """The outermost question has ended.

        Lists of the trusted side are not followed any more, small arrays are as long as they live. What the other side
        made is followed for one question more: the test may change it, ``net.weight.fill_(1)``, and let it go.
        """
        if self.level:
            return
        aged, self.aging = self.aging, [key for key in self.scope if key % 2]
        for key in (*aged, *self.scope):
            link = self.links.get(key)
            if link is None or link.strong is None or (key % 2 and key in self.scope):
                continue
            value, link.strong = link.strong, None
            large = link.letter == "a" and value.nbytes > FOLLOWED
            large = large or (link.letter == "x" and value.numel() * value.element_size() > FOLLOWED)
            if link.ref is None or large:
                self.unlink(link)
        self.scope.clear()
        while len(self.links) > LINKS:
            self.unlink(next(iter(self.links.values())))

    def say(self, kind, verb, payload, printed=""):
        """Pack and send. ``payload`` is a value of this side."""
        drops, self.drops = self.drops, []
        packer = _Packer(self, kind)
        try:
            data = codec.encode(packer.message(verb, payload, drops, printed))
        except BaseException as error:
            self.drops = drops + self.drops
            packer.undo()
            if isinstance(error, CodecError):
                raise Refused(str(error)) from None
            raise
        self.post(data)

    def hear(self, label=""):
        """Receive: (kind, verb, state, node, unpack). What has changed is changed before this returns.

        A question that is answered by an error at once has no kind; the node is the error.
        """
        data = self.collect()
        self.received += len(data)
        if self.trusted and self.received > RECEIVED:
            raise Garbled(f"it sent more than {RECEIVED >> 20} MB for one question")
        message = self.decoded(data)
        if type(message) is not tuple or len(message) != 8:
            raise Garbled("no message of eight parts")
        kind, verb, state, node, table, changes, drops, printed = message
        if kind not in ("?", "=", "!") or type(kind) is not str or type(verb) is not str or type(printed) is not str:
            raise Garbled("no kind of message")
        if not type(table) is type(changes) is type(drops) is list:
            raise Garbled("a message without its lists")
        for number in drops:
            self.release(number)
        reader = _Reader(self, label, kind)
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
        if self.too_much(value, reader.altered):
            return "!" if kind == "=" else "", verb, state, _error(TOO_MUCH), reader.value
        return kind, verb, state, node, lambda each: value if each is node else reader.value(each)

    def too_much(self, value, altered):
        """Whether going through what the other side has made takes for ever: in C code no alarm interrupts that."""
        known = {}
        if _weight(value, known) > VALUES:
            return True
        held = [link.get() for link in self.links.values() if link.letter in "lds"] if altered else ()
        return any(_weight(each, known) > VALUES for each in held)

    def decoded(self, data):
        try:
            return codec.decode(data)
        except CodecError as error:
            if torch_here() or "torch is not imported" not in str(error):
                raise Garbled(str(error)) from None
        try:
            __import__("torch")
            return codec.decode(data)
        except (CodecError, ImportError) as error:
            raise Garbled(str(error)) from None

    def release(self, dropped):
        """The other side needs an object (n, 0) or a history (key, 1) no more."""
        if type(dropped) is not tuple or len(dropped) != 2 or type(dropped[0]) is not int:
            raise Garbled("no number to be dropped")
        if dropped[1]:
            self.graphs.pop(dropped[0], None)
        else:
            self.registry.drop(dropped[0])

    # ---- objects that both have

    def new_key(self):
        self._next += 2
        return self._next

    def link(self, key, letter, value, cut=False):
        known = self.links.get(key)
        if known is not None and known.get() is not value:
            self.unlink(known)
        if key not in self.links:
            links = weakref.ref(self)

            def forget(_, key=key):
                here = links()
                if here is not None and key in here.links:
                    here.unlink(here.links[key])

            self.links[key] = _Link(key, letter, value, None, forget)
        link = self.links[key]
        link.strong = value
        (self.cuts if cut else self.keys)[id(value)] = key
        self.scope[key] = value
        link.state = self.state(letter, value)

    def unlink(self, link):
        self.links.pop(link.key, None)
        for keys in (self.keys, self.cuts):
            if keys.get(link.number) == link.key:
                del keys[link.number]

    def find(self, value, cut=False):
        """The key of an object, or None."""
        key = (self.cuts if cut else self.keys).get(id(value))
        link = self.links.get(key)
        return key if link is not None and link.get() is value else None

    def state(self, letter, value):
        """Something that is equal as long as the object has not changed."""
        if letter == "l" or letter == "s":
            return tuple(value)
        if letter == "d":
            return tuple(x for pair in tuple(value.items()) for x in pair)
        if letter == "a":
            return value.shape, value.dtype, hash(value.tobytes()), value.flags.writeable
        return _bridge().state(value)

    def unchanged(self, letter, old, new):
        if old is None:
            return False
        if letter in "lds":
            if letter == "s":
                old, new = sorted(map(id, old)), sorted(map(id, new))
                return old == new
            return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
        return old == new

    def anchor(self):
        """A leaf without use: that something is added to its gradient says that this is ``backward()``."""
        if self._anchor is None:
            self._anchor = _bridge().anchor(self)
        return self._anchor

    def modes(self):
        """Modes of NumPy and PyTorch that differ from the usual ones."""
        out = {}
        errors = np.geterr()
        if errors != _DEFAULT_ERRORS:
            out["errors"] = errors
        if torch_here():
            out.update(_bridge().modes())
        return out or None


class _Packer:
    """Values of this side as nodes, for one message."""

    def __init__(self, exchange, kind):
        self.here, self.kind = exchange, kind
        self.table, self.path = [], set()
        self.fresh = set()  # keys that this message describes
        self.again = []  # links whose change it tells
        self.bumped = set()  # keys of those that autograd knows to have changed

    def message(self, verb, payload, drops, printed):
        changes = self.changes()
        state = self.node(self.here.modes() if self.kind == "?" else None)
        node = self.node(payload)
        return (self.kind, verb, state, node, self.table, changes, drops, printed)

    def changes(self):
        out = []
        for key, link in list(self.here.links.items()):
            value = link.get()
            if value is None:
                continue
            new = self.here.state(link.letter, value)
            if not self.here.unchanged(link.letter, link.state, new):
                bumped = link.state is None or link.letter != "x" or link.state[-1] != new[-1]
                link.state = new
                self.again.append(link)
                if bumped:
                    self.bumped.add(key)
                out.append((key, link.letter, self.content(link.letter, value, key, True, bumped)))
        return out

    def undo(self):
        """The message was not sent: what it would have told is still to be told."""
        for key in self.fresh:
            self.here.scope.pop(key, None)
            self.here.graphs.pop(key, None)
            if key in self.here.links:
                self.here.unlink(self.here.links[key])
        for link in self.again:
            link.state = None

    def node(self, value):
        kind = type(value)
        if kind in _SCALAR:
            return value
        if kind is tuple:
            return ("t", *self.inside(value, value))
        if kind is np.ndarray:
            return self.array(value)
        if kind is list:
            return self.shared("l", value)
        if kind is dict:
            return self.shared("d", value)
        if kind is set:
            return self.shared("s", value)
        if kind is frozenset:
            return ("z", *self.inside(value, value))
        if kind is slice:
            return (":", *self.inside(value, (value.start, value.stop, value.step)))
        return self.special(value)

    def inside(self, value, members):
        if id(value) in self.path:
            raise Refused("a value contains itself; send a copy without the cycle")
        if len(self.path) >= DEPTH:
            raise Refused(f"containers are nested deeper than {DEPTH}")
        self.path.add(id(value))
        nodes = [x if type(x) in _SCALAR else self.node(x) for x in members]
        self.path.discard(id(value))
        return nodes

    def content(self, letter, value, key, again, bumped=True):
        if letter == "a":
            return value, value.flags.writeable
        if letter == "d":
            return self.inside(value, [x for pair in tuple(value.items()) for x in pair])
        if letter == "x":
            return _bridge().content(self, value, key, again, bumped)
        return self.inside(value, tuple(value))

    def shared(self, letter, value, cut=False):
        key = self.here.find(value, cut)
        if key is None or (key not in self.here.scope and key not in self.fresh):
            key = self.here.new_key() if key is None else key
            self.fresh.add(key)
            content = self.content(letter, value, key, False, key in self.bumped)
            self.table.append((key, letter, content))
            self.here.link(key, letter, value, cut)
        return ("o", key)

    def array(self, value):
        code = value.dtype.str[0] + value.dtype.char
        if code[-1] not in "?bBhHiIlLqQefdFD" and not (code in ("|S", "<U", ">U") and value.dtype.itemsize):
            return self.special(value)
        return self.shared("a", value)

    def special(self, value):
        here, torch = self.here, torch_here()
        if torch and isinstance(value, torch.Tensor):
            bridge = _bridge()
            if bridge.sendable(value):
                return self.shared("x", value, cut=self.kind == "?" and value.grad_fn is not None)
        named = _named(value, torch)
        if named is not None:
            return named
        number = here.number_of(value)
        if number is not None:
            return ("r", number)
        if torch and (key := _bridge().node_key(here, value)) is not None:
            return ("g", key)
        if not here.trusted:
            plain = _plainer(value)
            if plain is not None:
                return self.node(plain)
        return here.outward(self, value)


def _named(value, torch):
    """A constant by its family and name, or None."""
    kind = type(value)
    if isinstance(value, np.dtype) and _DTYPE.fullmatch(value.str[0] + value.char + _width(value)):
        return ("n", "dtype", value.str[0] + value.char + _width(value))
    if kind is range:
        return ("n", "range", (value.start, value.stop, value.step))
    if value is NotImplemented:
        return ("n", "const", "NotImplemented")
    if kind is type and id(value) in _TYPE_NAMES:
        return ("n", "type", _TYPE_NAMES[id(value)])
    if not torch:
        return None
    if kind is torch.Size:
        return ("n", "size", tuple(int(d) for d in value))
    if kind is torch.dtype:
        name = str(value).removeprefix("torch.")
        return ("n", "torch", name) if name in _TORCH_DTYPES else None
    if kind is torch.device and value.type == "cpu":
        return ("n", "device", "cpu")
    if value is torch.Tensor:
        return ("n", "type", "torch.Tensor")
    return None


def _width(dtype):
    return str(dtype.itemsize // np.dtype(dtype.char + "1").itemsize) if dtype.char in "SU" else ""


def _plainer(value):
    """What a test takes for a dict or a tuple, as one; None for anything else. On the student's side only."""
    kind = type(value)
    if kind in (OrderedDict, Counter, defaultdict):
        return dict(value)
    bases = kind.__mro__
    if tuple in bases[1:] and (bases[1] is tuple) and (hasattr(kind, "_fields") or hasattr(kind, "n_fields")):
        return tuple(value)
    return None


class _Reader:
    """Nodes as values of this side, for one message. Nothing but plain types and proxies comes out."""

    def __init__(self, exchange, label, kind):
        self.here, self.label, self.kind = exchange, label, kind
        self.deep = {}  # containers inside one another, by key
        self.altered = False  # whether a list, dict or set that was here before has other members now

    def fail(self, why):
        raise Garbled(why)

    def entry(self, entry):
        """One line of the table: a new object, or one that may be known."""
        if type(entry) is not tuple or len(entry) != 3 or type(entry[0]) is not int or type(entry[1]) is not str:
            self.fail("no entry of a table")
        key, letter, content = entry
        if not 0 < key < 2**60 or letter not in ("l", "d", "s", "a", "x"):
            self.fail("no entry of a table")
        link = self.here.links.get(key)
        value = link.get() if link is not None else None
        if value is not None:
            if link.letter != letter:
                self.fail("a key that stands for something else")
            self.here.scope[key] = link.strong = value
            if letter == "a" and type(content) is tuple and len(content) == 2 and type(content[0]) is np.ndarray:
                if _same_array(value, content[0]):
                    return
            try:
                self.change(entry)
            except Changed:
                self.here.unlink(link)
            else:
                return
        self.here.link(key, letter, self.make(key, letter, content))

    def make(self, key, letter, content):
        if letter == "a":
            if type(content) is not tuple or len(content) != 2 or type(content[0]) is not np.ndarray:
                self.fail("no array")
            if type(content[1]) is not bool:
                self.fail("no flag of an array")
            content[0].flags.writeable = content[1]
            return content[0]
        if letter == "x":
            return _bridge().make(self, key, content)
        members = self.members(key, letter, content)
        if letter == "l":
            return members
        try:
            made = dict(zip(members[::2], members[1::2], strict=True)) if letter == "d" else set(members)
        except TypeError as error:
            self.fail(f"a key that cannot be one: {error}")
        if len(made) * (2 if letter == "d" else 1) != len(members):
            self.fail("a key or a member stands twice")
        return made

    def members(self, key, letter, content):
        if type(content) is not list or (letter == "d" and len(content) % 2):
            self.fail("no members of a container")
        hashed = {"l": False, "d": None, "s": True}[letter]
        deep, out = 0, []
        for i, node in enumerate(content):
            if type(node) in _SCALAR:
                out.append(node)
                continue
            if (hashed or (hashed is None and i % 2 == 0)) and not _hashable(node):
                self.fail("this can be no key and no member of a set")
            value, depth = self.read(node)
            deep = max(deep, depth)
            out.append(value)
        if deep >= DEPTH:
            self.fail("containers are nested too deep")
        if hashed is not False and codec._crowded([x for x in (out if hashed else out[::2]) if not callable(x)]):
            self.fail("too many keys have one hash")
        self.deep[key] = deep + 1
        return out

    def change(self, entry):
        """Do to an object of this side what the other did to its own."""
        if type(entry) is not tuple or len(entry) != 3 or type(entry[0]) is not int or type(entry[1]) is not str:
            self.fail("no change")
        key, letter, content = entry
        link = self.here.links.get(key)
        value = link.get() if link is not None else None
        if value is None:
            return  # it has died here
        if letter != link.letter:
            self.fail("a change of something else")
        if letter == "a":
            new = self.make(0, "a", content)
            if value.shape != new.shape or value.dtype != new.dtype:
                raise Changed("your code changed the type or shape of its argument")
            if not _same_array(value, new):
                if not self.here.allow_change(value):
                    return
                _fill(value, new, self.here.trusted)
            if not self.here.trusted and value.flags.writeable != content[1]:
                _set_writeable(value, content[1])
        elif letter == "x":
            _bridge().change(self, value, content)
        else:
            made = self.make(key, letter, content)
            if letter == "l" and any(x is value for x in made):
                self.fail("a list inside itself")
            if not self.here.allow_change(value):
                return
            self.altered = True
            if letter == "l":
                value[:] = made
            else:
                value.clear()
                value.update(made)
        link.state = self.here.state(letter, value)

    def value(self, node):
        return self.read(node)[0]

    def read(self, node, path=""):
        """(value, how deep it is)."""
        if type(node) in _SCALAR:
            return node, 0
        if type(node) is not tuple or not node or type(node[0]) is not str:
            self.fail("no node")
        letter, rest = node[0], node[1:]
        if letter in ("t", "z", ":"):
            if letter == "z" and not all(map(_hashable, rest)):
                self.fail("this can be no member of a set")
            parts = [self.read(x, f"{path}[{i}]") for i, x in enumerate(rest)]
            deep = max((d for _, d in parts), default=0) + 1
            if deep > DEPTH + 1 or (letter == ":" and len(parts) != 3):
                self.fail("containers are nested too deep")
            values = [v for v, _ in parts]
            if letter == "z" and codec._crowded([x for x in values if not callable(x)]):
                self.fail("too many keys have one hash")
            return (tuple(values) if letter == "t" else frozenset(values) if letter == "z" else slice(*values)), deep
        if letter == "h" and len(rest) == 3:
            kind, number, flags = rest
            if type(kind) is not str or not _KIND.fullmatch(kind) or type(number) is not int or type(flags) is not int:
                self.fail("no handle")
            return self.here.known(kind, number, flags, self.label + path), 0
        if len(rest) == 1 and letter in ("o", "r", "g"):
            if type(rest[0]) is not int:
                self.fail("no number")
            return self.by_number(letter, rest[0])
        if letter == "n" and len(rest) == 2:
            return self.constant(*rest), 0
        if letter == "p" and len(rest) == 1 and type(rest[0]) is bytes and not self.here.trusted:
            return pickle.loads(rest[0]), 0
        if letter == "m" and len(rest) == 1 and type(rest[0]) is str and not self.here.trusted:
            __import__(rest[0])
            return sys.modules[rest[0]], 0
        self.fail("no node")

    def by_number(self, letter, number):
        if letter == "o":
            link = self.here.links.get(number)
            value = link.get() if link is not None else None
            if value is None:
                self.fail("a key that stands for nothing")
            return value, self.deep.get(number, 1)
        if letter == "r":
            try:
                return self.here.registry.get(number), 0
            except CodecError:
                self.fail("it names an object that is not kept here")
        if number not in self.here.graphs:
            self.fail("it names a history that is not kept here")
        return self.here.graphs[number][0].grad_fn, 0

    def constant(self, family, name):
        torch = torch_here()
        if family == "range" and type(name) is tuple and len(name) == 3 and all(type(x) is int for x in name):
            if name[2]:
                return range(*name)
        elif family == "size" and torch and type(name) is tuple and len(name) <= 64:
            if all(type(x) is int and 0 <= x < 2**62 for x in name):
                return torch.Size(name)
        elif type(name) is not str or type(family) is not str:
            self.fail("no constant")
        elif family == "dtype" and _DTYPE.fullmatch(name):
            return np.dtype(name)
        elif family == "type" and name in _TYPES:
            return _TYPES[name]
        elif family == "type" and name == "torch.Tensor" and torch:
            return torch.Tensor
        elif family == "const" and name == "NotImplemented":
            return NotImplemented
        elif family == "torch" and torch and name in _TORCH_DTYPES:
            return getattr(torch, name)
        elif family == "device" and torch and name == "cpu":
            return torch.device("cpu")
        self.fail("no constant")


TOO_MUCH = (
    f"your code gave the test more than {VALUES} values, each counted as often as it stands there, "
    f"or ranges of more than {LENGTH} numbers"
)


def _error(text):
    """The node of an error that this side tells in the name of the other."""
    return ("t", "ValueError", ("t", "ValueError"), text, "", 0)


def _weight(value, known, depth=0):
    """How many values there are in one, if none is shared; more than VALUES if it contains itself."""
    kind = type(value)
    if kind is range:
        return VALUES + 1 if value[LENGTH:] else max(1, len(value) * VALUES // LENGTH)
    if kind is np.ndarray:
        return 1 + value.nbytes // _ONE
    if kind is dict:
        members = [x for pair in value.items() for x in pair]
    elif kind is slice:
        members = value.start, value.stop, value.step
    elif kind in (list, tuple, set, frozenset):
        members = value
    else:
        torch = None if kind in _SCALAR else torch_here()
        return 1 + (value.nbytes // _ONE if torch and issubclass(kind, torch.Tensor) else 0)
    if id(value) not in known:
        known[id(value)] = VALUES + 1
        if depth <= 2 * DEPTH:
            inner = [x for x in members if type(x) not in _SCALAR]
            alone = len(members) - len(inner)
            known[id(value)] = 1 + alone + sum(_weight(x, known, depth + 1) for x in inner)
    return known[id(value)]


def _hashable(node):
    return type(node) in _SCALAR or (type(node) is tuple and len(node) > 0 and node[0] in ("t", "z", "n"))


def _same_array(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _set_writeable(value, flag):
    try:
        value.flags.writeable = flag
    except ValueError:  # a view of memory that is not writeable
        pass


def _fill(value, new, trusted):
    """Copy in place. A read-only array of the trusted side stays as it is."""
    was = value.flags.writeable
    if not was and trusted:
        raise Changed("your code changed a read-only argument")
    _set_writeable(value, True)
    try:
        value[...] = new
    except ValueError:
        raise Changed("your code changed a read-only argument") from None
    finally:
        if not was:
            _set_writeable(value, False)


def pickled(value):
    """The pickle of a library's object, or None if it holds anything that the test itself defines."""
    if isinstance(value, ModuleType):
        return ("m", value.__name__) if getattr(value, "__spec__", None) is not None else None
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except Exception:
        return None
    return ("p", buffer.getvalue())
