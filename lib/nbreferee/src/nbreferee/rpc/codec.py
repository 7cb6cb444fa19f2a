"""Values as bytes and back, for two processes of which one must not trust the other.

Only the exact types of the table cross. Everything else, instances of subclasses included, is refused: it stays where
it is, its owner keeps it in a `Registry`, and what crosses is its number, see `nbreferee.rpc.nodes`. A reader imports
nothing, calls no code of the sender, and builds no type that the table does not list.

A message is the two bytes ``R1`` and one value; a value is one letter and what the table says. Counts and lengths are
unsigned, 4 bytes, big-endian; *n* stands for one of them.

======  =================================================================================================
letter  what follows
======  =================================================================================================
N T F   nothing: None, True, False
E       nothing: Ellipsis
i       n, then n bytes: an int, little-endian two's complement, as short as ``bit_length`` allows
f       8 bytes: a float (binary64, little-endian); NaN, infinities and -0.0 are kept
c       16 bytes: a complex, real part first
s       n, then n bytes: a str in UTF-8; lone surrogates are let through (``surrogatepass``)
b       n, then n bytes: bytes
l t     n, then n values: a list, a tuple
S Z     n, then n values, no two equal: a set, a frozenset
d       n, then n pairs of key and value, no two keys equal: a dict in its order
:       3 values: a slice
u y     n, then n bytes: a ``numpy.str_`` (as s), a ``numpy.bytes_``
n       2 bytes of dtype, then the bytes of one element: a NumPy scalar
a       dtype, order (``C``, or ``F`` where the array is not C-contiguous too), dimensions, elements: an ndarray
x       a letter of dtype, flags (1: requires_grad, 2: Parameter), dimensions, elements in C order: a torch tensor
======  =================================================================================================

A dtype is ``<``, ``>`` or ``|`` and the character of the C type, which tells ``long`` from ``long long``; for ``S`` and
``U`` n characters follow. *dimensions* is one byte with their number, then n for each.

Each value has one encoding only (but for the order of a set and the bits of a NaN); any other is malformed.

Why not a format that exists: msgpack and CBOR have neither sets nor tuples nor complex numbers, so most of this table
would be extensions to be parsed here anyway, and their readers report neither positions nor second encodings of a
value. Why not ``.npy``: its header is a Python literal, and reading one means parsing a stranger's text.
"""

import math
import re
import struct
import sys
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..errors import NbrefereeError

__all__ = ["Bounds", "CodecError", "Handle", "Registry", "crowded", "decode", "encode", "kind_name"]

_MAGIC = b"R1"
_DIMENSIONS = 64  # as many as NumPy allows
_SAME_HASH = 64  # so many keys with one hash are taken; more would make a dict quadratic

_length = struct.Struct(">I")
_float = struct.Struct("<d")
_complex = struct.Struct("<dd")


def _numeric_dtypes():
    """Dtypes by codes of two characters. ``long double`` is left out: it has padding and invalid bit patterns."""
    out = {}
    for letter in "?bBhHiIlLqQefdFD":
        dtype = np.dtype(letter)
        orders = "|" if dtype.itemsize == 1 else "<>"
        out.update({(order + letter).encode(): dtype.newbyteorder(order) for order in orders})
    return out


_DTYPES = _numeric_dtypes()
_NATIVE = {code: dtype for code, dtype in _DTYPES.items() if dtype.isnative}
_SCALARS = {
    id(dtype.type): code for code, dtype in _NATIVE.items()
}  # by id: the hash of a type may be a stranger's code
_TENSORS = {
    "?": "bool",
    "B": "uint8",
    "b": "int8",
    "h": "int16",
    "i": "int32",
    "q": "int64",
    "e": "float16",
    "g": "bfloat16",
    "f": "float32",
    "d": "float64",
    "F": "complex64",
    "D": "complex128",
}
_DIFFERENTIABLE = "egfdFD"


