"""The trusted side's view of the student's process: cells to be run there, values, and proxies of what stays there.

Whatever the other process says, this side gets plain values (numbers, strings, lists, arrays, tensors) or a `Proxy`,
which does nothing but ask. No code of the student runs here, nothing is unpickled, and every wait ends at
``Student.deadline``.
"""

import builtins
import contextlib
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..judge.results import Call
from . import codec
from . import framing as wire
from .exchange import Exchange, Garbled, Refused, flat, pickled, torch_here, unflat
from .files import Shared, Sharing

__all__ = ["Proxy", "Ran", "Student", "StudentError", "StudentLost"]

_CALLS = 20
_TEXT = 200  # characters of one description
_MESSAGE = 2000
_TURN = "the student's process spoke out of turn"
_ASKED = frozenset(
    {"__name__", "__qualname__", "__module__", "__doc__"}
)  # of the names that begin with two underscores


class StudentLost(BaseException):
    """The student's process is of no use any more.

    Parameters
    ----------
    state : crashed, timeout or memory.
    reason : one sentence.
    """

    def __init__(self, state: str, reason: str):
        super().__init__(reason)
        self.state, self.reason = state, reason


class StudentError(Exception):
    """What the student's code raised. It is also an instance of the built-in exception of that name, if there is one.

    Attributes
    ----------
    ename : name of the exception's type, as the student's process says.
    message : its text.
    trace : the student's own lines that led to it.
    """

    ename = message = trace = ""

    def __str__(self):
        return self.message


@dataclass(frozen=True, slots=True)
class Ran:
    """How a cell ended: what it raised (``ValueError: …``), or None; its own lines; what it printed."""

    error: str | None
    ename: str | None
    trace: str
    output: str


def _clean(text, limit):
    """Text from the other process that can be written to any file."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


class Meddled(StudentError):
    """The student's code changed an argument of the test's. The text is ours."""

    message = "you changed your argument; work on a copy"


@lru_cache(maxsize=64)
def _error_type(names):
    """A StudentError that is also the first built-in exception of these.

    None that Python itself obeys: a StopIteration out of an answer would end the loops of a test before it has looked.
    """
    for name in names:
        if name in ("StopIteration", "StopAsyncIteration", "GeneratorExit"):
            continue
        kind = getattr(builtins, name, None)
        if kind is None and name == "LinAlgError":
            kind = np.linalg.LinAlgError
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
            try:
                made = type(name, (StudentError, kind), {})
                made("text")
            except TypeError:  # its layout, or the number of its arguments, is another one
                continue
            return made
    return StudentError


def _refusal(proxy):
    kind = object.__getattribute__(proxy, "_nb_kind")
    text = f"the answer returned an object of type {kind}; "
    text += "the tests judge plain values: numbers, strings, lists, arrays, tensors"
    object.__getattribute__(proxy, "_nb_student").refused = text
    raise TypeError(text)


def _retired(*args, **kwargs):
    raise RuntimeError("this function belongs to a test that has ended")


class Proxy:
    """An object that lives in the student's process. It can be indexed, iterated and asked for attributes."""

    __slots__ = ("__weakref__", "_nb_kind", "_nb_label", "_nb_number", "_nb_student")

    def __init__(self, student, kind, number, label):
        for name, value in (("student", student), ("kind", kind), ("number", number), ("label", label)):
            object.__setattr__(self, f"_nb_{name}", value)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__") and name not in _ASKED:
            raise AttributeError(f"an object in the student's process is not asked for {name}")
        return self._nb_student._on(self, "attribute", (name,))

    __doc__ = property(lambda self: self._nb_student._on(self, "attribute", ("__doc__",)))

    def __setattr__(self, name, value):
        self._nb_student._on(self, "set attribute", (name, value))

    def __delattr__(self, name):
        self._nb_student._on(self, "delete attribute", (name,))

    def __getitem__(self, key):
        return self._nb_student._on(self, "item", (key,))

    def __setitem__(self, key, value):
        self._nb_student._on(self, "set item", (key, value))

    def __len__(self):
        n = self._nb_student._on(self, "length")
        if type(n) is not int or n < 0:
            self._nb_student._lose("crashed", _TURN)
        return n

    def __iter__(self):
        return _Iteration(self._nb_student._on(self, "iterate"))

    def __next__(self):
        found = self._nb_student._on(self, "next")
        if type(found) is not tuple or len(found) > 1:
            self._nb_student._lose("crashed", _TURN)
        if not found:
            raise StopIteration
        return found[0]

    def __enter__(self):
        return self._nb_student._on(self, "enter")

    def __exit__(self, kind, error, trace):
        failed = isinstance(error, AssertionError)  # has failed, whatever the answer says; it is not told why
        told = () if error is None else (_name(error), _bases(error), "" if failed else str(error)[:_MESSAGE])
        quiet = self._nb_student._on(self, "leave", told)
        return quiet is True and isinstance(error, Exception) and not failed

    def __repr__(self):
        return f"<object of type {self._nb_kind} in the student's process>"

    def _refuse(self, *_):
        _refusal(self)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = _refuse
    __float__ = __int__ = __index__ = __complex__ = __round__ = __trunc__ = __bytes__ = _refuse
    __contains__ = __reduce_ex__ = __copy__ = __deepcopy__ = __array_function__ = __torch_function__ = _refuse

    def __array__(self, *_, **__):
        _refusal(self)

    def __array_ufunc__(self, *_, **__):
        _refusal(self)

    __array_interface__ = __array_struct__ = __array_priority__ = property(_refusal)


