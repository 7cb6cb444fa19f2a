"""A whole assignment: nothing lost, nothing graded twice, no mark by accident, the gradebook as nbgrader has it."""

import base64
import ctypes
import importlib
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from datetime import date, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import nbformat
import psutil
import pytest
import sqlalchemy as sa
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook

from nbreferee import batch, cli, export, gate, late
from nbreferee.autograded import autograded
from nbreferee.batch import BatchError, CourseFolder, Stopped, grade_assignment, needs_eye
from nbreferee.feedback import feedback
from nbreferee.gradebook import Entry, GradebookError, Writer
from nbreferee.job import Job, RunLimits, Step, plan
from nbreferee.message import MessageError, Reply, Request, read_reply, read_request, write_reply, write_request
from nbreferee.notebook import CODE_STUB, TEXT_STUB, Answers, Own, released_text
from nbreferee.pool import GraderFailed, Local, PoolError
from nbreferee.results import CellResult, Result, TestResult
from nbreferee.sandbox import Policy
from nbreferee.store import Published, Store, StoreError, fingerprint, key_of
from nbreferee.wire import Channel
from tests.nbreferee import toyset

ROOT = Path(__file__).resolve().parents[2]

# A zygote without walls that knows how to fail: words in a student's code say how.


def with_parent():
    """Die when the process that forked this one dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class FakeLine:
    def __init__(self, channel, pid):
        self.channel, self.pid = channel, pid

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def ended(self, timeout_s=0):
        return "signal 9"

    def close(self):
        self.kill()
        self.channel.close()


FORKING = threading.Lock()  # a fork must not take along the far end of another one's line


class FakeZygote:
    def __init__(self, log=None):
        self.log, self.lock = log, threading.Lock()
        with FORKING:
            self.control, theirs = socket.socketpair()
            self.pid = os.fork()
            if self.pid:
                theirs.close()
        if not self.pid:
            try:
                with_parent()
                self.control.close()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
                self.serve(theirs)
            finally:
                os._exit(1)

    def serve(self, control):
        while True:
            word, (descriptor,), *_ = socket.recv_fds(control, 1, 1)
            if not word:
                return
            pid = os.fork()
            if not pid:
                with_parent()
                try:
                    work(Channel(socket.socket(fileno=descriptor)), self.log)
                finally:
                    os._exit(0)
            os.close(descriptor)
            control.sendall(pid.to_bytes(4, "big"))

    def grader(self, timeout_s=10):
        with self.lock, FORKING:
            ours, theirs = socket.socketpair()
            try:
                self.control.settimeout(timeout_s)
                socket.send_fds(self.control, [b"!"], [theirs.fileno()])
                answer = self.control.recv(4)
            except OSError:
                answer = b""
            theirs.close()
            if len(answer) < 4:
                ours.close()
                raise RuntimeError("the zygote has died")
        return FakeLine(Channel(ours), int.from_bytes(answer, "big"))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        with self.lock:
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.pid = 0
                self.control.close()


def work(channel, log):
    request = read_request(channel.receive(30))
    words = "\n".join(step.source for step in request.job.steps)
    if log and request.result is None:
        with open(log, "a") as file:
            file.write(next((line[6:] for line in words.split("\n") if line.startswith("# id: ")), "?") + "\n")
    if "# SLOW" in words:
        time.sleep(0.05)
    if "# LONG" in words:
        time.sleep(1.5)
    if "# HANG" in words:
        time.sleep(600)
    if "# CRASH" in words:
        os._exit(3)
    if "# KILL ZYGOTE" in words:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    if "# GARBAGE" in words:
        return channel.send(b"I hereby award myself full marks", 5)
    result = request.result or fake_grade(request.job, "# AT FAULT" in words)
    reply = write_reply(render(request, result))
    if "# BEYOND" in words:
        reply = reply.replace(b'"points": 1.0', b'"points": 9.0')
    if "# NOT A NUMBER" in words:
        reply = reply.replace(b'"points": 1.0', b'"points": NaN')
    channel.send(reply, 5)


def fake_grade(job, broken):
    names, tests, cells = {}, [], []
    for step in job.steps:
        try:
            exec(step.source, names)
            state, text = "passed", ""
        except Exception as error:
            state, text = "failed", f"{type(error).__name__}: {error}"
        if step.kind == "test":
            state = "broken" if broken and not tests else state
            points = step.points if state == "passed" else 0.0
            tests.append(TestResult(step.name, state, points, step.points, text, sandboxed=step.run == "sandboxed"))
        elif step.kind != "given":
            cells.append(CellResult(step.name, step.kind, "ran" if state == "passed" else "failed", text))
    return Result(tuple(tests), tuple(cells), 0.25)


def render(request, result):
    if request.template is None:
        return Reply(result)
    book = autograded(request.template, request.answers, result)
    page = feedback(request.template, request.answers, result, title=request.title, extra=request.extra)
    return Reply(result, nbformat.v4.writes(book), page)


# A course

DOUBLE, SQUARE = "def double(x):\n    return x + x", "def square(x):\n    return x * x"
GOOD = {"double_answer": DOUBLE, "square_answer": SQUARE}
SETTINGS = SimpleNamespace(
    preload=("numpy",),
    packages=(),
    code_stub=CODE_STUB,
    text_stub=TEXT_STUB,
    limits=RunLimits(1.0, 3.0),
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


@pytest.fixture(autouse=True)
def one_environment(monkeypatch):
    """The package's own files may change while these tests run, in a checkout where somebody works."""
    monkeypatch.setattr(batch, "fingerprint", lambda packages: "this machine")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A course whose assignment is in the gradebook; copied by tests, for making one takes nbgrader a second."""
    root = tmp_path_factory.mktemp("prepared")
    toyset.write(root)
    folder(root).prepare("toy")
    return root


@pytest.fixture
def root(prepared, tmp_path):
    subprocess.run(["cp", "-r", f"{prepared}/.", str(tmp_path)], check=True)
    return tmp_path


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


# What a teacher sees


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
    with batch._quiet(), batch._alembic():
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


def mark(root, student, cell, score, *, comment=None, extra=None):
    """What formgrader does when a person gives a mark."""
    with gradebook(root) as book:
        row = book.find_grade(cell, "toy", "toy", student)
        row.manual_score, row.extra_credit, row.needs_manual_grade = score, extra, False
        if comment:
            book.find_comment(cell, "toy", "toy", student).manual_comment = comment


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
    assert export.read(folder(root).gradebook).marks["ada", "toy"].state == "needs manual grading"
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
    marks = export.read(folder(root).gradebook).marks
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


def test_a_penalty_is_entered_and_shown(root):
    class Rules:
        zone = None

        @staticmethod
        def penalty(student, assignment, submitted_at, score, max_score):
            overdue = submitted_at > datetime(2026, 1, 5)
            return (score * 0.25, "A day late.") if overdue else (0.0, "On time.")

    submit(root, "ada", stamp="2026-01-04 10:00:00 UTC")
    submit(root, "bob", stamp="2026-01-05 10:00:00 UTC")
    got = by_student(grade(root, rules=Rules))
    assert (got["ada"].total, got["ada"].penalty, got["bob"].total, got["bob"].penalty) == (4.0, 0.0, 3.0, 1.0)
    assert "A day late." in got["bob"].notes
    with gradebook(root) as book:
        assert book.find_submission_notebook("toy", "toy", "bob").late_submission_penalty == 1.0
        assert book.find_submission_notebook("toy", "toy", "ada").late_submission_penalty is None
    bobs, adas = ((root / f"feedback/{who}/toy/toy.html").read_text() for who in ("bob", "ada"))
    assert "A day late." in bobs and "Late:" in bobs and "Late:" not in adas and "On time." not in adas
    assert by_student(grade(root))["bob"].total == 4.0  # without rules, without penalty


OVERDUE = {"zone": "UTC", "assignments": {"toy": {"due": date(2020, 1, 1), "percent": 100}}}


def test_what_waits_is_no_part_of_the_sum_of_which_a_penalty_is_taken(root):
    submit(root, "ada", GOOD | {"proof_text": "First."}, stamp="2020-01-05 10:00:00 UTC")
    grade(root)
    mark(root, "ada", "proof_text", 1.5)
    row = grade(root, rules=late.parse(OVERDUE))[0]
    assert (row.total, row.penalty) == (0.0, 5.5)
    submit(root, "ada", GOOD | {"proof_text": "Second."}, stamp="2020-01-05 10:00:00 UTC")
    row = grade(root, rules=late.parse(OVERDUE))[0]
    assert (row.total, row.penalty, row.to_mark) == (0.0, 4.0, 2.0)


def test_who_is_late_by_the_time_of_a_file_is_told_so(root):
    submit(root, "ada", stamp="2020-01-05 10:00:00 UTC")
    submit(root, "bob")
    submit(root, "eve", {}, stamp="soon")
    submit(root, "mia", stamp="soon")
    got = by_student(grade(root, rules=late.parse(OVERDUE)))
    assert {who: row.by_file for who, row in got.items()} == {"ada": False, "bob": True, "eve": False, "mia": True}
    assert "The time of the newest file, for there is no timestamp.txt." in got["bob"].notes
    assert sum("which is no time" in note for note in got["mia"].notes) == 1
    assert not any("newest file" in note for note in got["ada"].notes)


# The command line


@pytest.fixture
def command(root, monkeypatch, capsys):
    """nbreferee itself, with a pool that needs no walls: (exit code, stdout, lines of stderr)."""
    monkeypatch.setattr(cli, "_pool", lambda course, options: Local(partial(FakeZygote, None), 2, grace_s=1.0))

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
    assert batch._why(log, "set2").endswith("nbgrader db assignment remove set2 --force")


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


# What goes wrong with a submission


def test_a_grader_that_fails_gives_no_mark_and_costs_the_others_nothing(root, tmp_path):
    submit(root, "good1")
    submit(root, "good2")
    kinds = {
        "hangs": ("# HANG", "no answer in"),
        "crashes": ("# CRASH", "ended without an answer"),
        "kills": ("# KILL ZYGOTE", "ended without an answer"),
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
        assert words in got[student].reason and "no mark was given" in got[student].reason, got[student].reason
        assert got[student].total is None
        assert not (root / "feedback" / student).exists()
    assert {student for student, *_ in contents(root)["grades"]} == {"good1", "good2"}
    assert len(needs_eye(list(got.values()))) == len(kinds)
    assert runs(log).count("kills") >= 2 and runs(log).count("garbles") <= 2
    submit(root, "crashes")  # mended, it is graded
    assert by_student(grade(root))["crashes"].total == 4.0
    assert not left_over()


def test_what_kills_its_zygote_again_and_again_harms_nobody():
    def submit(pool, words):
        return pool.submit(write_request(Request(Job((Step("answer", "a", words),)))), 5)

    with Local(FakeZygote, 3, grace_s=5) as pool:
        good = submit(pool, "# LONG")
        while not good.running():
            time.sleep(0.01)
        time.sleep(0.3)
        bad = [submit(pool, "# KILL ZYGOTE") for _ in range(8)]
        assert read_reply(good.result(timeout=60), Job(())).result.tests == ()
        for future in bad:
            with pytest.raises(GraderFailed, match="ended without an answer, twice"):
                future.result(timeout=60)
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


# What goes wrong with the machine

SCRIPT = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without
from tests.nbreferee import test_batch as t
t.batch.fingerprint = lambda packages: "this machine"
rows = t.grade(Path(sys.argv[1]), log=Path(sys.argv[2]), grace_s=60)  # nothing is given up while this machine is busy
print(*(f"{row.student} {row.state} {row.total}" for row in rows), sep="\\n")
"""


