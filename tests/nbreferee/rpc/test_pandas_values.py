"""Frames, series, indexes and their dates cross as values, and nothing else comes of the bytes that say so."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbreferee.rpc.plugins import Garbled, Plugins
from nbreferee.rpc.proxies import Proxy
from nbreferee.rpc.raised import StudentError, StudentLost
from tests.nbreferee.rpc.test_proxies import GOOD, fake, frame, process, there  # noqa: F401

pd = pytest.importorskip("pandas", reason="pandas is a plug-in, absent where it is")

COLUMNS = {
    "whole": [1, 2, 3],
    "text": ["x", None, "z\0"],
    "date": pd.to_datetime(["2020-01-01", None, "2021-02-03"]),
    "kind": pd.Categorical(["u", "v", "u"], categories=["v", "u", "w"], ordered=True),
    "Int": pd.array([1, None, 3], dtype="Int16"),
    "Float": pd.array([1.5, None, 2], dtype="Float32"),
    "maybe": pd.array([True, None, False], dtype="boolean"),
    "flag": [True, False, True],
    "real": [1.5, np.nan, -0.0],
    "single": np.array([1, 2, 3], dtype=np.float32),
    "complex": [1j, 2, 3],
    "mixed": pd.Series([1, "a", None], dtype=object),
    "lists": pd.Series([[1, 2], {"a": (1,)}, None], dtype=object),
    "zoned": pd.to_datetime(["2020-01-01"] * 3).tz_localize("Europe/Berlin"),
    "span": pd.to_timedelta([1, 2, 3], unit="s"),
    "string": pd.array(["q", None, "grün"], dtype="string"),
    "bin": pd.cut([1, 5, 9], [0, 3, 6, 10]),
    "month": pd.period_range("2020-01", periods=3, freq="M"),
}
DF = pd.DataFrame(COLUMNS)
VALUES = {
    "frame": DF,
    **{name: DF[name] for name in COLUMNS},
    "index of two": DF.set_index(["whole", "text"])[["real", "kind"]],
    "grouped": DF.groupby("kind", observed=False)["real"].mean(),
    "pivot": DF.pivot_table(index="flag", columns="kind", values="real", observed=True),
    "days": pd.date_range("2020", periods=4, freq="D", tz="UTC"),
    "business days": pd.Series(range(4), index=pd.date_range("2020", periods=4, freq="B"), name=("a", 1)),
    "range": pd.RangeIndex(3, 9, 2, name="r"),
    "levels": pd.MultiIndex.from_tuples([("a", 1), ("b", 2), ("a", 2)], names=["p", None]),
    "empty": pd.DataFrame(),
    "no rows": pd.DataFrame({"a": [], "b": pd.Series(dtype="str")}),
    "twice": pd.DataFrame(np.arange(6.0).reshape(2, 3), columns=list("xxy")),
    "turned": DF[["whole", "real"]].T,
    "described": DF[["whole", "real", "date"]].describe(),
    "counts": DF["flag"].value_counts(),
    "array": DF["text"].array,
}
SCALARS = [pd.Timestamp("2020-01-02 03:04:05.678"), pd.Timestamp("2020-06-01", tz="Europe/Berlin"), pd.Timedelta("1h")]
SCALARS += [pd.NaT, pd.NA, pd.Period("2020-01"), pd.Interval(1, 2.5, closed="both")]


def same(found, value):
    assert type(found) is type(value)
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(found, value)
    elif isinstance(value, pd.Series):
        pd.testing.assert_series_equal(found, value)
    elif isinstance(value, pd.Index):
        pd.testing.assert_index_equal(found, value, exact=True)
        assert getattr(found, "freq", None) == getattr(value, "freq", None)
    elif isinstance(value, pd.api.extensions.ExtensionArray):
        pd.testing.assert_extension_array_equal(found, value)
    else:
        assert found is value or (found == value and repr(found) == repr(value))


@pytest.mark.parametrize("value", [*VALUES.values(), *SCALARS], ids=[*VALUES, *map(repr, SCALARS)])
def test_a_value_goes_there_and_back(there, value):  # noqa: F811
    there.run("def name(x): return {'k': [x]}, type(x).__name__")
    found, name = there.value("name")(value)
    same(found["k"][0], value)
    assert name == type(value).__name__


def test_the_test_reckons_with_its_own_frame(there):  # noqa: F811
    code = "import pandas as pd\nclass Sly(pd.DataFrame):\n    def equals(self, other): return True\n"
    code += "    def __eq__(self, other): return pd.DataFrame([[True]])\n"
    code += "sly = Sly({'a': [1]})\nx = sly['a']\nx.__class__ = type('S', (pd.Series,), {'equals': lambda s, o: True})"
    there.run(code)
    sly, x = there.value("sly"), there.value("x")
    assert type(sly) is pd.DataFrame and not sly.equals(pd.DataFrame({"a": [2]})) and (sly == 1).all(axis=None)
    assert type(x) is pd.Series and not x.equals(pd.Series([2]))


def test_a_frame_is_a_copy(there):  # noqa: F811
    there.may_change = False
    f = there.run("def f(df):\n    df['b'] = 0\n    return df", "f")
    df = pd.DataFrame({"a": [1, 2]})
    assert list(f(df).columns) == ["a", "b"] and list(df.columns) == ["a"]


def test_a_frame_of_other_objects_stays_there_and_the_message_has_a_cure(there):  # noqa: F811
    found = there.run("import pandas as pd\nclass Evil: pass\ndf = pd.DataFrame({'a': [Evil()]})", "df")
    assert isinstance(found, Proxy)
    with pytest.raises(TypeError, match="object of type DataFrame; it holds more than numbers"):
        assert found == 1


def test_calls_say_what_a_frame_is_like(there):  # noqa: F811
    f = there.run("def f(x): return x.mean()", "f")
    there.calls.clear()
    f(pd.Series([1.0, 2.0, 6.0]))
    f(pd.DataFrame({"a": [1], "b": [2]}))
    assert [call.what for call in there.calls] == ["f(series (3,) float64: [1, 2, 6])", "f(frame (1, 2))"]
    assert there.calls[0].came == "3"


def test_a_frame_that_says_more_than_it_holds_is_refused(there):  # noqa: F811
    code = "import pandas as pd\ndef f(): return pd.Series(0, index=[0])\n"
    there.run(code + "far = pd.RangeIndex(10**7)\nfurther = pd.RangeIndex(10**15)\nmany = [far] * 3")
    assert len(there.value("far")) == 10**7
    with pytest.raises(StudentError, match="more than 200000 values"):
        there.value("many")
    assert isinstance(there.value("further"), Proxy)
    assert there.value("f")().tolist() == [0]


ARRAY = ("v", "pandas", "array", "numbers", np.arange(2))
INDEX = ("v", "pandas", "index", None, None, ARRAY)
EVIL = ("h", "Evil", 5, 1)
BAD = [
    ("v", "pandas", "series", INDEX, EVIL, ARRAY),
    ("v", "pandas", "series", EVIL, None, ARRAY),
    ("v", "pandas", "series", INDEX, None, ("v", "pandas", "array", "numbers", np.arange(3))),
    ("v", "pandas", "series", INDEX, None, ("v", "pandas", "array", "members", EVIL, 1)),
    ("v", "pandas", "series", INDEX, None, ("v", "pandas", "array", "members", ("t", ("t", EVIL)), 1)),
    ("v", "pandas", "series", INDEX, None, EVIL),
    ("v", "pandas", "frame", INDEX, INDEX, ARRAY),
    ("v", "pandas", "array", "masked", "Int8", np.arange(2), np.array([True, False])),
    ("v", "pandas", "array", "categories", np.array([0, 9]), False, INDEX),
    ("v", "pandas", "array", "zoned", "ns", np.arange(2), "../../etc/passwd"),
    ("v", "pandas", "array", "periods", np.arange(2), "x" * 100),
    ("v", "pandas", "array", "nothing", np.arange(2)),
    ("v", "pandas", "index", None, "D", ARRAY),
    ("v", "pandas", "levels", ("t", None), ("t", INDEX), np.array([0, 7])),
    ("v", "pandas", "range", 0, 10**15, 1, None),
    ("v", "pandas", "interval", EVIL, 2, "both"),
    ("v", "pandas", "read_pickle", "x"),
    ("v", "os", "system", "true"),
    ("v", "pandas"),
    ("n", "pandas", "DataFrame"),
]


@pytest.mark.parametrize("node", BAD, ids=lambda node: str(node[2:4]))
def test_what_is_no_value_of_pandas_ends_the_conversation(node):
    with fake([GOOD, frame(("=", "", None, node, [], [], [], ""))]) as made, pytest.raises(StudentLost) as caught:
        made.value("x")
    assert caught.value.reason == "the student's process spoke out of turn"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_value_of_any_parts_is_built_or_garbled(data):
    names = "frame series range levels index array time span period interval".split()
    part = st.one_of(
        st.none(),
        st.integers(-3, 9),
        st.sampled_from(["numbers", "members", "texts", "python", "pandas", "ns", "D", "both", "UTC", "Int64", "M"]),
        st.sampled_from([np.arange(2), np.array([True, False]), np.ones((2, 2)), pd.Index([1, 2]), pd.array([1, 2])]),
        st.tuples(st.none()),
    )
    plugin = Plugins(None).of("pandas")
    try:
        found = plugin.built(data.draw(st.sampled_from(names)), data.draw(st.lists(part, max_size=6)))
    except Garbled:
        return
    assert found is None or type(found).__module__.startswith(("pandas", "numpy"))


def test_nothing_of_pandas_is_imported_where_it_is_not_used():
    code = "import nbreferee.rpc.student, nbreferee.rpc.agent, sys; "
    code += "assert not {'pandas', 'torch'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
