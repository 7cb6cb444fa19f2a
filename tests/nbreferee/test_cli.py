"""The command line: what it says, and that odd calls are one line."""

import shutil
import subprocess
import sys
from functools import partial

import pytest

from nbreferee import cli
from nbreferee.course.folder import reason
from nbreferee.course.run import BatchError, CourseFolder
from nbreferee.intake.answers import released_text
from nbreferee.workers.pool import Local
from tests.nbreferee import toyset
from tests.nbreferee.fake_zygote import FakeZygote
from tests.nbreferee.toycourse import GOOD, gradebook, submit

pytestmark = pytest.mark.usefixtures("one_environment")


@pytest.fixture
def command(root, monkeypatch, capsys):
    """nbreferee itself, with a pool that needs no walls: (exit code, stdout, lines of stderr)."""
    monkeypatch.setattr(cli, "_pool", lambda course, options, policy: Local(partial(FakeZygote, None), 2, grace_s=1.0))

    def run(*arguments):
        try:
            code = cli.main([*arguments, "--course", str(root)])
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    return run


def test_a_run_ends_with_who_is_late_by_the_time_of_a_file(root, command):
    submit(root, "ada", stamp="2020-01-05 10:00:00 UTC")
    submit(root, "bob")
    (root / "deadlines.toml").write_text('zone = "UTC"\n[default]\npercent = 10\n[assignments.toy]\ndue = 2020-01-01\n')
    code, out, _ = command("grade")
    assert code == 0 and "1 of 2 late submissions are judged by the time of their file; if copying" in out
    submit(root, "bob", stamp="2020-01-05 10:00:00 UTC")
    assert "time of their file" not in command("grade")[1]


def test_a_run_ends_with_who_has_a_mark_and_no_submission(root, command):
    submit(root, "ada")
    submit(root, "bob")
    assert "Marked earlier" not in command("grade")[1]
    shutil.rmtree(root / "submitted/bob")
    code, out, _ = command("grade")
    assert code == 0 and "no longer in " in out and "submitted/: bob; the gradebook keeps these marks." in out


def test_the_summary_and_the_exit_code_say_what_is_to_be_done(root, command):
    assert command("grade")[0] == 0
    submit(root, "ada")
    assert command("grade")[0] == 0
    submit(root, "bob", text="PK\x03\x04")
    code, out, err = command("grade")
    assert code == 1 and not err and "1 want your eye: bob (compressed). The reason beside each says what to do" in out
    assert "unpack it and submit the notebook itself" in out
    for word in ("--nonsense", "check --asignment"):
        assert command(*word.split())[0] == 2


def test_help_names_the_cures(command):
    for words in (("--help",), ("check", "--help"), ("migrate", "--help")):
        code, out, _ = command(*words)
        assert code == 0
        for cure in ('"run": "sandboxed"', '"asks"', '"changes": true', '"needs"', "readable =", "nbreferee migrate"):
            assert cure in out, cure
    assert "Exit codes: 0 all is done; 1 " in command("--help")[1]


def test_check_warns_of_a_test_that_lets_the_answer_judge_itself(root, command):
    path = root / "source/toy/toy.ipynb"
    path.write_text(path.read_text().replace("assert double(3) == 6", "assert double(3).__eq__(6)"))
    code, out, _ = command("check", "toy")
    assert code == 0 and "toy: toy is sound" in out
    assert "toy: double_test-shown, line 1: `double(3).__eq__(6)` has what the answer returned give the verdict" in out


def test_an_export_says_who_waits_for_a_mark(root, command, tmp_path):
    submit(root, "ada", GOOD | {"proof_text": "By distributivity."})
    submit(root, "bob")
    command("grade")
    for form, more in (("csv", ()), ("long", ()), ("moodle-import", ("--by", "id")), ("csv", ("--waiting", "points"))):
        code, out, _ = command("export", form, str(tmp_path / "marks.csv"), *more)
        assert code == 0 and "toy: 1 wait for marks by hand: ada; mark them in formgrader" in out


