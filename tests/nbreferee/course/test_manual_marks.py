"""Marks given by hand stand while what they are about is the same, and wait when it is not."""

import base64
import os
import sqlite3
from contextlib import closing

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbformat.v4 import new_markdown_cell, new_notebook

from nbreferee.export import marks as export
from tests.nbreferee.toycourse import (
    GOOD,
    by_student,
    folder,
    grade,
    gradebook,
    mark,
    runs,
    submit,
)

pytestmark = pytest.mark.slow


def test_marks_given_by_hand_stand_while_the_answer_is_the_same(root, tmp_path):
    log = tmp_path / "runs"
    submit(root, "ada", GOOD | {"proof_text": "First."})
    assert grade(root, log=log)[0].to_mark == 2.0
    mark(root, "ada", "proof_text", 1.5, comment="Say which law you use.", extra=0.25)
    row = grade(root, log=log)[0]
    assert (row.total, row.to_mark, row.marks["proof"]) == (5.75, 0.0, 1.75)
    page = (root / "feedback/ada/toy/toy.html").read_text()
    assert "Say which law" in page and runs(log) == ["ada"]  # rendered anew, not run anew
    submit(root, "ada", {"double_answer": "def double(x):\n    return 0", "proof_text": "First."})
    row = grade(root, log=log)[0]
    assert (row.total, row.to_mark) == (1.75, 0.0) and runs(log) == ["ada", "ada"]
    assert "Say which law" in (root / "feedback/ada/toy/toy.html").read_text()
    submit(root, "ada", text="{")
    row = grade(root, log=log)[0]
    assert (row.state, row.total) == ("not-json", 1.75)
    submit(root, "ada", {"proof_text": "First."})
    assert grade(root, log=log)[0].to_mark == 0.0
    submit(root, "ada", {"proof_text": "Second."})
    row = grade(root, log=log)[0]
    assert row.to_mark == 2.0
    with gradebook(root) as book:
        grade_row = book.find_grade("proof_text", "toy", "toy", "ada")
        assert (grade_row.manual_score, grade_row.extra_credit) == (1.5, 0.25)  # not lost, only to be confirmed
        assert book.find_comment("proof_text", "toy", "toy", "ada").manual_comment == "Say which law you use."
    assert grade(root)[0].to_mark == 2.0  # a further run does not confirm it


def test_a_mark_that_waits_still_waits_after_an_upload_that_cannot_be_read(root):
    submit(root, "ada", {"proof_text": "First."})
    grade(root)
    mark(root, "ada", "proof_text", 1.5)
    submit(root, "ada", {"proof_text": "Second."})
    assert grade(root)[0].to_mark == 2.0
    submit(root, "ada", text="{")
    row = grade(root)[0]
    assert (row.state, row.total, row.to_mark) == ("not-json", 0.0, 2.0)
    assert export.read_marks(folder(root).gradebook).marks["ada", "toy"].state == "needs manual grading"
    submit(root, "ada", {"proof_text": "Second."})
    row = grade(root)[0]
    assert (row.total, row.to_mark) == (0.0, 2.0)


def test_a_gradebook_put_back_from_a_backup_knows_which_text_its_marks_are_about(root):
    submit(root, "ada", {"proof_text": "First."})
    grade(root)
    mark(root, "ada", "proof_text", 1.5)
    assert grade(root)[0].total == 1.5
    with closing(sqlite3.connect(root / "gradebook.db")) as db:
        db.execute("VACUUM INTO ?", (str(root / "backup.db"),))
    submit(root, "ada", {"proof_text": "Second."})
    assert grade(root)[0].to_mark == 2.0
    for suffix in ("-wal", "-shm"):
        (root / f"gradebook.db{suffix}").unlink(missing_ok=True)
    os.replace(root / "backup.db", root / "gradebook.db")
    row = grade(root)[0]
    assert (row.total, row.to_mark) == (0.0, 2.0)
    mark(root, "ada", "proof_text", 0.5)  # somebody has read the second one
    row = grade(root)[0]
    assert (row.total, row.to_mark) == (0.5, 0.0)


