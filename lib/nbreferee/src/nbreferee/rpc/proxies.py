"""Objects that stay in the student's process, as tests see them: they do nothing but ask.

A question whose answer would be a verdict is refused: an object that said of itself that it is equal, near or true
would be believed. What a test concludes from is a plain value on its own side. An object's class is such a verdict,
too, see `is_instance`.
"""

import numbers
import types
import typing
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np

from .plugins import CannotSend
from .raised import MESSAGE, bases, name_of

__all__ = ["CallableProxy", "Proxy", "is_instance", "is_subclass", "number_of", "refuse_verdict"]

_VALUES = int, float, complex, str, bytes, list, tuple, set, frozenset, dict, slice, range, type(None), type(...)
_VALUES += np.ndarray, np.generic, np.dtype, numbers.Number, Decimal, Fraction, date, time, timedelta

PLAIN = (
    "the tests judge plain values: numbers, strings, lists, arrays, tensors, frames; test what its methods return, or "
    "what a given function that is listed under asks makes of it, or run this test sandboxed"
)
_ASKED = frozenset(
    {"__name__", "__qualname__", "__module__", "__doc__"}
)  # of the names that begin with two underscores


def _refusal(proxy, *_):
    kind = object.__getattribute__(proxy, "_nb_kind")
    cure = object.__getattribute__(proxy, "_nb_student").cure(kind)
    cure = cure or PLAIN
    _deny(proxy, f"the answer returned an object of type {kind}; {cure}")


def _deny(proxy, text):
    object.__getattribute__(proxy, "_nb_student").refused = text
    raise TypeError(text)


def refuse_verdict(asked, proxy, found):
    """Refuse a truth value that an object gave of itself when it was asked: see `nbreferee.rpc.student.Student`."""
    if not _truth(found):
        return
    text = f"the test takes {asked} for a verdict, but the object that gives it is "
    text += "the answer's; let the answer return plain values and compare them here, or run this test sandboxed"
    _deny(proxy, text)


def is_instance(value, kinds) -> bool:
    """`isinstance` as tests call it: what an object of the answer's says of its class is not believed.

    Without asking it is known that a proxy is no number, list, array or frame, which would have come as a value.

    Parameters
    ----------
    value, kinds : as for `isinstance`.

    Raises
    ------
    TypeError : only the student's process knows.
    """
    several = _each(kinds)
    theirs = _first_proxy(several)
    if theirs is None:
        known = isinstance(value, kinds)
        if known or not isinstance(value, Proxy) or all(_would_cross(value, kind) for kind in several):
            return known
    _refuse_class(value if theirs is None else theirs, several)


def is_subclass(kind, kinds) -> bool:
    """`issubclass` as tests call it, in the same way."""
    several = _each(kinds)
    theirs = _first_proxy([kind, *several])
    return issubclass(kind, kinds) if theirs is None else _refuse_class(theirs, several)


def _each(kinds):
    """The classes that a tuple or a union consists of."""
    if typing.get_origin(kinds) in (typing.Union, types.UnionType):
        kinds = typing.get_args(kinds)
    return [each for kind in kinds for each in _each(kind)] if isinstance(kinds, tuple) else [kinds]


def _first_proxy(values):
    return next((value for value in values if isinstance(value, Proxy)), None)


def _would_cross(proxy, kind):
    """Whether an object of this class would have come as a value, or as one that can be called."""
    if kind in (Callable, typing.Callable):
        return True
    student, told = (object.__getattribute__(proxy, f"_nb_{name}") for name in ("student", "kind"))
    values = (*_VALUES, *(each for plugin in student.plugins for each in plugin.kinds))
    if not isinstance(kind, type) or not issubclass(kind, values):
        return False
    if kind.__name__ == told.partition(".")[0] and student.cure(told):  # a frame of objects, a masked array
        _refusal(proxy)
    return True