def test_one_set_that_cannot_be_graded_does_not_stop_the_next(root, command, monkeypatch):
    (root / "source/aset").mkdir()
    (root / "source/aset/aset.ipynb").write_text("{}")
    whole = cli.grade_assignment

    def grade_assignment(course, name, **more):
        if name == "aset":
            raise BatchError("aset: cells were added")
        return whole(course, name, **more)

    monkeypatch.setattr(cli, "grade_assignment", grade_assignment)
    submit(root, "ada")
    code, out, err = command("grade")
    assert code == 2 and "toy: 1 submissions: 1 graded" in out and err[-1] == "nbreferee: aset: cells were added"
    log = {"log": "there are submissions associated with it"}
    assert reason(log, "set2").endswith("nbgrader db assignment remove set2 --force")


def test_an_extension_for_somebody_who_has_not_handed_in_yet_is_no_slip(root, command):
    submit(root, "bea")
    with gradebook(root) as book:
        book.add_student("ben")
    text = 'zone = "UTC"\n[assignments.toy]\ndue = 2127-03-12\nexcused = ["ben", "beaa"]\n'
    (root / "deadlines.toml").write_text(text)
    said = command("grade")[2]
    assert [line for line in said if "there is no student" in line] == [
        "deadlines.toml: assignments.toy.excused: there is no student beaa; did you mean 'bea'?"
    ]


def test_cells_with_the_courses_own_stub_are_not_compared(root, command):
    stub = 'raise NotImplementedError("Mine.")'
    (root / "nbreferee.toml").write_text(f"code_stub = '{stub}'\n")
    cells = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in toyset.notebook().cells}
    for student in ("ada", "bob"):
        submit(root, student, GOOD | {"square_answer": released_text(cells["square_answer"], stub)})
    out = command("similar", "toy")[1]
    assert "double_answer: 2 of 2 answers hold fewer" in out and "square_answer" not in out


def test_odd_calls_are_one_line(root, command):
    submit(root, "ada")
    for share in ("0", "50", "nan", "half"):
        code, _, err = command("similar", "toy", "--share", share)
        assert code == 2 and err[-1].endswith(f"{share!r} is no share above 0 and at most 1")
    (root / "reports").write_text("in the way")
    for words in (("grade",), ("similar", "toy")):
        code, _, err = command(*words)
        assert code == 2 and "reports cannot be written (File exists); move away what" in err[-1] and len(err) == 1
    (root / "source/toy/toy.ipynb").write_text('{"cells": [')
    for words in (("check", "toy"), ("similar", "toy")):
        code, _, err = command(*words)
        assert code == 2 and err[-1].startswith("nbreferee: toy.ipynb cannot be read") and len(err) == 1


def test_a_gradebook_named_without_a_folder_lies_in_the_course(tmp_path, monkeypatch):
    (tmp_path / "course").mkdir()
    monkeypatch.chdir(tmp_path)
    for said, wanted in (
        ("sqlite:///gradebook.db", f"sqlite:///{tmp_path}/course/gradebook.db"),
        ("sqlite:///marks/all.db", f"sqlite:///{tmp_path}/course/marks/all.db"),
        ("sqlite:////srv/all.db", "sqlite:////srv/all.db"),
        ("postgresql+psycopg2://grader@db/course", "postgresql+psycopg2://grader@db/course"),
    ):
        (tmp_path / "course/nbgrader_config.py").write_text(f"c = get_config()\nc.CourseDirectory.db_url = {said!r}\n")
        assert CourseFolder.load("course").gradebook == wanted
    assert CourseFolder.load("course", db_url="sqlite:///here.db").gradebook == "sqlite:///here.db"


def test_a_command_starts_without_the_parsers_of_international_addresses():
    """jsonschema would build them for seconds, and whoever wants their package still gets it."""
    code = "import sys, nbreferee.cli; print('lark' in sys.modules, 'rfc3987_syntax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
