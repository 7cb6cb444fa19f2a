"""Results that are kept: what was graded once is not graded again, whatever became of the run that did it.

One SQLite file beside the course. A result is stored the moment it is there, with its notebook and its page
(compressed, about a sixth of their size), before anything is published. Publication (files, gradebook rows, then a
record of it here) can be repeated without harm: a run that was killed anywhere between is finished by the next one.
"""

import hashlib
import json
import sqlite3
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import nbformat

from ..errors import NbrefereeError
from ..intake.answers import Answers
from ..judge.job import Job
from ..judge.parts import KEPT, LOSSES, Parts
from ..judge.results import Result, ResultError
from ..workers.message import Reply

__all__ = ["Published", "Store", "StoreError", "key_of"]

SCHEMA = 1
ADOPTED = "adopted"  # the key of what lies in autograded/ without a record: its maker, or a run that was killed, knows
TABLES = """
CREATE TABLE IF NOT EXISTS result (key TEXT PRIMARY KEY, student TEXT NOT NULL, assignment TEXT NOT NULL,
    result TEXT NOT NULL, notebook BLOB NOT NULL, feedback BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS result_of ON result (assignment, student);
CREATE TABLE IF NOT EXISTS published (assignment TEXT NOT NULL, notebook TEXT NOT NULL, student TEXT NOT NULL,
    key TEXT NOT NULL, texts TEXT NOT NULL, extra TEXT NOT NULL,
    PRIMARY KEY (assignment, notebook, student)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (key TEXT PRIMARY KEY, student TEXT NOT NULL, assignment TEXT NOT NULL,
    frame TEXT NOT NULL, tests TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS parts_of ON parts (assignment, student);
"""


class StoreError(NbrefereeError):
    """The file of results cannot be used; the text is one line that names the cure."""


@dataclass(frozen=True)
class Published:
    """What was last made public of a submission.

    Parameters
    ----------
    key : of the result, or of the refusal.
    texts : {grade_id: digest of the text that its mark is about}.
    extra : digest of what the page shows besides the result (marks and comments by hand, lateness).
    """

    key: str
    texts: dict
    extra: str = ""


