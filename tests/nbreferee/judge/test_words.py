"""What a failed test says: the author's words in a hidden one, plain words for Python's, nothing for an empty page."""

import math
from pathlib import Path

import pytest

from nbreferee.intake.answers import Answers, Own
from nbreferee.judge.job import RunLimits, plan
from nbreferee.judge.words import ROOM, bounded, unpacked, veiled
from tests.nbreferee.judge import test_grader
from tests.nbreferee.judge.test_grader import asked, check, given, hidden, marks, new_notebook, referee

__all__ = ["referee"]
ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.uses("walls")

ANSWER = asked("answer", "def f(x):\n    return 2 * x")
WRONG = {"answer": "def f(x):\n    return 3 * x"}
LIBRARIES = {
    "numpy": "import numpy as np\nnp.testing.assert_allclose(f(np.array([7111, 9222])), [14222, 18444]{})",
    "numpy, an array": "import numpy as np\nnp.testing.assert_array_equal(f(np.array([7111, 9222])), [14222, 18444]{})",
    "torch": "import torch\ntorch.testing.assert_close(torch.tensor(f(7111.0)), torch.tensor(14222.0){})",
    "unittest": "import unittest\nunittest.TestCase().assertEqual(f(7111), 14222{})",
}
KEYWORD = {"numpy": "err_msg", "numpy, an array": "err_msg", "torch": "msg", "unittest": "msg"}
SECRETS = ("7111", "14222", "9222", "18444", "21333", "DESIRED", "71", "142")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_hidden_test_shows_the_authors_words_and_no_values_of_a_library(library):
    bare = hidden("bare", LIBRARIES[library].format(""))
    worded = hidden("worded", LIBRARIES[library].format(f", {KEYWORD[library]}='f doubles'"))
    shown = check("shown", LIBRARIES[library].format(""))
    result = marks([ANSWER, bare, worded, shown], WRONG, limits=RunLimits(cell_s=30)).by_test
    assert (result["bare"].state, result["bare"].message) == ("failed", "the test did not pass")
    assert (result["worded"].state, result["worded"].message) == ("failed", "f doubles")
    assert "21333" in result["shown"].message  # of a shown test all is said


def test_a_library_that_a_given_cell_calls_is_not_the_author():
    """The helper is the author's, the difference is NumPy's."""
    helper = "import numpy as np\ndef same(a, b, name):\n    "
    helper += "np.testing.assert_allclose(a, b, err_msg=f'{name} is wrong')"
    result = marks([given(helper), ANSWER, hidden("t", "same(f(7111), 14222, 'twice seven')")], WRONG).tests[0]
    assert result.message == "twice seven is wrong"


SHAPE = "return np.zeros([int(d) + 1 for d in f'{x[0]:.10f}'[2:]], bool)"
HOLES = {
    "a shape": ("import numpy as np\ndef f(x):\n    " + SHAPE, "got = f(np.array([0.7351926408]))\n"
                "assert got.shape == (1,), f'f has shape {got.shape}; expected {(1,)}'",
                "f has shape (more axes than expected); expected (1,)"),
    "a text": ("def f(x):\n    return 'LOOT' + str(x[0])", "got = f([0.7351926408])\nassert got == 1, f'f is {got}'",
               "f is …"),
    "a number": ("def f(x):\n    return x[0]", "got = f([0.7351926408])\nassert got == 1, f'f is {got}; not 1'",
                 "f is 0.735; not 1"),
    "another error": ("def f(x):\n    raise ValueError('LOOT' + str(x[0]))",
                      "try:\n    f([0.7351926408])\nexcept ValueError as error:\n    "
                      "raise AssertionError(f'f stops: {error}')",
                      "f stops: …"),
}  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_the_holes_of_a_hidden_message_are_bounded(hole):
    answer, test, message = HOLES[hole]
    cells = [given("import numpy as np"), ANSWER, hidden("h", test), check("s", test)]
    result = marks(cells, {"answer": answer}).by_test
    assert result["h"].message == message and result["h"].state == "failed"
    whole = result["s"].message  # of a shown test everything is said
    assert "0.7351926408" in whole or "(8, 4, 6, 2, 10, 3, 7, 5, 1, 9)" in whole


def test_the_words_of_the_courses_own_check_stay():
    test = "compare(f(np.array([1.0, 2.0])), [2.0, 4.0], name='Y', mistakes={'you tripled; double it': [3.0, 6.0]})"
    cells = [given("import numpy as np\nfrom attnmath.check import compare"), ANSWER, hidden("h", test)]
    result = marks(cells, {"answer": "def f(x):\n    return 3 * x"}).tests[0]
    assert (result.message, result.mistake) == ("Y: you tripled; double it", "you tripled; double it")
    result = marks(cells, {"answer": "def f(x):\n    return 2 * x[:1]"}).tests[0]
    assert result.message == "Y has shape (1,); expected (2,)"
    result = marks(cells, {"answer": "def f(x):\n    return 2 * x + [0, 0.123456]"}).tests[0]
    assert result.message == "Y differs in 1 of 2 entries, most at [1]: got 4.12, expected 4"


