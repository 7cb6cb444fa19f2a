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
}


@pytest.mark.parametrize("source", DELEGATED)
def test_an_answers_own_object_does_not_give_the_verdict(source):
    found, cure = doubts(Job((*ASKED, Step(TEST, "t", source)))), DELEGATED[source]
    assert [cure in sentence for sentence in found] == ([True] if cure else [])
    assert all(sentence.startswith("t, line ") and "verdict" in sentence for sentence in found)


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
        "assert (",
        "%matplotlib inline\nassert tot(1) == 1",
    ],
)
def test_a_value_of_the_tests_own_may_give_it(source):
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
