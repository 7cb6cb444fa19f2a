"""What `nbreferee migrate` adds to a course of plain nbgrader, and that honest work then has nbgrader's marks."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import nbformat
import nbgrader
import pytest
from nbformat import v4

from nbreferee.course.migrate import migrate, propose
from nbreferee.course.run import CourseFolder, grade_assignment
from nbreferee.course.settings import Settings
from nbreferee.walls.sandbox import Policy
from nbreferee.walls.supervisor import Zygote
from nbreferee.workers.pool import Local
from tests.nbreferee import courses
from tests.nbreferee.courses import plain


def pool_of(course, name, workers=1):
    """Grading processes that see what lies beside an assignment's notebooks; on a bare machine without walls."""
    policy = course.settings.policy
    if "beside" in {each.name for each in fields(Policy)}:
        policy = replace(policy, beside=str(course.folder("source") / name))
    return Local(partial(Zygote, preload=course.settings.preload, policy=policy, unsafe=True), workers)


@pytest.fixture(scope="module")
def pool():
    with Local(partial(Zygote, preload=("numpy",), policy=Policy(), unsafe=True), 1) as pool:
        yield pool


@pytest.fixture
def run(pool):
    return pool.run


@pytest.fixture
def pools(pool):
    """One for all assignments: beside these notebooks lies nothing."""
    return lambda name: nullcontext(pool)


def notebook(*cells):
    """Of ("answer name", source) and the like; a test is worth its third word."""
    toy = v4.new_notebook()
    for head, text in cells:
        kind, *words = head.split()
        toy.cells.append(courses.cell(kind, words, text))
    return toy


def added(run, *cells):
    proposal = propose(notebook(*cells), Settings(), run)
    return proposal.metadata, proposal.left


SORTED = ("answer order", "### BEGIN SOLUTION\ndata.sort()\n### END SOLUTION")


def test_a_test_that_runs_split_needs_nothing(run):
    assert added(run, ("answer a", "def f(x): return 2 * x"), ("test t 1", "assert f(2) == 4")) == ({}, ())


def test_an_argument_that_is_changed_on_purpose(run):
    answer = "def double(values):\n    values[:] = [2 * v for v in values]"
    test = "values = [1, 2]\ndouble(values)\nassert values == [2, 4]"
    assert added(run, ("answer a", answer), ("test t 1", test)) == ({"t": {"changes": True}}, ())


def test_a_given_name_that_an_answer_changes_is_asked_for(run):
    cells = ("given", "data = [3, 1, 2]"), SORTED, ("test t 1", "assert data == [1, 2, 3]")
    assert added(run, *cells) == ({"order": {"asks": ["data"]}}, ())


def test_two_tests_ask_for_two_names_of_one_answer(run):
    cells = ("given", "a, b = [2, 1], [4, 3]"), ("answer order", "a.sort()\nb.sort()")
    metadata, left = added(run, *cells, ("test t 1", "assert a == [1, 2]"), ("test u 1", "assert b == [3, 4]"))
    assert metadata == {"order": {"asks": ["a", "b"]}} and not left


def test_a_test_that_loses_what_another_one_defines_is_left_for_a_person(run):
    answer = "def f(): return g()\ndef g(): return 1"
    first = "kept = 1\ndel g\ntry:\n    f()\nexcept NameError:\n    pass\nelse:\n    raise AssertionError('uses g')"
    metadata, left = added(run, ("answer a", answer), ("test t 1", first), ("test u 1", "assert kept + f() == 2"))
    assert list(metadata) == ["t"] and len(left) == 1 and left[0].startswith("u does not pass in any way: kept is not")


def test_what_cannot_be_split_runs_sandboxed_and_says_why(run):
    answer, test = "def f(): return g()\ndef g(): return 1", "del g\ntry:\n    f()\nexcept NameError:\n    pass"
    cells = ("answer a", answer), ("test t 2", test), ("test u 3", "assert f() == 1")
    proposal = propose(notebook(*cells), Settings(), run)
    assert proposal.metadata["t"]["run"] == "sandboxed" and proposal.metadata["t"]["reason"].startswith("split: g is")
    assert list(proposal.metadata) == ["t"] and not proposal.left
    assert proposal.points == {"split": 3.0, "sandboxed": 2.0}
    assert proposal.costs == ("t: its mark (of 2) can be forged, for it runs inside the student's process.",)


def test_what_is_said_already_is_kept(run):
    made = notebook(("answer a", "def f(v): v.append(g)\ng = 1"), ("test t 1", "v = []\nf(v)\nassert v == [1]"))
    made.cells[1].metadata["nbreferee"] = {"note": "kept"}
    proposal = propose(made, Settings(), run)
    assert proposal.metadata == {"t": {"changes": True}} and made.cells[1].metadata["nbreferee"] == {"note": "kept"}


def test_a_test_that_its_own_reference_fails_is_left_for_a_person(run):
    metadata, left = added(run, ("answer a", "x = 1"), ("test t 1", "assert x == 2"), ("test u 1", "assert x == 1"))
    assert metadata == {} and len(left) == 1 and left[0].startswith("t does not pass in any way: x == 2 does not hold")


def test_a_test_that_nbgrader_is_to_write_is_left_for_a_person(run):
    _, left = added(run, ("answer a", "x = 1"), ("test t 1", "### AUTOTEST x"))
    assert left == ("t is to be written by nbgrader (### AUTOTEST); write its assertions yourself.",)