def test_a_submission_that_cannot_be_graded_lets_earlier_marks_wait(root):
    for student in ("ada", "bob"):
        submit(root, student, GOOD | {"proof_text": "First."})
    grade(root)
    for student in ("ada", "bob"):
        mark(root, student, "proof_text", 1.5)
    submit(root, "ada", GOOD | {"proof_text": "Second."}, words="# CRASH")
    submit(root, "bob", GOOD | {"proof_text": "First."}, words="# CRASH")
    submit(root, "new", words="# CRASH")
    assert [row.state for row in grade(root)] == ["broken"] * 3
    marks = export.read_marks(folder(root).gradebook).marks
    waits = {who: {e.name for e in marks[who, "toy"].exercises if e.points is None} for who in ("ada", "bob")}
    tests = {"double_test-shown", "double_test-hidden", "square_test"}
    assert waits == {"ada": tests | {"proof_text"}, "bob": tests}
    assert {mark.state for mark in marks.values()} == {"needs manual grading"} and ("new", "toy") not in marks
    for student, proof in (("ada", "Second."), ("bob", "First.")):
        submit(root, student, GOOD | {"proof_text": proof})
    got = by_student(grade(root))  # mended
    assert (got["ada"].total, got["ada"].to_mark) == (4.0, 2.0)
    assert (got["bob"].total, got["bob"].to_mark) == (5.5, 0.0)


def test_a_mark_for_a_photograph_stands_while_the_picture_is_the_same(root):
    red, blue = (base64.b64encode(b"\x89PNG" + bytes([n] * 20)).decode() for n in range(2))

    def hand_in(picture, *below):
        path = submit(root, "ada", GOOD | {"proof_text": "![my proof](attachment:image.png)"})
        book = nbformat.read(path, 4)
        book.cells[-1].attachments = {"image.png": {"image/png": picture}}
        book.cells += [new_markdown_cell(text) for text in below]
        nbformat.write(book, path)
        return grade(root)[0]

    assert hand_in(red).to_mark == 2.0
    shown = nbformat.read(root / "autograded/ada/toy/toy.ipynb", 4).cells[-1]
    assert [bundle["image/png"] for bundle in shown.attachments.values()] == [red]
    assert f"data:image/png;base64,{red}" in HTMLExporter().from_notebook_node(new_notebook(cells=[shown]))[0]
    mark(root, "ada", "proof_text", 1.5)
    assert hand_in(red).to_mark == 0.0
    assert hand_in(blue).to_mark == 2.0
    mark(root, "ada", "proof_text", 1.5)
    row = hand_in(blue, "And one more line.")
    assert row.to_mark == 2.0 and "followed by texts" in row.notes[0]


def test_a_mark_that_overrules_a_test_stands_while_the_code_is_the_same(root):
    wrong = {"double_answer": "def double(x):\n    return 0", "proof_text": "First."}
    submit(root, "ada", wrong)
    assert grade(root)[0].cells["double_test-shown"] == 0
    mark(root, "ada", "double_test-shown", 0.5)
    submit(root, "ada", wrong | {"proof_text": "Second."})
    row = grade(root)[0]
    assert row.cells["double_test-shown"] == 0.5 and set(row.waits) == {"proof_text"}
    submit(root, "ada", wrong | {"double_answer": "def double(x):\n    return 1"})
    row = grade(root)[0]
    assert set(row.waits) == {"proof_text", "double_test-shown"}


def test_marks_of_another_grader_stand_too(root):
    """Before nbreferee graded this course, nbgrader did: there is a file, and no record."""
    submit(root, "ada", GOOD | {"proof_text": "First."})
    grade(root)
    mark(root, "ada", "proof_text", 1.5)
    for file in (root / ".nbreferee").glob("results.db*"):
        file.unlink()
    assert grade(root)[0].to_mark == 0.0
    for file in (root / ".nbreferee").glob("results.db*"):
        file.unlink()
    submit(root, "ada", GOOD | {"proof_text": "Second."})
    assert grade(root)[0].to_mark == 2.0
