"""A whole assignment: nothing lost, nothing graded twice, no mark by accident, the gradebook as nbgrader has it."""

import re
import sqlite3
import subprocess
import sys
from datetime import date
from functools import partial

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from nbreferee.course import late
from nbreferee.course.folder import without_warnings
from nbreferee.course.run import BatchError, grade_assignment, needs_eye
from nbreferee.course.store import Store
from nbreferee.intake import gate
from nbreferee.judge.job import RunLimits
from nbreferee.walls.sandbox import Policy, abilities
from nbreferee.walls.supervisor import Zygote
from nbreferee.workers.pool import Local
from tests.nbreferee import toyset
from tests.nbreferee.toycourse import GOOD, by_student, contents, folder, grade, gradebook, left_over, runs, submit

pytestmark = [pytest.mark.usefixtures("one_environment"), pytest.mark.slow]


def test_a_class_is_graded(root):
    submit(root, "ada", GOOD | {"proof_text": "By distributivity."})
    submit(root, "bob", GOOD | {"double_answer": "def double(x):\n    return 2 * int(x)"})
    submit(root, "eve", {})
    submit(root, "cut", text='{"cells": [')
    (root / "submitted" / "=1+1" / "toy").mkdir(parents=True)
    said = []
    rows = grade(root, progress=lambda *told: said.append(told))
    got = by_student(rows)
    assert {s: (row.state, row.total, row.marks) for s, row in got.items() if s} == {
        "ada": ("graded", 4.0, {"double": 3.0, "square": 1.0, "proof": None}),
        "bob": ("graded", 2.0, {"double": 1.0, "square": 1.0, "proof": 0.0}),
        "eve": ("unanswered", 0.0, {"double": 0.0, "square": 0.0, "proof": 0.0}),
        "cut": ("not-json", 0.0, {"double": 0.0, "square": 0.0, "proof": 0.0}),
    }
    assert got[""].state == "unsafe-name" and "1+1" in got[""].reason and got[""].total is None
    assert got["ada"].waits == {"proof_text": 2.0} and got["ada"].to_mark == 2.0 and got["ada"].max == 6.0
    assert "wrong beyond small integers" in got["bob"].messages["double_test-hidden"]
    assert got["ada"].seconds == 0.25 and not got["ada"].cached
    assert [row.student for row in needs_eye(rows)] == ["", "cut"]
    assert [told[0] for told in said] == [1, 2, 3, 4, 5] and {told[1] for told in said} == {5}
    assert "cut short" in (root / "feedback/cut/toy/toy.html").read_text()
    assert "double" in (root / "feedback/ada/toy/toy.html").read_text()
    assert nbformat.read(root / "autograded/ada/toy/toy.ipynb", 4).cells
    assert not (root / "autograded/cut").exists() or not list((root / "autograded/cut").rglob("*.ipynb"))
    assert not list(root.rglob("*.part")) and not left_over()