def test_what_a_tests_author_raises_is_a_failure_in_the_authors_words():
    raises = "if f(7) != 14:\n    raise ValueError(f'f doubles, and {f(7)} is not 14')"
    result = marks([ANSWER, check("t", raises), hidden("h", raises)], WRONG).by_test
    assert (result["t"].state, result["t"].message) == ("failed", "f doubles, and 21 is not 14")
    assert (result["h"].state, result["h"].message) == ("failed", "f doubles, and 21 is not 14")
    helper = given("def same(a, b):\n    if a != b:\n        raise RuntimeError('not the same')")
    assert marks([helper, ANSWER, check("t", "same(f(1), 2)")], WRONG).tests[0].state == "failed"
    cannot = marks([ANSWER, check("t", "f(1) + 1")], {"answer": "def f(x): return None"}).tests[0]
    assert cannot.state == "invalid"  # that Python raises itself


@pytest.mark.parametrize(
    ("body", "words"),
    [("1, 2, 3", "more than the 2 values"), ("(1,)", "fewer than the 2 values"), ("1", "one thing where")],
)
@pytest.mark.parametrize("make", [check, hidden])
def test_values_that_cannot_be_unpacked_are_told_in_plain_words(body, words, make):
    result = marks([ANSWER, make("t", "y, vjp = f(1)")], {"answer": f"def f(x): return {body}"}).tests[0]
    assert result.state == "failed" and words in result.message and "unpack" not in result.message


# An answer that nobody touched

STUB = "def f(x):\n    raise NotImplementedError()"
CATCHES = (
    "try:\n    f(1)\nexcept RuntimeError as error:\n    raise AssertionError(f'f: {error}; do not raise') from None"
)


def untouched(cells, answers, names):
    return run_job(cells, Answers(answers, (), tuple(names), ()))


def run_job(cells, answers):
    return test_grader.run(plan(new_notebook(cells=cells), answers, test_grader.LIMITS)).result()


def test_an_untouched_answer_is_unanswered_whatever_the_test_makes_of_it():
    cells = [ANSWER, check("caught", CATCHES), hidden("other", "assert callable(f) and f.__name__ == 'g', 'a name'")]
    cells += [check("inside", "assert f(1) == 2, 'no'", run="sandboxed", needs=["caught"])]
    result = untouched(cells, {"answer": STUB}, ["answer"])
    assert {test.state for test in result.tests} == {"unanswered"}
    assert {test.message for test in result.tests} == {"nothing was written into the answer yet"}
    result = untouched(cells, {"answer": "def f(x):\n    raise RuntimeError('mine')"}, [])
    assert [test.state for test in result.tests] == ["failed", "failed", "withheld"]


def test_an_answer_is_judged_though_another_was_left_out():
    cells = [ANSWER, asked("second", "def g(x):\n    return f(x)"), check("t", "assert g(f(1)) == 4, 'twice'")]
    result = untouched(cells, {"answer": STUB, "second": "def g(x):\n    return 0"}, ["answer"])
    assert result.tests[0].state == "unanswered"  # f raises NotImplementedError
    stub = "def f(x):\n    return None  # YOUR CODE"
    result = untouched(cells, {"answer": stub, "second": "def g(x):\n    return 0"}, ["answer"])
    assert result.tests[0].state == "failed"


# The line that raised


def long_cell(lines):
    body = "\n".join(f"    if x == {n}: raise ValueError" for n in range(lines))
    return f"def f(x):\n{body}\n    return 0"


def test_the_line_of_an_error_is_shown_where_it_tells_little():
    """In a cell of a thousand lines, the number of the one that raised is the hidden input."""
    cells = [ANSWER, hidden("h", "f(37)")]
    assert "raise ValueError" in marks(cells, {"answer": long_cell(40)}).tests[0].trace
    told = marks(cells, {"answer": long_cell(400)}).tests[0]
    assert told.trace == "" and told.message == "your code raised ValueError"


def test_a_line_of_another_cell_is_not_shown():
    """Each of a hundred short cells could stand for an input."""
    own = [Own(f"def r{n}(x):\n    raise ValueError  # {n}", None) for n in range(30)]
    calls = {"answer": "def f(x):\n    return globals()[f'r{x}'](x)"}
    told = marks([ANSWER, hidden("h", "f(17)")], calls, own).tests[0]
    assert "17" not in told.trace and "return globals()" in told.trace


# What a student's process tells of a hidden test


