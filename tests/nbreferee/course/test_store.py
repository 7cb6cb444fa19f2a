"""The store of results: what it keeps, what it forgets, what its keys depend on."""

import sqlite3

import pytest

from nbreferee.course.store import Published, Store, StoreError, key_of
from nbreferee.intake.answers import Answers, Own
from nbreferee.judge.job import RunLimits, plan
from nbreferee.judge.parts import Parts
from nbreferee.judge.results import Result, TestResult
from nbreferee.workers.message import Reply
from tests.nbreferee import toyset
from tests.nbreferee.toycourse import DOUBLE, SQUARE, reply


def test_the_store_keeps_and_forgets(tmp_path):
    path = tmp_path / "results.db"
    one, two = (Reply(Result((TestResult("t", "passed", float(p), 2.0),)), f"{p}", "<p>π\n") for p in (1, 2))
    with Store(path) as store:
        store.put("k1", "ada", "toy", one)
        store.put("k2", "ada", "toy", two)
        store.put("k3", "bob", "toy", one)
        assert (store.get("k1"), store.get("k2"), store.get("none")) == (one, two, None)
        store.publish("toy", "toy", {"ada": Published("k2", {"proof": "d"}, "x")})
    with Store(path) as store:
        assert (store.get("k1"), store.get("k2"), store.get("k3")) == (None, two, one)
        assert store.published("toy", "toy") == {"ada": Published("k2", {"proof": "d"}, "x")}
        assert store.published("toy", "other") == {}


def test_a_run_is_found_for_its_student_alone(tmp_path):
    with Store(tmp_path / "results.db") as store:
        store.put("run.page", "ada", "toy", reply())
        assert store.ran("run.other", "ada", "toy") == reply().result
        assert store.ran("run.other", "bob", "toy") is None is store.ran("run.other", "ada", "set2")
        assert store.ran("ru.page", "ada", "toy") is None and store.get("run.other") is None


@pytest.mark.parametrize("damage", ["text", "cut", "overwritten"])
def test_a_damaged_store_is_one_line_with_the_cure(tmp_path, damage):
    path = tmp_path / "results.db"
    reply = Reply(Result(()), "n" * 10, "p" * 10)
    with Store(path) as store:
        for number in range(300):
            store.put(f"k{number:03d}", "ada", "toy", reply)
    data = path.read_bytes()
    assert len(data) > 20_000
    damaged = {"text": b"no database at all" * 100, "cut": data[:6000], "overwritten": data[:4096] + b"\xff" * 99_999}
    path.write_bytes(damaged[damage])
    with pytest.raises(StoreError, match=r"damaged; move .*results\.db away") as told, Store(path) as store:
        for number in range(300):
            store.get(f"k{number:03d}")
        store.put("new", "ada", "toy", reply)
    assert "\n" not in str(told.value)


def test_a_row_that_is_damaged_counts_as_none(tmp_path):
    with Store(tmp_path / "results.db") as store:
        store.put("k", "ada", "toy", Reply(Result((TestResult("t", "passed", 1.0, 1.0),)), "n", "p"))
        assert store.get("k") is not None
        for column, value in (("notebook", b"rubbish"), ("result", '{"tests": [{"points": 99}]}')):
            with sqlite3.connect(tmp_path / "results.db") as db:
                db.execute(f"UPDATE result SET {column}=?", (value,))
            db.close()
            assert store.get("k") is None


def test_a_store_that_is_held_or_cannot_be_made_says_so(tmp_path):
    with Store(tmp_path / "results.db"):
        other = sqlite3.connect(tmp_path / "results.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(StoreError, match=r"another program has held it for 0\.2 s; end the other run"):
                Store(tmp_path / "results.db", timeout_s=0.2)
        finally:
            other.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path / "file/results.db")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path / "folder.db")
    with sqlite3.connect(tmp_path / "old.db") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(StoreError, match="another version"):
        Store(tmp_path / "old.db")


def test_a_key_depends_on_all_that_a_result_depends_on():
    template, answers = toyset.notebook(), Answers({"double_answer": DOUBLE}, (), (), ())
    job = plan(template, answers)
    base = key_of(job, template, answers, "e")
    assert base == key_of(plan(toyset.notebook(), answers), toyset.notebook(), answers, "e")
    other = toyset.notebook()
    other.cells[-1].source = "other"
    text = Answers({"double_answer": DOUBLE, "proof_text": "New."}, (), (), ())
    photo = Answers(answers.cells, (), (), (), {"picture-1.png": {"image/png": "AAAA"}})
    keys = {
        base,
        key_of(job, template, answers, "f"),
        key_of(job, other, answers, "e"),
        key_of(job, template, text, "e"),
        key_of(job, template, photo, "e"),
        key_of(job, template, Answers(answers.cells, (Own("1", None),), (), ()), "e"),
        key_of(plan(template, answers, RunLimits(cell_s=3)), template, answers, "e"),
        key_of(plan(template, Answers({"double_answer": SQUARE}, (), (), ())), template, answers, "e"),
    }
    assert len(keys) == 8
    run = {
        key.partition(".")[0]
        for key in (base, key_of(job, other, answers, "e", "title"), key_of(job, template, text, "e"))
    }
    assert len(run) == 1  # what is only shown differently is the same run
    assert len({key.partition(".")[0] for key in keys}) == 4


def test_verdicts_are_found_for_their_student_and_those_that_hang_on_time_are_not(tmp_path):
    tests = (
        TestResult("right", "passed", 1.0, 1.0),
        TestResult("wrong", "failed", 0.0, 1.0),
        TestResult("changed", "passed", 1.0, 1.0),
        TestResult("slow", "timeout", 0.0, 1.0),
        TestResult("lost", "crashed", 0.0, 1.0),
        TestResult("full", "memory", 0.0, 1.0),
        TestResult("held", "withheld", 0.0, 1.0),
    )
    parts = Parts("frame", {test.name: "1" for test in tests})
    now = Parts("frame", parts.tests | {"changed": "2", "new": "1"})
    with Store(tmp_path / "results.db") as store:
        store.put("k", "ada", "set1", Reply(Result(tests), "{}", ""), parts)
        store.put("l", "bob", "set1", Reply(Result(tests[:1]), "{}", ""), Parts("another", parts.tests))
        assert store.verdicts(now, "ada", "set1") == {"right": tests[0], "wrong": tests[1]}
        assert store.verdicts(now, "bob", "set1") == store.verdicts(now, "ada", "set2") == {}
        store.publish("set1", "set1", {"ada": Published("other", {})})
        assert store.verdicts(now, "ada", "set1") == {}  # what nobody uses any more is dropped
        assert store._db.execute("SELECT student FROM parts").fetchall() == [("bob",)]