def test_rows_are_those_of_nbgraders_own_autograde(root, prepared, tmp_path_factory):
    theirs = tmp_path_factory.mktemp("theirs")
    subprocess.run(["cp", "-r", f"{prepared}/.", str(theirs)], check=True)
    wrong = GOOD | {"double_answer": "def double(x):\n    return 2 * int(x)", "proof_text": "Because."}
    for place in (root, theirs):
        submit(place, "ada", GOOD | {"proof_text": "By distributivity."}, stamp="2026-01-05 10:00:00 UTC")
        submit(place, "bob", wrong)
        submit(place, "eve", {}, stamp="2026-01-06 10:00:00.5 CET")
    assert len(grade(root)) == 3
    command = [sys.executable, "-m", "nbgrader", "autograde", "toy", "--create", "--force"]
    done = subprocess.run(command, cwd=theirs, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ours, expected = contents(root), contents(theirs)
    for table, rows in expected.items():
        assert ours[table] == rows, table
    scores = toyset.formgrader_scores(root)
    assert scores == toyset.formgrader_scores(theirs) and set(scores) == {"ada", "bob", "eve"}
    assert None not in scores.values() and scores["ada"] == 4.0


def test_the_assignment_stands_as_nbgrader_makes_it(tmp_path):
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for place in (ours, theirs):
        toyset.write(place)
    folder(ours).prepare("toy")
    config = Config()
    config.CourseDirectory.root = config.Exchange.root = str(theirs)
    with without_warnings():
        assert NbGraderAPI(CourseDirectory(config=config), config=config).generate_assignment("toy")["success"]

    def cells(place):
        db = sqlite3.connect(place / "gradebook.db")
        try:
            return [
                db.execute(query).fetchall()
                for query in (
                    "SELECT name, duedate, course_id FROM assignment",
                    "SELECT name, kernelspec FROM notebook",
                    "SELECT name, cell_type, locked, source, checksum FROM source_cell ORDER BY name",
                    "SELECT name, max_score, cell_type FROM base_cell b JOIN grade_cells g ON g.id=b.id ORDER BY 1",
                    "SELECT b.name FROM base_cell b JOIN solution_cells g ON g.id=b.id ORDER BY 1",
                    "SELECT version_num FROM alembic_version",
                )
            ]
        finally:
            db.close()

    assert all(cells(theirs)) and cells(ours) == cells(theirs)


def test_unchanged_submissions_are_not_run_again(root, tmp_path):
    log = tmp_path / "runs"
    for student in ("ada", "bob"):
        submit(root, student)
    grade(root, log=log)
    first = contents(root)
    times = {path: path.stat().st_mtime_ns for path in root.glob("[!.]*/*/toy/toy.*")}
    rows = grade(root, log=log)
    assert runs(log) == ["ada", "bob"] and all(row.cached for row in rows)
    assert [row.total for row in rows] == [4.0, 4.0]
    assert contents(root) == first
    assert times == {path: path.stat().st_mtime_ns for path in root.glob("[!.]*/*/toy/toy.*")}
    submit(root, "bob", words="# another")
    grade(root, log=log)
    assert runs(log) == ["ada", "bob", "bob"]
    grade(root, log=log, force=True)
    assert runs(log) == ["ada", "ada", "bob", "bob", "bob"]
    course = folder(root, limits=RunLimits(1.0, 4.0))
    grade(root, log=log, course=course)
    assert len(runs(log)) == 7  # other limits, other results


def test_what_was_lost_by_waiting_is_run_again_alone_and_is_not_kept(root, tmp_path):
    log = tmp_path / "runs"
    submit(root, "ada")
    submit(root, "bob", words="# ONCE WAITS")
    submit(root, "eve", words="# WAITS")
    got = by_student(grade(root, log=log))
    assert runs(log) == ["ada", "bob", "bob", "eve", "eve"]
    assert {who: (row.state, row.total) for who, row in got.items()} == {
        "ada": ("graded", 4.0),
        "bob": ("graded", 4.0),
        "eve": ("timeout", 4.0),
    }
    assert needs_eye(got.values()) == [got["eve"]] and "Time ran out twice" in got["eve"].reason
    again = by_student(grade(root, log=log))
    assert again["ada"].cached and again["bob"].cached and not again["eve"].cached
    submit(root, "eve", words="# better")
    assert by_student(grade(root, log=log))["eve"].state == "graded"


def test_what_is_only_shown_differently_is_not_run_again(root, tmp_path):
    """Prose of the source, a proof: pages are rendered from the result that is there."""
    log, source, page = tmp_path / "runs", root / "source/toy/toy.ipynb", root / "feedback/ada/toy/toy.html"
    submit(root, "ada", GOOD | {"proof_text": "One."})
    submit(root, "bob")
    (before, _) = grade(root, log=log)
    submit(root, "ada", GOOD | {"proof_text": "Two."})
    book = nbformat.read(source, 4)
    book.cells[0].source += "\n\nA hint that was added."
    nbformat.write(book, source)
    (after, other) = grade(root, log=log)
    assert runs(log) == ["ada", "bob"] and after.cached and other.cached
    assert after.marks == before.marks and after.messages == before.messages
    assert "Two." in page.read_text() and "One." not in page.read_text()
    assert "hint that was added" in (root / "autograded/bob/toy/toy.ipynb").read_text()
    book.cells[4].source += "\nassert double(1) == 2"
    nbformat.write(book, source)
    grade(root, log=log)
    assert runs(log) == ["ada", "ada", "bob", "bob"]


def verdicts(root, student):
    """{test: (the time that its verdict took, which no two runs share, what was earned)} of the result that is kept."""
    with Store(root / ".nbreferee/results.db") as store:
        key = store.published("toy", "toy")[student].key
        return {test.name: (test.seconds, test.points) for test in store.get(key).result.tests}


@pytest.mark.uses("walls")
def test_after_one_test_has_changed_only_what_depends_on_it_is_judged_again(root):
    source, book = root / "source/toy/toy.ipynb", toyset.notebook()
    cells = {cell.metadata.nbgrader.grade_id: cell for cell in book.cells if "nbgrader" in cell.metadata}
    submit(root, "ada")
    submit(root, "bob", GOOD | {"square_answer": "def square(x):\n    return 3 * x"})
    with Local(partial(Zygote, policy=Policy(memory_bytes=256 << 20), unsafe=not abilities()), 1) as pool:

        def again(**options):
            """Rows, and the tests of each student that were judged again."""
            before = {student: verdicts(root, student) for student in ("ada", "bob")}
            nbformat.write(book, source)
            rows = grade_assignment(folder(root), "toy", pool=pool, **options)
            now = {student: verdicts(root, student) for student in before}
            assert all(now[student].keys() == before[student].keys() for student in before)
            return by_student(rows), [{t for t in now[s] if now[s][t][0] != before[s][t][0]} for s in ("ada", "bob")]

        first = by_student(grade_assignment(folder(root), "toy", pool=pool))
        assert (first["ada"].total, first["bob"].total) == (4.0, 4.0)  # 3 times 3 is 9
        cells["square_test"].source = "assert square(4) == 16, 'square(4) should be 16'"
        rows, judged = again()
        assert judged == [{"square_test"}, {"square_test"}] and rows["ada"].total == 4.0
        assert rows["bob"].total == 3.0 and "should be 16" in rows["bob"].messages["square_test"]
        after = contents(root)
        assert again(force=True)[1] == [set(verdicts(root, "ada"))] * 2
        assert contents(root) == after
        cells["setup_imports"].source = "import math\nfactor = 2"
        assert again()[1] == [set(verdicts(root, "ada"))] * 2


def test_lost_files_and_a_lost_gradebook_come_back(root, tmp_path, prepared):
    log = tmp_path / "runs"
    submit(root, "ada")
    grade(root, log=log)
    first = contents(root)
    page, book = root / "feedback/ada/toy/toy.html", root / "autograded/ada/toy/toy.ipynb"
    kept = page.read_text(), book.read_text()
    page.unlink()
    book.write_text("")
    for suffix in ("", "-wal", "-shm"):
        (root / f"gradebook.db{suffix}").unlink(missing_ok=True)
    grade(root, log=log)
    assert contents(root) == first and (page.read_text(), book.read_text()) == kept and runs(log) == ["ada"]


def test_formgrader_takes_everything_for_graded(root):
    """It compares timestamp.txt with the gradebook; the time of a file, which a deadline needs, is neither."""
    rules = late.parse({"zone": "UTC", "assignments": {"toy": {"due": date(2020, 1, 1), "percent": 10}}})
    submit(root, "ada", stamp="2020-01-05 10:00:00 UTC")
    submit(root, "bob")
    assert by_student(grade(root, rules=rules))["bob"].penalty == 4.0
    assert toyset.formgrader_scores(root) == {"ada": 4.0, "bob": 4.0}
    (root / "submitted/ada/toy/timestamp.txt").unlink()
    assert toyset.formgrader_scores(root) == {"ada": None, "bob": 4.0}
    grade(root, rules=rules)
    assert toyset.formgrader_scores(root) == {"ada": 4.0, "bob": 4.0}


def test_a_note_about_the_time_goes_when_the_time_is_corrected(root, tmp_path):
    rules = late.parse({"zone": "UTC", "assignments": {"toy": {"due": date(2127, 1, 1), "percent": 10}}})
    log, page = tmp_path / "runs", root / "feedback/ada/toy/toy.html"
    submit(root, "ada", stamp="noonish")
    (row,) = grade(root, rules=rules, log=log)
    assert "which is no time" in " ".join(row.notes) and "which is no time" in page.read_text()
    submit(root, "ada", stamp="2026-01-05 10:00:00 UTC")
    (row,) = grade(root, rules=rules, log=log)
    assert runs(log) == ["ada"] and row.cached
    assert "no time" not in " ".join(row.notes) and "no time" not in page.read_text()


def test_a_notebook_that_gives_no_marks_makes_nobody_wrong(tmp_path):
    toyset.write(tmp_path)
    nbformat.write(new_notebook(cells=[new_code_cell("x = 1")]), tmp_path / "source/toy/reading.ipynb")
    submit(tmp_path, "ada")
    submit(tmp_path, "bob")
    nbformat.write(new_notebook(cells=[new_code_cell("x = 2")]), tmp_path / "submitted/bob/toy/reading.ipynb")
    (tmp_path / "submitted/cut/toy").mkdir(parents=True)
    rows = grade(tmp_path)
    assert [(row.student, row.notebook, row.state) for row in rows] == [
        ("ada", "toy", "graded"),
        ("bob", "toy", "graded"),
        ("cut", "toy", "missing"),
    ]
    assert rows[1].notes == rows[0].notes and needs_eye(rows) == rows[2:]


def test_a_changed_file_beside_the_notebook_grades_anew_and_copies_of_it_are_not_asked_for(root, tmp_path):
    log, data = tmp_path / "runs", root / "source/toy/data/table.csv"
    for folder_of in (data.parent, root / "submitted/ada/toy/data"):
        folder_of.mkdir(parents=True)
        (folder_of / "table.csv").write_text("1")
    submit(root, "ada")
    assert folder(root).policy("toy").beside == str(root / "source/toy")
    for _ in range(2):
        (row,) = grade(root, log=log)
    assert runs(log) == ["ada"] and not any("left behind" in note for note in row.notes)
    data.write_text("2")
    grade(root, log=log)
    assert runs(log) == ["ada", "ada"]
    data.rename(data.with_name("other.csv"))
    assert any("table.csv" in note for note in grade(root, log=log)[0].notes) and len(runs(log)) == 3


def test_a_proof_that_equals_the_model_answer_waits_for_the_marker(tmp_path):
    made = toyset.notebook()
    made.cells[-1].source = "By distributivity."  # without marks, nbgrader replaces the whole cell
    toyset.write(tmp_path, made=made)
    submit(tmp_path, "ada", GOOD | {"proof_text": "By distributivity."})
    submit(tmp_path, "eve", GOOD | {"proof_text": "YOUR ANSWER HERE"})
    got = by_student(grade(tmp_path))
    assert got["ada"].waits == {"proof_text": 2.0} and got["eve"].waits == {}
    assert got["ada"].marks["proof"] is None and got["eve"].marks["proof"] == 0.0


def test_a_grader_that_fails_gives_no_mark_and_costs_the_others_nothing(root, tmp_path):
    submit(root, "good1")
    submit(root, "good2")
    kinds = {
        "hangs": ("# HANG", "no answer in"),
        "crashes": ("# CRASH", "ended without an answer"),
        "kills": (
            "# KILL ZYGOTE",
            "without an answer|no answer in",
        ),  # or its time is up first
        "garbles": ("# GARBAGE", "no message"),
        "beyond": ("# BEYOND", "9.0 points"),
        "nan": ("# NOT A NUMBER", "nan points"),
        "broken": ("# AT FAULT", "double_test-shown is at fault"),
    }
    for student, (words, _) in kinds.items():
        submit(root, student, words=words)
    log = tmp_path / "runs"
    got = by_student(grade(root, log=log, workers=3))
    assert {student: row.state for student, row in got.items()} == dict.fromkeys(kinds, "broken") | {
        "good1": "graded",
        "good2": "graded",
    }
    assert [got[name].total for name in ("good1", "good2")] == [4.0, 4.0]
    for student, (_, words) in kinds.items():
        assert re.search(words, got[student].reason), got[student].reason
        assert "no mark was given" in got[student].reason
        assert got[student].total is None
        assert not (root / "feedback" / student).exists()
    assert {student for student, *_ in contents(root)["grades"]} == {"good1", "good2"}
    assert len(needs_eye(list(got.values()))) == len(kinds)
    assert runs(log).count("kills") >= 2 and runs(log).count("garbles") <= 2
    submit(root, "crashes")  # mended, it is graded
    assert by_student(grade(root))["crashes"].total == 4.0
    assert not left_over()


def test_odd_folders(root, tmp_path):
    submit(root, "twice")
    twice = root / "submitted/twice/toy"
    (twice / "toy.ipynb").rename(twice / "toy (1).ipynb")
    (twice / "toy (2).ipynb").write_bytes((twice / "toy (1).ipynb").read_bytes())
    submit(root, "both")
    both = root / "submitted/both/toy"
    (both / "toy (1).ipynb").write_text("{}")
    (root / "submitted/empty/toy").mkdir(parents=True)
    (root / "submitted/linked").mkdir()
    (root / "submitted/linked/toy").symlink_to(both)
    for name in ("..", "a b", "-rf", "a\nb", "x" * 65):
        if name != "..":
            (root / "submitted" / name / "toy").mkdir(parents=True)
    rows = grade(root)
    got = by_student(rows)
    assert (got["twice"].state, got["empty"].state, got["linked"].state) == ("ambiguous", "missing", "not-a-file")
    assert got["both"].state == "graded" and got["both"].total == 4.0 and "toy (1).ipynb" in got["both"].reason
    assert [row.state for row in rows if not row.student] == ["unsafe-name"] * 4
    with gradebook(root) as book:
        assert {student.id for student in book.students} == {"twice", "both", "empty", "linked"}
        assert (
            book.find_submission("toy", "linked").score == 0
            and not book.find_submission("toy", "linked").needs_manual_grade
        )
    assert not (root / "feedback/a b").exists()


def test_a_student_who_occurs_twice_counts_once(root, monkeypatch):
    submit(root, "ada")
    collect = gate.collect
    monkeypatch.setattr(gate, "collect", lambda *args, **names: collect(*args, **names) * 2)
    rows = grade(root)
    assert sorted(row.state for row in rows) == ["ambiguous", "graded"]
    assert {row.state: row.total for row in rows} == {"graded": 4.0, "ambiguous": None}
    with gradebook(root) as book:
        assert book.find_submission("toy", "ada").score == 4.0


def test_a_file_that_breaks_the_parser_costs_only_itself(root, monkeypatch):
    submit(root, "ada")
    submit(root, "bob")
    admit = gate.admit
    monkeypatch.setattr(gate, "admit", lambda found: 1 / 0 if found.student == "ada" else admit(found))
    got = by_student(grade(root))
    assert got["ada"].state == "broken" and "division by zero" in got["ada"].reason and got["bob"].total == 4.0


def test_several_notebooks_and_ids_without_underscore(tmp_path):
    def cells(name):
        return new_notebook(
            cells=[
                new_code_cell("x = 0", metadata=toyset.answer(f"{name}answer", "").metadata),
                toyset.test(name, 2, "assert x == 1, 'x should be 1'"),
            ]
        )

    for name in ("one", "two"):
        path = tmp_path / "source/pair" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(cells(name), path)
    for student, values in {"ada": (1, 3), "bob": (1, None)}.items():
        for name, value in zip(("one", "two"), values, strict=True):
            if value is not None:
                book = cells(name)
                book.cells[0].source = f"x = {value}"
                path = tmp_path / "submitted" / student / "pair" / f"{name}.ipynb"
                path.parent.mkdir(parents=True, exist_ok=True)
                nbformat.write(book, path)
    rows = grade(tmp_path, name="pair")
    assert [(row.student, row.notebook, row.state, row.marks) for row in rows] == [
        ("ada", "one", "graded", {"one": 2.0}),
        ("ada", "two", "graded", {"two": 0.0}),
        ("bob", "one", "graded", {"one": 2.0}),
        ("bob", "two", "missing", {"two": 0.0}),
    ]
    with gradebook(tmp_path) as book:
        assert book.find_submission("pair", "bob").score == 2.0
        assert not book.find_submission("pair", "bob").needs_manual_grade


def test_another_file_for_answers_to_read_grades_anew(root, tmp_path):
    log, data = tmp_path / "runs", root / "data"
    data.mkdir()
    (data / "table.csv").write_text("1")
    course = folder(root, policy=Policy(readable=(str(data),)))
    submit(root, "ada")
    for _ in range(2):
        grade(root, log=log, course=course)
    assert runs(log) == ["ada"]
    (data / "table.csv").write_text("2")
    grade(root, log=log, course=course)
    assert runs(log) == ["ada", "ada"]


def test_a_source_that_makes_no_sense_stops_the_set_with_one_line(tmp_path):
    book = toyset.notebook()
    book.cells[4].metadata["nbreferee"] = {"run": "somehow"}
    toyset.write(tmp_path, made=book)
    with pytest.raises(BatchError, match=r"toy\.ipynb: double_test-shown is to be run 'somehow'; say split"):
        grade(tmp_path)
    with pytest.raises(BatchError, match="there is no assignment other in source/; there are: toy"):
        grade(tmp_path, name="other")
