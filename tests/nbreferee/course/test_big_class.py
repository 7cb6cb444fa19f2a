"""A class that is graded in spite of three kills, as `make grade-big-class` does with a thousand students."""

import datetime as dt

import pytest

import grade_big_class
from grading_class import TIMES, set_deadlines, small_set, write
from nbreferee.course import late

pytestmark = pytest.mark.slow


@pytest.mark.needs("walls")
def test_a_run_that_is_killed_again_and_again_comes_to_the_right_marks(tmp_path):
    report = grade_big_class.run(tmp_path / "course", students=40, sets=2, kills=3, seed=3, say=lambda text: None)
    assert report["faults"] == []
    assert len(report["came"]) >= 6 and report["came"]["in time"] < 70, report["came"]
    assert report["stored"] >= 80 - 3
    assert len(report["kills"]) == 3
    assert all(0 < each["after"] < 80 for each in report["kills"]), report["kills"]
    assert any(each["processes"] > 2 for each in report["kills"]), "no kill fell into the grading"


def test_the_class_has_every_kind_of_lateness_and_its_marks_are_the_rules(tmp_path):
    """The penalties are computed from the names of TIMES; the grader computes them from the file and the timestamps."""
    made = write(tmp_path, [small_set(n) for n in range(8)], range(60))
    set_deadlines(tmp_path, made)
    rules = late.load(tmp_path / "deadlines.toml")
    kinds = set()
    for name, submissions in made.items():
        for each in submissions.values():
            moment, source = late.submitted_at(tmp_path / "submitted" / each.student / name, due=rules.due("x", name))
            assert source.startswith("timestamp.txt") and not late.doubtful(source), source
            worth = sum(small_set(int(name[5:])).points.values())
            taken, sentence = rules.penalty(each.student, name, moment, each.total, worth)
            assert (taken, each.final) == (each.penalty, each.total - taken), (each, sentence)
            kinds.add((each.time, bool(each.penalty)))
    assert {kind for kind, _ in kinds} == set(TIMES)
    assert {kind for kind, costs in kinds if costs} == {kind for kind, (_, _, percent) in TIMES.items() if percent}
    assert sum(share for _, share, _ in TIMES.values()) == 100
    assert rules.due("nobody", "small7") - rules.due("nobody", "small0") == dt.timedelta(weeks=7, hours=1)


def test_a_penalty_that_is_missing_is_told():
    one = small_set(0).submission(3)
    told = list(grade_big_class.look_at_penalties("small0", {one.student: one}, {one.student: one.penalty + 0.5}))
    assert len(told) == 1 and one.time in told[0] and str(one.penalty) in told[0]
    assert not list(grade_big_class.look_at_penalties("small0", {one.student: one}, {one.student: one.penalty}))