# Not forwarded: an answer that returned 0 for every difference would be near to everything.
for _sign in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor".split():
    for _name in (_sign, f"r{_sign}", f"i{_sign}"):
        setattr(Proxy, f"__{_name}__", Proxy._refuse)
for _sign in ("neg", "pos", "abs", "invert"):
    setattr(Proxy, f"__{_sign}__", Proxy._refuse)


class CallableProxy(Proxy):
    """One that can be called: tests ask ``callable``."""

    __slots__ = ()

    def __call__(self, *args, **kwargs):
        return self._nb_student._on(self, "call", args, kwargs)


class _Iteration:
    """What ``iter`` of a proxy gives."""

    def __init__(self, there):
        self._there = there

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._there)


class Student(Sharing, Exchange):
    """The student's process, as the grader sees it.

    Parameters
    ----------
    channel : a `nbreferee.rpc.framing.Channel` to a process that runs `nbreferee.rpc.agent.serve`.
    output_limit : characters of printed text that are kept for each question.
    folder : the `nbreferee.rpc.files.Shared` that it has in common with this side; None: no files are shared.

    Attributes
    ----------
    deadline : value of ``time.monotonic()`` at which any question under way is given up; at first a minute from now.
    calls : the last 20 questions, as `nbreferee.judge.results.Call`.
    output : what the student's code printed since this was last set.
    may_change : whether the student's code may change arrays, lists, … that it is given. If not, a question in which it
        does raises Meddled: a test that computes what it wants from an argument afterwards would compute it from the
        student's numbers.

    Examples
    --------
    >>> student.deadline = time.monotonic() + 20  # doctest: +SKIP
    >>> student.cell("def double(x): return 2 * x", "answer").error is None  # doctest: +SKIP
    True
    >>> student.value("double")(3)  # doctest: +SKIP
    6
    """

    def __init__(self, channel, output_limit: int = 65_536, folder: Shared | None = None):
        super().__init__(channel, trusted=True)
        self.share(folder)
        self.output_limit = output_limit
        self.deadline = time.monotonic() + 60
        self.calls, self.output = [], ""
        self.may_change = False
        self._lost, self._begun, self._touched = None, False, False
        self._raised, self._verdict = [], None
        self._kept = 0  # functions given before the present test
        self.refused = ""  # what a test asked that is never answered, though it may have caught the error
        self.echo, self._echoed = False, 0  # whether what is printed over there is printed here too; how much was
        self.after = None  # called after each question of a test

    # ---- for the grader

    def cell(self, source: str, name: str) -> Ran:
        """Run a cell in the student's namespace; magics and ``await`` are allowed.

        Parameters
        ----------
        source : code.
        name : what its lines are called in traces.

        Returns
        -------
        how it ended.

        Raises
        ------
        StudentLost : the process died, took too long, or sent nonsense.
        """
        return self._run("cell", source, name)

    def test(self, source: str, name: str) -> Ran:
        """Run a *sandboxed* test in the student's own namespace. The answer is the student's process's word, no more.

        Parameters, returns and raises as for `cell`.
        """
        return self._run("test", source, name)

    def names(self, wanted) -> set:
        """Those of the wanted names that the student's namespace has.

        Raises
        ------
        StudentLost : as for `cell`.
        """
        wanted = sorted(wanted)
        found = self._ask("names", (wanted,))
        if type(found) is not list or not all(type(name) is str for name in found):
            self._lose("crashed", _TURN)
        return set(found) & set(wanted)

    def value(self, name: str) -> object:
        """What the student's namespace holds under a name: a plain value, or a `Proxy`.

        Raises
        ------
        StudentError : a NameError: there is no such name.
        StudentLost : as for `cell`.
        """
        return self._ask("value", (name,), name)

    def values(self, wanted) -> dict:
        """{name: value} of those of the wanted names that the student's namespace has.

        Raises
        ------
        StudentLost : as for `cell`.
        """
        there = self.names(wanted) if wanted else ()
        return {name: self.value(name) for name in wanted if name in there}

    # ---- questions

    def _run(self, verb, source, name):
        before, self.output = self.output, ""
        try:
            found = self._ask(verb, (source, name))
            if type(found) is not tuple or len(found) != 3 or not all(type(x) is str for x in found):
                self._lose("crashed", _TURN)
            ename, message, trace = found
            ename, message, trace = _clean(ename, 80), _clean(message, _MESSAGE), _clean(trace, 4 * _MESSAGE)
            error = (f"{ename}: {message}" if message else ename) if ename else None
            return Ran(error, ename or None, trace, self.output)
        finally:
            self.output = (before + self.output)[: self.output_limit]

    def _on(self, proxy, verb, args=(), kwargs=None):
        """A question about one object; it is remembered if it is one of the test itself."""
        label = proxy._nb_label
        what = _question(label, verb, args, kwargs or {}) if not self.level else ""
        inner = f"{label}.{args[0]}" if verb == "attribute" else f"{label}(…)" if verb == "call" else label
        try:
            found = self._ask(verb, (proxy, tuple(args), flat(kwargs or {})), inner)
        except BaseException as error:
            if what:
                self._note(what, f"{_name(error)}: {error}")
            raise
        if self.after is not None and not self.level:
            self.after()
        if what and verb not in ("iterate", "next", "enter", "leave") and not isinstance(found, Proxy):
            self._note(what, _describe(found, _TEXT))
        elif what and verb == "call":
            self._note(what, f"an object of type {found._nb_kind}")
        return found

    def _note(self, what, came):
        self.calls.append(Call(_clean(what, _TEXT), _clean(" ".join(came.split()), _TEXT)))
        del self.calls[:-_CALLS]

    def _ask(self, verb, payload, label=""):
        return self.ask(verb, payload, label)

    def ask(self, verb, payload, label=""):
        if self._lost is not None:
            raise StudentLost(*self._lost)
        if not self._begun:
            self._begun = True
            self.ask("begin", (self.output_limit,))
        outermost = not self.level
        if outermost:
            self._raised, self._verdict, self._touched = [], None, False
        try:
            found = super().ask(verb, payload, label)
        except Garbled:
            self._lose("crashed", _TURN)
        except StudentLost:
            raise
        except Refused as error:
            self.refused = str(error)
            raise
        except BaseException:
            self._judge(outermost)
            raise
        self._judge(outermost)
        return found

    def broke(self, error):
        if self._lost is None and not isinstance(error, Garbled):
            self._lost = ("crashed", "the conversation with the student's process was broken off")

    def _judge(self, outermost):
        """An assertion of the test that failed in a callback has failed, whoever caught it."""
        if outermost and self._verdict is not None:
            raise self._verdict
        if outermost and self._touched and not self.may_change:
            raise Meddled(Meddled.message)

    def _lose(self, state, reason):
        self._lost = self._lost or (state, reason)
        raise StudentLost(*self._lost) from None

    def garbled(self, why):
        self._lose("crashed", _TURN)

    def allow_change(self, value):
        key = self.find(value) or self.find(value, cut=True)
        if key is not None and key % 2:  # made over there: a model may change its own weights
            return True
        self._touched = True
        return self.may_change

    @property
    def lost(self):
        """(state, reason) if the process is of no use any more, or None."""
        return self._lost

    def forget(self):
        """A test begins: nothing that crossed before can be changed from over there any more."""
        for link in list(self.links.values()):
            self.unlink(link)
        self._kept, self.refused, self._echoed = self.registry.last, "", 0
        self._begun = False
        if self.folder is not None:
            self.folder.begin()

    def retire(self):
        """A test has ended: its functions can be called from over there no more."""
        self.may_change, self.echo, self.after = False, False, None
        self.registry.retire(self._kept, _retired)
        if self.folder is not None:
            self.folder.end()

    # ---- the wire

    def _left(self):
        if self._lost is not None:
            raise StudentLost(*self._lost)
        left = self.deadline - time.monotonic()
        if left <= 0:
            self._lose("timeout", "the time was over")
        return left

    def post(self, data):
        self._wire(self.channel.send, data)

    def collect(self):
        return self._wire(self.channel.receive)

    def _wire(self, action, *args):
        try:
            return action(*args, self._left())
        except wire.TimedOut:
            self._lose("timeout", "the time was over")
        except wire.PeerClosed:
            self._lose("crashed", "the student's process has ended")
        except wire.TooLong as error:
            if args:
                raise Refused(str(error)) from None
            self._lose("crashed", _TURN)
        except wire.WireError:
            self._lose("crashed", _TURN)

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
        text = _clean(printed, self.output_limit)
        self.output = (self.output + text)[: self.output_limit]
        if self.echo and self._echoed < 10 * self.output_limit:
            self._echoed += len(text)
            sys.stdout.write(text)

    # ---- what crosses

    def known(self, kind, number, flags, label):
        if not 0 < number < 2**63:
            raise Garbled("no number")
        make = CallableProxy if flags & 1 else Proxy
        return self.one_proxy(number, lambda: make(self, kind, number, label[:_TEXT]))

    def number_of(self, value):
        if isinstance(value, Proxy):
            if object.__getattribute__(value, "_nb_student") is not self:
                raise Refused("this object lives in a process that has ended: ask for it anew")
            return object.__getattribute__(value, "_nb_number")
        return None

    def outward(self, packer, value):
        """An object that is no plain value: a library's goes by pickle, a function of the test stays here."""
        if isinstance(value, Iterator):
            return self._handle(value, 2)
        node = pickled(value)
        if node is not None:
            return node
        if callable(value):
            return self._handle(value, 1)
        raise Refused(
            f"an object of type {type(value).__name__} cannot be given to the answer, because the test defines it; "
            "give plain values, functions, or objects of an installed library, or run this test sandboxed"
        )

    def _handle(self, value, flags):
        try:
            handle = self.registry.keep(value)
        except codec.CodecError as error:
            raise Refused(str(error)) from None
        name = getattr(value, "__name__", "")
        return ("h", name if type(name) is str and name.isidentifier() else handle.kind, handle.number, flags)

    # ---- what the student's code may ask

    def serve(self, verb, node, state, unpack):
        payload = unpack(node)
        modes = unpack(state) or {}
        if type(payload) is not tuple or type(modes) is not dict:
            raise Garbled("no question")
        if verb in ("call", "next"):
            if len(payload) != 3 or type(node[1]) is not tuple or node[1][0] != "r":
                raise Garbled("a question about nothing of ours")
            target, args, kwargs = payload
            kwargs = unflat(kwargs)
            if type(args) is not tuple:
                raise Garbled("no arguments")
        elif verb not in ("vjp", "accumulate") or not torch_here():
            raise Garbled("a question that is not allowed")
        try:
            with _applied(modes):
                if verb == "call":
                    found = target(*args, **kwargs)
                elif verb == "next":
                    found = (next(target),)
                else:
                    found = self._gradient(verb, payload)
        except (Garbled, StudentLost):
            raise
        except StopIteration:
            found = ()
        except BaseException as error:
            self._refer(error)
            return
        try:
            self.say("=", "", found)
        except Refused as error:
            self._refer(error)

    def _gradient(self, verb, payload):
        from . import torch_values as bridge

        if verb == "vjp" and len(payload) == 4:
            return bridge.vjp(self, *payload)
        if verb == "accumulate" and len(payload) == 1:
            return bridge.accumulate(self, *payload)
        raise Garbled("no gradient")

    def _refer(self, error):
        """Tell the student's code that the test's function raised."""
        self._raised.append(error)
        if isinstance(error, AssertionError) or not isinstance(error, Exception):
            self._verdict = self._verdict or error
        if isinstance(error, StudentError):
            told = (error.ename, _bases(error), error.message, "", len(self._raised))
        else:
            told = (type(error).__name__, _bases(error), str(error)[:_MESSAGE], "", len(self._raised))
        self.say("!", "", told)

    def failure(self, told):
        if type(told) is not tuple or len(told) != 5:
            raise Garbled("no error")
        ename, names, message, trace, number = told
        if not all(type(x) is str for x in (ename, message, trace)) or type(number) is not int:
            raise Garbled("no error")
        if type(names) is not tuple or len(names) > 50 or not all(type(x) is str and len(x) <= 80 for x in names):
            raise Garbled("no error")
        if 0 < number <= len(self._raised):
            return self._raised[number - 1]
        return _student_error(ename, names, message, trace)