def start(root, log):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(root), str(log)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_killed_at_any_moment_the_next_run_goes_on(root, prepared, tmp_path, tmp_path_factory):
    """Kill the whole run with signal 9, some milliseconds after some submission; finish it; compare."""
    calm = tmp_path_factory.mktemp("calm")
    subprocess.run(["cp", "-r", f"{prepared}/.", str(calm)], check=True)
    students = [f"s{number:02d}" for number in range(24)]
    for place in (root, calm):
        for number, student in enumerate(students):
            proof = {} if number % 3 else {"proof_text": f"Proof {number}."}
            submit(place, student, (GOOD if number % 4 else {"double_answer": DOUBLE}) | proof, words="# SLOW")
    expected = [(row.student, row.state, row.total, row.waits) for row in grade(calm)]
    log, dice, killed = tmp_path / "runs", random.Random(7), 0
    for target in (3, 12, 24):
        before = runs(log)
        stored = stored_students(root)
        process = start(root, log)
        end = time.monotonic() + 60
        while len(set(runs(log))) < target and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(dice.random() * 0.3)
        killed += process.poll() is None
        process.kill()
        process.communicate()
        again = [student for student in runs(log) if runs(log).count(student) > before.count(student)]
        assert not set(again) & stored, "what was stored is not run again"
    assert killed >= 2
    time.sleep(0.3)
    stored, before = stored_students(root), runs(log)
    assert stored, "nothing was kept of the runs that were killed"
    rows = grade(root, log=log)
    assert [(row.student, row.state, row.total, row.waits) for row in rows] == expected
    assert contents(root) == contents(calm)
    for file in calm.glob("*/*/toy/toy.*"):
        if file.parts[-4] in ("autograded", "feedback"):
            assert (root / file.relative_to(calm)).read_text() == file.read_text()
    assert sorted(set(runs(log))) == students
    assert {student for student in students if runs(log).count(student) > before.count(student)} == set(
        students
    ) - stored