class CodecError(NbrefereeError, ValueError):
    """A value that cannot be sent, or bytes that are no message. The text is one line and quotes no value."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one message may hold; the same bounds hold for the writer and for the reader.

    Parameters
    ----------
    depth : containers inside one another, at most 200.
    items : values in all, those inside containers and the keys included.
    bytes : length of the message.
    array_bytes : size of one array or tensor; a dimension of 0 counts as 1.
    digits : decimal digits of an int. The default is what Python itself converts to text.

    Raises
    ------
    CodecError : a bound is not a positive int, or too large for the format.

    Examples
    --------
    >>> encode([[1]], bounds=Bounds(depth=1))
    Traceback (most recent call last):
    ...
    nbreferee.rpc.codec.CodecError: cannot send a value of type list: containers are nested deeper than 1
    """

    depth: int = 64
    items: int = 200_000
    bytes: int = 64 << 20
    array_bytes: int = 64 << 20
    digits: int = 4300

    def __post_init__(self):
        most = {"depth": 200, "items": 2**32 - 1, "bytes": 2**32 - 1, "array_bytes": 2**32 - 1, "digits": 10**6}
        for name, bound in most.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= bound:
                raise CodecError(f"the limit {name} must be an int between 1 and {bound}")


_USUAL = Bounds()


@dataclass(frozen=True, slots=True)
class Handle:
    """What the owner of an object sends in its place: the name of the object's type, cleaned, and its number."""

    kind: str
    number: int


def kind_name(value):
    """The name of a value's type, safe to print. It is asked of `type`'s own descriptor, so no metaclass interferes."""
    name = type.__dict__["__name__"].__get__(type(value))[:80]
    return re.sub(r"[^A-Za-z0-9_.]", "?", name) or "?"


class Registry:
    """The objects that stay on this side, by number. One object has one number; numbers are never used twice.

    Parameters
    ----------
    cap : how many objects are kept at once.

    Examples
    --------
    >>> registry = Registry()
    >>> registry.keep(print)
    Handle(kind='builtin_function_or_method', number=1)
    >>> registry.get(1) is print, len(registry)
    (True, 1)
    """

    def __init__(self, cap: int = 10_000):
        self.cap = cap
        self._objects = {}
        self._numbers = {}
        self._last = 0

    def __len__(self):
        return len(self._objects)

    def keep(self, value: object) -> Handle:
        """Keep an object, if it is not kept yet.

        Returns
        -------
        its handle.

        Raises
        ------
        CodecError : the registry is full.
        """
        number = self._numbers.get(id(value))
        if number is None:
            if len(self._objects) >= self.cap:
                raise CodecError(f"{self.cap} objects are kept already: drop some, or send plain values")
            self._last = number = self._last + 1
            self._objects[number] = value
            self._numbers[id(value)] = number
        return Handle(kind_name(value), number)

    def get(self, number: int) -> object:
        """The object with this number.

        Raises
        ------
        CodecError : there is none.
        """
        if type(number) is not int or number not in self._objects:
            raise CodecError("no object is kept under this number")
        return self._objects[number]

    @property
    def last(self) -> int:
        """The number that was given last."""
        return self._last

    def retire(self, after: int, successor: object) -> None:
        """Let another object take the place of all with a number above ``after``."""
        for number in [number for number in self._objects if number > after]:
            self._numbers.pop(id(self._objects[number]), None)
            self._objects[number] = successor

    def drop(self, number: int) -> None:
        """Forget the object with this number; nothing happens if there is none."""
        if number in self._objects:
            self._numbers.pop(id(self._objects.pop(number)), None)


@lru_cache(maxsize=8)
def _bound(digits):
    """The first int with more digits, and the most bytes that a smaller one takes."""
    bound = 10**digits
    return bound, (bound.bit_length() + 8) // 8


def crowded(keys):
    """Whether so many keys share one hash that building a dict of them would take quadratic time."""
    if len(keys) <= _SAME_HASH:
        return False
    hashes = sorted(map(hash, keys))
    return any(a == b for a, b in zip(hashes, hashes[_SAME_HASH:], strict=False))


def _room(shape, itemsize):
    """The bytes of an array, a dimension of 0 taken for 1, so that no product of dimensions overflows."""
    size = itemsize
    for d in shape:
        size *= max(d, 1)
    return size


