"""Values of one side as nodes, and nodes of the other side as values: what a message is made of.

A *node* is a scalar, or a tuple that begins with a letter:

======  ==================================================================
letter  what follows
======  ==================================================================
t z     nodes: a tuple, a frozenset
:       three nodes: a slice
o       a key: an array, tensor, list, dict or set that the table lists or both sides hold
h       type's name, number, flags: an object that the sender keeps
r       number: an object that the receiver keeps
n       family and name: a constant such as a dtype
v       library, name, nodes: a value of a library's, by its parts
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
from types import BuiltinFunctionType, FunctionType, ModuleType

import numpy as np

from . import plain
from .codec import Bounds, CodecError, crowded
from .links import set_writeable
from .plugins import CannotSend, Changed, Garbled

__all__ = ["LENGTH", "SCALARS", "VALUES", "Packer", "Reader", "pickled", "weight"]

DEPTH = 60  # containers inside one another
VALUES = Bounds().items  # values in what is received, each counted as often as it stands there
LENGTH = 10_000_000  # numbers in its ranges

SCALARS = {type(None), bool, int, float, complex, str, bytes, type(Ellipsis), np.str_, np.bytes_}
SCALARS |= {np.dtype(letter).type for letter in "?bBhHiIlLqQefdFD"}
_BUILTIN = {t.__name__: t for t in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, slice)}
_TYPES = _BUILTIN | {f"numpy.{np.dtype(c).type.__name__}": np.dtype(c).type for c in "?bBhHiIlLqQefdFD"}
_TYPES["numpy.ndarray"] = np.ndarray
_TYPE_NAMES = {id(t): name for name, t in _TYPES.items()}
_DTYPE = re.compile(r"[<>|=]([?bBhHiIlLqQefdFD]|[SU][1-9][0-9]{0,6})")
_KIND = re.compile(r"[A-Za-z0-9_.?]{1,80}")
_ONE = 1 << 14  # bytes of an array that count as one value


class Packer:
    """Values of this side as nodes, for one message.

    Parameters
    ----------
    exchange : this side's end.
    kind : of the message: ``?``, ``=`` or ``!``.

    Attributes
    ----------
    table : what the message says of objects that the other side doesn't hold.
    handles : numbers of the objects that this message gives out first.
    """

    def __init__(self, exchange, kind):
        self.here, self.kind = exchange, kind
        self.table, self.handles = [], []
        self._path = set()
        self._fresh = []  # keys that this message describes
        self._again = []  # links whose change it tells
        self._bumped = set()  # keys of those that a library knows to have changed

    def message(self, verb, payload, drops, printed):
        changes = self._changes()
        state = self.node(self.here.modes() if self.kind == "?" else None)
        node = self.node(payload)
        return (self.kind, verb, state, node, self.table, changes, drops, printed)

    def _changes(self):
        out = []
        for link, value, bumped in self.here.links.changed():
            self._again.append(link)
            if bumped:
                self._bumped.add(link.key)
            out.append((link.key, link.letter, self._content(link.letter, value, link.key, True, bumped)))
        return out

    def undo(self):
        """The message was not sent: what it would have told is still to be told, what it gave out is taken back."""
        links = self.here.links
        for key in self._fresh:
            for plugin in self.here.plugins:
                plugin.forget(key)
            if (link := links.get(key)) is not None:
                links.let_go(link)
        for link in self._again:
            link.state = None
        for number in self.handles:
            self.here.registry.drop(number)

    def node(self, value):
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind is tuple:
            return ("t", *self.inside(value, value))
        if kind is np.ndarray:
            return self._array(value)
        if kind is list:
            return self.shared("l", value)
        if kind is dict:
            return self.shared("d", value)
        if kind is set:
            return self.shared("s", value)
        if kind is frozenset:
            nodes = self.inside(value, value)
            return ("z", *self._keyed(nodes, nodes))
        if kind is slice:
            return (":", *self.inside(value, (value.start, value.stop, value.step)))
        return self._special(value)

    def inside(self, value, members):
        """The nodes of what a value consists of."""
        if id(value) in self._path:
            raise CannotSend("a value contains itself; send a copy without the cycle")
        if len(self._path) >= DEPTH:
            raise CannotSend(f"containers are nested deeper than {DEPTH}")
        self._path.add(id(value))
        nodes = [x if type(x) in SCALARS else self.node(x) for x in members]
        self._path.discard(id(value))
        return nodes

    def _content(self, letter, value, key, again, bumped):
        if letter == "a":
            return value, value.flags.writeable
        if letter == "d":
            nodes = self.inside(value, [x for pair in tuple(value.items()) for x in pair])
            return self._keyed(nodes, nodes[::2])
        if letter == "s":
            nodes = self.inside(value, tuple(value))
            return self._keyed(nodes, nodes)
        if letter == "l":
            return self.inside(value, tuple(value))
        return self.here.plugins.lettered(letter).content(self, value, key, again, bumped)

    def _keyed(self, nodes, keys):
        if not all(map(_hashable, keys)):
            raise CannotSend("an object is a key of a dict or a member of a set; use numbers or strings")
        return nodes

    def shared(self, letter, value, cut=False):
        """The node of an object that both sides have from now on."""
        links = self.here.links
        key = links.key_of(value, cut)
        if key is None or not links.held(key):
            key = links.new_key() if key is None else key
            self._fresh.append(key)
            content = self._content(letter, value, key, False, key in self._bumped)
            self.table.append((key, letter, content))
            links.link(key, letter, value, cut)
        else:
            links.hold(links.get(key), value)
        return ("o", key)

    def described(self, value, library, name, *parts):
        """The node of a value that is sent by its parts. Arrays among them are nobody's, and not followed."""
        if any(type(part) is np.ndarray and part.dtype.kind not in "?biufcSU" for part in parts):
            raise CannotSend(f"an array of another dtype is part of a value of type {type(value).__name__}")
        others = iter(self.inside(value, [part for part in parts if type(part) is not np.ndarray]))
        return ("v", library, name, *(part if type(part) is np.ndarray else next(others) for part in parts))

    def keep(self, value):
        """The handle of an object that stays on this side."""
        registry = self.here.registry
        before = registry.last
        try:
            handle = registry.keep(value)
        except CodecError as error:
            raise CannotSend(str(error)) from None
        if registry.last > before:
            self.handles.append(handle.number)
        return handle

    def _array(self, value):
        code = value.dtype.str[0] + value.dtype.char
        if code[-1] not in "?bBhHiIlLqQefdFD" and not (code in ("|S", "<U", ">U") and value.dtype.itemsize):
            return self._special(value)
        return self.shared("a", value)

    def _special(self, value):
        here = self.here
        for plugin in here.plugins:
            if (node := plugin.node(self, value)) is not None:
                return node
        if (named := _named(value)) is not None:
            return named
        if (number := here.number_of(value)) is not None:
            return ("r", number)
        if (parts := plain.parts(value)) is not None:
            return self.described(value, "numpy", *parts)
        if not here.trusted and (simpler := plain.simpler(value)) is not None:
            return self.node(simpler)
        return here.outward(self, value)


