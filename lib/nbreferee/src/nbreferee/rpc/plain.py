"""Values that are no plain ones but say no more than one does: dates, exact numbers, arrays of another class.

A date or a fraction crosses by its `parts` and is `built` anew. What a test takes for an array or a dict is made one
where nothing is lost (`simpler`); for the rest `CURES` say what to return instead.
"""

import datetime
import re
from collections import Counter, OrderedDict, defaultdict
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np

__all__ = ["CURES", "built", "kind", "parts", "simpler", "zone", "zoned"]

CURES = {
    "longdouble": "it has digits that a float has not; return float(…)",
    "clongdouble": "it has digits that a complex has not; return complex(…)",
    "ndarray.longdouble": "it has digits that float64 has not; return it .astype(np.float64)",
    "ndarray.clongdouble": "it has digits that complex128 has not; return it .astype(np.complex128)",
    "ndarray.object": "an array of objects; return np.array(…, dtype=float), or a list",
    "ndarray.masked": "some of its entries are masked; return it .filled(…)",
}
_STEP = datetime.timedelta(microseconds=1)
_MOST = 4300  # digits of an exact number
_TIMES = re.compile(r"[<>][mM]8(\[([0-9]{0,9})(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")


# ---- by their parts


def parts(value):
    """(name, part, …) of a date or an exact number; None for anything else."""
    kind = type(value)
    if kind is datetime.date:
        return "date", value.year, value.month, value.day
    if kind is datetime.timedelta:
        return "timedelta", value.days, value.seconds, value.microseconds
    if kind in (datetime.datetime, datetime.time):
        if (told := zone(value.tzinfo)) is None:
            return None
        day = (value.year, value.month, value.day) if kind is datetime.datetime else ()
        return (kind.__name__, *day, value.hour, value.minute, value.second, value.microsecond, value.fold, told)
    if kind is Decimal:
        return "decimal", str(value)
    if kind is Fraction:
        return "fraction", value.numerator, value.denominator
    if kind in (np.datetime64, np.timedelta64) or (kind is np.ndarray and value.dtype.kind in "mM"):
        native = np.asarray(value, dtype=value.dtype.newbyteorder("="))
        return "times", value.dtype.str, native.view(np.int64), kind is not np.ndarray
    return None


def zone(tzinfo):
    """A time zone as "", a name or microseconds; None if it is of another kind."""
    if tzinfo is None:
        return ""
    if type(tzinfo) is ZoneInfo:
        return tzinfo.key
    if type(tzinfo) is datetime.timezone:
        return tzinfo.utcoffset(None) // _STEP
    return None


def zoned(told):
    """The time zone that `zone` told."""
    if type(told) is int:
        return datetime.timezone(_STEP * told)
    return ZoneInfo(told) if told else None


def built(name, parts):
    """The value of such parts, which come from anywhere.

    Returns
    -------
    the value; None if the name is unknown, or the parts have other types.

    Raises
    ------
    ValueError, ArithmeticError, KeyError : there is no such date or number.
    """
    kinds = [type(part) for part in parts]
    whole = all(kind is int for kind in kinds)
    if name == "date" and whole and len(parts) == 3:
        return datetime.date(*parts)
    if name == "timedelta" and whole and len(parts) == 3:
        return datetime.timedelta(*parts)
    if len(parts) == {"datetime": 9, "time": 6}.get(name):
        *numbers, fold, told = parts
        if all(type(x) is int for x in (*numbers, fold)) and type(told) in (int, str):
            made = datetime.datetime if name == "datetime" else datetime.time
            return made(*numbers, tzinfo=zoned(told), fold=fold)
    if name == "decimal" and kinds == [str] and len(parts[0]) <= _MOST:
        return Decimal(parts[0])
    if name == "fraction" and kinds == [int, int]:
        return Fraction(*parts)
    if name == "times" and kinds == [str, np.ndarray, bool] and _TIMES.fullmatch(parts[0]):
        code, numbers, alone = parts
        if numbers.dtype == np.int64 and not (alone and numbers.ndim):
            made = numbers.view(np.dtype(code).newbyteorder("=")).astype(code)
            return made[()] if alone else made
    return None


# ---- made simpler, on the side that returns them


def kind(value):
    """The name of a type, finer than the type itself where there is a cure for it."""
    if type(value) is np.ndarray:
        return f"ndarray.{re.sub('[^A-Za-z0-9_]', '?', value.dtype.type.__name__)}".replace("object_", "object")
    return "ndarray.masked" if isinstance(value, np.ma.MaskedArray) else ""


def simpler(value):
    """What a test takes for a dict, a tuple, a number or an array, as one; None if something would be lost."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.longdouble | np.clongdouble):
        found = _narrowed(np.asarray(value))
        return None if found is None else found[()]
    kind = type(value)
    if kind.__module__ == "sympy.core.numbers":
        return _number(value)
    if kind in (OrderedDict, Counter, defaultdict):
        return dict(value)
    bases = kind.__mro__
    if tuple in bases[1:] and (bases[1] is tuple) and (hasattr(kind, "_fields") or hasattr(kind, "n_fields")):
        return tuple(value)
    return None


def _number(value):
    """A number of SymPy's as Python's, if it is exactly that."""
    if value.is_Integer:
        return int(value)
    if value.is_Rational:
        return Fraction(int(value.p), int(value.q))
    return float(value) if value.is_Float and value == type(value)(float(value)) else None


def _array(value):
    other = type(value) is not np.ndarray
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.getmaskarray(value).any():
            return None
        value = value.data
    plain = np.array(value, copy=True, subok=False)
    if plain.dtype.char in "gG":
        return _narrowed(plain)
    if plain.dtype.char == "O":
        return _typed(plain)
    return plain if other and plain.dtype.kind in "biufcSUmM" else None


def _narrowed(value):
    """A long double as a double, if it has no more digits."""
    with np.errstate(over="ignore"):
        found = value.astype(np.complex128 if value.dtype.char == "G" else np.float64)
    return found if np.array_equal(found.astype(value.dtype), value, equal_nan=True) else None


def _typed(value):
    """An array of Python's own numbers or strings, with their dtype."""
    members = [x.item() if isinstance(x, np.generic) else x for x in value.ravel().tolist()]
    kinds = {type(x) for x in members}
    if kinds == {int} and not all(-(2**63) <= x < 2**63 for x in members):
        return None
    if len(kinds) != 1 or not kinds <= {bool, int, float, complex, str}:
        return None
    if kinds == {str} and any(x.endswith("\0") for x in members):
        return None
    dtype = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128, str: np.str_}[kinds.pop()]
    found = np.array(members, dtype=dtype)
    return found.reshape(value.shape) if found.dtype.itemsize else None
