"""Bad submissions: each ends in its state with its just mark, and none costs another one anything."""

import csv
import json
import os
import re
import subprocess
import sys

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.validator import Validator

import toyset
from battery import EXERCISES
from course import main as command
from grading import report
from grading.course_root import Course, grade_id, why
from grading.intake import STUDENT_ID, Rejected, normalise, parse
from grading.trial import fill, reference_answers

GOOD = {"double_answer": "def double(x):\n    return x + x", "square_answer": "def square(x):\n    return x * x"}
LIMITS = {"timeout": 4, "total": 60}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    root = tmp_path_factory.mktemp("base")
    toyset.write(root)
    return Course(root).prepare("toy")


def cells_of(notebook):
    return parse(json.dumps(notebook).encode())


def copy(part):
    return nbformat.from_dict(json.loads(json.dumps(part)))


def find(notebook, name):
    return next(cell for cell in notebook.cells if grade_id(cell) == name)


def submissions(base):
    """{student: (the notebook or the bytes in toy/toy.ipynb, state, {test: points}, words of the reason)}"""
    full = {"double_test-shown": 1, "double_test-hidden": 2, "square_test": 1}
    square, double, none = full | dict.fromkeys(list(full)[:2], 0), full | {"square_test": 0}, dict.fromkeys(full, 0)
    made = {}

    def add(student, notebook, state, points, word):
        made[student] = (notebook, state, points, word)

    def answered(**changes):
        return fill(base, GOOD | changes)

    add("good", answered(), "graded", full, "not answered: proof_text")
    add("untouched", fill(base, {}), "unanswered", none, "nothing was answered")
    add(
        "partly-wrong",
        answered(double_answer="def double(x):\n    return 2 * int(x)"),
        "graded",
        full | {"double_test-hidden": 0},
        "",
    )

    book = answered()
    book.cells.insert(0, new_code_cell("import no_such_module_anywhere"))
    add("crash-at-import", book, "crashed", full, "ModuleNotFoundError")
    add(
        "crash-in-answer",
        answered(double_answer="import no_such_module\ndef double(x): ..."),
        "crashed",
        square,
        "double_answer",
    )
    add("loop", answered(double_answer="def double(x):\n    while True: pass"), "timeout", square, "double_test-shown")
    deaf = """def square(x):
    while True:
        try:
            while True: pass
        except BaseException: pass"""
    add("deaf-loop", answered(square_answer=deaf), "timeout", double, "square_test")
    add(
        "killer",
        answered(double_answer="def double(x):\n    import os\n    os._exit(1)"),
        "crashed",
        square,
        "kernel died",
    )
    add("quits", answered(double_answer=GOOD["double_answer"] + "\nexit()"), "graded", full, "")
    add(
        "segfault",
        answered(double_answer="import ctypes\nctypes.string_at(0)"),
        "crashed",
        square,
        "kernel died in double_answer",
    )

    book = answered(double_answer="def double(x):\n    return 0")
    for name in ("double_test-shown", "double_test-hidden"):
        find(book, name).source = "pass"
    add("tests-edited", book, "tests-edited", square, "double_test-shown, double_test-hidden")
    book = answered()
    book.cells = [cell for cell in book.cells if grade_id(cell) not in ("double_test-hidden", "square_answer")]
    add("cells-deleted", book, "missing-cells", double, "double_test-hidden, square_answer")
    book = answered()
    twin = copy(find(book, "double_answer"))
    twin.source = "def double(x):\n    return 7"
    book.cells.insert(book.cells.index(find(book, "double_answer")), twin)
    add("duplicated", book, "duplicate-cells", full, "double_answer")
    book = answered(double_answer="def double(x):\n    return helper(x)")
    twin = copy(find(book, "double_answer"))
    twin.source = "def helper(x):\n    return x + x"
    book.cells.insert(book.cells.index(find(book, "double_answer")), twin)
    add("split", book, "duplicate-cells", full, "double_answer")

    book = answered(double_answer="def double(x):\n    return 0")
    for cell in book.cells:
        cell.metadata["tags"] = ["skip-execution", "raises-exception"]
        if "nbgrader" in cell.metadata:
            cell.metadata["nbgrader"] |= {"points": 99, "locked": False, "solution": True, "schema_version": "x"}
    add("tags-and-flags", book, "graded", square, "")
    noisy = """import subprocess, sys, warnings
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3517)'], start_new_session=True)
def double(x):
    warnings.warn('old'); print('!', file=sys.stderr)
    for _ in range(300): print('a' * 100_000)
    return 2 * x"""
    add("noisy", answered(double_answer=noisy), "graded", full, "")
    add("=cmd", None, "invalid-id", None, "not an id")
    add("with space", None, "invalid-id", None, "not an id")
    add("empty-file", b"", "empty", none, "empty")
    add(
        "no-cells", b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "empty", none, "without cells"
    )
    add("not-json", json.dumps(answered()).encode()[:900], "not-a-notebook", none, "not JSON")
    add("not-utf8", b"\xff\xfe\x00{}", "not-a-notebook", none, "not JSON")
    add("deep", b"[" * 200_000, "not-a-notebook", none, "not JSON")
    add("a-list", b"[1, 2]", "not-a-notebook", none, "no notebook")
    add(
        "other-notebook",
        json.dumps(nbformat.v4.new_notebook(cells=[new_markdown_cell("Hello")])).encode(),
        "wrong-notebook",
        none,
        "no cell",
    )
    odd = json.loads(json.dumps(answered()))
    odd["cells"] += [
        7,
        {"cell_type": "poem"},
        {"cell_type": "code", "source": 3},
        {"cell_type": "code", "source": "x = '\ud800'", "metadata": []},
    ]
    odd["metadata"] = {"kernelspec": {"name": "no-such-kernel"}}
    add("odd-cells", json.dumps(odd).encode(), "graded", full, "")
    return made, full, none