def _torch():
    """The module, if this process has imported it already."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "nn") else None


class _Writer:
    def __init__(self, bounds):
        self.bounds = bounds
        self.parts, self.size, self.items = [], 0, bounds.items
        self.path = set()  # ids of the containers around the value that is being written

    def refuse(self, value, why):
        raise CodecError(f"cannot send a value of type {kind_name(value)}: {why}")

    def put(self, value, *parts):
        for part in parts:
            self.size += len(part)
        if self.size > self.bounds.bytes:
            self.refuse(value, f"the message would be longer than {self.bounds.bytes} bytes")
        self.parts.extend(parts)

    def put_text(self, value, tag, data):
        if len(data) > self.bounds.bytes:
            self.refuse(value, f"the message would be longer than {self.bounds.bytes} bytes")
        self.put(value, tag, _length.pack(len(data)), data)

    def write(self, value, key=False):
        self.items -= 1
        if self.items < 0:
            self.refuse(value, f"the message would have more than {self.bounds.items} values")
        kind = type(value)
        if value is None:
            self.put(value, b"N")
        elif kind is bool:
            self.put(value, b"T" if value else b"F")
        elif kind is int:
            bound, _ = _bound(self.bounds.digits)
            if not -bound < value < bound:
                self.refuse(value, f"it has more than {self.bounds.digits} digits")
            n = (value.bit_length() + 8) // 8
            self.put(value, b"i", _length.pack(n), value.to_bytes(n, "little", signed=True))
        elif kind is float:
            self.put(value, b"f", _float.pack(value))
        elif kind is str:
            self.put_text(value, b"s", value.encode("utf-8", "surrogatepass"))
        elif kind is list and not key:
            members = tuple(value)
            self.container(value, b"l", members, len(members), False)
        elif kind is tuple:
            self.container(value, b"t", value, len(value), key)
        elif kind is dict and not key:
            pairs = tuple(value.items())  # one step of the interpreter: no other thread changes it halfway
            self.container(value, b"d", [x for pair in pairs for x in pair], len(pairs), False, keys=True)
            self.spread(value, [k for k, _ in pairs])
        elif (kind is set and not key) or kind is frozenset:
            members = tuple(value)
            self.container(value, b"S" if kind is set else b"Z", members, len(members), True)
            self.spread(value, members)
        elif kind is bytes:
            self.put_text(value, b"b", value)
        elif kind is complex:
            self.put(value, b"c", _complex.pack(value.real, value.imag))
        elif value is Ellipsis:
            self.put(value, b"E")
        elif kind is np.str_:
            self.put_text(value, b"u", str.encode(value, "utf-8", "surrogatepass"))
        elif kind is np.bytes_:
            self.put_text(value, b"y", bytes.__getitem__(value, slice(None)))
        elif id(kind) in _SCALARS:
            self.put(value, b"n", _SCALARS[id(kind)], value.tobytes())
        elif key:
            self.refuse(value, "only plain hashable values are sent as keys and members; convert it, e.g. to a str")
        elif kind is slice:
            self.container(value, b":", (value.start, value.stop, value.step), None, False)
        elif not (self.array(value) if kind is np.ndarray else self.tensor(value)):
            self.refuse(value, "it is not a plain value")

    def container(self, value, tag, inside, n, key, keys=False):
        if id(value) in self.path:
            self.refuse(value, "it contains itself; send a copy without the cycle")
        if len(self.path) >= self.bounds.depth:
            self.refuse(value, f"containers are nested deeper than {self.bounds.depth}")
        if n is not None and n > self.items:
            self.refuse(value, f"the message would have more than {self.bounds.items} values")
        self.put(value, tag, b"" if n is None else _length.pack(n))
        self.path.add(id(value))
        for i, x in enumerate(inside):
            self.write(x, key or (keys and i % 2 == 0))
        self.path.discard(id(value))

    def spread(self, value, keys):
        """Called when the keys are written, so that all are plain and no hash is a stranger's code."""
        if crowded(keys):
            self.refuse(value, f"more than {_SAME_HASH} of its keys or members have one hash")

    def sized(self, value, shape, itemsize):
        if len(shape) > _DIMENSIONS:
            self.refuse(value, f"it has more than {_DIMENSIONS} dimensions")
        if _room(shape, itemsize) > self.bounds.array_bytes:
            self.refuse(value, f"it is larger than {self.bounds.array_bytes} bytes (a dimension of 0 counts as 1)")
        return bytes([len(shape)]) + b"".join(map(_length.pack, shape))

    def array(self, value):
        dtype = value.dtype
        code = (dtype.str[0] + dtype.char).encode()
        if code in (b"|S", b"<U", b">U") and dtype.itemsize:
            code += _length.pack(dtype.itemsize // np.dtype(f"{dtype.char}1").itemsize)
        elif code not in _DTYPES:
            return False
        dimensions = self.sized(value, value.shape, dtype.itemsize)
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        self.put(value, b"a", code, order.encode(), dimensions, value.tobytes(order))
        return True

    def tensor(self, value):
        torch = _torch()
        parameter = torch is not None and type(value) is torch.nn.Parameter
        if torch is None or not (parameter or type(value) is torch.Tensor):
            return False
        letter = next((c for c, name in _TENSORS.items() if value.dtype is getattr(torch, name)), None)
        if letter is None or value.layout is not torch.strided or value.is_meta:
            return False
        try:
            dimensions = self.sized(value, tuple(value.shape), value.element_size())
            plain = value.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
            plain = plain.clone(memory_format=torch.contiguous_format)
            data = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        except RuntimeError:  # nested, or without memory of its own, as inside a functional transform
            return False
        flags = bytes([value.requires_grad + 2 * parameter])
        self.put(value, b"x", letter.encode(), flags, dimensions, data)
        return True


def encode(value: object, bounds: Bounds = _USUAL) -> bytes:
    """Write a value as a message.

    An object that two places of the value share is sent twice. An array or a tensor is sent as its elements: views,
    strides and history are not kept.

    Parameters
    ----------
    value : what to send.
    bounds : what it may hold.

    Returns
    -------
    the message.

    Raises
    ------
    CodecError : what cannot be sent, and why.

    Examples
    --------
    >>> encode([1, True])
    b'R1l\\x00\\x00\\x00\\x02i\\x00\\x00\\x00\\x01\\x01T'
    >>> encode(10**5000)
    Traceback (most recent call last):
    ...
    nbreferee.rpc.codec.CodecError: cannot send a value of type int: it has more than 4300 digits
    """
    writer = _Writer(bounds)
    try:
        writer.put(value, _MAGIC)
        writer.write(value)
        return b"".join(writer.parts)
    except (RecursionError, MemoryError) as error:
        raise CodecError(f"cannot send a value of type {kind_name(value)}: {_exhausted(error)}") from None


def _exhausted(error):
    return "the memory is exhausted" if isinstance(error, MemoryError) else "the interpreter's stack is nearly full"


class _Reader:
    def __init__(self, data, bounds):
        self.data, self.view, self.bounds = data, memoryview(data), bounds
        self.at, self.size, self.items = 0, len(data), bounds.items

    def fail(self, at, why):
        raise CodecError(f"malformed at byte {at}: {why}")

    def skip(self, n):
        """Go over the next ``n`` bytes, and return where they begin."""
        at, end = self.at, self.at + n
        if end > self.size:
            self.fail(at, f"{n} bytes are announced, {self.size - at} are left")
        self.at = end
        return at

    def take(self, n):
        at, end = self.at, self.at + n
        if end > self.size:
            self.skip(n)
        self.at = end
        return self.data[at:end]

    def length(self):
        return int.from_bytes(self.take(4), "big")

    def read(self, depth=0, key=False):
        at = self.at
        self.items -= 1
        if self.items < 0:
            self.fail(at, f"more than {self.bounds.items} values")
        tag = self.take(1)
        if key and tag in b"lSd:ax":
            self.fail(at, "this type can be no key and no member of a set")
        reader = _READERS.get(tag)
        if reader is None:
            self.fail(at, "no type has this letter")
        return reader(self, at, depth, key)

    def integer(self, at, depth, key):
        bound, most = _bound(self.bounds.digits)
        n = self.length()
        if n > most:
            self.fail(at, f"an int of more than {self.bounds.digits} digits")
        value = int.from_bytes(self.take(n), "little", signed=True)
        if n != (value.bit_length() + 8) // 8:
            self.fail(at, "an int that is not written in its one way")
        if not -bound < value < bound:
            self.fail(at, f"an int of more than {self.bounds.digits} digits")
        return value

    def text(self, at, depth, key):
        data = self.take(self.length())
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            self.fail(at + 5 + error.start, "no UTF-8")

    def inside(self, at, depth, key, per=1, n=None):
        """The values of a container, of which there are ``n`` times ``per``."""
        if depth >= self.bounds.depth:
            self.fail(at, f"containers are nested deeper than {self.bounds.depth}")
        n = per * (self.length() if n is None else n)
        if n > min(self.items, self.size - self.at):
            self.fail(at, f"{n} values are announced, {self.size - self.at} bytes and {self.items} values are left")
        return [self.read(depth + 1, key or (per == 2 and i % 2 == 0)) for i in range(n)]

    def distinct(self, at, keys, built):
        if len(built) != len(keys):
            self.fail(at, "a key or a member stands twice")
        return built

    def hashable(self, at, keys):
        if crowded(keys):
            self.fail(at, f"more than {_SAME_HASH} keys or members have one hash")
        return keys

    def set_(self, at, depth, key):
        members = self.hashable(at, self.inside(at, depth, True))
        return self.distinct(at, members, set(members))

    def frozenset_(self, at, depth, key):
        return frozenset(self.set_(at, depth, key))

    def dict_(self, at, depth, key):
        flat = self.inside(at, depth, False, per=2)
        keys = self.hashable(at, flat[::2])
        return self.distinct(at, keys, dict(zip(keys, flat[1::2], strict=True)))

    def scalar(self, at, depth, key):
        dtype = _NATIVE.get(self.take(2))
        if dtype is None:
            self.fail(at + 1, "no dtype of a scalar")
        return self.elements(dtype, (), "C")[()]

    def dtype(self):
        at = self.at
        code = self.take(2)
        if code in (b"|S", b"<U", b">U"):
            n = self.length()
            if not 1 <= n <= min(self.bounds.array_bytes, 2**31 - 1) // (4 if b"U" in code else 1):
                self.fail(at, "a dtype of no characters, or of more than an array may hold")
            return np.dtype(f"{code.decode()}{n}")
        if code not in _DTYPES:
            self.fail(at, "no dtype that is sent")
        return _DTYPES[code]

    def dimensions(self, itemsize):
        at = self.at
        n = self.take(1)[0]
        if n > _DIMENSIONS:
            self.fail(at, f"an array of more than {_DIMENSIONS} dimensions")
        shape = struct.unpack(f">{n}I", self.take(4 * n))
        if _room(shape, itemsize) > self.bounds.array_bytes:
            self.fail(at, f"an array larger than {self.bounds.array_bytes} bytes")
        return shape

    def elements(self, dtype, shape, order):
        """An array of its own memory. Bytes that are no element of the dtype are refused: NumPy would trust them."""
        at = self.skip(dtype.itemsize * math.prod(shape))
        data = self.view[at : self.at]
        if dtype.char == "?" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
            self.fail(at, "a truth value that is neither 0 nor 1")
        if dtype.char == "U":
            points = np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder))
            if points.max(initial=0) > sys.maxunicode:
                self.fail(at, "a character beyond Unicode")
        return np.ndarray(shape, dtype, buffer=data, order=order).copy(order)

    def array(self, at, depth, key):
        dtype = self.dtype()
        order = self.take(1)
        if order not in (b"C", b"F"):
            self.fail(self.at - 1, "an order that is neither C nor F")
        shape = self.dimensions(dtype.itemsize)
        value = self.elements(dtype, shape, order.decode())
        if order == b"F" and value.flags.c_contiguous:
            self.fail(at, "an array in Fortran order that is in C order too")
        return value

    def tensor(self, at, depth, key):
        torch = _torch()
        if torch is None:
            self.fail(at, "a tensor, but torch is not imported in this process")
        letter, flags = self.take(1).decode("latin-1"), self.take(1)[0]
        if letter not in _TENSORS:
            self.fail(at + 1, "no dtype of a tensor that is sent")
        if flags > 3 or (flags & 1 and letter not in _DIFFERENTIABLE):
            self.fail(at + 2, "flags that no tensor of this dtype has")
        dtype = getattr(torch, _TENSORS[letter])
        shape = self.dimensions(dtype.itemsize)
        raw = self.elements(np.dtype("?" if letter == "?" else "u1"), (dtype.itemsize * math.prod(shape),), "C")
        value = torch.empty(shape, dtype=dtype, device="cpu")
        if raw.size:
            value.view(-1).view(torch.uint8).numpy()[:] = raw.view(np.uint8)
        if flags & 2:
            return torch.nn.Parameter(value, requires_grad=bool(flags & 1))
        return value.requires_grad_(bool(flags & 1))


