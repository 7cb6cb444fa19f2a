"""What is said of a test by its text alone: whose object gives the verdict, and what a student will read of it."""

import pytest

from nbreferee.judge.doubts import doubts
from nbreferee.judge.job import ANSWER, GIVEN, SANDBOXED, TEST, Job, Step

ASKED = (Step(ANSWER, "answer", "", asks=("tot", "Box")),)
DELEGATED = {
    "assert tot(df).equals(want)": "want.equals(…)",
    "got = tot(df)\nassert got.equals(want), 'no'": "want.equals(…)",
    "got, other = tot(df)\nassert ok and not other.eq(want).all()": "want.eq(…)",
    "if not Box().value.allclose(want):\n    raise AssertionError": "want.allclose(…)",
    "for each in tot(df):\n    assert bool(each.equal(want))": "want.equal(…)",
    "assert all(row.equals(w) for row, w in zip(tot(df), want))": None,  # zip hides whose it is: limit
    "assert all([row.eq(want) for row in tot(df)])": "want.eq(…)",
    "self.assertTrue(tot(df).equals(want))": "want.equals(…)",
    "assert (box := Box()).equals(want) and box.same(want)": "want.same(…)",
    "ok = tot(df).equals(want)\nassert ok": "want.equals(…)",
    "ok = True\nok &= tot(df).equals(want)\nsame = ok and other\nassert same, 'no'": "want.equals(…)",
    "assert (ok := tot(df).equals(want))": "want.equals(…)",
    "assert tot(df).equals(want) == True": "want.equals(…)",
    "assert tot(df).equals(want) is not False": "want.equals(…)",
    "assert len(tot(x).diff(want)) == 0": "what `diff` computes",
    "assert not len(tot(x).diff(want))": "what `diff` computes",
    "found = tot(x).diff(want)\nn = len(found)\nassert 0 == n": "what `diff` computes",
    "assert tot(x).compare(want).empty": "what `compare` computes",
    "gap = tot(x).compare(other=want)\nassert gap.n == 0 and 1 < 2": "what `compare` computes",
    "assert tot(x).difference(want) == 0": "what `difference` computes",
    "assert tot(x).difference([1, 2]) == set()": "what `difference` computes",
    "tol = 1e-9\nassert abs(tot(x).sub(want)).max() < tol": "what `sub` computes",
    "model = tot(x)\nassert model.score(X, labels) > 0.9": "what `score` computes",
    "class T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(tot(x).gap(want).n, 0)": "what `gap`",
    "assert tot(x).gap(np.array([1.0])) is None": "what `gap` computes",
}


@pytest.mark.parametrize("source", DELEGATED)
def test_an_answers_own_object_does_not_give_the_verdict(source):
    found, cure = doubts(Job((*ASKED, Step(TEST, "t", source)))), DELEGATED[source]
    assert [cure in sentence for sentence in found] == ([True] if cure else [])
    assert all(sentence.startswith("t, line ") and "verdict" in sentence for sentence in found)


CLASS = (Step(ANSWER, "answer", "", asks=("Stack", "stack"), classes=("Stack", "stack")),)


@pytest.mark.parametrize(
    "source",
    [
        "s = Stack(3)\nassert s.push(want) == 0 and s.where(want).n == 0",
        "assert stack.find_all(want) == [] and not stack.find_all(want).left",
    ],
)
def test_a_method_of_a_class_that_was_asked_for_is_the_exercise(source):
    assert doubts(Job((*CLASS, Step(TEST, "t", source)))) == []
    other = (Step(ANSWER, "answer", "", asks=("Stack", "stack")),)
    assert doubts(Job((*other, Step(TEST, "t", source)))) != []