def grade_class(base, root):
    toyset.write(root)
    made, full, none = submissions(base)
    for student, (content, *_) in made.items():
        folder = root / "submitted" / student / "toy"
        folder.mkdir(parents=True)
        if isinstance(content, bytes):
            (folder / "toy.ipynb").write_bytes(content)
        else:
            (folder / "toy.ipynb").write_text(json.dumps(content or fill(base, GOOD)))
    good = json.dumps(fill(base, GOOD))
    expected = {student: entry[1:] for student, entry in made.items()}

    def lay(student, file, text, state, points, word):
        path = root / "submitted" / student / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        expected[student] = (state, points, word)

    lay("other-name", "toy/My answers (1).ipynb", good, "renamed", full, "My answers (1).ipynb")
    lay("one-too-deep", "toy/toy/toy.ipynb", good, "renamed", full, "toy/toy.ipynb")
    lay("download", "toy/toy.ipynb.txt", good, "renamed", full, "toy.ipynb.txt")
    lay("a-text", "toy/answers.txt", "My answer is 6.", "no-notebook", none, "answers.txt")
    lay("misplaced", "toy.ipynb", good, "misplaced", None, "misplaced/toy/")
    lay("shadows", "toy/toy.ipynb", good, "graded", full, "math.py")
    lay("shadows", "toy/math.py", "raise RuntimeError('shadow')", "graded", full, "math.py")
    outside = root / "elsewhere.ipynb"
    outside.write_text(good)
    (root / "submitted/link/toy").mkdir(parents=True)
    (root / "submitted/link/toy/toy.ipynb").symlink_to(outside)
    (root / "submitted/linked-folder").mkdir()
    (root / "submitted/linked-folder/toy").symlink_to(root / "submitted/good/toy")
    os.makedirs(root / "submitted/pipe/toy")
    os.mkfifo(root / "submitted/pipe/toy/toy.ipynb")
    expected |= {"link": ("symlink", none, "link"), "linked-folder": ("symlink", none, "link")}
    expected["pipe"] = ("not-a-notebook", none, "regular")
    return Course(root, LIMITS), expected, run(root)


def arguments(root, *options):
    return ["--root", str(root), "grade", *[f"--{name}={seconds}" for name, seconds in LIMITS.items()], *options]


