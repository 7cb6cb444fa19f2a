"""What says no more than a plain value crosses where nothing is lost; for the rest the message has a cure."""

import datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from nbreferee.rpc import plain
from tests.nbreferee.rpc.test_proxies import process, there  # noqa: F401

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "value",
    [
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 12, 30, 1, 5),
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
        datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3, seconds=7))),
        datetime.time(23, 59, fold=1),
        datetime.timedelta(-1, 3, 7),
        Decimal("1.10"),
        Decimal("-Infinity"),
        Fraction(-3, 7),
        np.datetime64("2024-02-29"),
        np.datetime64("NaT"),
        np.timedelta64(5, "h"),
        np.array(["2024-02-29", "NaT"], dtype="M8[us]"),
        np.arange(6).reshape(2, 3).astype("m8[s]").T,
        np.array(["2024"], dtype=">M8[Y]"),
        {datetime.date(2024, 1, 1): [Decimal(1)]},
    ],
    ids=repr,
)
def test_dates_and_exact_numbers_are_values(there, value):  # noqa: F811
    there.run("import copy\ndef same(x): return copy.deepcopy(x), type(x).__name__, repr(x)")
    found, name, text = there.value("same")(value)
    assert type(found) is type(value) and (name, text) == (type(value).__name__, repr(value)) and repr(found) == text
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype and np.array_equal(found, value, equal_nan=True)
    else:
        assert found == value or str(value) == "NaT"


LOSSLESS = {
    "np.longdouble(0.1)": np.float64(0.1),
    "np.longdouble('nan')": np.float64("nan"),
    "np.clongdouble(1 + 2j)": np.complex128(1 + 2j),
    "np.arange(3, dtype=np.longdouble) / 4": np.arange(3) / 4,
    "np.matrix([[1, 2], [3, 4]])": np.array([[1, 2], [3, 4]]),
    "np.ma.array([1.5, 2.5], mask=[False, False])": np.array([1.5, 2.5]),
    "np.array([[1, 2], [3, -2**63]], dtype=object)": np.array([[1, 2], [3, -(2**63)]]),
    "np.array([True, False], dtype=object)": np.array([True, False]),
    "np.array([0.5, 2.0], dtype=object)": np.array([0.5, 2.0]),
    "np.array([np.float64(0.5), 2.0], dtype=object)": np.array([0.5, 2.0]),
    "np.array(['a', 'bcd'], dtype=object)": np.array(["a", "bcd"]),
    "np.arange(4.0).view(type('Own', (np.ndarray,), {}))": np.arange(4.0),
}


@pytest.mark.parametrize("code, value", LOSSLESS.items(), ids=LOSSLESS)
def test_what_loses_nothing_is_converted(there, code, value):  # noqa: F811
    found = there.run(f"import numpy as np\nx = {code}", "x")
    assert type(found) is type(value) and found.dtype == value.dtype
    assert np.array_equal(found, value, equal_nan=value.dtype.kind in "fc")
    nested = there.run("y = {'a': [x]}", "y")
    assert np.array_equal(nested["a"][0], value, equal_nan=value.dtype.kind in "fc")


LOSSY = {
    "np.longdouble(1) / 3": r"float\(",
    "np.array([1, 3], np.longdouble) / 3": r"\.astype\(np.float64\)",
    "np.ma.array([1.5, 2.5], mask=[False, True])": r"masked; return it \.filled",
    "np.array([1, 2**70], dtype=object)": r"np.array\(…, dtype=float\)",
    "np.array([1, 'a'], dtype=object)": r"np.array\(…, dtype=float\)",
    "np.array([None], dtype=object)": r"np.array\(…, dtype=float\)",
}


@pytest.mark.parametrize("code, cure", LOSSY.items(), ids=LOSSY)
def test_of_anything_else_the_message_says_what_to_return(there, code, cure):  # noqa: F811
    found = there.run(f"import numpy as np\nx = {code}", "x")
    with pytest.raises(TypeError, match=cure):
        np.testing.assert_allclose(found, 1)


def test_numbers_of_sympy_are_numbers(there):  # noqa: F811
    sympy = pytest.importorskip("sympy", reason="SymPy is no part of the grader")
    code = "from sympy import *\nx = Symbol('x')\nexact = ((x**2).subs(x, 3), Rational(1, 3), Float(0.1), S.Half, S(0))"
    found = there.run(code, "exact")
    assert found == (9, Fraction(1, 3), 0.1, Fraction(1, 2), 0)
    assert list(map(type, found)) == [int, Fraction, float, Fraction, int]
    assert found[1] == sympy.Rational(1, 3) and sympy.Rational(1, 3) == found[1] and sympy.Integer(9) == found[0]
    for more in ("Float('0.1', 40)", "pi", "x + 1"):
        with pytest.raises(TypeError, match="the answer returned an object"):
            assert there.run(f"y = {more}", "y") == 1


def test_parts_from_anywhere_are_a_date_or_nothing():
    wrong = [[], [1], [1.5], [1, 2, 3.0], [np.ones(2)], [True, 1, 1], [None] * 9, ["<M8[ns]", np.ones(2), False]]
    for name in ("date", "datetime", "time", "timedelta", "decimal", "fraction", "times", "x"):
        for parts in wrong:
            assert plain.built(name, parts) is None, (name, parts)
    for name, parts in (("date", [0, 0, 0]), ("fraction", [1, 0]), ("decimal", ["x"])):
        with pytest.raises((ValueError, ArithmeticError)):
            plain.built(name, parts)
    with pytest.raises(Exception, match=r"(?i)no time zone|key"):
        plain.built("datetime", [2024, 1, 1, 0, 0, 0, 0, 0, "../../etc/passwd"])