def _named(value):
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
    return None


def _width(dtype):
    return str(dtype.itemsize // np.dtype(dtype.char + "1").itemsize) if dtype.char in "SU" else ""


class Reader:
    """Nodes as values of this side, for one message. Nothing but plain types and proxies comes out.

    Parameters
    ----------
    exchange : this side's end.
    label : what the value is called, for proxies.

    Attributes
    ----------
    altered : whether a list, dict or set that was here before has other members now.
    """

    def __init__(self, exchange, label):
        self.here, self._label = exchange, label
        self._deep = {}  # containers inside one another, by key
        self.altered = False

    def fail(self, why):
        raise Garbled(why)

    def entry(self, entry):
        """One line of the table: a new object, or one that may be known."""
        if type(entry) is not tuple or len(entry) != 3 or type(entry[0]) is not int or type(entry[1]) is not str:
            self.fail("no entry of a table")
        key, letter, content = entry
        if not 0 < key < 2**60 or len(letter) != 1 or (letter not in "ldsa" and not self.here.plugins.lettered(letter)):
            self.fail("no entry of a table")
        links = self.here.links
        link = links.get(key)
        if link is not None:
            value = link.get()
            if link.letter != letter:
                self.fail("a key that stands for something else")
            links.hold(link, value)
            if letter == "a" and type(content) is tuple and len(content) == 2 and type(content[0]) is np.ndarray:
                if _same_array(value, content[0]):
                    return
            try:
                self.change(entry)
            except Changed:
                links.let_go(link)
            else:
                return
        links.link(key, letter, self._made(key, letter, content))

    def _made(self, key, letter, content):
        if letter == "a":
            if type(content) is not tuple or len(content) != 2 or type(content[0]) is not np.ndarray:
                self.fail("no array")
            if type(content[1]) is not bool:
                self.fail("no flag of an array")
            content[0].flags.writeable = content[1]
            return content[0]
        if letter not in "lds":
            return self.here.plugins.lettered(letter).made(key, content)
        members = self._members(key, letter, content)
        if letter == "l":
            return members
        try:
            made = dict(zip(members[::2], members[1::2], strict=True)) if letter == "d" else set(members)
        except TypeError as error:
            self.fail(f"a key that cannot be one: {error}")
        if len(made) * (2 if letter == "d" else 1) != len(members):
            self.fail("a key or a member stands twice")
        return made

    def _members(self, key, letter, content):
        if type(content) is not list or (letter == "d" and len(content) % 2):
            self.fail("no members of a container")
        hashed = {"l": False, "d": None, "s": True}[letter]
        deep, out = 0, []
        for i, node in enumerate(content):
            if type(node) in SCALARS:
                out.append(node)
                continue
            if (hashed or (hashed is None and i % 2 == 0)) and not _hashable(node):
                self.fail("this can be no key and no member of a set")
            value, depth = self._read(node)
            deep = max(deep, depth)
            out.append(value)
        if deep >= DEPTH:
            self.fail("containers are nested too deep")
        if hashed is not False and crowded([x for x in (out if hashed else out[::2]) if not callable(x)]):
            self.fail("too many keys have one hash")
        self._deep[key] = deep + 1
        return out

    def change(self, entry):
        """Do to an object of this side what the other did to its own."""
        if type(entry) is not tuple or len(entry) != 3 or type(entry[0]) is not int or type(entry[1]) is not str:
            self.fail("no change")
        key, letter, content = entry
        links = self.here.links
        link = links.get(key)
        if link is None:
            return  # it has died here
        value = link.get()
        if letter != link.letter:
            self.fail("a change of something else")
        if letter == "a":
            new = self._made(0, "a", content)
            if value.shape != new.shape or value.dtype != new.dtype:
                raise Changed("your code changed the type or shape of its argument")
            if not _same_array(value, new):
                self.here.lasting(link, value)
                _fill(value, new, self.here.trusted)
            if not self.here.trusted and value.flags.writeable != content[1]:
                set_writeable(value, content[1])
        elif letter not in "lds":
            lasting = self.here.lasting(link, value)
            self.here.plugins.lettered(letter).change(value, content, lasting=lasting)
        else:
            made = self._made(key, letter, content)
            if letter == "l" and any(x is value for x in made):
                self.fail("a list inside itself")
            self.here.lasting(link, value)
            self.altered = True
            if letter == "l":
                value[:] = made
            else:
                value.clear()
                value.update(made)
        links.renew(link, value)

    def value(self, node):
        return self._read(node)[0]

    def _read(self, node, path=""):
        """(value, how deep it is)."""
        if type(node) in SCALARS:
            return node, 0
        if type(node) is not tuple or not node or type(node[0]) is not str:
            self.fail("no node")
        letter, rest = node[0], node[1:]
        if letter in ("t", "z", ":"):
            return self._tuple(letter, rest, path)
        if letter == "h" and len(rest) == 3:
            kind, number, flags = rest
            if type(kind) is not str or not _KIND.fullmatch(kind) or type(number) is not int or type(flags) is not int:
                self.fail("no handle")
            return self.here.known(kind, number, flags, self._label + path), 0
        if len(rest) == 1 and letter in ("o", "r", "g"):
            if type(rest[0]) is not int:
                self.fail("no number")
            return self._by_number(letter, rest[0])
        if letter == "n" and len(rest) == 2:
            return self._constant(*rest), 0
        if letter == "v" and len(rest) >= 2 and type(rest[0]) is type(rest[1]) is str:
            return self._built(*rest)
        if letter == "p" and len(rest) == 1 and type(rest[0]) is bytes and not self.here.trusted:
            return pickle.loads(rest[0]), 0
        if letter == "m" and len(rest) == 1 and type(rest[0]) is str and not self.here.trusted:
            __import__(rest[0])
            return sys.modules[rest[0]], 0
        self.fail("no node")

    def _tuple(self, letter, rest, path):
        if letter == "z" and not all(map(_hashable, rest)):
            self.fail("this can be no member of a set")
        parts = [self._read(x, f"{path}[{i}]") for i, x in enumerate(rest)]
        deep = max((d for _, d in parts), default=0) + 1
        if deep > DEPTH + 1 or (letter == ":" and len(parts) != 3):
            self.fail("containers are nested too deep")
        values = [v for v, _ in parts]
        if letter == "z" and crowded([x for x in values if not callable(x)]):
            self.fail("too many keys have one hash")
        return (tuple(values) if letter == "t" else frozenset(values) if letter == "z" else slice(*values)), deep

    def _built(self, library, name, *nodes):
        """A value by its parts."""
        parts = [(node, 0) if type(node) is np.ndarray else self._read(node) for node in nodes]
        deep = max((d for _, d in parts), default=0) + 1
        if deep > DEPTH + 1:
            self.fail("containers are nested too deep")
        values = [value for value, _ in parts]
        if library == "numpy":
            made = plain.built(name, values)
        else:
            plugin = self.here.plugins.of(library)
            made = None if plugin is None else plugin.built(name, values)
        if made is None:
            self.fail("no value of this library")
        return made, deep

    def _by_number(self, letter, number):
        links = self.here.links
        if letter == "o":
            link = links.get(number)
            if link is None:
                self.fail("a key that stands for nothing")
            value = link.get()
            links.hold(link, value)
            return value, self._deep.get(number, 1)
        if letter == "r":
            try:
                return self.here.registry.get(number), 0
            except CodecError:
                self.fail("it names an object that is not kept here")
        for plugin in self.here.plugins:
            if (found := plugin.by_number(letter, number)) is not None:
                return found, 0
        self.fail("it names a history that is not kept here")

    def _constant(self, family, name):
        if family == "range" and type(name) is tuple and len(name) == 3 and all(type(x) is int for x in name):
            if name[2]:
                return range(*name)
        elif type(family) is str:
            if type(name) is str:
                if family == "dtype" and _DTYPE.fullmatch(name):
                    return np.dtype(name)
                if family == "type" and name in _TYPES:
                    return _TYPES[name]
                if family == "const" and name == "NotImplemented":
                    return NotImplemented
            for plugin in self.here.plugins:
                if (found := plugin.constant(family, name)) is not None:
                    return found
        self.fail("no constant")


def weight(value, known, plugins, depth=0):
    """How many values there are in one, if none is shared; more than VALUES if it contains itself."""
    kind = type(value)
    if kind in SCALARS:
        return 1
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
        return 1 + next((size // _ONE for plugin in plugins if (size := plugin.nbytes(value)) is not None), 0)
    if id(value) not in known:
        known[id(value)] = VALUES + 1
        if depth <= 2 * DEPTH:
            inner = [x for x in members if type(x) not in SCALARS]
            alone = len(members) - len(inner)
            known[id(value)] = 1 + alone + sum(weight(x, known, plugins, depth + 1) for x in inner)
    return known[id(value)]


def _hashable(node):
    return type(node) in SCALARS or (type(node) is tuple and len(node) > 0 and node[0] in ("t", "z", "n", "v"))


def _same_array(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _fill(value, new, trusted):
    """Copy in place. A read-only array of the trusted side stays as it is."""
    was = value.flags.writeable
    if not was and trusted:
        raise Changed("your code changed a read-only argument")
    set_writeable(value, True)
    try:
        value[...] = new
    except ValueError:
        raise Changed("your code changed a read-only argument") from None
    finally:
        if not was:
            set_writeable(value, False)


# ---- pickles, which only the trusted side writes


class _Pickler(pickle.Pickler):
    """Refuses whatever belongs to the test's own namespace."""

    def reducer_override(self, value):
        if isinstance(value, FunctionType | BuiltinFunctionType | type):
            if not _importable(value):
                raise pickle.PicklingError("defined in the test")
        elif isinstance(value, ModuleType):
            raise pickle.PicklingError("a module")
        return NotImplemented


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