def run(root, *options):
    """`course.py grade`, as an instructor types it, with limits that suit these tests."""
    command = [sys.executable, str(EXERCISES / "course.py"), *arguments(root, *options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def marks(course):
    with open(course.root / "reports" / "toy.csv", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def check_every_submission_ends_in_its_state(graded, base):
    course, expected, run = graded
    found = {student: (row["state"], row["reason"]) for student, row in marks(course).items()}
    assert set(found) == {report.defuse(student) for student in expected}, run.stderr
    wrong = {s: (found[report.defuse(s)], e) for s, e in expected.items() if found[report.defuse(s)][0] != e[0]}
    assert not wrong
    silent = {s: (found[report.defuse(s)], e[2]) for s, e in expected.items() if e[2] not in found[report.defuse(s)][1]}
    assert not silent, "reasons that do not name the cause"


def check_every_submission_has_its_just_mark(graded, base):
    course, expected, _ = graded
    found, wrong = marks(course), {}
    for student, (_, points, _) in expected.items():
        row = found[report.defuse(student)]
        got = (row["double"], row["square"], row["total"])
        want = ("", "", "")
        if points is not None:
            double, square = points["double_test-shown"] + points["double_test-hidden"], points["square_test"]
            want = tuple(map(str, (double, square, double + square)))
        if got != want:
            wrong[student] = (got, want, row["reason"])
    assert not wrong, "(found, just, reason)"


def check_the_run_says_what_needs_an_eye_and_returns_1(graded, base):
    course, expected, run = graded
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert f"toy: {len(expected)} submissions" in run.stdout
    assert "not-json (not-a-notebook)" in run.stdout
    assert (course.root / "reports/toy.md").read_text().count("\n| ") == len(expected) + 1


def check_no_submission_was_changed(graded, base):
    course, *_ = graded
    assert (course.root / "submitted/good/toy/toy.ipynb").read_text() == json.dumps(fill(base, GOOD))
    assert (course.root / "submitted/link/toy/toy.ipynb").is_symlink()


def check_no_process_is_left(graded, base):
    left = [
        p.info
        for p in psutil.process_iter(["pid", "cmdline"])
        if any("sleep(3517)" in x for x in p.info["cmdline"] or [])
    ]
    assert not left


def check_outputs_are_capped(graded, base):
    course, *_ = graded
    assert (course.root / "autograded/noisy/toy/toy.ipynb").stat().st_size < 4_000_000


def check_feedback_shows_the_message_and_no_hidden_test(graded, base):
    course, *_ = graded
    page = (course.root / "feedback/partly-wrong/toy/toy.html").read_text()
    text = re.sub(r"(?s)<style.*?</style>|<[^>]+>", "", page)
    assert "wrong beyond small integers" in text
    assert "hidden tests ran here" in text
    assert "hidden_inputs" not in text and "2.5" not in text
    assert "not JSON" in (course.root / "feedback/not-json/toy/toy.html").read_text()
    assert not list((course.root / "feedback").glob("=*"))


def check_unchanged_submissions_are_not_run_again(graded, base):
    course, _, _ = graded
    before = {p: p.stat().st_mtime_ns for p in course.root.glob("autograded/*/toy/toy.ipynb")}
    rows = marks(course)
    changed = course.root / "submitted/untouched/toy/toy.ipynb"
    changed.write_text(json.dumps(fill(base, {"square_answer": GOOD["square_answer"]})))
    with course.gradebook() as gradebook:  # a proof marked by hand
        grade = gradebook.find_grade("proof_text", "toy", "toy", "good")
        grade.manual_score = 1.5
        gradebook.find_comment("proof_text", "toy", "toy", "good").manual_comment = "Say which law you use."
        gradebook.db.commit()
    again = run(course.root)
    after = {p: p.stat().st_mtime_ns for p in course.root.glob("autograded/*/toy/toy.ipynb")}
    assert [p.parts[-3] for p in after if after[p] != before[p]] == ["untouched"], again.stdout
    now = marks(course)
    assert now["untouched"]["total"] == "1"
    assert now["good"]["total"] == "5.5"
    assert "Say which law" in (course.root / "feedback/good/toy/toy.html").read_text()
    same = set(rows) - {"untouched", "good"}
    assert {s: rows[s] for s in same} == {s: now[s] for s in same}


def test_a_class_of_bad_submissions(base, tmp_path, subtests):
    """One course graded once, looked at from all sides."""
    graded = grade_class(base, tmp_path)
    for check in (
        check_every_submission_ends_in_its_state,
        check_every_submission_has_its_just_mark,
        check_the_run_says_what_needs_an_eye_and_returns_1,
        check_no_submission_was_changed,
        check_no_process_is_left,
        check_outputs_are_capped,
        check_feedback_shows_the_message_and_no_hidden_test,
        check_unchanged_submissions_are_not_run_again,
    ):
        with subtests.test(check.__name__):
            check(graded, base)


def test_nothing_submitted_says_what_to_do(tmp_path, capsys):
    toyset.write(tmp_path)
    assert command(arguments(tmp_path)) == 0
    assert f"{tmp_path.name}/submitted/ada/toy/toy.ipynb" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="There are: toy"):
        command(arguments(tmp_path, "toi"))


def test_a_proof_that_was_written_waits_for_a_grader(base, tmp_path):
    toyset.write(tmp_path)
    folder = tmp_path / "submitted/ada/toy"
    folder.mkdir(parents=True)
    book = fill(base, GOOD | {"proof_text": "Since $x<y$, <b onclick='x()'>done</b>."})
    book.cells.append(new_markdown_cell("My note: <script>alert(1)</script>"))
    (folder / "toy.ipynb").write_text(json.dumps(book))
    assert command(arguments(tmp_path)) == 0
    row = marks(Course(tmp_path))["ada"]
    assert (row["state"], row["total"], row["to_mark"]) == ("graded", "4", "2")
    assert row["proof"] == ""
    page = (tmp_path / "feedback/ada/toy/toy.html").read_text()
    assert "<b onclick" not in page and "<script>alert" not in page and "<details><summary>Hint" in page


def test_marks_given_by_hand_stand_while_the_answer_is_the_same(base, tmp_path):
    toyset.write(tmp_path)
    sent = tmp_path / "submitted/ada/toy/toy.ipynb"
    sent.parent.mkdir(parents=True)
    sent.write_text(json.dumps(fill(base, {"proof_text": "First."})))
    command(arguments(tmp_path))
    with Course(tmp_path).gradebook() as gradebook:
        grade = gradebook.find_grade("proof_text", "toy", "toy", "ada")
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        gradebook.db.commit()
    sent.write_text(json.dumps(fill(base, {"proof_text": "First.", "square_answer": GOOD["square_answer"]})))
    command(arguments(tmp_path))
    assert [marks(Course(tmp_path))["ada"][key] for key in ("proof", "total", "to_mark")] == ["1.5", "2.5", "0"]
    sent.write_text(json.dumps(fill(base, {"proof_text": "Second."})))
    command(arguments(tmp_path))
    assert marks(Course(tmp_path))["ada"]["to_mark"] == "2"


def test_the_validate_button_tells_the_message_and_no_source(base, tmp_path):
    toyset.write(tmp_path)
    wrong = "def double(x):\n    return x"
    warns = "import warnings\n\ndef square(x):\n    warnings.warn('slow')\n    return x * x"
    path = tmp_path / "toy.ipynb"
    path.write_text(json.dumps(fill(base, {"double_answer": wrong, "square_answer": warns})))
    config = Course(tmp_path).config()  # which is read by the button as well, and changes what it says
    failed = Validator(config=config).validate(str(path))["failed"]
    assert [(row["source"], row["raw_error"]) for row in failed if "proof" not in row["source"]] == [
        ("Exercise 1. Doubling (3 points)\ndouble_test-shown", "AssertionError: double(3) should be 6")
    ]


def test_the_feedback_page_names_the_exercises(base, tmp_path):
    toyset.write(tmp_path)
    sent = tmp_path / "submitted/ada/toy/toy.ipynb"
    sent.parent.mkdir(parents=True)
    sent.write_text(json.dumps(fill(base, {"square_answer": GOOD["square_answer"]})))
    command(arguments(tmp_path))
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", (tmp_path / "feedback/ada/toy/toy.html").read_text("utf-8")))
    page = page.replace("&nbsp;", " ")
    assert "toy: 1 of 6 points Exercise 1. Doubling 0 of 3 shown 0/1, hidden 0/2 " in page
    assert "Test cell" not in page


def test_own_cells_stay_where_they_were(base):
    book = fill(base, GOOD)
    book.cells.insert(book.cells.index(find(book, "square_answer")), new_code_cell("helper = 1"))
    out = normalise(base, cells_of(book)).notebook.cells
    names = [grade_id(cell) or cell.source.split("\n")[0] for cell in out]
    assert names.index("double_test-hidden") < names.index("helper = 1") < names.index("square_answer")
    assert not any("tags" in cell.metadata for cell in out)


def test_two_halves_of_a_proof_reach_the_grader(base):
    book = fill(base, {"proof_text": "First."})
    twin = copy(find(book, "proof_text"))
    twin.source = "Second."
    book.cells.append(twin)
    assert find(normalise(base, cells_of(book)).notebook, "proof_text").source == "First.\n\nSecond."


def test_tests_changed_after_the_release_are_not_held_against_students(base):
    later = copy(base)
    find(later, "square_test").source = "assert square(4) == 16"
    notes = normalise(later, cells_of(fill(base, GOOD)), released=base).notes
    assert notes == []
    assert normalise(later, cells_of(fill(base, GOOD))).notes[0][0] == "tests-edited"


@pytest.mark.parametrize("name", ["../up", "a/b", "=1", "-rf", "a b", "a\nb", ".hidden", "", "é", "a" * 65])
def test_ids_that_are_none(name):
    assert not STUDENT_ID.fullmatch(name)


@pytest.mark.parametrize(
    "data",
    [b"", b" \n", b"{", b"null", b"{}", b'{"cells": 3}', b'{"worksheets": 3}', b'{"worksheets": [3], "nbformat": 3}'],
)
def test_what_is_no_notebook_is_rejected(data):
    with pytest.raises(Rejected):
        parse(data)


def test_formulas_are_defused():
    assert [report.defuse(x) for x in ("=1+1", "+1", "-1", "@x", "ada", "\n=1")] == [
        "'=1+1",
        "'+1",
        "'-1",
        "'@x",
        "ada",
        "'=1",
    ]


def test_the_cause_is_taken_from_the_log():
    assert (
        why({"log": "[ERROR] x\n    RuntimeError: no end solution statement found\n[ERROR] above"})
        == "    RuntimeError: no end solution statement found"
    )


def test_reference_answers_carry_no_marker():
    answers = reference_answers(toyset.notebook())
    assert answers["double_answer"] == "def double(x):\n    secret_sum = x + x\n    return secret_sum\n"
