"""A whole assignment: read what was submitted, grade what is new, write files and the gradebook, report.

One process reads and writes; grading runs in a pool. A result is stored first, then made public: the autograded
notebook, the feedback page, the gradebook's rows. Each of these steps can be repeated, so a run that was killed at any
moment is finished by the next one, and nothing is graded twice.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import nbformat
import nbgrader

from ..errors import NbrefereeError
from ..intake import gate
from ..intake.answers import Answers, answers
from ..intake.notebook import Refused
from ..judge.job import Job, JobError, kind_of, plan
from ..pages import feedback
from ..workers.fingerprint import contents, fingerprint
from ..workers.message import MessageError, Reply, Request, read_reply, write_request
from ..workers.pool import GraderFailed, Local, PoolError
from . import late
from .gradebook import Entry, GradebookError, Writer
from .store import ADOPTED, Published, Store, StoreError, key_of

__all__ = [
    "BatchError",
    "CourseFolder",
    "Row",
    "Stopped",
    "exercise_of",
    "grade_assignment",
    "needs_eye",
    "read_source",
    "writing",
]

AHEAD = 2  # submissions that wait for a free grading process, for each that runs
TICK_S = 0.2


class BatchError(NbrefereeError):
    """The assignment cannot be graded, or not any further; the text is one line that names the cure."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C: what was finished is kept; the text says how to go on. ``rows`` are those that were finished."""

    def __init__(self, text, rows=()):
        super().__init__(text)
        self.rows = list(rows)


@dataclass
class Row:
    """What became of one notebook of one submission.

    Parameters
    ----------
    student, assignment, notebook : whose, of what; the student is empty where a folder's name is no id.
    state : graded, unanswered, a state of `nbreferee.intake.notebook.Refused`, or broken (no mark was given).
    reason : one sentence, empty if there is nothing to say.
    notes : all sentences about the submission.
    marks : {exercise: points}, None where all of it waits for a person.
    total, max : points in all, after a penalty for lateness; None if no mark was given.
    penalty : points taken off.
    waits : {grade_id: points} of what waits for a person.
    cells : {grade_id: points}.
    messages : {test: why it did not pass}.
    seconds : that grading took; of a cached result, those of its run.
    cached : whether nothing was run.
    sandboxed : points earned in tests that ran in the student's own process.
    by_file : whether the penalty rests on the time of a file, for want of a timestamp.txt.
    """

    student: str
    assignment: str
    notebook: str
    state: str = "graded"
    reason: str = ""
    notes: tuple = ()
    marks: dict = field(default_factory=dict)
    total: float | None = None
    max: float = 0.0
    penalty: float = 0.0
    waits: dict = field(default_factory=dict)
    cells: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)
    seconds: float = 0.0
    cached: bool = False
    sandboxed: float = 0.0
    by_file: bool = False

    @property
    def to_mark(self) -> float:
        """Points that wait for a person."""
        return sum(self.waits.values())


def needs_eye(rows: list[Row]) -> list[Row]:
    """The rows that want the instructor's eye; a command that has some returns 1."""
    return [row for row in rows if row.state not in ("graded", "unanswered")]


def exercise_of(name: str) -> str:
    """The exercise of a cell: ``window`` for ``window_test-hidden``; an id without underscore is its own."""
    return name.split("_", 1)[0]