def stored_students(root):
    if not (root / ".nbreferee/results.db").exists():
        return set()
    db = sqlite3.connect(root / ".nbreferee/results.db")
    try:
        return {student for (student,) in db.execute("SELECT student FROM result")}
    except sqlite3.OperationalError:
        return set()
    finally:
        db.close()


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(root, tmp_path):
    for number in range(12):
        submit(root, f"s{number:02d}", words="# SLOW")
    submit(root, "zz", words="# HANG")
    log = tmp_path / "runs"
    process = start(root, log)
    end = time.monotonic() + 60
    while len(runs(log)) < 8 and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT or process.returncode == 1, told
    assert "give the command again to go on" in told.splitlines()[-1]
    kept = stored_students(root)
    assert len(kept) >= 6
    assert {student for student, *_ in contents(root)["grades"]} == kept
    submit(root, "zz")
    assert len(grade(root, log=log)) == 13
    assert all(runs(log).count(student) == 1 for student in kept)


def test_a_keyboard_interrupt_leaves_no_process(root):
    for number in range(6):
        submit(root, f"s{number}", words="# HANG" if number else "")

    def progress(done, total, row):
        raise KeyboardInterrupt

    with pytest.raises(Stopped, match="give the command again"):
        grade(root, progress=progress)
    assert not left_over()


