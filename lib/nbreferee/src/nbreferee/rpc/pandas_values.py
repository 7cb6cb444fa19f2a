"""Frames, series, indexes and their dates: sent by their parts, and built anew on the other side.

They are copies: what an answer does to a frame that it is given stays on its side. A test of that runs sandboxed.
What is built is checked as it is built: a part is an array, a plain value or another such part, never an object.

This module is imported only where pandas is.
"""

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd

from .nodes import LENGTH, SCALARS
from .plain import zone, zoned
from .plugins import Garbled, Plugin

__all__ = ["Values"]

_MASKED = {
    "boolean": pd.arrays.BooleanArray,
    **{f"{sign}{bits}": pd.arrays.IntegerArray for sign in ("Int", "UInt") for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": pd.arrays.FloatingArray for bits in (32, 64)},
}
_UNITS = ("s", "ms", "us", "ns")
_CLOSED = ("left", "right", "both", "neither")
_MEMBERS = SCALARS | {datetime.date, datetime.datetime, datetime.time, datetime.timedelta, Decimal, Fraction}
_MEMBERS |= {np.datetime64, np.timedelta64, pd.Timestamp, pd.Timedelta, pd.Period, pd.Interval}
_MEMBERS |= {type(pd.NaT), type(pd.NA)}
_WIDE = 4 << 20  # bytes of an array of strings; a larger one is checked for being mostly empty
_PER_PLACE = 320  # bytes for which a place in a range counts
_FREQ = 40  # letters of a frequency's name


class Values(Plugin):
    """What pandas holds."""

    kinds = property(lambda self: tuple(_TELL))

    def node(self, packer, value):
        if value is pd.NaT or value is pd.NA:
            return ("n", "pandas", "NaT" if value is pd.NaT else "NA")
        told = value if type(value) is _Told else _told(value, exact=self.here.trusted)
        return None if told is None else packer.described(told, "pandas", *told.parts)

    def constant(self, family, name):
        return {"NaT": pd.NaT, "NA": pd.NA}.get(name) if family == "pandas" and type(name) is str else None

    def built(self, name, parts):
        try:
            return _BUILT[name](*parts) if name in _BUILT else None
        except Garbled:
            raise
        except Exception as error:
            raise Garbled(f"no value of pandas: {error}"[:200]) from None

    def nbytes(self, value):
        if isinstance(value, pd.RangeIndex):
            return len(value) * _PER_PLACE
        if isinstance(value, pd.DataFrame):
            return int(value.memory_usage(index=False).sum()) + self.nbytes(value.index)
        if isinstance(value, pd.Series):
            return int(value.nbytes) + self.nbytes(value.index)
        return int(value.nbytes) if isinstance(value, pd.Index | pd.api.extensions.ExtensionArray) else None

    def words(self, value, limit):
        if isinstance(value, pd.DataFrame):
            return f"frame {value.shape}", None
        if isinstance(value, pd.Series | pd.Index):
            few = len(value) <= 12 and limit > 40 and value.dtype.kind in "biufc"
            kind = "series" if isinstance(value, pd.Series) else "index"
            return f"{kind} ({len(value)},) {value.dtype}", value.tolist() if few else None
        return (str(value), None) if isinstance(value, pd.Timestamp | pd.Timedelta) else None

    def cures(self):
        text = "it holds more than numbers, strings and dates; return one whose columns are plain"
        return dict.fromkeys(("DataFrame", "Series", "Index", "MultiIndex", "CategoricalIndex"), text)


# ---- a value's parts


class _Beyond(Exception):
    """There is something in it that does not cross."""


class _Told:
    """The name and the parts of a value; a part may be another one."""

    def __init__(self, *parts):
        self.parts = parts


def _told(value, exact):
    """What is told of a value; None if it is none of pandas', or holds what does not cross."""
    for kind, tell in _TELL.items():
        if type(value) is kind or (not exact and isinstance(value, kind)):
            try:
                told = tell(value)
                _rebuilt(told)  # or the other side could not make sense of it
                return told
            except Exception:
                return None
    return None


def _rebuilt(told):
    if type(told) is tuple:
        return tuple(map(_rebuilt, told))
    return _BUILT[told.parts[0]](*map(_rebuilt, told.parts[1:])) if type(told) is _Told else told


def _tell_frame(value):
    columns = [_tell_array(value.iloc[:, i].array) for i in range(value.shape[1])]
    return _Told("frame", _tell_index(value.columns), _tell_index(value.index), *columns)


def _tell_series(value):
    return _Told("series", _tell_index(value.index), _name(value.name), _tell_array(value.array))


def _tell_index(value):
    if isinstance(value, pd.RangeIndex):
        return _Told("range", value.start, value.stop, value.step, _name(value.name))
    if isinstance(value, pd.MultiIndex):
        levels, codes = map(_tell_index, value.levels), [np.array(code, dtype=np.int64) for code in value.codes]
        return _Told("levels", tuple(map(_name, value.names)), tuple(levels), *codes)
    freq = value.freqstr if isinstance(value, pd.DatetimeIndex | pd.TimedeltaIndex) else None
    return _Told("index", _name(value.name), freq, _tell_array(value.array))


def _tell_array(value):
    """A column by a letter for its kind and what it consists of."""
    dtype = value.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        told = zone(dtype.tz)
        if told in (None, ""):
            raise _Beyond
        return _Told("array", "zoned", dtype.unit, value.asi8, told)
    if isinstance(dtype, pd.CategoricalDtype):
        codes = np.array(value.codes, dtype=np.int64)
        return _Told("array", "categories", codes, bool(dtype.ordered), _tell_index(dtype.categories))
    if isinstance(dtype, pd.PeriodDtype):
        return _Told("array", "periods", value.asi8, str(dtype).removeprefix("period[").rstrip("]"))
    if isinstance(dtype, pd.IntervalDtype):
        return _Told("array", "intervals", _tell_index(value.left), _tell_index(value.right), dtype.closed)
    if str(dtype) in _MASKED:
        missing = np.asarray(value.isna())
        return _Told("array", "masked", str(dtype), value.to_numpy(dtype.numpy_dtype, na_value=0), missing)
    if isinstance(dtype, pd.StringDtype):
        return _tell_strings(value)
    if isinstance(value, pd.arrays.NumpyExtensionArray):
        dtype = dtype.numpy_dtype
    if not isinstance(dtype, np.dtype):
        raise _Beyond
    plain = value.to_numpy()
    if dtype.kind in "mM":
        return _Told("array", "times", dtype.kind, np.datetime_data(dtype)[0], plain.astype(np.int64))
    if dtype.kind in "biufc" and dtype.char not in "gG":
        return _Told("array", "numbers", plain)
    if dtype.kind != "O":
        raise _Beyond
    members = plain.tolist()
    for each in members:
        _crosses(each)
    return _Told("array", "members", *members)


def _tell_strings(value):
    missing = np.asarray(value.isna())
    texts = ["" if gone else text for text, gone in zip(value.tolist(), missing, strict=True)]
    kind = "pandas" if value.dtype.na_value is pd.NA else "numpy", value.dtype.storage
    size = 4 * len(texts) * max(map(len, texts), default=0)
    if any(text.endswith("\0") for text in texts) or size > max(_WIDE, 32 * sum(map(len, texts))):
        return _Told("array", "texts", *kind, missing, *texts)
    return _Told("array", "strings", *kind, missing, np.array(texts, dtype=np.str_))


def _tell_time(value):
    if value.tzinfo is not None and zone(value.tzinfo) is None:
        raise _Beyond
    return _Told("time", value.unit, int(value.asm8.view(np.int64)), zone(value.tzinfo))


def _name(name):
    """The name of a series or an index: anything hashable that crosses."""
    _crosses(name)
    return name


def _crosses(value):
    if type(value) in (list, tuple, dict, set, frozenset):
        for each in [*value, *value.values()] if type(value) is dict else value:
            _crosses(each)
    elif type(value) not in _MEMBERS:
        raise _Beyond


_TELL = {
    pd.DataFrame: _tell_frame,
    pd.Series: _tell_series,
    pd.Index: _tell_index,
    pd.api.extensions.ExtensionArray: _tell_array,
    pd.Timestamp: _tell_time,
    pd.Timedelta: lambda value: _Told("span", value.unit, int(value.asm8.view(np.int64))),
    pd.Period: lambda value: _Told("period", value.ordinal, value.freqstr),
    pd.Interval: lambda value: _Told("interval", value.left, value.right, value.closed),
}


# ---- and back, from parts that come from anywhere


def _frame(columns, index, *arrays):
    _need(isinstance(columns, pd.Index) and isinstance(index, pd.Index) and len(columns) == len(arrays))
    made = pd.DataFrame({i: _series(index, None, array) for i, array in enumerate(arrays)}, index=index)
    made.columns = columns
    return made


def _series(index, name, array):
    _need(isinstance(index, pd.Index) and _is_array(array) and len(array) == len(index))
    _named(name)
    return pd.Series(array, index=index, name=name, dtype=array.dtype, copy=True)


def _range(start, stop, step, name):
    _need(type(start) is type(stop) is type(step) is int and step and len(range(start, stop, step)) <= LENGTH)
    _named(name)
    return pd.RangeIndex(start, stop, step, name=name)


def _levels(names, levels, *codes):
    _need(type(names) is type(levels) is tuple and len(names) == len(levels) == len(codes))
    _need(all(isinstance(level, pd.Index) for level in levels) and all(map(_whole, codes)))
    for name in names:
        _named(name)
    return pd.MultiIndex(levels=levels, codes=codes, names=names, verify_integrity=True)


def _index(name, freq, array):
    _need(_is_array(array) and (freq is None or (type(freq) is str and len(freq) <= _FREQ)))
    _named(name)
    made = pd.Index(array, dtype=array.dtype, name=name, copy=True)
    if freq is not None:
        made = type(made)(made, freq=freq)
    return made


def _array(kind, *parts):
    _need(type(kind) is str and kind in _ARRAYS)
    return _ARRAYS[kind](*parts)


def _zoned(unit, numbers, told):
    _need(unit in _UNITS and _whole(numbers) and type(told) in (int, str) and told != "")
    return pd.Series(numbers.view(f"M8[{unit}]")).dt.tz_localize("UTC").dt.tz_convert(zoned(told)).array


def _categories(codes, ordered, categories):
    _need(_whole(codes) and type(ordered) is bool and isinstance(categories, pd.Index))
    return pd.Categorical.from_codes(codes, categories=categories, ordered=ordered)


def _periods(numbers, freq):
    _need(_whole(numbers) and type(freq) is str and len(freq) <= _FREQ)
    return pd.PeriodIndex.from_ordinals(numbers, freq=freq).array


def _intervals(left, right, closed):
    _need(isinstance(left, pd.Index) and isinstance(right, pd.Index) and closed in _CLOSED)
    return pd.arrays.IntervalArray.from_arrays(left, right, closed=closed)


def _masked(dtype, numbers, missing):
    _need(
        dtype in _MASKED and type(numbers) is np.ndarray and numbers.dtype == dtype.lower().replace("boolean", "bool")
    )
    _need(numbers.ndim == 1 and _flags(missing, len(numbers)))
    return _MASKED[dtype](numbers.copy(), missing.copy())


def _strings(kind, storage, missing, texts):
    _need(type(texts) is np.ndarray and texts.ndim == 1 and texts.dtype.kind == "U")
    return _texts(kind, storage, missing, *texts.tolist())


def _texts(kind, storage, missing, *texts):
    _need(kind in ("pandas", "numpy") and storage in ("python", "pyarrow") and _flags(missing, len(texts)))
    _need(all(type(text) is str for text in texts))
    absent = pd.NA if kind == "pandas" else np.nan
    dtype = pd.StringDtype(storage) if kind == "pandas" else pd.StringDtype(storage, na_value=np.nan)
    members = [absent if gone else text for text, gone in zip(texts, missing.tolist(), strict=True)]
    return pd.array(members, dtype=dtype)


def _times(kind, unit, numbers):
    _need(kind in ("m", "M") and unit in _UNITS and _whole(numbers))
    return numbers.view(f"{kind}8[{unit}]").copy()


def _numbers(numbers):
    _need(type(numbers) is np.ndarray and numbers.ndim == 1 and numbers.dtype.kind in "biufc")
    return numbers


def _members(*members):
    for each in members:
        _named(each)
    made = np.empty(len(members), dtype=object)
    for i, each in enumerate(members):
        made[i] = each
    return made


def _time(unit, number, told):
    _need(unit in _UNITS and type(number) is int and type(told) in (int, str))
    made = pd.Timestamp(np.datetime64(number, unit))
    return made if told == "" else made.tz_localize("UTC").tz_convert(zoned(told))


def _span(unit, number):
    _need(unit in _UNITS and type(number) is int)
    return pd.Timedelta(np.timedelta64(number, unit))


def _period(ordinal, freq):
    _need(type(ordinal) is int and type(freq) is str and len(freq) <= _FREQ)
    return pd.Period(ordinal=ordinal, freq=freq)


def _interval(left, right, closed):
    _need(closed in _CLOSED)
    _named(left)
    _named(right)
    return pd.Interval(left, right, closed=closed)


_ARRAYS = {
    "zoned": _zoned,
    "categories": _categories,
    "periods": _periods,
    "intervals": _intervals,
    "masked": _masked,
    "strings": _strings,
    "texts": _texts,
    "times": _times,
    "numbers": _numbers,
    "members": _members,
}
_BUILT = {
    "frame": _frame,
    "series": _series,
    "range": _range,
    "levels": _levels,
    "index": _index,
    "array": _array,
    "time": _time,
    "span": _span,
    "period": _period,
    "interval": _interval,
}


def _need(holds):
    if not holds:
        raise Garbled("no value of pandas")


def _named(value):
    """A name, or a member of a column, is a plain value too: pandas would call the methods of any other."""
    try:
        _crosses(value)
    except _Beyond:
        raise Garbled("an object inside a value of pandas") from None


def _is_array(value):
    return (type(value) is np.ndarray and value.ndim == 1) or isinstance(value, pd.api.extensions.ExtensionArray)


def _whole(value):
    return type(value) is np.ndarray and value.dtype == np.int64 and value.ndim == 1


def _flags(value, length):
    return type(value) is np.ndarray and value.dtype == np.bool_ and value.shape == (length,)
