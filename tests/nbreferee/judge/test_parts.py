"""What a verdict depends on: a test that is not judged again could not have come out otherwise."""

from dataclasses import replace

from nbreferee.judge.job import ANSWER, GIVEN, TEST, Job, RunLimits, Step
from nbreferee.judge.parts import movable, parts_of

STEPS = (
    Step(GIVEN, "given", "factor = 2"),
    Step(ANSWER, "a", "def f(x): return factor * x", asks=("f",)),
    Step(TEST, "binds", "seven = 7\nassert f(0) == 0", 1.0),
    Step(TEST, "reads", "assert f(seven) == 14", 1.0),
    Step(TEST, "alone", "assert f(1) == 2", 1.0),
    Step(TEST, "inside", "assert f(2) == 4", 1.0, run="sandboxed", needs=("alone",)),
    Step(TEST, "other", "assert helper(3) == 6", 1.0),
    Step(TEST, "helps", "def helper2(x): return f(x)", 1.0),
)
JOB = Job(STEPS)


def changed(name, job=JOB, environment="e", **fields):
    """(whether all is judged again, the tests that are) after a change of one step."""
    steps = tuple(replace(step, **fields) if step.name == name else step for step in job.steps)
    return again(Job(steps, job.limits, job.packages), environment)


def again(job, environment="e"):
    before, now = parts_of(JOB, "e"), parts_of(job, environment)
    return before.frame != now.frame, {name for name in now.tests if before.tests.get(name) != now.tests[name]}


def test_a_test_whose_names_others_need_is_one_of_the_cells():
    assert [STEPS[index].name for index in movable(STEPS)] == ["reads", "alone", "other", "helps"]
    assert parts_of(JOB, "e").tests.keys() == {"reads", "alone", "inside", "other", "helps"}


def test_a_changed_test_is_judged_again_and_what_needs_it():
    assert changed("reads", source="assert f(seven) == 7") == (False, {"reads"})
    assert changed("reads", points=2.0) == (False, {"reads"})
    assert changed("reads", hidden=True) == (False, {"reads"})
    assert changed("alone", source="assert f(5) == 10") == (False, {"alone", "inside"})
    assert changed("inside", source="assert f(5) == 10") == (False, {"inside"})


def test_what_all_verdicts_depend_on_changes_all():
    assert changed("given", source="factor = 3")[0]
    assert changed("a", source="def f(x): return 2 * x")[0]
    assert changed("a", untouched=True)[0]
    assert changed("binds", source="seven = 70")[0]
    assert again(JOB, "another environment")[0]
    assert again(Job(STEPS, RunLimits(cell_s=3)))[0] and again(Job(STEPS, packages=("course",)))[0]
    assert again(Job(STEPS[1:]))[0]


def test_a_name_that_another_test_now_binds_changes_the_test_that_reads_it():
    """`other` reads `helper`; a test below binds it by way of the answer, or a test above makes it one of the cells."""
    frame, tests = changed("helps", source="def helper(x): return f(x)")
    assert not frame and tests == {"helps", "other"}
    assert changed("alone", source="def helper(x): return f(x)")[0]


def test_a_test_in_another_place_is_another_test():
    moved = (*STEPS[:1], STEPS[4], *STEPS[1:4], *STEPS[5:])
    assert again(Job(moved)) == (False, {"alone", "inside"})
    assert again(Job((*STEPS[:4], *STEPS[5:]))) == (False, {"inside"})
    assert again(Job((*STEPS[:4], STEPS[4], replace(STEPS[4], name="new"), *STEPS[5:]))) == (False, {"new"})
