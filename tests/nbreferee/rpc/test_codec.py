"""What a grading process and a student's process say to each other: exact values, and nothing else whatever is sent."""

import math
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from nbreferee.course.run import Round
from nbreferee.intake.answers import Answers
from nbreferee.judge.job import ANSWER, TEST, Job, Step
from nbreferee.judge.results import LEFT_OUT, CellResult, Result, TestResult
from nbreferee.rpc.codec import Bounds, CodecError, Handle, Registry, decode, encode
from nbreferee.rpc.framing import Channel, Garbage, PeerClosed, TimedOut, TooLong, WireError
from nbreferee.walls.sandbox import SandboxError
from nbreferee.workers import process as work
from nbreferee.workers.message import MessageError, Request, read_reply, read_request, write_reply, write_request

NUMERIC = "?bBhHiIlLqQefdFD"
TENSORS = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), list, tuple, set, frozenset, dict, slice)
LISTED = {*PLAIN, np.str_, np.bytes_, np.ndarray, torch.Tensor, torch.nn.Parameter}
LISTED |= {np.dtype(letter).type for letter in NUMERIC}


def sign(x):
    return math.copysign(1.0, x)


def same_float(a, b):
    return (math.isnan(a) and math.isnan(b)) or (a == b and sign(a) == sign(b))