def _student_error(ename, names, message, trace):
    error = _error_type(names)(_clean(message, _MESSAGE))
    error.ename, error.message, error.trace = _clean(ename, 80), _clean(message, _MESSAGE), _clean(trace, 4 * _MESSAGE)
    return error


def _bases(error):
    return tuple(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


@contextlib.contextmanager
def _applied(modes):
    if not torch_here() or not modes:
        yield
        return
    from . import torch_values as bridge

    with bridge.applied(modes, trusted=True):
        yield


# ---- words for calls


def _name(error):
    return getattr(error, "ename", "") or type(error).__name__


def _question(label, verb, args, kwargs):
    if verb == "call":
        room = max(_TEXT - len(label), 40)
        parts = [_describe(x, 60) for x in args] + [f"{key}={_describe(x, 60)}" for key, x in kwargs.items()]
        text = ", ".join(parts)
        return f"{label}({text if len(text) < room else text[: room - 3] + '…'})"
    if verb == "attribute":
        return f"{label}.{args[0]}"
    if verb == "item":
        return f"{label}[{_describe(args[0], 60)}]"
    if verb == "length":
        return f"len({label})"
    if verb == "set attribute":
        return f"{label}.{args[0]} = {_describe(args[1], 60)}"
    if verb == "set item":
        return f"{label}[{_describe(args[0], 60)}] = {_describe(args[1], 60)}"
    return f"{label}: {verb}"


def _describe(value, limit):
    """A plain value in few words."""
    text = _words(value, limit)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _words(value, limit):
    kind, torch = type(value), torch_here()
    if kind is np.ndarray or (torch and isinstance(value, torch.Tensor)):
        return _array_words(value, limit)
    if issubclass(kind, Proxy):
        return value._nb_label or f"an object of type {value._nb_kind}"
    if kind in (list, tuple, set, frozenset):
        if not value:
            return repr(value)
        marks = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}[kind]
        out = ""
        for i, x in enumerate(value):
            if len(out) > limit:
                return f"{marks[0]}{out}, …{marks[1]}"
            out += (", " if i else "") + _words(x, max(limit // 2, 20))
        return f"{marks[0]}{out}{',' if kind is tuple and len(value) == 1 else ''}{marks[1]}"
    if kind is dict:
        out = ""
        for i, (key, x) in enumerate(value.items()):
            if len(out) > limit:
                return f"{{{out}, …}}"
            out += (", " if i else "") + f"{_words(key, 20)}: {_words(x, max(limit // 2, 20))}"
        return f"{{{out}}}"
    if isinstance(value, str | bytes):
        value = value.item() if isinstance(value, np.generic) else value
        return repr(value[:limit]) + ("…" if len(value) > limit else "")
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if kind is int:
        return str(value) if value.bit_length() < 200 else "a large int"
    if value is None or kind is bool or isinstance(value, np.generic | complex):
        return str(value)
    if callable(value):
        name = getattr(value, "__name__", "")
        return name if type(name) is str and name and name != "<lambda>" else "a function"
    return str(value) if torch and isinstance(value, torch.dtype | torch.Size) else f"a {kind.__name__}"


def _array_words(value, limit):
    tensor = type(value) is not np.ndarray
    size = math.prod(value.shape)
    dtype = str(value.dtype).removeprefix("torch.")
    text = f"{'tensor' if tensor else 'array'} {tuple(value.shape)} {dtype}"
    if 0 < size <= 12 and limit > 40:
        plain = value.detach().cpu() if tensor else value
        text += f": {_rounded(plain.tolist())}"
    return text


def _rounded(x):
    if isinstance(x, list):
        return "[" + ", ".join(map(_rounded, x)) + "]"
    return f"{x:.6g}" if isinstance(x, float) else str(x)