class Store:
    """The results of one course.

    Parameters
    ----------
    path : the SQLite file; it is made if there is none.
    timeout_s : how long to wait for another program that holds it.

    Raises
    ------
    StoreError : the file cannot be opened, is damaged, or is of another version.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.db") as store:
    ...     store.put("k", "ada", "set1", Reply(Result(()), "{}", "<p>"))
    ...     store.get("k").feedback, store.get("other")
    ('<p>', None)
    """

    def __init__(self, path: Path | str, *, timeout_s: float = 30.0):
        self.path = Path(path)
        self._timeout_s = timeout_s
        self._db = None
        with self._plainly():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")  # a kill loses nothing, a power cut the last moments
                version = self._db.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, SCHEMA):
                    raise StoreError(
                        f"{self.path.name} is of another version of nbreferee; move it away, and all is graded again"
                    )
                with self._transaction():
                    for statement in TABLES.split(";")[:-1]:
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA user_version={SCHEMA}")
            except BaseException:
                self.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextmanager
    def _plainly(self):
        """Errors of SQLite and of the file system as one line with the cure."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path.name}: {self._cure(error)}") from None

    def _cure(self, error):
        text = str(error).lower()
        if "locked" in text or "busy" in text:
            return (
                f"another program has held it for {self._timeout_s:g} s; end the other run and give the command again"
            )
        if "full" in text or "disk i/o" in text or getattr(error, "errno", None) in (27, 28, 122):
            return "the disk is full or a limit is reached; make room and give the command again, nothing is lost"
        if "not a database" in text or "malformed" in text or "corrupt" in text:
            return f"the file is damaged; move {self.path} away and give the command again, and all is graded again"
        if "readonly" in text or "unable to open" in text or isinstance(error, OSError):
            return f"it cannot be written; make the folder {self.path.parent} writable"
        return f"{error}; move {self.path} away and give the command again, and all is graded again"

    @contextmanager
    def _transaction(self):
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def get(self, key: str) -> Reply | None:
        """The reply that was stored under a key, None if there is none or if it cannot be read any more.

        Raises
        ------
        StoreError : the file is damaged or locked.
        """
        with self._plainly():
            row = self._db.execute("SELECT result, notebook, feedback FROM result WHERE key=?", (key,)).fetchone()
        try:
            return row and Reply(Result.from_json(row[0]), *(zlib.decompress(part).decode() for part in row[1:]))
        except (ResultError, zlib.error, UnicodeDecodeError, TypeError):
            return None

    def ran(self, key: str, student: str, assignment: str) -> Result | None:
        """A student's result of the same run, whatever its pages showed; see `key_of`.

        Raises
        ------
        StoreError : the file is damaged or locked.
        """
        query = "SELECT result FROM result WHERE assignment=? AND student=? AND key GLOB ? LIMIT 1"
        with self._plainly():
            row = self._db.execute(query, (assignment, student, f"{key.partition('.')[0]}.*")).fetchone()
        with suppress(ResultError):
            return row and Result.from_json(row[0])

    def verdicts(self, parts: Parts, student: str, assignment: str) -> dict:
        """{name: TestResult} of a student's tests that depend on nothing that has changed since they were judged.

        Raises
        ------
        StoreError : the file is damaged or locked.
        """
        query = (
            "SELECT result.result, parts.tests FROM parts JOIN result ON parts.key=result.key "
            "WHERE parts.assignment=? AND parts.student=? AND parts.frame=?"
        )
        with self._plainly():
            rows = self._db.execute(query, (assignment, student, parts.frame)).fetchall()
        found = {}
        for text, digests in rows:
            with suppress(ResultError, ValueError):
                before, result = json.loads(digests), Result.from_json(text)
                if any(cell.state in LOSSES for cell in result.cells):
                    continue
                for test in result.tests:
                    same = test.name in parts.tests and before.get(test.name) == parts.tests[test.name]
                    if same and test.state in KEPT:
                        found[test.name] = test
        return found

    def put(self, key: str, student: str, assignment: str, reply: Reply, parts: Parts | None = None) -> None:
        """Keep a reply, and what each of its verdicts depends on; it is on the disk when this returns.

        Raises
        ------
        StoreError : the disk is full, or the file cannot be written.
        """
        pages = (zlib.compress(text.encode(), 1) for text in (reply.notebook, reply.feedback))
        row = (key, student, assignment, reply.result.to_json(), *pages)
        with self._plainly():
            self._db.execute("INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?, ?, ?)", row)
            if parts is not None:
                row = (key, student, assignment, parts.frame, json.dumps(parts.tests))
                self._db.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?)", row)

    def published(self, assignment: str, notebook: str) -> dict:
        """{student: Published} of an assignment's notebook."""
        query = "SELECT student, key, texts, extra FROM published WHERE assignment=? AND notebook=?"
        with self._plainly():
            rows = self._db.execute(query, (assignment, notebook)).fetchall()
        return {student: Published(key, json.loads(texts), extra) for student, key, texts, extra in rows}

    def publish(self, assignment: str, notebook: str, records: dict) -> None:
        """Write down what has been made public, and drop results that nobody's publication uses any more.

        What was only adopted drops none: the student's result may be there, from a run that was killed.

        Parameters
        ----------
        records : {student: Published}
        """
        rows = [
            (assignment, notebook, student, each.key, json.dumps(each.texts), each.extra)
            for student, each in records.items()
        ]
        with self._plainly(), self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO published VALUES (?, ?, ?, ?, ?, ?)", rows)
            whose = [(assignment, student, assignment) for student, each in records.items() if each.key != ADOPTED]
            for table in ("result", "parts"):
                self._db.executemany(
                    f"DELETE FROM {table} WHERE assignment=? AND student=? AND key NOT IN "
                    "(SELECT key FROM published WHERE assignment=?)",
                    whose,
                )


def key_of(job: Job, template: nbformat.NotebookNode | str, answers: Answers, environment: str, title="") -> str:
    """What a result and its pages depend on: a digest of what is run, a dot, a digest of what is rendered besides.

    Parameters
    ----------
    job : steps and limits.
    template : the instructor's notebook, or its JSON.
    answers : what the student contributed, texts that are not run included.
    environment : in which it is run; see `nbreferee.workers.fingerprint`.
    title : of the page.
    """
    own = [[each.source, each.place, each.before, each.kind] for each in answers.own]
    parts = [dict(answers.cells), own, list(answers.unanswered), list(answers.notes), answers.pictures]
    template = template if isinstance(template, str) else nbformat.writes(template)
    return f"{_digest(environment, job.to_json())}.{_digest(title, template, json.dumps(parts))}"


def _digest(*texts):
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()