def same(a, b):
    """Equal in type and value, everywhere: NaN equals NaN, -0.0 is not 0.0, True is not 1, an order of keys counts."""
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return same_float(a, b)
    if type(a) is complex:
        return same_float(a.real, b.real) and same_float(a.imag, b.imag)
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) in (set, frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if type(a) is dict:
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if type(a) is slice:
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if type(a) is np.ndarray:
        order = a.flags.f_contiguous and not a.flags.c_contiguous
        return (
            (a.dtype, a.dtype.char, a.dtype.str, a.shape) == (b.dtype, b.dtype.char, b.dtype.str, b.shape)
            and order == (b.flags.f_contiguous and not b.flags.c_contiguous)
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, np.generic) and type(a) not in (np.str_, np.bytes_):
        return a.dtype.char == b.dtype.char and a.tobytes() == b.tobytes()
    if type(a) in (torch.Tensor, torch.nn.Parameter):
        return (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad) and bits(a) == bits(b)
    if type(a) is np.str_:
        return str.__eq__(a, b)
    return a == b


def bits(tensor):
    return bytes(np.ravel(tensor.detach().reshape(-1, 1).clone().view(torch.uint8).numpy())) if tensor.numel() else b""


def listed(value):
    """Whether a value consists of the types of the table and nothing else."""
    if type(value) not in LISTED:
        return False
    if type(value) is np.ndarray:
        return value.dtype.char in NUMERIC + "SU" and value.flags.writeable and value.flags.aligned
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return value.dtype in TENSORS
    if type(value) is slice:
        return all(map(listed, (value.start, value.stop, value.step)))
    if type(value) is dict:
        return all(map(listed, value)) and all(map(listed, value.values()))
    return all(map(listed, value)) if type(value) in (list, tuple, set, frozenset) else True


def message(body):
    return b"R1" + body


def n4(n):
    return struct.pack(">I", n)


def text(tag, data):
    return tag + n4(len(data)) + data


def refuses(data, at, words, **options):
    """The reader says so, in one line, and names the byte."""
    with pytest.raises(CodecError) as error:
        decode(data, **options)
    told = str(error.value)
    assert told.startswith(f"malformed at byte {at}: ") and words in told and "\n" not in told, told


def cannot_send(value, words, **options):
    with pytest.raises(CodecError) as error:
        encode(value, **options)
    told = str(error.value)
    assert told.startswith("cannot send a value of type ") and words in told and "\n" not in told, told


# ---------------------------------------------------------------------------------------------- values that come back


class Lies(str):
    """Equal to everything."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, Ellipsis, 0, 1, -1, 127, 128, -128, -129, 255, 256, 10**4299, -(10**4300) + 1),
        *(0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, complex(-0.0, math.nan), complex(math.inf, -0.0)),
        *("", "a\0b\n", "\N{GRINNING FACE}", "\ud83d", "\ud83d\ude00", b"", b"\0\xff"),
        *([], (), set(), frozenset(), {}, [[], ()], {1: 2, "b": [3], "a": None}, {(1, (b"x",)): {2.5}, None: ...}),
        *({frozenset({1, frozenset()}), (True, -0.0)}, {math.nan: 1, float("nan"): 2}, {np.float64(2): np.int8(3)}),
        *(slice(None), slice(1, -1, 2), [slice(np.int64(3), None), ...]),
        *(np.str_("a\0"), np.str_(""), np.str_("\ud800"), np.bytes_(b"a\0"), np.bytes_(b"")),
        *(np.array(["", "ab\0c"]), np.array([b"x", b"yz"]), np.array("\N{GRINNING FACE}x", dtype=">U2")),
    ],
    ids=lambda v: f"{type(v).__name__}",
)
def test_a_value_comes_back_with_its_type(value):
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize("letter", NUMERIC)
def test_arrays_and_scalars_of_each_dtype(letter, rng):
    raw = rng.integers(0, 2, 24 * np.dtype(letter).itemsize, np.uint8)
    raw = raw if letter == "?" else raw * 255
    whole = np.frombuffer(raw.tobytes(), letter).reshape(2, 3, 4)
    for array in (
        whole,
        whole.astype(whole.dtype.newbyteorder(">")),
        np.asfortranarray(whole),
        whole[:, ::2, ::-1],
        whole.T,
        whole[0, 0, 0:0],
        whole[:0].T,
        whole[1, 2, 3].reshape(()),
        np.broadcast_to(whole[0, 0], (5, 4)),
        whole.reshape((1,) * 61 + whole.shape),
    ):
        back = decode(encode(array))
        if array.flags.c_contiguous or array.flags.f_contiguous:
            assert same(back, array)
        else:
            assert same(back, np.ascontiguousarray(array))
        assert listed(back) and not np.shares_memory(back, array)
    scalar = whole[1, 2, 3]
    assert type(scalar) is np.dtype(letter).type and same(decode(encode(scalar)), scalar)


@pytest.mark.parametrize("dtype", TENSORS, ids=str)
def test_tensors_of_each_dtype(dtype):
    whole = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for tensor in (whole, whole.mT, whole[:, ::2], whole[0, 0, :0], whole[1, 1, 1], whole[:1, :1, :1].expand(2, 2, 2)):
        assert same(decode(encode(tensor)), tensor)
    if dtype.is_floating_point or dtype.is_complex:
        assert same(decode(encode(whole.clone().requires_grad_())), whole.clone().requires_grad_())
        for flag in (False, True):
            parameter = torch.nn.Parameter(whole, requires_grad=flag)
            assert same(decode(encode(parameter)), parameter)


def test_the_bytes_of_one_entry_do_not_depend_on_its_stride():
    torch = pytest.importorskip("torch")
    from nbreferee.rpc import torch_values

    rows = torch.arange(10.0).reshape(2, 5)
    one = rows.T[1:2, :1]  # one entry, with a stride of 5
    assert torch_values._bytes(one) == torch_values._bytes(torch.tensor([1.0])) != torch_values._bytes(rows[:1, :1])


def test_a_tensor_is_sent_without_its_history():
    x = torch.ones(3, requires_grad=True)
    back = decode(encode([x * 2, torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag]))
    assert back[0].requires_grad and back[0].is_leaf and back[0].tolist() == [2, 2, 2]
    assert back[1].tolist() == [1 - 2j] and back[2].tolist() == [-2]
    back[0].detach()[0] = 7


def test_what_shares_nothing_of_a_message_can_be_written_to():
    data = encode([np.zeros(3), np.zeros(3)])
    first, second = decode(data)
    first += 1
    assert second.sum() == 0 and decode(data)[0].sum() == 0


def test_torch_is_never_imported():
    code = (
        "import sys; from nbreferee.rpc.codec import *\n"
        "try: decode(bytes.fromhex(sys.argv[1]))\n"
        "except CodecError as e: print(e)\n"
        "try: encode(object)\n"
        "except CodecError: assert 'torch' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code, encode(torch.ones(2)).hex()], capture_output=True, text=True)
    assert out.stdout.strip() == "malformed at byte 2: a tensor, but torch is not imported in this process", out.stderr


KEYS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(), max_size=5)  # surrogates too
    | st.binary(max_size=5)
    | st.just(...)
    | nps.from_dtype(np.dtype("float32"))
    | nps.from_dtype(np.dtype("int64")),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
DTYPES = (
    nps.scalar_dtypes().filter(lambda d: d.char in NUMERIC) | nps.unicode_string_dtypes() | nps.byte_string_dtypes()
)
ARRAYS = nps.arrays(DTYPES, nps.array_shapes(min_dims=0, min_side=0, max_side=3))
VALUES = st.recursive(
    KEYS | ARRAYS | ARRAYS.map(np.asfortranarray) | st.builds(slice, KEYS, KEYS, KEYS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(VALUES)
@settings(max_examples=150)
def test_any_value_comes_back(value):
    data = encode(value)
    back = decode(data)
    assert same(back, value) and listed(back)


# ------------------------------------------------------------------------------------ everything else stays where it is

Point = namedtuple("Point", "x y")


class Meta(type):
    """A type that lies about its name and cannot be hashed or compared."""

    __name__ = property(lambda cls: "str")

    def __hash__(cls):
        raise SystemExit

    def __eq__(cls, other):
        raise SystemExit


class Odd(metaclass=Meta):
    __class__ = str

    def __repr__(self):
        raise SystemExit


OPAQUE = [
    print,
    lambda: None,
    object(),
    Lies("5"),
    Odd(),
    np,
    int,
    Point(1, 2),
    OrderedDict(a=1),
    type("I", (int,), {})(3),
    type("F", (float,), {})(3),
    type("L", (list,), {})(),
    range(3),
    bytearray(b"x"),
    np.ma.masked_array([1, 2], [0, 1]),
    np.array([object()]),
    np.zeros(2, [("a", "i4")]),
    np.array(["2020-01-01"], "M8[D]"),
    np.datetime64("2020"),
    np.longdouble(1),
    np.zeros(2, "g"),
    np.array(["a"], np.dtypes.StringDType()),
    np.float64,
    np.zeros(2).flags,
    torch.zeros(2, 2).to_sparse(),
    torch.zeros(2, device="meta"),
    torch.zeros(2, dtype=torch.float8_e5m2),
    torch.nn.Linear(1, 1),
    torch.Size([1]),
]


@pytest.mark.parametrize("value", OPAQUE, ids=lambda v: type.__dict__["__name__"].__get__(type(v)))
def test_anything_else_stays_where_it_is(value):
    cannot_send([value], "not a plain value")
    registry = Registry()
    handle = registry.keep(value)
    assert handle == Handle(type.__dict__["__name__"].__get__(type(value)), 1) == registry.keep(value)
    assert registry.get(1) is value and len(registry) == 1


def test_a_tensor_inside_a_transform_is_opaque():
    seen = []

    def inside(x):
        cannot_send(x, "not a plain value")
        seen.append(type(x))
        return x

    torch.func.vmap(inside)(torch.ones(2))
    assert seen == [torch.Tensor]  # once, for both rows


@pytest.mark.parametrize("name", ["", "a\nb", "<b>", "=1+1", "x" * 999, "\N{GREEK SMALL LETTER ALPHA}"])
def test_names_of_types_are_cleaned(name):
    value = type(name, (), {})()
    assert re.fullmatch(r"[A-Za-z0-9_.?]{1,80}", Registry().keep(value).kind)
    with pytest.raises(CodecError) as error:
        encode(value)
    assert str(error.value).isascii() and str(error.value).isprintable() and len(str(error.value)) < 250


def test_a_registry_is_bounded_and_never_reuses_a_number():
    registry = Registry(cap=2)
    a, b, c = object(), object(), object()
    assert [registry.keep(each).number for each in (a, b, a)] == [1, 2, 1]
    with pytest.raises(CodecError, match="2 objects are kept already"):
        registry.keep(c)
    registry.drop(1)
    registry.drop(1)
    with pytest.raises(CodecError):
        registry.get(1)
    assert registry.keep(c).number == 3 and registry.keep(b).number == 2
    for wrong in (0, 1, -1, True, 2.0, "2", None):
        with pytest.raises(CodecError):
            registry.get(wrong)


# -------------------------------------------------------------------------------------------------- what is not written


def nested(depth, wrap=lambda x: [x]):
    value = None
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.slow
def test_the_writer_refuses():
    cycle = [1]
    cycle.append({"a": (cycle,)})
    cannot_send(cycle, "it contains itself; send a copy without the cycle")
    for wrap in (lambda x: [x], lambda x: (x,), lambda x: {1: x}, lambda x: frozenset([x]), lambda x: slice(x)):
        assert same(decode(encode(nested(64, wrap))), nested(64, wrap))
        cannot_send(nested(65, wrap), "nested deeper than 64")
    cannot_send(nested(100_000), "nested deeper than 64")
    doubling = nested(50, lambda x: [x, x])
    cannot_send(doubling, "more than 200000 values")
    cannot_send([0] * 10**6, "more than 200000 values")
    assert decode(encode([None] * 199_999)) == [None] * 199_999
    cannot_send(10**4300, "more than 4300 digits")
    cannot_send(-(10**4300), "more than 4300 digits")
    cannot_send("x" * 101, "longer than 100 bytes", bounds=Bounds(bytes=100))
    cannot_send([b"x" * 50] * 2, "longer than 100 bytes", bounds=Bounds(bytes=100))
    cannot_send(np.broadcast_to(1.0, (10**6, 10**6)), "larger than")  # without making it
    cannot_send(torch.ones(1).expand(10**6, 10**6), "larger than")
    cannot_send(np.empty((0, 10**9)), "larger than")
    cannot_send({i * (2**61 - 1) for i in range(100)}, "one hash")
    for key in (print, Point(1, 2), Lies("a"), torch.ones(1), (1, print), np.datetime64("2020")):
        cannot_send({key: 1}, "keys and members")
        cannot_send({key}, "keys and members")


def test_a_hash_of_a_stranger_is_not_asked_for():
    class Bomb:
        armed = False

        def __hash__(self):
            assert not self.armed
            return 1

    keys = [Bomb() for _ in range(200)]
    table = dict.fromkeys(keys)
    Bomb.armed = True
    cannot_send(table, "keys and members")


@pytest.mark.parametrize("bad", [{"depth": 0}, {"depth": 201}, {"items": 2.0}, {"bytes": True}, {"digits": -1}])
def test_limits_are_checked(bad):
    with pytest.raises(CodecError, match=next(iter(bad))):
        Bounds(**bad)


def test_a_full_stack_is_an_error_of_the_codec():
    value, data = nested(60), encode(nested(60))

    limit = sys.getrecursionlimit()
    depth = len_of_stack()
    try:
        sys.setrecursionlimit(depth + 40)
        for do in (lambda: encode(value), lambda: decode(data)):
            with pytest.raises(CodecError, match="stack is nearly full"):
                do()
    finally:
        sys.setrecursionlimit(limit)


def len_of_stack():
    frame, n = sys._getframe(), 0
    while frame:
        frame, n = frame.f_back, n + 1
    return n


# ----------------------------------------------------------------------------------------------------- what is not read

ONE = text(b"i", b"\1")
MANY = b"\xff\xff\xff\xff"
COLLIDING = [encode(i * (2**61 - 1))[2:] for i in range(1, 101)]


def array(dtype, order, shape, data, tail=b""):
    return b"a" + dtype + tail + order + bytes([len(shape)]) + b"".join(map(n4, shape)) + data


@pytest.mark.parametrize(
    "body, at, words",
    [
        (b"", 2, "1 bytes are announced, 0 are left"),
        (b"?", 2, "no type"),
        (b"\x80\x04.", 2, "no type"),
        (b"NN", 3, "goes on"),
        # lengths that are only claimed
        *((tag + MANY, 2, "values are announced") for tag in (b"l", b"t", b"S", b"Z", b"d")),
        *((tag + MANY + b"xy", 7, "bytes are announced, 2 are left") for tag in (b"s", b"b", b"u", b"y")),
        (b"i" + MANY, 2, "digits"),
        (b"l" + n4(3) + b"NN", 2, "3 values are announced, 2 bytes"),
        (b"d" + n4(2) + b"NNN", 2, "4 values are announced, 3 bytes"),
        # bombs
        *((tag * 100_000, None, "deeper") for tag in (b"l\0\0\0\1", b"t\0\0\0\1", b"Z\0\0\0\1", b":", b"d\0\0\0\1N")),
        (b"l" + n4(200_000) + b"N" * 200_000, 2, "199999 values are left"),
        # second ways of writing
        (text(b"i", b""), 2, "one way"),
        (text(b"i", b"\1\0"), 2, "one way"),
        (text(b"i", b"\xff\xff"), 2, "one way"),
        (text(b"i", b"\x80"), 2, "one way"),
        (text(b"i", (10**4300).to_bytes(1786, "little")), 2, "digits"),
        (text(b"s", b"ab\xff"), 9, "UTF-8"),
        (text(b"s", b"\xc0\x80"), 7, "UTF-8"),
        (text(b"u", b"\xf4\x90\x80\x80"), 7, "UTF-8"),
        # keys
        (b"d" + n4(2) + ONE + b"N" + ONE + b"N", 2, "twice"),
        (b"d" + n4(2) + ONE + b"NTN", 2, "twice"),
        (b"S" + n4(2) + ONE + b"T", 2, "twice"),
        (b"Z" + n4(2) + b"NN", 2, "twice"),
        (b"S" + n4(2) + b"f" + bytes(8) + b"f" + bytes(7) + b"\x80", 2, "twice"),
        *((b"d" + n4(1) + k + bytes(9), 7, "no key") for k in (b"l", b"d", b"S", b"a", b"x", b":")),
        (b"S" + n4(1) + b"l" + n4(0), 7, "no key"),
        (b"d" + n4(1) + b"t" + n4(1) + b"l" + n4(0) + b"N", 12, "no key"),
        (b"S" + n4(100) + b"".join(COLLIDING), 2, "one hash"),
        (b"d" + n4(100) + b"".join(k + b"N" for k in COLLIDING), 2, "one hash"),
        # arrays
        (array(b"|O", b"C", (1,), bytes(8)), 3, "no dtype"),
        (array(b"|V", b"C", (1,), bytes(8), n4(8)), 3, "no dtype"),
        (array(b"<M", b"C", (1,), bytes(8)), 3, "no dtype"),
        (array(b"<g", b"C", (1,), bytes(16)), 3, "no dtype"),
        (array(b"=d", b"C", (1,), bytes(8)), 3, "no dtype"),
        (array(b"<b", b"C", (1,), bytes(1)), 3, "no dtype"),
        (array(b"<S", b"C", (1,), bytes(1), n4(1)), 3, "no dtype"),
        (array(b"|S", b"C", (1,), b"", n4(0)), 3, "no characters"),
        (array(b"<U", b"C", (1,), b"", MANY), 3, "no characters"),
        (array(b"<d", b"A", (1,), bytes(8)), 5, "neither C nor F"),
        (array(b"<d", b"F", (3,), bytes(24)), 2, "C order too"),
        (array(b"<d", b"F", (1, 3), bytes(24)), 2, "C order too"),
        (array(b"<d", b"C", (2**32 - 1,) * 64, b""), 6, "larger"),
        (array(b"<d", b"C", (0, 2**32 - 1, 2**32 - 1), b""), 6, "larger"),
        (array(b"<d", b"C", (1,) * 65, bytes(8)), 6, "64 dimensions"),
        (array(b"<d", b"C", (2**20,), b""), 11, "8388608 bytes are announced"),
        (array(b"|?", b"C", (2,), b"\1\2"), 11, "neither 0 nor 1"),
        (array(b"<U", b"C", (1,), b"\0\0\x11\0", n4(1)), 15, "beyond Unicode"),
        (array(b">U", b"C", (1,), b"\0\x11\0\0", n4(1)), 15, "beyond Unicode"),
        # scalars
        (b"n|O" + bytes(8), 3, "no dtype of a scalar"),
        (b"n>d" + bytes(8), 3, "no dtype of a scalar"),
        (b"n|?\2", 5, "neither 0 nor 1"),
        (b"n<d" + bytes(7), 5, "8 bytes are announced, 7 are left"),
        # tensors
        (b"xO\0\0" + bytes(8), 3, "no dtype of a tensor"),
        (b"x\xff\0\0" + bytes(8), 3, "no dtype of a tensor"),
        (b"xq\1\0" + bytes(8), 4, "flags"),
        (b"xd\4\0" + bytes(8), 4, "flags"),
        (b"xd\0\x02" + MANY + MANY, 5, "larger"),
        (b"x?\0\0\2", 6, "neither 0 nor 1"),
        # objects, which cross by numbers of another layer
        (b"h" + bytes(7) + b"\1" + text(b"", b"f"), 2, "no type"),
        (b"r" + bytes(7) + b"\1", 2, "no type"),
    ],
)
def test_the_reader_refuses(body, at, words):
    started = time.process_time()
    if words == "deeper":
        with pytest.raises(CodecError, match=r"malformed at byte \d+: containers are nested deeper than 64"):
            decode(message(body))
    else:
        refuses(message(body), at, words)
    assert time.process_time() - started < 1


def test_a_message_has_a_beginning_and_a_limit():
    for data in (b"", b"R", b"R2N", b"\x93NUMPY", b"\x80\x04N."):
        with pytest.raises(CodecError, match="malformed at byte 0"):
            decode(data)
    refuses(message(b"N" * 9), 10, "longer than 10 bytes", bounds=Bounds(bytes=10))
    for kind in (bytearray, memoryview):
        assert decode(kind(encode([1, b"x"]))) == [1, b"x"]
    assert type(decode(bytearray(encode(b"x")))) is bytes


def test_each_cut_of_a_message_is_refused():
    data = encode(
        [{"a": (1, 2.5, 1j)}, {frozenset({1})}, np.eye(2), torch.ones(2), np.int8(1), slice(1), b"x", "\ud800"]
    )
    for n in range(len(data)):
        with pytest.raises(CodecError, match="malformed at byte"):
            decode(data[:n])


def read_or_refuse(data):
    """Whatever comes: a value of the listed types, or the codec's error. What is read can be written, as it was."""
    try:
        value = decode(data)
    except CodecError as error:
        assert "\n" not in str(error) and str(error).isprintable() and len(str(error)) < 250
        return "refused"
    assert listed(value)
    if not any(tag in data for tag in (b"S", b"Z")):
        again = encode(value)
        assert same(decode(again), value) and len(again) == len(data)
    assert repr(value)
    return "read"


TAGS = st.sampled_from([bytes([b]) for b in b"NTFEifcsbltSZduynax:"])
SMALL = st.integers(0, 5).map(n4)
PIECES = (
    TAGS | SMALL | st.binary(max_size=9) | st.sampled_from([b"<d", b"|?", b"<U", b"|S", b"C", b"F", MANY, bytes(8)])
)


@pytest.mark.slow
@given(st.lists(PIECES, max_size=30).map(b"".join) | st.binary(max_size=60))
@settings(max_examples=500)
def test_random_bytes_are_read_or_refused(body):
    whole = read_or_refuse(message(body))
    assert read_or_refuse(message(body) + b"N") == "refused" or whole == "refused"  # nothing may follow a value


@given(st.binary(max_size=30))
@settings(max_examples=50)
def test_random_messages_are_refused(data):
    assert read_or_refuse(data) == "refused" or data[:2] == b"R1"


CORPUS = [
    encode(v)[2:]
    for v in (
        [1, -1.5, 2j, "ab", b"c", None, True, ...],
        {"a": (1, {2, 3}), ("b", 2): frozenset({4})},
        np.asfortranarray(np.eye(2)),
        np.array(["ab", "c"]),
        np.array([True, False]),
        [np.float32(1), np.bool_(True), np.str_("x"), np.bytes_(b"y"), slice(1, None)],
        [torch.ones(2, 2, requires_grad=True), torch.tensor([True]), torch.nn.Parameter(torch.ones(1))],
    )
]


@given(st.data())
@settings(max_examples=500)
def test_damaged_messages_are_read_or_refused(data):
    body = bytearray(data.draw(st.sampled_from(CORPUS)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1)) if body else 0
        change = data.draw(st.sampled_from(["set", "cut", "insert", "copy"]))
        if change == "set" and body:
            body[at] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del body[at : at + data.draw(st.integers(1, 4))]
        elif change == "insert":
            body[at:at] = data.draw(PIECES)
        else:
            body[at:at] = data.draw(st.sampled_from(CORPUS))
    whole = read_or_refuse(message(bytes(body)))
    assert whole == "refused" or read_or_refuse(message(bytes(body[:-1]))) == "refused"  # a part of a value is none


# --------------------------------------------------------------------------------------------------------------- frames


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    channels = Channel(a, limit=1 << 22), Channel(b, limit=1 << 22)
    yield *channels, a, b
    for channel in channels:
        channel.close()


@given(st.lists(st.binary(max_size=200), max_size=5))
@settings(max_examples=30)
@example([b"", b"", b"x"])
def test_messages_arrive_whole_and_in_order(messages):
    here, there = map(Channel, socket.socketpair())
    for m in messages:
        here.send(m, timeout_s=5)
    assert [there.receive(timeout_s=5) for _ in messages] == messages
    with pytest.raises(TimedOut):
        there.receive(timeout_s=0)
    here.close(), there.close()


@pytest.mark.parametrize("pipes", [False, True], ids=["socket", "pipes"])
def test_a_large_message_passes_in_pieces(pipes):
    if pipes:
        (r1, w1), (r2, w2) = os.pipe(), os.pipe()
        here, there = Channel(r1, w2), Channel(open(r2, "rb", buffering=0), open(w1, "wb", buffering=0))
    else:
        here, there = map(Channel, socket.socketpair())
    large = os.urandom(1 << 20) * 3
    thread = threading.Thread(target=lambda: there.send(there.receive(timeout_s=20), timeout_s=20))
    thread.start()
    here.send(large, timeout_s=20)
    assert here.receive(timeout_s=20) == large
    thread.join()
    here.close(), there.close(), here.close()
    with pytest.raises(WireError, match="failed before: it was closed"):
        here.receive(timeout_s=0)


def test_a_peer_that_closes(pair):
    here, there, _, b = pair
    there.send(b"last words", timeout_s=1)
    b.sendall(b"NBR1\0\0\0\5ab")
    b.close()
    assert here.receive(timeout_s=1) == b"last words"
    with pytest.raises(PeerClosed, match="after 10 bytes of a message"):
        here.receive(timeout_s=1)
    with pytest.raises(WireError, match="failed before: the other side has closed"):
        here.receive(timeout_s=1)


def test_a_writer_notices_that_the_peer_is_gone(pair):
    here, _, _, b = pair
    b.close()
    with pytest.raises(PeerClosed, match="closed the connection"):
        here.send(b"x" * (1 << 21), timeout_s=5)


def test_a_peer_that_is_killed():
    here, there = socket.socketpair()
    code = "import os, sys, time; os.write(int(sys.argv[1]), b'NBR1'); os.kill(os.getpid(), 9)"
    fd = there.fileno()
    child = subprocess.Popen([sys.executable, "-c", code, str(fd)], pass_fds=[fd])
    there.close()
    channel = Channel(here)
    with pytest.raises(PeerClosed, match="after 4 bytes"):
        channel.receive(timeout_s=20)
    child.wait()
    channel.close()


def test_what_is_too_long(pair):
    here, _, _, b = pair
    with pytest.raises(TooLong, match="was to be sent; the limit is 4194304"):
        here.send(bytes((1 << 22) + 1), timeout_s=1)
    here.send(b"still usable", timeout_s=1)
    b.sendall(b"NBR1\xff\xff\xff\xff")
    with pytest.raises(TooLong, match="4294967295 bytes is announced; the limit is 4194304"):
        here.receive(timeout_s=1)
    with pytest.raises(WireError, match="failed before"):
        here.send(b"x", timeout_s=1)


def test_what_is_garbage(pair):
    here, _, _, b = pair
    b.sendall(b"Traceback (most recent call last)\n")
    with pytest.raises(Garbage):
        here.receive(timeout_s=1)
    with pytest.raises(WireError, match="failed before"):
        here.receive(timeout_s=1)


def test_a_silent_peer_and_then_a_late_one(pair):
    here, _, _, b = pair
    frame = b"NBR1\0\0\0\3abc"
    for i in range(len(frame)):
        started = time.monotonic()
        with pytest.raises(TimedOut, match=r"no whole message came in 0\.01 s"):
            here.receive(timeout_s=0.01)
        assert 0.01 <= time.monotonic() - started < 2
        b.sendall(frame[i : i + 1])
    assert here.receive(timeout_s=0) == b"abc"


def test_a_peer_that_drips_does_not_win_time(pair):
    here, _, _, b = pair
    stop = threading.Event()

    def drip():
        b.setblocking(True)
        b.sendall(b"NBR1\0\x10\0\0")
        while not stop.wait(0.005):
            b.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    started = time.monotonic()
    with pytest.raises(TimedOut):
        here.receive(timeout_s=0.2)
    stop.set()
    thread.join()
    assert 0.2 <= time.monotonic() - started < 3


def test_a_peer_that_does_not_read(pair):
    here, _, _, _ = pair
    with pytest.raises(TimedOut, match=r"the other side read \d+ of 4000008 bytes in 0\.05 s"):
        here.send(bytes(4_000_000), timeout_s=0.05)
    with pytest.raises(WireError, match="failed before"):
        here.send(b"x", timeout_s=1)


def test_a_full_line_of_which_nothing_was_sent_can_be_tried_again(pair):
    here, there, a, b = pair
    filled = 0
    try:
        while True:
            filled += a.send(bytes(65536))
    except BlockingIOError:
        pass
    with pytest.raises(TimedOut):
        here.send(b"hello", timeout_s=0.01)
    while filled:
        filled -= len(b.recv(min(filled, 65536)))
    here.send(b"hello", timeout_s=1)
    assert there.receive(timeout_s=1) == b"hello"


def test_this_end_is_closed(pair):
    here, there, a, b = pair
    a.close(), b.close()
    with pytest.raises(WireError, match="this end cannot be read from"):
        here.receive(timeout_s=1)
    with pytest.raises(WireError, match="this end cannot be written to"):
        there.send(b"x", timeout_s=1)


def test_wrong_arguments(pair):
    here, *_ = pair
    for timeout in (-1, math.nan):
        with pytest.raises(ValueError, match="timeout_s"):
            here.receive(timeout_s=timeout)
    with pytest.raises(ValueError, match="limit"):
        Channel(0, limit=0)
    here.send(b"x", timeout_s=math.inf)


def test_nothing_is_read_beyond_a_frame(pair):
    here, there, a, _ = pair
    there.send(b"one", timeout_s=1)
    there.send(b"two", timeout_s=1)
    assert here.receive(timeout_s=1) == b"one"
    assert a.recv(100) == b"NBR1\0\0\0\3two"


# ------------------------------------------------------------------------------------------------- requests and replies


def answered(pair, monkeypatch, start):
    """What the supervisor reads of a grading process whose students are started like this."""
    monkeypatch.setattr(work, "_limit_memory", lambda: None)
    here, there, *_ = pair
    job = Job((Step(ANSWER, "f", "def f(): pass"),))
    here.send(write_request(Request(job)), timeout_s=5)
    work.main(there, start)
    return read_reply(here.receive(timeout_s=5), job)


@pytest.mark.parametrize(
    "error", [RecursionError("too\ndeep \ud800"), MemoryError(), KeyError("x"), type("Odd", (BaseException,), {})()]
)
def test_a_grading_process_that_fails_says_why(pair, monkeypatch, error):
    def start():
        raise error

    with pytest.raises(MessageError) as told:
        answered(pair, monkeypatch, start)
    words = str(told.value)
    assert words.startswith(type(error).__name__) and "\n" not in words
    assert words.encode() and ("deep" in words) == isinstance(error, RecursionError)


def test_a_grading_process_that_gets_no_student_ends_and_another_is_tried(pair, monkeypatch):
    def start():
        raise SandboxError("no room")

    with pytest.raises(SandboxError):
        answered(pair, monkeypatch, start)


def test_a_request_is_hardly_longer_than_what_was_submitted():
    """Each source stands in it twice: as what is run, and as what is rendered. Lone surrogates survive."""
    source = "é" * 400_000 + "\ud800"
    job = Job((Step(ANSWER, "f", source),))
    message = write_request(Request(job, answers=Answers({"f": source}, (), (), ())))
    assert len(message) < 2.1 * len(source.encode("utf-8", "surrogatepass"))
    assert read_request(message).job == job


def test_much_printed_text_does_not_take_the_mark():
    emoji = chr(0x1F600) * 20_000
    test = TestResult("t", "passed", 1.0, 1.0, trace="line 1", output=emoji)
    cells = (CellResult("f", "own", "failed", "ValueError", "line 2", emoji),) * 300
    job = Job((Step(TEST, "t", "assert f", 1.0),))
    reply = work.answer(Request(job, result=Result((test,), cells)), None)
    assert len(write_reply(reply)) < 10 << 20
    kept = read_reply(write_reply(reply), job).result
    assert kept.tests == (test,) and kept.cells[0] == cells[0]
    assert kept.cells[-1].output == LEFT_OUT and sum(len(cell.output) for cell in kept.cells) < 2_020_000


def test_the_text_of_a_result_can_be_stored_and_loses_nothing():
    result = Result((TestResult("t", "failed", 0.0, 1.0, "é \ud800 \udfff \\ud800"),))
    assert "é" in result.to_json() and result.to_json().encode()
    assert Result.from_json(result.to_json()) == result


def test_a_submission_that_is_too_large_for_a_request_is_refused_with_the_cure():
    refused, item = [], SimpleNamespace(found=SimpleNamespace(name="set1"), row=SimpleNamespace(reason="Graded."))
    reader = SimpleNamespace(request=lambda item, **shown: Request(Job(()), template="x" * (65 << 20)))
    refuse = SimpleNamespace(
        refuse=lambda _, refusal: refused.append(refusal), unrendered=Round.unrendered, inbox=reader
    )
    Round.send(refuse, item)
    assert refused[0].state == "too-large" and "set1.ipynb is too large; move" in str(refused[0])
    Round.send(refuse, item, page=True)
    assert len(refused) == 1 and item.row.reason.startswith("Graded. The page does not show")


def test_the_package_needs_nothing_of_the_course():
    code = (
        "import sys, nbreferee.rpc.codec, nbreferee.rpc.framing; "
        "print([m for m in sys.modules if m.split('.')[0] in sys.argv])"
    )
    names = ["attnmath", "torch", "nbgrader", "msgpack"]
    out = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