@pytest.mark.parametrize(
    "source",
    [
        "assert want.equals(tot(df))",
        "assert np.allclose(tot(df), want)",
        "assert tot(df).shape == want.shape and tot(df) == 3",
        "assert Box().contains(3)",  # a method that the exercise asks for
        "assert len(tot(df).eq(want)) == 2",
        "assert (tot(df) == want).all()",
        "assert torch.equal(tot(df), want)",
        "ok = want.equals(tot(df))\nassert ok and ok == True",
        "ok = tot(df).equals(want)\nassert want.equals(tot(df))",  # concludes nothing from it
        "assert len(want.compare(tot(df))) == 0 and want.compare(tot(df)).empty",
        "assert abs(want - tot(df)).max() < 1e-9 and tot(x).max() < 1e-9 and tot(df).isna().sum().sum() == 0",
        "assert tot(x).mean(axis=0).sum() == 0 and tot(x).mean(0)[1] == 0 and tot(x).min() >= 0",
        "assert tot(x).reshape(len(x), -1).min() > 0 and tot(x).sum(dtype=np.float64) == 0",
        "assert tot(x).count(want) == 0 and tot(x).get(want) is None and (tot(x).predict(X) == labels).mean() > 0.9",
        "y, vjp = tot(x)\nassert vjp(g).sum() == 0 and vjp(g)[0] == 0 and tot(want) == 0 and len(tot(want)) == 0",
        "assert tot(df).groupby('a').size() == 3 and tot(text).startswith(want) and tot(x).gap(want) == 17",
        "assert tot(x).shape == () and tot(x).empty",
        "assert (",
        "%matplotlib inline\nassert tot(1) == 1",
    ],
)
def test_a_value_of_the_tests_own_may_give_it(source):
    assert doubts(Job((*ASKED, Step(TEST, "t", source)))) == []


CLASSED = [
    "assert isinstance(tot(df), LogisticRegression)",
    "model = tot(df)\nassert isinstance(model, (dict, sklearn.base.BaseEstimator)), 'no model'",
    "assert isinstance(tot(df), int | Circle)",
    "if not issubclass(Box, Shape):\n    raise AssertionError",
    "assert isinstance(other, Box)\nassert isinstance(Box(1), Box)",
    "assert type(tot(df)) is LogisticRegression",
    "assert type(tot(df)).__name__ == 'LogisticRegression'",
    "assert tot(df).__class__.__name__ in ['Ridge', 'Lasso']",
    "class T(unittest.TestCase):\n    def test(self):\n        self.assertIsInstance(tot(df), Pipeline)",
]


@pytest.mark.parametrize("source", CLASSED)
def test_a_test_that_asks_for_the_class_of_an_answers_object_is_named(source):
    found = doubts(Job((*ASKED, Step(TEST, "t", source))))
    assert len(found) == 1 and "asks for the class" in found[0] and "sandboxed" in found[0]
    assert doubts(Job((*ASKED, Step(TEST, "t", source, run=SANDBOXED)))) == []


@pytest.mark.parametrize(
    "source",
    [
        "assert isinstance(tot(df), np.ndarray) and isinstance(tot(1), (int, np.integer | float))",
        "assert isinstance(tot(df), pd.DataFrame | torch.Tensor)",
        "assert isinstance(want, LogisticRegression)",
        "assert type(tot(1)) is int and type(tot(1)) in (int, float)",
        "assert type(tot(1)) == type(want)",
        "assert tot(1) == 2, f'got a {type(tot(1)).__name__}, not a Box'",
        "kinds = int, float\nassert isinstance(tot(1), kinds)",
        "assert callable(tot) and isinstance(tot, Callable)",
    ],
)
def test_the_class_of_a_value_is_known(source):
    assert doubts(Job((*ASKED, Step(TEST, "t", source)))) == []


MUTE = {
    "np.testing.assert_allclose(tot(1), 2)": "err_msg=",
    "from numpy.testing import assert_array_equal\nassert_array_equal(tot(1), 2)": "err_msg=",
    "torch.testing.assert_close(tot(1), 2)": "msg=",
    "class T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(tot(1), 2)": "msg=",
}


@pytest.mark.parametrize("source", MUTE)
def test_a_hidden_test_that_shows_nothing_is_named(source):
    job = Job((*ASKED, Step(TEST, "t", source, hidden=True)))
    assert len(doubts(job)) == 1 and MUTE[source] in doubts(job)[0] and "did not pass" in doubts(job)[0]
    assert doubts(Job((*ASKED, Step(TEST, "t", source)))) == []  # a shown test may show all
    assert doubts(Job((*ASKED, Step(TEST, "t", source, hidden=True, run=SANDBOXED)))) == []
    worded = source.replace(", 2)", f", 2, {MUTE[source]}'no')")
    assert doubts(Job((*ASKED, Step(TEST, "t", worded, hidden=True)))) == []


def test_a_helper_of_the_authors_own_speaks_the_authors_words():
    helper = Step(GIVEN, "g", "def assert_same(a, b):\n    assert a == b, 'not the same'")
    assert doubts(Job((helper, *ASKED, Step(TEST, "t", "assert_same(tot(1), 2)", hidden=True)))) == []