def _refuse_class(proxy, kinds):
    names = [kind._nb_words() if isinstance(kind, Proxy) else getattr(kind, "__name__", str(kind)) for kind in kinds]
    text = f"the test asks whether something of the answer's is of class {' or '.join(names)}, which only the answer's "
    text += "process knows, and any object can claim; compare what it computes or holds, or run this test sandboxed"
    _deny(proxy, text)


def _truth(value):
    """Whether this is a truth value, or consists of such."""
    if isinstance(value, Proxy):
        return False
    if type(value) in (list, tuple):
        return bool(value) and all(map(_truth, value))
    dtypes = [value.dtype] if hasattr(value, "dtype") else getattr(value, "dtypes", ())
    return type(value) is bool or any(str(dtype) in ("bool", "boolean", "torch.bool") for dtype in dtypes)


class Proxy:
    """An object that lives in the student's process. It can be indexed, iterated and asked for attributes."""

    __slots__ = ("__weakref__", "_nb_kind", "_nb_label", "_nb_number", "_nb_origin", "_nb_student")

    def __init__(self, student, kind, number, label, origin=""):
        for name, value in (
            ("student", student),
            ("kind", kind),
            ("number", number),
            ("label", label),
            ("origin", origin),
        ):
            object.__setattr__(self, f"_nb_{name}", value)

    def _nb_words(self):
        return self._nb_label or f"an object of type {self._nb_kind}"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__") and name not in _ASKED:
            raise AttributeError(f"an object in the student's process is not asked for {name}")
        return self._nb_student.question(self, "attribute", (name,))

    __doc__ = property(lambda self: self._nb_student.question(self, "attribute", ("__doc__",)))

    def __setattr__(self, name, value):
        self._nb_student.question(self, "set attribute", (name, value))

    def __delattr__(self, name):
        self._nb_student.question(self, "delete attribute", (name,))

    def __getitem__(self, key):
        return self._nb_student.question(self, "item", (key,))

    def __setitem__(self, key, value):
        self._nb_student.question(self, "set item", (key, value))

    def __len__(self):
        n = self._nb_student.question(self, "length")
        if type(n) is not int or n < 0:
            self._nb_student.out_of_turn()
        return n

    def __iter__(self):
        return _Iteration(self._nb_student.question(self, "iterate"))

    def __next__(self):
        found = self._nb_student.question(self, "next")
        if type(found) is not tuple or len(found) > 1:
            self._nb_student.out_of_turn()
        if not found:
            raise StopIteration
        return found[0]

    def __enter__(self):
        return self._nb_student.question(self, "enter")

    def __exit__(self, kind, error, trace):
        """Leave; whatever the answer says, the error goes on: to swallow it is to leave out the asserts after it."""
        failed = isinstance(error, AssertionError)  # it is not told why
        told = () if error is None else (name_of(error), bases(error), "" if failed else str(error)[:MESSAGE])
        if self._nb_student.question(self, "leave", told) is True and error is not None and not failed:
            error.add_note("A context manager that swallows errors is tested sandboxed: here the error goes on.")
        return False

    def __repr__(self):
        return f"<object of type {self._nb_kind} in the student's process>"

    def _refuse(self, *_, **__):
        _refusal(self)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = _refuse
    __float__ = __int__ = __index__ = __complex__ = __round__ = __trunc__ = __bytes__ = _refuse
    __contains__ = __reduce_ex__ = __copy__ = __deepcopy__ = __array_function__ = __torch_function__ = _refuse
    __array__ = __array_ufunc__ = _refuse
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
        return self._nb_student.question(self, "call", args, kwargs)


class _Iteration:
    """What ``iter`` of a proxy gives."""

    def __init__(self, there):
        self._there = there

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._there)


def number_of(value, student):
    """The number of an object that lives in this student's process; None for anything else."""
    if not isinstance(value, Proxy):
        return None
    if object.__getattribute__(value, "_nb_student") is not student:
        raise CannotSend("this object lives in a process that has ended: ask for it anew")
    return object.__getattribute__(value, "_nb_number")