def test_a_locked_gradebook_loses_nothing(root, tmp_path, monkeypatch):
    log = tmp_path / "runs"
    submit(root, "ada")
    monkeypatch.setattr(batch, "Writer", partial(Writer, timeout_s=0.5))
    other = sqlite3.connect(root / "gradebook.db", isolation_level=None)

    class Locking(Local):
        def submit(self, *job):
            other.execute("BEGIN IMMEDIATE")  # somebody begins to write while submissions are graded
            return super().submit(*job)

    try:
        with (
            Locking(partial(FakeZygote, log), 1) as pool,
            pytest.raises(GradebookError, match="another program has held the gradebook") as told,
        ):
            grade_assignment(folder(root), "toy", pool=pool)
        assert "\n" not in str(told.value)
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert stored_students(root) == {"ada"}
    assert grade(root, log=log)[0].total == 4.0 and runs(log) == ["ada"]


def test_a_gradebook_that_is_locked_for_a_while_is_waited_for(root):
    submit(root, "ada")
    other = sqlite3.connect(root / "gradebook.db", isolation_level=None, check_same_thread=False)
    with Writer(f"sqlite:///{root / 'gradebook.db'}", timeout_s=20) as writer:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(1.0, lambda: other.execute("ROLLBACK"))
        timer.start()
        writer.write(Entry("ada", "toy", "toy", {"square_test": 1.0}))
        began = time.monotonic()
        assert writer.flush()[0].scores["square_test"] == 1.0
        assert time.monotonic() - began > 0.8
        timer.join()
    other.close()