# --- a course -----------------------------------------------------------------------------------------------------


def said(root, pools, write=False):
    course, lines = CourseFolder.load(root), []
    code = migrate(course, course.assignments(), pools, write=write, say=lines.append)
    return code, "\n".join(lines)


def write(root, *cells):
    folder = root / "source/one"
    folder.mkdir(parents=True)
    nbformat.write(notebook(*cells), folder / "one.ipynb")
    return folder / "one.ipynb"


def test_it_is_shown_and_written_only_if_that_is_wanted(tmp_path, pools):
    path = write(tmp_path, ("given", "data = [3, 1, 2]"), SORTED, ("test t 1", "assert data == [1, 2, 3]"))
    before = path.read_text()
    code, text = said(tmp_path, pools)
    assert code == 0 and path.read_text() == before
    lines = [line for line in text.splitlines() if line.startswith(("+", "-"))]
    assert lines[:2] == ["--- a/source/one/one.ipynb", "+++ b/source/one/one.ipynb"]
    assert json.loads("{" + "".join(line[1:] for line in lines[2:]).strip(" ,}") + "}}") == {
        "nbreferee": {"asks": ["data"]}
    }
    assert "order: data is the student's, also for tests that mean what was given." in text
    assert text.endswith("one: one: the reference earns all (1 points split, 0 points sandboxed)")

    assert said(tmp_path, pools, write=True)[0] == 0
    after = nbformat.read(path, 4)
    nbformat.validate(after)
    assert after.cells[1].metadata.nbreferee == {"asks": ["data"]}
    assert said(tmp_path, pools, write=True)[1].splitlines() == [text.splitlines()[-1]], (
        "nothing is proposed a second time"
    )


def test_stubs_of_the_course_are_copied_and_other_marks_refused(tmp_path, pools):
    write(tmp_path, ("answer a", "x = 1"), ("test t 1", "assert x == 1"))
    (tmp_path / "nbreferee.toml").write_text("[limits]\ncell_s = 5\n")
    (tmp_path / "nbgrader_config.py").write_text(
        "c = get_config()\nc.ClearSolutions.code_stub = {'python': 'pass  # \"you\"'}\n"
        "c.ClearSolutions.text_stub = 'Here.'\nc.ClearHiddenTests.begin_test_delimeter = 'HIDE'\n"
    )
    code, text = said(tmp_path, pools, write=True)
    settings = CourseFolder.load(tmp_path).settings
    assert (settings.code_stub, settings.text_stub, settings.limits.cell_s) == ('pass  # "you"', "Here.", 5)
    assert code == 1 and "begin_test_delimeter = 'HIDE'; write ### BEGIN HIDDEN TESTS in the notebooks" in text


def test_what_everybody_imports_is_imported_once(tmp_path, pools):
    path = write(
        tmp_path, ("given", "import json, beside\nfrom numpy import linalg\n%time"), ("answer a", "import pandas")
    )
    (path.parent / "beside.py").write_text("")
    said(tmp_path, pools, write=True)
    assert CourseFolder.load(tmp_path).settings.preload == ("numpy", "pandas")
    (tmp_path / "nbreferee.toml").write_text('preload = ["torch"]\n')
    assert "preload" not in said(tmp_path, pools)[1], "what the course says itself stands"


# --- beside nbgrader ----------------------------------------------------------------------------------------------


def marks_after_migrate(root, name, wanted):
    """The same of ours, after `migrate` has written what it proposes and nobody has lent a hand."""
    course = CourseFolder.load(root)
    code, text = said(root, partial(pool_of, course), write=True)
    assert code == 0, text
    course = CourseFolder.load(root)
    with pool_of(course, name, 2) as pool:
        rows = grade_assignment(course, name, pool=pool)
    marks = {student: {} for student in wanted}
    for row in rows:
        mine = {(row.notebook, test): points for test, points in row.cells.items()}
        marks[row.student] |= {key: mine[key] for key in wanted[row.student] if key in mine}
    return marks


@pytest.mark.slow
@pytest.mark.uses("walls")
@pytest.mark.parametrize("name", courses.NAMES)
def test_honest_work_has_the_marks_of_plain_nbgrader(name, tmp_path, one_environment):
    courses.load(name).write(tmp_path)
    (tmp_path / "nbgrader_config.py").write_text(plain.CONFIG)
    wanted = plain.recorded(name)
    assert len({str(marks) for marks in wanted.values()}) > 2, "the students do not differ enough"
    assert marks_after_migrate(tmp_path, name, wanted) == wanted


@pytest.mark.slow
@pytest.mark.uses("walls")
def test_nbgraders_own_course_has_the_marks_of_plain_nbgrader(tmp_path, one_environment):
    """What `nbgrader quickstart` makes, and the two submissions of nbgrader's guide, one of which is a hacker's."""
    guide = Path(nbgrader.__file__).parent / "docs/source/user_guide"
    for folder in ("plain", "ours"):
        shutil.copytree(guide / "source/ps1", tmp_path / folder / "source/ps1")
        shutil.copytree(guide / "submitted", tmp_path / folder / "submitted")
        (tmp_path / folder / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'one'\n")
    wanted = plain.plain_marks(tmp_path / "plain", "ps1")
    assert set(wanted) == {"bitdiddle", "hacker"} and len(wanted["bitdiddle"]) >= 4
    assert marks_after_migrate(tmp_path / "ours", "ps1", wanted) == wanted