@dataclass(frozen=True)
class CourseFolder:
    """A course as nbgrader lays it out.

    Parameters
    ----------
    root : the folder that holds source/, submitted/, autograded/, feedback/.
    settings : see `nbreferee.course.settings`.
    config : nbgrader's configuration (traitlets), None: its defaults.
    db_url : of the gradebook; empty: what the configuration says, or gradebook.db in root.
    """

    root: Path
    settings: object
    config: object = None
    db_url: str = ""

    @classmethod
    def load(cls, root: Path | str, *, db_url: str = "") -> "CourseFolder":
        """Read nbreferee.toml and nbgrader_config.py of a course.

        Raises
        ------
        BatchError : there is no such folder, or nbgrader_config.py cannot be read.
        """
        from traitlets.config.loader import PyFileConfigLoader

        from .settings import load

        root = Path(root).resolve()
        if not root.is_dir():
            raise BatchError(f"there is no folder {root}; name the folder that holds source/")
        config = None
        if (root / "nbgrader_config.py").exists():
            try:
                config = PyFileConfigLoader("nbgrader_config.py", str(root)).load_config()
            except Exception as error:
                raise BatchError(f"nbgrader_config.py cannot be read ({_line(error)}); correct it") from None
        return cls(root, load(root), config, db_url)

    def _said(self, name, default):
        section = (self.config or {}).get("CourseDirectory", {})
        value = section.get(name, default)
        return value if isinstance(value, str) else default

    def folder(self, step: str) -> Path:
        """source, release, submitted, autograded or feedback, wherever the configuration puts it."""
        return self.root / self._said(f"{step}_directory", step)

    @property
    def gradebook(self) -> str:
        """The address of the gradebook."""
        if self.db_url:
            return self.db_url
        head, found, path = self._said("db_url", "sqlite:///gradebook.db").partition("sqlite:///")
        if head or not path or path.startswith((":", "file:")) or Path(path).is_absolute():
            return head + found + path
        return f"{found}{self.root / path}"  # as nbgrader takes it, which is started there

    @property
    def state(self) -> Path:
        """The folder of what nbreferee keeps: results, a lock."""
        return self.root / ".nbreferee"

    def assignments(self) -> list[str]:
        """What lies in source/."""
        return sorted({path.parent.name for path in self.folder("source").glob("*/*.ipynb")})

    def notebooks(self, name: str) -> dict:
        """{notebook's name: path} of an assignment's sources.

        Raises
        ------
        BatchError : there is no such assignment.
        """
        found = {path.stem: path for path in sorted(self.folder("source").joinpath(name).glob("*.ipynb"))}
        if not found:
            there = ", ".join(self.assignments()) or "none"
            raise BatchError(f"there is no assignment {name} in {self.folder('source').name}/; there are: {there}")
        return found

    def prepare(self, name: str) -> Path:
        """Put an assignment into the gradebook, as ``nbgrader generate_assignment`` does.

        Returns
        -------
        The folder with the student version, made afresh from the source. It is not the released one.

        Raises
        ------
        BatchError : nbgrader cannot make it; the text says why.
        """
        from nbgrader.apps import NbGraderAPI
        from nbgrader.coursedir import CourseDirectory
        from sqlalchemy.exc import SAWarning
        from traitlets.config import Config

        release, sources = self.state / "release", self.notebooks(name)
        made, mark = release / f"{name}.sha256", self._made_of(sources)
        with contextlib.suppress(OSError, GradebookError):
            if made.read_text() == mark and self._stands(name, sources):
                return release / name
        config = Config(self.config or {})
        config.CourseDirectory.root = str(self.root)
        config.CourseDirectory.db_url = self.gradebook
        config.CourseDirectory.source_directory = str(self.folder("source").relative_to(self.root))
        config.CourseDirectory.release_directory = str(release.relative_to(self.root))
        config.ClearSolutions.text_stub = self.settings.text_stub
        config.ClearSolutions.code_stub = {"python": self.settings.code_stub}
        if not self._said("course_id", "") and not self.gradebook.startswith("sqlite"):
            config.CourseDirectory.course_id = "default_course"  # with none, nbgrader breaks a foreign key
        config.Exchange.root = str(self.root)  # none is used; nbgrader complains if it cannot write there
        with _quiet(), _alembic(), writing(release):
            release.mkdir(parents=True, exist_ok=True)
            api = NbGraderAPI(CourseDirectory(config=config), config=config)
            api.log.propagate, api.log.handlers = False, []
            warnings.simplefilter("ignore", SAWarning)
            result = api.generate_assignment(name, force=True, create=True)
        if not result["success"]:
            raise BatchError(f"{name}: nbgrader could not make the student version: {_why(result, name)}")
        _put(made, mark)
        return release / name

    def _made_of(self, sources):
        """Digest of what the student version and the gradebook's cells depend on."""
        digest = hashlib.sha256(f"{nbgrader.__version__} {self.config} {self.settings}".encode())
        for book, path in sources.items():
            with _reading(path):
                digest.update(f"{book}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def _stands(self, name, sources):
        """Whether the gradebook knows the assignment as the sources have it."""
        with contextlib.closing(Writer(self.gradebook)) as writer:
            return writer.cells(name) == {book: _Template(path).graded for book, path in sources.items()}


@contextlib.contextmanager
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _alembic():
    """nbgrader calls alembic by name when it makes a gradebook."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _why(result, name):
    text = (result.get("log") or "") + "\n" + (result.get("error") or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any("there are submissions associated with it" in line for line in lines):
        return (
            "cells were added or removed since submissions were graded; keep their ids, or start its marks afresh "
            f"with: nbgrader db assignment remove {name} --force"
        )
    telling = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Entry): ", line) and "above" not in line]
    return (telling or lines or ["no reason was given"])[-1]


def _line(error):
    """One line, in which nothing that a stranger wrote is hidden."""
    return " ".join(feedback.visible(str(error)).split())[:300] or type(error).__name__


@contextlib.contextmanager
def writing(path):
    """An error of the file system as one line with the cure."""
    try:
        yield
    except OSError as error:
        cure = "make room" if error.errno in (27, 28, 122) else "make its folder writable"
        cure = "move away what lies in its place" if error.errno in (17, 20, 21) else cure
        why = error.strerror or _line(error)
        raise BatchError(f"{path} cannot be written ({why}); {cure} and give the command again") from None


@contextlib.contextmanager
def _reading(path):
    try:
        yield
    except OSError as error:
        raise BatchError(f"{path} cannot be read ({error.strerror or _line(error)}); check its permissions") from None


def _put(path, text):
    """Write a file so that it is there as a whole or not at all."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_text(text, "utf-8")
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def _there(path):
    with contextlib.suppress(OSError):
        return path.stat().st_size > 0
    return False


def _digest(text):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


@contextlib.contextmanager
def _only_one(folder, wait_s=5.0):
    """No second run in the same course; the lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "w")
    with file:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > end:
                    raise BatchError("another run grades this course; wait for it or end it") from None
                time.sleep(TICK_S)
        yield


def grade_assignment(
    course: CourseFolder,
    name: str,
    *,
    pool=None,
    workers: int = 2,
    force: bool = False,
    progress: Callable = lambda done, total, row: None,
    rules=None,
    title: str = "",
) -> list[Row]:
    """Grade what lies in ``submitted/<student>/<name>/``.

    Parameters
    ----------
    course : where.
    name : the assignment.
    pool : `nbreferee.workers.pool.Local` or `nbreferee.workers.cluster.Cluster`, which stays open; None: one on this
        machine.
    workers : how many submissions at a time.
    force : run all again, also what is unchanged.
    progress : called as ``progress(done, total, row)`` when a row is complete.
    rules : deadlines, see `nbreferee.course.late`; None: no penalties.
    title : heads the feedback page; the assignment's name if empty.

    Returns
    -------
    Row for each notebook of each student, by student.

    Raises
    ------
    BatchError : files cannot be written, the source makes no sense, or another run is under way.
    StoreError, GradebookError : results or marks cannot be written. All results so far are kept.
    PoolError : no grading process can be started.
    Stopped : Ctrl-C. All finished results are kept.
    """
    with _only_one(course.state):
        course.prepare(name)
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(Store(course.state / "results.db"))
            writer = Writer(course.gradebook)
            stack.callback(writer.close)
            if pool is None:
                pool = stack.enter_context(_local(course.settings, workers))
            return _Batch(course, name, store, writer, pool, force, progress, rules, title or name).run()


def _local(settings, workers):
    from ..walls.supervisor import Zygote

    return Local(partial(Zygote, preload=settings.preload, policy=settings.policy), workers)


def read_source(path: Path) -> nbformat.NotebookNode:
    """An instructor's notebook.

    Raises
    ------
    BatchError : it cannot be read.
    """
    try:
        return nbformat.read(path, 4)
    except Exception as error:
        raise BatchError(f"{path.name} cannot be read ({_line(error)}); save it from Jupyter") from None


class _Template:
    """One source notebook, and what its cells are."""

    def __init__(self, path):
        self.notebook = read_source(path)
        try:
            job = plan(self.notebook, Answers({}, (), (), ()))
        except JobError as error:
            raise BatchError(f"{path.name}: {error}") from None
        except Exception as error:
            raise BatchError(f"{path.name} cannot be read ({_line(error)}); save it from Jupyter") from None
        self.text = nbformat.writes(self.notebook)
        self.tests, self.graded, self.solutions, self.texts, self.points = set(job.points), {}, {}, {}, {}
        for cell in self.notebook.cells:
            flags = cell.metadata.get("nbgrader", {})
            name = flags.get("grade_id")
            if flags.get("grade") or flags.get("task"):
                self.graded[name] = float(flags.get("points") or 0)
                exercise = exercise_of(name)
                self.points[exercise] = self.points.get(exercise, 0.0) + self.graded[name]
            if flags.get("solution"):
                self.solutions[name] = kind_of(cell)

    def scores(self, answers, result):
        """{grade_id: points, None where a person has to mark}, as nbgrader's SaveAutoGrades sets them."""
        out = {}
        for name in self.graded:
            if name in self.tests:
                out[name] = result.by_test[name].points
            else:
                out[name] = 0.0 if name in self.solutions and not self.answered(answers, name) else None
        return out

    def comments(self, answers):
        return {name: None if self.answered(answers, name) else "No response." for name in self.solutions}

    @staticmethod
    def answered(answers, name):
        return name not in answers.unanswered and bool((answers.cells.get(name) or "").strip())

    def digests(self, answers, file):
        """{grade_id: digest of what a mark given by hand is about}."""
        code = [text or "" for name, text in answers.cells.items() if self.solutions.get(name)]
        code = _digest(json.dumps([code, [own.source for own in answers.own_code]]))
        out = {}
        for name in self.graded:
            if name in self.tests:
                out[name] = code
            else:
                out[name] = self.written(answers, name) if name in self.solutions else file
        return out

    @staticmethod
    def written(answers, name):
        """A digest of an answer in words, with the pictures to which it refers."""
        text = (answers.cells.get(name) or "").strip()
        seen = sorted(set(re.findall(r"picture-\d+\.[a-z]+", text)) & answers.pictures.keys())
        return _digest("\0".join([text, *(json.dumps(answers.pictures[picture]) for picture in seen)]))


@dataclass
class _Item:
    """One submission on its way."""

    found: gate.Found
    template: _Template
    row: Row
    answers: Answers | None = None
    job: Job | None = None
    key: str = ""
    texts: dict = field(default_factory=dict)
    timestamp: object = None  # what nbgrader has for it: timestamp.txt, or nothing
    moment: object = None  # when it came, for the deadline: the time of the file if need be
    by_file: str = ""  # the sentence that says so, if the moment is the time of the file
    reply: Reply | None = None
    refusal: Refused | None = None
    page: str = ""  # digest of what the page on the disk shows besides the result
    extra: dict = field(default_factory=dict)


class _Batch:
    def __init__(self, course, name, store, writer, pool, force, progress, rules, title):
        self.course, self.name, self.store, self.writer, self.pool = course, name, store, writer, pool
        self.force, self.progress, self.rules, self.title = force, progress, rules, title
        self.templates = {book: _Template(path) for book, path in course.notebooks(name).items()}
        self.published = {book: store.published(name, book) for book in self.templates}
        settings = course.settings
        readable = contents(settings.policy.readable)
        self.environment = (
            f"{fingerprint(tuple(settings.packages))} {settings.preload} {settings.policy} {readable} {title}"
        )
        self.flying, self.written, self.held, self.rows, self.total = {}, [], [], [], 0

    def run(self):
        founds = self._collect()
        self.total = len(founds)
        try:
            seen = set()
            for found in founds:
                self._take(found, seen)
                self._reap(most=AHEAD * self.pool.workers + self.pool.workers)
            while self.flying:
                self._reap(most=len(self.flying) - 1)
            self._flush()
            while self.flying:  # pages that show what a person decided
                self._reap(most=len(self.flying) - 1)
        except KeyboardInterrupt:
            self._save()
            text = (
                f"stopped: {len(self.rows)} of {self.total} submissions of {self.name} are finished and kept; "
                "give the command again to go on"
            )
            raise Stopped(text, self.rows) from None
        except (BatchError, StoreError, GradebookError, PoolError):
            self._save()
            raise
        return sorted(self.rows, key=lambda row: (row.student, row.notebook))

    def _save(self):
        """Before the end comes early: keep what has been finished meanwhile."""
        with contextlib.suppress(BatchError, StoreError, GradebookError, PoolError):
            for future in [future for future in self.flying if future.done()]:
                self._landed(future)
            self._flush()
        for future in self.flying:
            future.cancel()

    def _collect(self):
        folder, books = self.course.folder("submitted"), list(self.templates)
        if not folder.is_dir():
            return []
        try:
            founds = gate.collect(folder, self.name, names=books)
        except Refused as refusal:
            raise BatchError(str(refusal)) from None
        out = []
        for found in founds:  # a folder that is refused counts for all its notebooks
            whole = found.refusal is not None and found.student and len(books) > 1
            alone = whole and sum(other.student == found.student for other in founds) == 1
            out += [replace(found, name=book) for book in books] if alone else [found]
        return out

    def _take(self, found, seen):
        """Read one submission, and hand it to the pool if it is new."""
        item = _Item(found, self.templates[found.name], Row(found.student, self.name, found.name))
        item.row.max = sum(item.template.graded.values())
        if found.student and (found.student, found.name) in seen:
            return self._odd(item, "ambiguous", f"{found.student} occurs twice in this run; the first one counts.")
        seen.add((found.student, found.name))
        try:
            self._read(item)
        except Refused as refusal:
            return self._refuse(item, refusal)
        except Exception as error:  # whatever a stranger's file does to a parser, the others go on
            return self._odd(item, "broken", f"The grader failed, no mark was given: {_line(error)}.")
        reply = None if self.force else self.store.get(item.key)
        if reply is not None and self._fits(item, reply):
            item.row.cached = True
            return self._publish(item, reply)
        self._send(item, self._request(item))

    def _read(self, item):
        admitted = gate.admit(item.found)
        settings = self.course.settings
        found = answers(
            admitted.notebook, item.template.notebook, code_stub=settings.code_stub, text_stub=settings.text_stub
        )
        notes = tuple(dict.fromkeys((*item.found.notes, *admitted.notes, *found.notes)))
        item.answers = replace(found, notes=notes)
        item.job = plan(item.template.notebook, item.answers, settings.limits)
        item.key = key_of(item.job, item.template.text, item.answers, self.environment)
        item.texts = item.template.digests(item.answers, admitted.digest[:24])
        item.timestamp, item.moment = self._times(item)

    def _times(self, item):
        """(timestamp, moment) in UTC. Formgrader takes a submission for ungraded if it finds another timestamp."""
        found = item.found
        folder = found.root.joinpath(*found.path.relative_to(found.root).parts[:2])
        timestamp = late.timestamp(folder)
        if self.rules is None:
            return timestamp, None
        try:
            moment, source = late.submitted_at(folder, zone=self.rules.zone)
        except Refused:
            return timestamp, None
        if not source.startswith(late.CLAIMED):
            item.by_file = source
        if timestamp is None and os.path.lexists(folder / "timestamp.txt"):
            item.answers = replace(item.answers, notes=(*item.answers.notes, source))
        return timestamp, moment.replace(tzinfo=None)

    def _request(self, item, **more):
        settings = self.course.settings
        request = Request(item.job, item.template.text, item.answers, self._title(item), **more)
        return replace(request, code_stub=settings.code_stub, text_stub=settings.text_stub)

    def _title(self, item):
        return self.title if len(self.templates) == 1 else f"{self.title}: {item.found.name}"

    @staticmethod
    def _fits(item, reply):
        return {test.name: test.worth for test in reply.result.tests} == item.job.points

    def _send(self, item, request, render=False):
        try:
            message = write_request(request)
        except MessageError as error:
            if render:
                return self._unrendered(item, error)
            cure = "move long data out of its cells, delete what is not needed, save and submit again"
            return self._refuse(item, Refused("too-large", f"{item.found.name}.ipynb is too large; {cure}."))
        self.flying[self.pool.submit(message, item.job.limits.total_s)] = (item, render)

    @staticmethod
    def _unrendered(item, error):
        item.row.reason = f"{item.row.reason} The page does not show the marks by hand: {error}.".strip()

    def _reap(self, most):
        """Take what has been graded, and wait while more than so many are under way."""
        while True:
            timeout = TICK_S if len(self.flying) > most else 0
            done, _ = wait(self.flying, timeout=timeout, return_when=FIRST_COMPLETED)
            for future in done:
                self._landed(future)
            if self.writer.due:
                self._flush()
            if len(self.flying) <= most:
                return

    def _landed(self, future):
        item, render = self.flying.pop(future)
        try:
            reply = read_reply(future.result(timeout=0), item.job)
        except (GraderFailed, MessageError) as error:
            if render:
                return self._unrendered(item, error)
            self._odd(item, "broken", f"The grader failed, no mark was given: {error}.")
            return
        if render:
            self._put_page(item, reply.feedback, item.page)
            return
        broken = [test for test in reply.result.tests if test.state == "broken"]
        if broken:
            text = f"The test {broken[0].name} is at fault, no mark was given: {_line(broken[0].message)}"
            self._odd(item, "broken", text)
            return
        self.store.put(item.key, item.found.student, self.name, reply)
        self._publish(item, reply)

    # What is made public

    def _path(self, step, item):
        suffix = ".html" if step == "feedback" else ".ipynb"
        return self.course.folder(step) / item.found.student / self.name / f"{item.found.name}{suffix}"

    def _before(self, item):
        """What was last made public of this student, also by another grader."""
        records = self.published[item.found.name]
        student, file = item.found.student, self._path("autograded", item)
        if student not in records and file.exists():
            texts = {}
            with contextlib.suppress(Exception):
                for cell in nbformat.read(file, 4).cells:
                    name = cell.metadata.get("nbgrader", {}).get("grade_id")
                    if name in item.template.graded and name in item.template.solutions:
                        texts[name] = _digest(cell.source.strip())
            records[student] = Published(ADOPTED, texts, "unknown")
            self.store.publish(self.name, item.found.name, {student: records[student]})
        return records.get(student) or Published("", {})

    def _publish(self, item, reply):
        before, row = self._before(item), item.row
        item.reply, item.page = reply, before.extra
        notebook, page = self._path("autograded", item), self._path("feedback", item)
        if before.key != item.key or self.force or not _there(notebook):
            _put(notebook, reply.notebook)
        if item.timestamp is not None:  # nbgrader lays it beside the notebook too
            _put(notebook.with_name("timestamp.txt"), f"{item.timestamp.isoformat(sep=' ')} UTC")
        if before.key != item.key or self.force or not _there(page):
            _put(page, reply.feedback)
            item.page = ""
        result = reply.result
        row.seconds = result.seconds
        row.sandboxed = sum(test.points for test in result.tests if test.sandboxed)
        row.messages = {test.name: test.message for test in result.tests if test.message}
        row.state, row.notes = _state(item, result)
        row.reason = _sentence(row.notes)
        penalty = None
        if self.rules is not None:
            penalty = partial(self.rules.penalty, item.found.student, self.name, item.moment)
        self._enter(
            item,
            Entry(
                item.found.student,
                self.name,
                item.found.name,
                item.template.scores(item.answers, result),
                item.template.comments(item.answers),
                _unchanged(item, before),
                item.timestamp,
                penalty,
                texts=item.texts,
            ),
        )

    def _refuse(self, item, refusal):
        item.row.state, item.row.reason, item.row.notes = refusal.state, str(refusal), (str(refusal),)
        if not item.found.student:
            return self._done(item)
        item.refusal, before = refusal, self._before(item)
        item.key, item.texts = f"refused {_digest(refusal.state + str(refusal))}", before.texts
        item.row.cached = before.key == item.key
        page, notebook = self._path("feedback", item), self._path("autograded", item)
        if before.key != item.key or not _there(page):
            _put(page, feedback.refused(self._title(item), str(refusal)))
        with writing(notebook):
            notebook.unlink(missing_ok=True)
        self._enter(item, Entry(item.found.student, self.name, item.found.name, refused=True))

    def _enter(self, item, entry):
        self.writer.write(entry)
        self.written.append(item)
        if self.writer.due:
            self._flush()

    def _odd(self, item, state, reason):
        item.row.state, item.row.reason, item.row.notes = state, reason, (reason,)
        if state == "broken":  # a mark of an earlier submission must not pass for the mark of this one
            who, same = (item.found.student, self.name, item.found.name), _unchanged(item, self._before(item))
            self.held.append(Entry(*who, unchanged=same, texts=item.texts))
        self._done(item)

    def _done(self, item):
        self.rows.append(item.row)
        self.progress(len(self.rows), self.total, item.row)

    def _flush(self):
        """Write the gradebook, then the record of what is public, then the rows."""
        self.writer.hold(self.held)
        self.held = []
        written = self.writer.flush()
        items, self.written = self.written, []
        again, records = [], {book: {} for book in self.templates}
        for item, entry in zip(items, written, strict=True):
            _fill(item, entry)
            item.extra = {} if item.refusal else _extra(entry)
            wanted = _digest(json.dumps(item.extra, sort_keys=True)) if item.extra else ""
            if item.refusal is None and item.page != wanted:
                again.append((item, wanted))
            records[item.found.name][item.found.student] = Published(item.key, item.texts, item.page)
        for book, mine in records.items():
            if mine:
                self.store.publish(self.name, book, mine)
                self.published[book] |= mine
        for item, wanted in again:
            item.page = wanted
            if wanted:
                self._send(item, self._request(item, extra=item.extra, result=item.reply.result), render=True)
            else:
                self._put_page(item, item.reply.feedback, "")
        for item in items:
            item.reply = None  # a class of a thousand is not kept in memory
            self._done(item)

    def _put_page(self, item, page, shows):
        _put(self._path("feedback", item), page)
        record = Published(item.key, item.texts, shows)
        self.store.publish(self.name, item.found.name, {item.found.student: record})
        self.published[item.found.name][item.found.student] = record


def _unchanged(item, before):
    """The cells whose text is the one that was last made public."""
    return frozenset(name for name, text in item.texts.items() if before.texts.get(name) == text)


def _fill(item, written):
    """The row's marks, as the gradebook has them now."""
    row, template = item.row, item.template
    row.cells, row.waits, row.penalty = written.scores, written.waiting, written.penalty
    row.marks = dict.fromkeys(template.points)
    for name, score in written.scores.items():
        if name not in written.waiting:
            exercise = exercise_of(name)
            row.marks[exercise] = (row.marks.get(exercise) or 0.0) + score
    row.total = sum(mark for mark in row.marks.values() if mark is not None) - written.penalty
    if written.penalty:
        row.by_file = bool(item.by_file)
        row.notes = tuple(dict.fromkeys((*row.notes, written.sentence, *([item.by_file] if item.by_file else []))))
        row.reason = _sentence(row.notes)


def _extra(written):
    """What a person decided, for the page; a mark that waits to be confirmed is not shown."""
    extra = {}
    for name in written.marks:
        if name not in written.waiting:
            extra.setdefault(name, {})["score"] = written.scores[name]
    for name, text in written.comments.items():
        extra.setdefault(name, {})["comment"] = text
    return extra | ({"late_penalty": written.penalty, "late_sentence": written.sentence} if written.penalty else {})


def _state(item, result):
    """(state, sentences) of a submission that was graded."""
    answers, template = item.answers, item.template
    left = [name for name in template.solutions if not template.answered(answers, name)]
    notes = []
    for cell in result.cells:
        where = cell.name or "a cell of the student's own"
        if cell.state in ("crashed", "timeout", "memory"):
            notes.append(f"{where}: {_line(cell.error) or cell.state}.")
        elif cell.state == "failed" and cell.name not in left:
            notes.append(f"{where} stopped with {_line(cell.error)}"[:160] + ".")
    lost = [test for test in result.tests if test.state in ("crashed", "timeout", "memory", "invalid")]
    notes += [f"{test.name}: {test.state}, {_line(test.message)}"[:200] for test in lost]
    notes += answers.notes
    if left:
        everything = len(left) == len(template.solutions)
        notes.append("Nothing was answered." if everything else f"Not answered: {', '.join(left)}.")
    state = "unanswered" if template.solutions and len(left) == len(template.solutions) else "graded"
    return state, tuple(dict.fromkeys(notes))


def _sentence(notes):
    return " ".join(notes[:1]) + (f" ({len(notes) - 1} more notes)" if len(notes) > 1 else "")