def test_a_second_run_in_the_same_course_waits_or_says_so(root, monkeypatch):
    submit(root, "ada")
    only_one = batch._only_one
    monkeypatch.setattr(batch, "_only_one", partial(only_one, wait_s=0.3))
    with only_one(root / ".nbreferee"), pytest.raises(BatchError, match="another run grades this course"):
        grade(root)
    assert grade(root)[0].total == 4.0


def test_a_folder_that_cannot_be_written_is_one_line(root, tmp_path):
    log = tmp_path / "runs"
    submit(root, "ada")
    (root / "autograded").write_text("in the way")  # refuses root too, whom permissions do not stop
    with pytest.raises(BatchError, match=r"toy\.ipynb cannot be written .*give the command again") as told:
        grade(root, log=log)
    assert "\n" not in str(told.value)
    (root / "autograded").unlink()
    assert grade(root, log=log)[0].total == 4.0 and runs(log) == ["ada"]


@contextmanager
def file_limit(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, or a skip."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("this machine does not let us mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_one_line_and_nothing_is_lost(prepared, small_disk, tmp_path):
    subprocess.run(["cp", "-r", f"{prepared}/.", str(small_disk)], check=True)
    for number in range(30):
        submit(small_disk, f"s{number:02d}")
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 600_000))
    log = tmp_path / "runs"
    with pytest.raises((BatchError, StoreError, GradebookError)) as told:
        grade(small_disk, log=log)
    assert "\n" not in str(told.value) and "make room and give the command again" in str(told.value)
    kept = stored_students(small_disk)
    filler.unlink()
    rows = grade(small_disk, log=log)
    assert [row.total for row in rows] == [4.0] * 30
    assert kept and all(runs(log).count(student) == 1 for student in kept)
    assert {score for *_, score, _, _, _ in contents(small_disk)["grades"]} <= {0.0, 1.0, 2.0}


def test_a_store_that_reached_a_limit_says_so(tmp_path):
    result = Result((TestResult("t", "passed", 1.0, 1.0),))
    large = "".join(map(chr, random.Random(1).choices(range(33, 126), k=300_000)))
    with Store(tmp_path / "results.db") as store:
        with file_limit(200_000), pytest.raises(StoreError, match="make room and give the command again"):
            for number in range(9):
                store.put(f"k{number}", "ada", "toy", Reply(result, large, ""))
        store.put("after", "ada", "toy", Reply(result, large, ""))
        assert store.get("after").notebook == large


# The parts


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