_READERS = {
    b"N": lambda r, at, depth, key: None,
    b"T": lambda r, at, depth, key: True,
    b"F": lambda r, at, depth, key: False,
    b"E": lambda r, at, depth, key: Ellipsis,
    b"i": _Reader.integer,
    b"f": lambda r, at, depth, key: _float.unpack(r.take(8))[0],
    b"c": lambda r, at, depth, key: complex(*_complex.unpack(r.take(16))),
    b"s": _Reader.text,
    b"b": lambda r, at, depth, key: r.take(r.length()),
    b"l": lambda r, at, depth, key: r.inside(at, depth, False),
    b"t": lambda r, at, depth, key: tuple(r.inside(at, depth, key)),
    b"S": _Reader.set_,
    b"Z": _Reader.frozenset_,
    b"d": _Reader.dict_,
    b":": lambda r, at, depth, key: slice(*r.inside(at, depth, False, n=3)),
    b"u": lambda r, at, depth, key: np.str_(r.text(at, depth, key)),
    b"y": lambda r, at, depth, key: np.bytes_(r.take(r.length())),
    b"n": _Reader.scalar,
    b"a": _Reader.array,
    b"x": _Reader.tensor,
}


def decode(data: bytes, bounds: Bounds = _USUAL) -> object:
    """Read a message back into a value.

    A str may hold lone surrogates, which most files and databases refuse: before it is written anywhere, encode it with
    ``errors="backslashreplace"``.

    Parameters
    ----------
    data : the message, from anywhere.
    bounds : what it may hold.

    Returns
    -------
    the value; every array and tensor in it has memory of its own and can be written to.

    Raises
    ------
    CodecError : the bytes are no message, or too large a one. It tells the position.

    Examples
    --------
    >>> decode(encode({"mean": 0.5, "shape": (2, 3)}))
    {'mean': 0.5, 'shape': (2, 3)}
    >>> decode(b"R1l\\xff\\xff\\xff\\xff")
    Traceback (most recent call last):
    ...
    nbreferee.rpc.codec.CodecError: malformed at byte 2: 4294967295 values are announced, 0 bytes and 199999 values are left
    """  # noqa: E501
    if len(data) > bounds.bytes:
        raise CodecError(f"malformed at byte {bounds.bytes}: the message is longer than {bounds.bytes} bytes")
    reader = _Reader(bytes(data), bounds)
    try:
        if reader.take(len(_MAGIC)) != _MAGIC:
            reader.fail(0, "a message begins with R1")
        value = reader.read()
    except (RecursionError, MemoryError) as error:
        raise CodecError(f"malformed at byte {reader.at}: {_exhausted(error)}") from None
    if reader.at != len(reader.data):
        reader.fail(reader.at, "the message goes on after its value")
    return value