def test_a_hidden_sandboxed_message_has_two_short_numbers():
    inside = "### BEGIN HIDDEN TESTS\nn = f(5)\nassert n == 10, f'f makes {n} of {10}'\n### END HIDDEN TESTS"
    cells = [ANSWER, check("shown", "assert f(3) == 6"), check("in", inside, run="sandboxed", needs=["shown"])]
    said = marks(cells, {"answer": "def f(x): return 2 * x if x == 3 else 31.25"}).by_test["in"]
    assert said.message == "f makes 31.2 of 10"
    spells = "def f(x):\n    if x == 3: return 6\n    raise AssertionError('f makes 104105032116104 of 101114101')"
    said = marks(cells, {"answer": spells}).by_test["in"]
    assert "104105" not in said.message and said.message == "f makes 1.04e+14 of 1.01e+08"
    many = "def f(x):\n    if x == 3: return 6\n    raise AssertionError('f makes 10 11 12 13 14 15 of 16')"
    assert marks(cells, {"answer": many}).by_test["in"].message == "f makes 10 11 … of …"


def test_a_short_literal_takes_no_part_of_a_longer_one():
    code = 'f"weights {of_what}"; f"{name} of one row sum to {total}"'
    assert veiled("weights of one row sum to 2", (code,)) == "… of one row sum to 2"


def test_numbers_and_names_have_room_for_so_many():
    assert bounded("1 2 3 4 5 6 7 8") == "1 2 3 4 5 6 …"
    assert veiled("one two", ("'one two'",)) == "one two" and veiled("two one", ("'one two'",)) == "…"
    assert unpacked("something else") == ""


HAS = "f'{name} has shape {got.shape}; expected {want.shape}'"
SHAPES = {  # of the answer, expected: what a student reads of a hidden test
    ("(128, 64)", "(64, 128)"): "(128, 64)",
    ("(2, 3, 4, 5)", "(2, 3, 5, 4)"): "(2, 3, 4, 5)",
    ("(7,)", "(64, 128)"): "(7,)",
    ("()", "(10, 12, 14)"): "()",
    ("(7, 3)", "(2, 3, 4, 5, 6, 7)"): "(7, 3)",
    ("(10, 20, 30)", "(100, 200, 300)"): "(10, 20, 30)",
    ("(2048, 64)", "(64, 2048)"): "(2048, 64)",
    ("torch.Size([2, 3])", "torch.Size([3, 2])"): "torch.Size([2, 3])",
    ("(7, 3, 5, 1)", "(2, 3)"): "(more axes than expected)",
    ("(7, 3, 5)", "(2, 3)"): "(more axes than expected)",
    ("(8, 4, 6, 2, 10, 3, 7, 5, 1, 9)", "(3,)"): "(more axes than expected)",
    ("(7, 3)", "()"): "(more axes than expected)",
    ("torch.Size([7, 3, 5])", "torch.Size([3])"): "(more axes than expected)",
    ("(73519264,)", "(3,)"): "(7.35e+07,)",
}


@pytest.mark.parametrize(("got", "want"), SHAPES)
def test_a_shape_is_shown_up_to_the_expected_rank_and_the_expected_one_always(got, want):
    said = veiled(f"W has shape {got}; expected {want}", (HAS, "W"))
    assert said == f"W has shape {SHAPES[got, want]}; expected {want}"


def test_numbers_are_many_by_their_separators_not_by_their_digits():
    assert bounded("(16384, 8192)") == "(1.64e+04, 8.19e+03)" and bounded("(128, 640, 12)") == "(128, 640, 12)"
    assert bounded("(1, 2, 3, 4, 5)") == bounded("[1 2 3 4 5 6]") == bounded("[0.1, 2e3, 3., 4, 5,]") == "…"


def test_an_answers_own_text_expects_nothing():
    """Neither by the author's word, which stands there twice then, nor where the answer tells the whole message."""
    twice = veiled("W has shape ; expected (1, 2, 3, 4, 5, 6, 7, 8); expected 3", (HAS,))
    assert "(1, 2" not in twice and twice.endswith(" 3")
    room = {"number": 2, "name": 2, "mark": 9}
    assert "3" not in veiled("W has shape (1, 2, 3); expected (1, 2, 3)", (HAS,), room)
    assert veiled("expected (7, 3) and more", ("'other'",)) == "… (7, 3) …"  # no author says so


def test_a_shape_that_is_not_to_be_had_leaves_the_rest():
    said = veiled("W has shape (7, 3, 5); expected (64, 128) in float32", (HAS + "; W",))
    assert said == "W has shape (more axes than expected); expected (64, 128) … float32"


def test_the_bits_that_the_documentation_names_are_those_that_a_message_has_room_for():
    number = 1 + math.log2(900) + math.log2(617)  # sign, three digits, exponent
    marks = "][(){},.:;=<>'\"-"
    assert all(bounded(mark) == mark for mark in marks)
    bits = ROOM["number"] * number + ROOM["name"] * 8 + ROOM["mark"] * math.log2(len(marks))
    assert 15 < number < 25 and 300 < bits < 350, bits
    for page in ("lib/nbreferee/docs/tests.md", "chapters/instructors/guide.md"):
        assert "about 350 bits" in (ROOT / page).read_text(encoding="utf-8")
