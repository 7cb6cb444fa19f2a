"""What the documentation promises of a test is so: each example is a test cell that is run split."""

import json
import re
import tomllib
from functools import partial
from pathlib import Path

import pytest

from nbreferee.course import settings
from nbreferee.course.settings import Settings
from nbreferee.course.trial import reference_answers, trial
from nbreferee.intake.answers import Answers
from nbreferee.judge.job import plan
from nbreferee.walls.sandbox import Policy
from nbreferee.walls.supervisor import Zygote
from nbreferee.workers.pool import Local
from tests.nbreferee.course.test_migrate import notebook

DOCS = Path(__file__).resolve().parents[2] / "lib" / "nbreferee" / "docs"
GIVEN = """
import datetime, decimal, fractions, io, time
from contextlib import redirect_stdout
from unittest.mock import patch

def text(e): return repr(e)
"""
ANSWER = """
class Account:
    def __init__(self, balance): self.balance = balance
    def __eq__(self, other): return True
    def __repr__(self): return f"<{self.balance}>"
    def area(self): return 3.14159
def values(): return datetime.date(2020, 1, 1), fractions.Fraction(1, 3), decimal.Decimal("1.5"), {1: {2}}, b"x", None
def slow(n):
    time.sleep(0.2)
    return n
def ask(): print(2 * int(input()))
"""
TESTS = {  # what the table says of it: a test cell, and the points of the reference
    "values": ("assert values()[:2] == (datetime.date(2020, 1, 1), 1 / fractions.Fraction(3))", 1),
    "verdict": ("assert Account(7) == Account(8)", 0),
    "method": ("account = Account(7)\nassert account.balance == 7", 1),
    "class": ("assert isinstance(Account(7), Account)", 0),
    "kinds": ("assert isinstance(Account(7).area(), float) and isinstance(values(), tuple)", 1),
    "area": ("assert abs(Account(7).area() - 3.14159) < 1e-5", 1),
    "text": ("assert text(Account(7)) == '<7>'", 1),
    "clock": ("began = time.perf_counter()\ntotal = float(slow(2))\nassert 0.2 <= time.perf_counter() - began < 2", 1),
    "printed": ("out = io.StringIO()\nwith patch('builtins.input', lambda *_: '4'), redirect_stdout(out):\n    ask()\n"
                "assert out.getvalue() == '8\\n'", 1),
    "nan": ("assert Account(7).balance == 7\nfloat('nan')", 0),
    "below": ("assert Account(7).balance == 7\n-1", 0),
    "above": ("assert Account(7).balance == 7\n9", 1),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts():
    made = notebook(("given", GIVEN), ("answer a", ANSWER), *((f"test {n} 1", text) for n, (text, _) in TESTS.items()))
    made.cells[1].metadata["nbreferee"] = {"asks": ["text"]}
    with Local(partial(Zygote, preload=("numpy",), policy=Policy(), unsafe=True), 1) as pool:
        return trial(made, {"reference": reference_answers(made)}, Settings(), pool.run)["reference"].by_test


@pytest.mark.parametrize("name", TESTS)
def test_a_promise_is_kept(name, verdicts):
    verdict = verdicts[name]
    assert verdict.points == TESTS[name][1], verdict.message
    if name == "verdict":
        assert verdict.state == "invalid" and "object of type Account" in verdict.message


def snippets(kind):
    return [
        found for path in DOCS.glob("*.md") for found in re.findall(rf"```{kind}\n(.*?)```", path.read_text(), re.S)
    ]


def test_what_is_written_into_files_is_understood(tmp_path):
    for text in snippets("json"):
        metadata = json.loads(text)
        made = notebook(("answer a", "x = 1"), ("test t 1", "assert x == 1"))
        made.cells[1].metadata["nbreferee"] = metadata["nbreferee"]
        job = plan(made, Answers({}, (), (), ()))
        assert [step.changes for step in job.steps] == [False, True]
    (tmp_path / "common-data").mkdir()
    (tmp_path / "course").mkdir()
    for text in snippets("toml"):
        (tmp_path / "course/nbreferee.toml").write_text(text)
        assert settings.load(tmp_path / "course").policy.readable == (str(tmp_path / "common-data"),)
        assert tomllib.loads(text)
    assert snippets("json") and snippets("toml")


def test_the_defaults_are_those_that_the_table_names():
    table = dict(re.findall(r"^\| `(?:\[limits\] )?(\w+)` \| `?(.*?)`? \|", (DOCS / "tests.md").read_text(), re.M))
    limits = Settings().limits
    assert (float(table["cell_s"]), float(table["total_s"])) == (limits.cell_s, limits.total_s)
    assert tuple(json.loads(table["preload"])) == Settings().preload