def test_the_fingerprint_sees_a_changed_source(tmp_path, monkeypatch):
    package = tmp_path / "coursepack"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = fingerprint(("coursepack",))
    assert first != fingerprint()
    (package / "__init__.py").write_text("x = 2\n")
    fingerprint.cache_clear()
    assert fingerprint(("coursepack",)) != first
    with pytest.raises(StoreError, match="no_such_pack, and there is none; install it"):
        fingerprint(("no_such_pack",))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed modules."""
    place = tmp_path / "site-packages"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    return place


def fresh(*packages):
    importlib.invalidate_caches()
    fingerprint.cache_clear()
    return fingerprint(packages)


def test_the_fingerprint_sees_another_version_of_a_distribution_with_another_name(site):
    (site / "imp_name.py").write_text("x = 1\n")
    info, seen = site / "DistName.dist-info", set()
    info.mkdir()
    (info / "top_level.txt").write_text("imp_name\n")
    for version in ("1.0", "2.0"):
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: DistName\nVersion: {version}\n")
        seen.add(fresh("imp_name"))
    assert len(seen) == 2


def test_the_fingerprint_sees_a_module_of_one_file(site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for place in (tmp_path, site):  # in site-packages too, if no distribution brought it
        file = place / f"one_file_{place.name.replace('-', '_')}.py"
        file.write_text("x = 1\n")
        first = fresh(file.stem)
        file.write_text("x = 2\n")
        assert fresh(file.stem) != first


@pytest.mark.parametrize("name", ["", "no_such_pack.sub"])
def test_a_name_that_is_no_module_is_said(name):
    with pytest.raises(StoreError, match="and there is none; install it"):
        fresh(name)


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


def job():
    return Job((Step("answer", "a", "x = 1"), Step("test", "t", "assert x == 1", 2.0)), RunLimits(1.0, 2.0))


def reply(points=2.0, worth=2.0, name="t"):
    return Reply(Result((TestResult(name, "passed", points, worth),)), "{}", "<p>")


def test_messages_come_back_as_they_were():
    own = (Own("y", "a", True), Own("z", None, kind="markdown"))
    template, photos = toyset.notebook(), {"picture-1.png": {"image/png": "AAAA"}}
    answers = Answers({"a": "x\ud800", "b": None}, own, ("b",), ("n",), photos)
    request = Request(job(), template, answers, "Set", {"t": {"score": 1.5}}, reply().result, "stub", "text")
    assert read_request(write_request(request)) == request
    assert read_request(write_request(Request(job()))) == Request(job())
    assert read_reply(write_reply(reply()), job()) == reply()
    bad = Reply(reply().result, "\ud800", "\udfff")
    assert read_reply(write_reply(bad), job()).notebook == "\\ud800"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"R1",
        b"rubbish",
        write_request(Request(job())),
        write_reply(reply(worth=3.0)),
        write_reply(reply(name="u")),
        write_reply(Reply(Result(()), "", "")),
        write_reply(reply()).replace(b'"points": 2.0', b'"points": 2.1'),
        write_reply(reply()).replace(b'"points": 2.0', b'"points": -.1'),
        write_reply(reply()).replace(b'"points": 2.0', b'"points": NaN'),
        write_reply(reply()) + b"\0",
    ],
)
def test_an_answer_to_anything_else_is_refused(message):
    with pytest.raises(MessageError) as told:
        read_reply(message, job())
    assert "\n" not in str(told.value)


def test_a_pool_runs_jobs_and_leaves_nothing():
    with Local(FakeZygote, 2, grace_s=1) as pool:
        futures = [pool.run(job()) for _ in range(6)]
        assert [future.result(timeout=20).points for future in futures] == [2.0] * 6
        hanging = pool.submit(write_request(Request(Job((Step("answer", "a", "# HANG"),)))), 60)
        waiting = [pool.submit(write_request(Request(job())), 1) for _ in range(3)]
        while not hanging.running():
            time.sleep(0.01)
        time.sleep(0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    with pytest.raises(GraderFailed, match="stopped"):
        hanging.result(timeout=5)
    assert all(future.done() for future in waiting) and not left_over()
    with pytest.raises(PoolError):
        pool.submit(b"", 1)


def test_a_pool_without_a_zygote_says_so():
    def make():
        raise OSError("bubblewrap is not installed; run: apt install bubblewrap")

    with Local(make, 1) as pool, pytest.raises(PoolError, match="bubblewrap is not installed"):
        pool.submit(b"", 1).result(timeout=10)


def test_a_run_without_a_zygote_ends_with_one_line(root):
    submit(root, "ada")

    def make():
        raise OSError("no namespaces; run with --unsafe")

    with Local(make, 1) as pool, pytest.raises(PoolError, match="no namespaces"):
        grade_assignment(folder(root), "toy", pool=pool)
    assert grade(root)[0].total == 4.0


def test_scores_are_finite_and_bounded(root):
    with Writer(f"sqlite:///{root / 'gradebook.db'}") as writer:
        for score in (float("nan"), float("inf"), "1", True):
            with pytest.raises(ValueError, match="finite"):
                writer.write(Entry("ada", "toy", "toy", {"square_test": score}))
        writer.write(Entry("ada", "toy", "toy", {"square_test": 7, "double_test-shown": -1.0}))
        written = writer.flush()[0]
        assert (written.scores["square_test"], written.scores["double_test-shown"]) == (1.0, 0.0)


def test_of_two_entries_the_later_counts(root):
    with Writer(f"sqlite:///{root / 'gradebook.db'}") as writer:
        for score in (0.0, 1.0):
            writer.write(Entry("ada", "toy", "toy", {"square_test": score}))
        assert [w.scores["square_test"] for w in writer.flush()] == [0.0, 1.0]
    with gradebook(root) as book:
        assert len(book.students) == 1 and book.find_grade("square_test", "toy", "toy", "ada").auto_score == 1.0


def test_what_is_no_gradebook_or_knows_no_such_cell_says_so(root, tmp_path):
    with pytest.raises(GradebookError, match="no gradebook yet; run: nbgrader generate_assignment"):
        Writer(f"sqlite:///{tmp_path / 'new.db'}")
    (tmp_path / "text.db").write_text("no database " * 1000)
    with pytest.raises(GradebookError, match="damaged; put a backup"):
        Writer(f"sqlite:///{tmp_path / 'text.db'}")
    with pytest.raises(GradebookError, match="cannot be opened for writing"):
        Writer(f"sqlite:///{tmp_path / 'no/such/folder.db'}")
    for entry in (
        Entry("ada", "toy", "toy", {"no_such": 1.0}),
        Entry("ada", "other", "toy"),
        Entry("ada", "toy", "other"),
    ):
        writer = Writer(f"sqlite:///{root / 'gradebook.db'}")
        writer.write(entry)
        with pytest.raises(GradebookError, match="run: nbgrader generate_assignment"):
            writer.flush()
        writer.close()


def test_the_writer_is_fast_and_writes_only_what_changed(root):
    writer = Writer(f"sqlite:///{root / 'gradebook.db'}")
    scores = {"double_test-shown": 1.0, "double_test-hidden": 0.0, "square_test": 1.0, "proof_text": None}

    def run(scores):
        began = time.perf_counter()
        for number in range(400):
            writer.write(Entry(f"s{number}", "toy", "toy", scores, {"proof_text": None}))
            if writer.due:
                writer.flush()
        writer.flush()
        return (time.perf_counter() - began) / 400

    assert run(scores) < 0.02  # a few milliseconds; the rest is for busy machines
    statements = []
    sa.event.listen(writer._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    run(scores)
    assert statements and not [text for text in statements if text.startswith(("INSERT", "UPDATE"))]
    run(scores | {"square_test": 0.0})
    assert [text for text in statements if text.startswith("UPDATE grade ")]
    assert not [text for text in statements if text.startswith("INSERT")]
    writer.close()


def test_a_source_that_makes_no_sense_stops_the_set_with_one_line(tmp_path):
    book = toyset.notebook()
    book.cells[4].metadata["nbreferee"] = {"run": "somehow"}
    toyset.write(tmp_path, made=book)
    with pytest.raises(BatchError, match=r"toy\.ipynb: double_test-shown is to be run 'somehow'; say split"):
        grade(tmp_path)
    with pytest.raises(BatchError, match="there is no assignment other in source/; there are: toy"):
        grade(tmp_path, name="other")
