"""A course with the toy set, its students, and the grading of it by a zygote that can be made to fail."""

import sqlite3
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import nbformat
import psutil
from nbgrader.api import Gradebook

from nbreferee.course.run import CourseFolder, grade_assignment
from nbreferee.intake.answers import CODE_STUB, TEXT_STUB, released_text
from nbreferee.judge.job import Job, RunLimits, Step
from nbreferee.judge.results import Result, TestResult
from nbreferee.walls.sandbox import Policy
from nbreferee.workers.message import Reply
from nbreferee.workers.pool import Local
from tests.nbreferee import toyset
from tests.nbreferee.fake_zygote import FakeZygote

DOUBLE, SQUARE = "def double(x):\n    return x + x", "def square(x):\n    return x * x"
GOOD = {"double_answer": DOUBLE, "square_answer": SQUARE}


SETTINGS = SimpleNamespace(
    preload=("numpy",),
    packages=(),
    code_stub=CODE_STUB,
    text_stub=TEXT_STUB,
    limits=RunLimits(0.2, 0.5, patience=0.5),  # what hangs is given up after 3 seconds
    policy=Policy(),
)


def folder(root, **more):
    return CourseFolder(root, SimpleNamespace(**vars(SETTINGS) | more))


def student_version(answers, made=None):
    book = made or toyset.notebook()
    for cell in book.cells:
        flags = cell.metadata.get("nbgrader", {})
        if flags.get("solution"):
            stub = CODE_STUB if cell.cell_type == "code" else TEXT_STUB
            cell.source = answers.get(flags["grade_id"], released_text(cell.source, stub))
        elif flags:
            cell.source = released_text(cell.source, CODE_STUB)
    return book


def submit(root, student, answers=GOOD, name="toy", words="", text=None, stamp=None):
    path = root / "submitted" / student / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    answers = dict(answers)
    if "double_answer" in answers:
        answers["double_answer"] += f"\n# id: {student}\n{words}"
    path.write_text(nbformat.writes(student_version(answers)) if text is None else text)
    if stamp:
        path.with_name("timestamp.txt").write_text(stamp)
    return path


def grade(root, *, name="toy", log=None, workers=2, grace_s=1.0, course=None, **options):
    with Local(partial(FakeZygote, log), workers, grace_s=grace_s) as pool:
        return grade_assignment(course or folder(root), name, pool=pool, **options)


def by_student(rows):
    return {row.student: row for row in rows}


@contextmanager
def gradebook(root):
    book = Gradebook(f"sqlite:///{root / 'gradebook.db'}")
    try:
        yield book
        book.db.commit()
    finally:
        book.close()


def mark(root, student, cell, score, *, comment=None, extra=None):
    """What formgrader does when a person gives a mark."""
    with gradebook(root) as book:
        row = book.find_grade(cell, "toy", "toy", student)
        row.manual_score, row.extra_credit, row.needs_manual_grade = score, extra, False
        if comment:
            book.find_comment(cell, "toy", "toy", student).manual_comment = comment


def contents(root):
    """All that the gradebook says about submissions, without its random ids."""
    db = sqlite3.connect(root / "gradebook.db")
    try:
        grades = db.execute(
            "SELECT s.student_id, n.name, c.name, c.type, g.auto_score, g.manual_score, g.extra_credit, "
            "g.needs_manual_grade FROM grade g JOIN base_cell c ON c.id = g.cell_id JOIN submitted_notebook m "
            "ON m.id = g.notebook_id JOIN notebook n ON n.id = m.notebook_id JOIN submitted_assignment s "
            "ON s.id = m.assignment_id ORDER BY 1, 2, 3"
        ).fetchall()
        comments = db.execute(
            "SELECT s.student_id, c.name, m.auto_comment, m.manual_comment FROM comment m JOIN base_cell c "
            "ON c.id = m.cell_id JOIN submitted_notebook b ON b.id = m.notebook_id JOIN submitted_assignment s "
            "ON s.id = b.assignment_id ORDER BY 1, 2"
        ).fetchall()
        books = db.execute(
            "SELECT s.student_id, s.timestamp, s.extension, b.flagged, b.late_submission_penalty FROM "
            "submitted_notebook b JOIN submitted_assignment s ON s.id = b.assignment_id ORDER BY 1"
        ).fetchall()
        students = db.execute("SELECT * FROM student ORDER BY 1").fetchall()
    finally:
        db.close()
    assert grades and comments and books and students
    return {"grades": grades, "comments": comments, "books": books, "students": students}


def runs(log):
    return sorted(log.read_text().split()) if log.exists() else []


def left_over(parent=None):
    """Processes that this one, or the one named, has started and that still run."""
    parent = psutil.Process(parent)
    return [p for p in parent.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def job():
    return Job((Step("answer", "a", "x = 1"), Step("test", "t", "assert x == 1", 2.0)), RunLimits(1.0, 2.0))


def reply(points=2.0, worth=2.0, name="t"):
    return Reply(Result((TestResult(name, "passed", points, worth),)), "{}", "<p>")
