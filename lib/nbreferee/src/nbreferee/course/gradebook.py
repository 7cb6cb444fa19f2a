"""nbgrader's gradebook: the one writer, fast, in ordinary rows that formgrader, feedback and export read.

What nbgrader's own autograde would write is written, in bulk: a transaction for some fifty submissions. Marks, extra
credit and comments that a person gave are never touched. SQLite and PostgreSQL are served by the same code.

One table is added to nbgrader's: which texts the marks are about. It lies where the marks lie, so that a gradebook put
back from a backup knows of its marks that they are about older texts.
"""

import json
import math
import time
import warnings
from contextlib import contextmanager
from uuid import uuid4

import sqlalchemy as sa
from nbgrader import api
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from .entries import Entry, GradebookError, Written, capped_penalty

__all__ = ["Entry", "GradebookError", "Writer", "Written"]

ENTRIES, SECONDS = 50, 1.0
CHUNK = 400  # values in one IN (…)


class _Cells:
    """The cells of an assignment's notebook as the gradebook has them."""

    def __init__(self, notebook_id):
        self.id, self.graded, self.commented = notebook_id, {}, {}  # {cell id: (name, max_score)}, {cell id: name}


class Writer:
    """The only writer of a gradebook.

    Parameters
    ----------
    db_url : as nbgrader has it: ``sqlite:///…/gradebook.db``, ``postgresql+psycopg2://…``.
    timeout_s : how long to wait for another writer.

    Raises
    ------
    GradebookError : it cannot be opened, or is locked for longer than that.
    """

    def __init__(self, db_url: str, *, timeout_s: float = 60.0):
        self._timeout_s = timeout_s
        self._buffer, self._since, self._cells = [], None, {}
        with self._plainly():
            url = sa.make_url(db_url)
            self._sqlite = url.get_backend_name() == "sqlite"
            self._name = url.database.rsplit("/", 1)[-1] if url.database else db_url
            if self._sqlite:
                url = url.update_query_dict({"timeout": f"{timeout_s:g}"})
                self._engine = sa.create_engine(url)
                sa.event.listen(self._engine, "connect", _set_sqlite)
                sa.event.listen(self._engine, "begin", _begin_immediate)
            else:
                fast = {"executemany_mode": "values_plus_batch"} if url.get_driver_name() == "psycopg2" else {}
                self._engine = sa.create_engine(url, **fast)
                sa.event.listen(self._engine, "begin", self._limit_waiting)
        try:
            with self._plainly():
                there = sa.inspect(self._engine).has_table(ASSIGNMENT.name)
            if not there:
                raise GradebookError(f"{self._name} is no gradebook yet; run: nbgrader generate_assignment")
            with self._plainly():
                TEXTS.create(self._engine, checkfirst=True)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        try:
            if kind is None or issubclass(kind, KeyboardInterrupt):
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """Let the database go; what has not been flushed is not written."""
        if getattr(self, "_engine", None) is not None:
            self._engine.dispose()

    def _limit_waiting(self, connection):
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(1000 * self._timeout_s)}")

    @contextmanager
    def _plainly(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sa.exc.SAWarning)
            try:
                yield
            except (SQLAlchemyError, ImportError, OSError) as error:
                raise GradebookError(f"{getattr(self, '_name', 'the gradebook')}: {self._cure(error)}") from None

    def _cure(self, error):
        original = error.orig if isinstance(error, DBAPIError) else error
        text = " ".join(str(original).split())
        low = text.lower()
        if "locked" in low or "lock timeout" in low:
            return (
                f"another program has held the gradebook for {self._timeout_s:g} s; close it (formgrader, another "
                "nbgrader) and give the command again, all results are kept"
            )
        if "full" in low or "disk i/o" in low:
            return "the disk is full or a limit is reached; make room and give the command again, all results are kept"
        if "not a database" in low or "malformed" in low:
            return "the file is damaged; put a backup in its place and give the command again, all results are kept"
        if "readonly" in low or "unable to open" in low:
            return "it cannot be opened for writing; make the file and its folder writable"
        if "no such column" in low or "undefinedcolumn" in low:
            return "it was made by an older nbgrader; run: nbgrader db upgrade"
        return f"{text[:200]}; check the database's address and that it runs"

    def write(self, entry: Entry) -> None:
        """Take an entry; it is written by `flush`, call that when `due`.

        Raises
        ------
        ValueError : a score is no finite number.
        """
        for name, score in entry.scores.items():
            if score is not None and not (type(score) in (int, float) and math.isfinite(score)):
                raise ValueError(f"the score of {name} is {score!r}; it must be a finite number")
        self._since = self._since or time.monotonic()
        self._buffer.append(entry)

    @property
    def due(self) -> bool:
        """Whether enough has gathered, or has waited long enough, to be flushed."""
        return bool(self._buffer) and (len(self._buffer) >= ENTRIES or time.monotonic() - self._since >= SECONDS)

    def flush(self) -> list[Written]:
        """Write all entries taken so far, in one transaction.

        Returns
        -------
        Written for each entry, in order.

        Raises
        ------
        GradebookError : nothing of it was written; the entries are kept and `flush` can be called again.
        """
        if not self._buffer:
            return []
        groups, seen = [[]], set()
        for entry in self._buffer:  # of two entries about one submission the later comes in a later group
            if (who := (entry.assignment, entry.notebook, entry.student)) in seen:
                groups.append([])
                seen.clear()
            seen.add(who)
            groups[-1].append(entry)
        with self._plainly(), self._engine.begin() as connection:
            out = {}
            for group in groups:
                for assignment in dict.fromkeys(entry.assignment for entry in group):
                    mine = [entry for entry in group if entry.assignment == assignment]
                    out |= _Bulk(connection, self._assignment(connection, assignment), mine).write()
        done = [out[id(entry)] for entry in self._buffer]
        self._buffer, self._since = [], None
        return done

    def hold(self, entries: list[Entry]) -> None:
        """Let the marks wait of submissions that came anew and could not be graded; no mark is given or taken.

        A mark given by hand stands if its text is the same. Nobody is entered who is not in the gradebook.

        Parameters
        ----------
        entries : whose, of what, `unchanged` and `texts`; the rest is not asked for.

        Raises
        ------
        GradebookError : nothing of it was written.
        """
        if not entries:
            return
        with self._plainly(), self._engine.begin() as connection:
            for assignment in dict.fromkeys(entry.assignment for entry in entries):
                mine = [entry for entry in entries if entry.assignment == assignment]
                _Bulk(connection, self._assignment(connection, assignment), mine).hold()

    def _assignment(self, connection, name):
        """(id, {notebook's name: _Cells}) of an assignment, read once."""
        if name not in self._cells:
            found = connection.execute(sa.select(ASSIGNMENT.c.id).where(ASSIGNMENT.c.name == name)).scalar()
            if found is None:
                raise GradebookError(
                    f"{self._name}: there is no assignment {name}; run: nbgrader generate_assignment {name}"
                )
            books = {}
            for key, book in connection.execute(
                sa.select(NOTEBOOK.c.id, NOTEBOOK.c.name).where(NOTEBOOK.c.assignment_id == found)
            ):
                cells = books[book] = _Cells(key)
                for table, commented in ((GRADE_CELL, False), (TASK_CELL, True)):
                    rows = connection.execute(
                        sa.select(CELL.c.id, CELL.c.name, table.c.max_score)
                        .join(table, table.c.id == CELL.c.id)
                        .where(CELL.c.notebook_id == key)
                    )
                    for cell, label, most in rows:
                        cells.graded[cell] = (label, float(most))
                        if commented:
                            cells.commented[cell] = label
                rows = connection.execute(
                    sa.select(CELL.c.id, CELL.c.name)
                    .join(SOLUTION_CELL, SOLUTION_CELL.c.id == CELL.c.id)
                    .where(CELL.c.notebook_id == key)
                )
                cells.commented |= {cell: label for cell, label in rows}
            self._cells[name] = (found, books)
        return self._cells[name]

    def cells(self, assignment: str) -> dict:
        """{notebook: {grade_id: points possible}} of an assignment.

        Raises
        ------
        GradebookError : the gradebook does not have it.
        """
        with self._plainly(), self._engine.begin() as connection:
            books = self._assignment(connection, assignment)[1]
        return {book: dict(cells.graded.values()) for book, cells in books.items()}

    def forget(self) -> None:
        """Read the assignments' cells anew, after they were changed."""
        self._cells.clear()


def _set_sqlite(connection, record):
    connection.isolation_level = None  # we say BEGIN ourselves
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
    finally:
        cursor.close()


def _begin_immediate(connection):
    connection.exec_driver_sql("BEGIN IMMEDIATE")


ASSIGNMENT, NOTEBOOK, CELL = (kind.__table__ for kind in (api.Assignment, api.Notebook, api.BaseCell))
GRADE_CELL, TASK_CELL, SOLUTION_CELL = (kind.__table__ for kind in (api.GradeCell, api.TaskCell, api.SolutionCell))
STUDENT, SUBMISSION, SUBMITTED = (
    kind.__table__ for kind in (api.Student, api.SubmittedAssignment, api.SubmittedNotebook)
)
GRADE, COMMENT = api.Grade.__table__, api.Comment.__table__
TEXTS = sa.Table(  # with no foreign key: it must not keep nbgrader from removing a submission
    "nbreferee_texts",
    sa.MetaData(),
    sa.Column("notebook_id", sa.String(32), primary_key=True),
    sa.Column("texts", sa.Text, nullable=False),
)


def _unchanged(entry, texts):
    """The cells whose text is the one that the gradebook's mark is about; `texts` are None if it does not know."""
    if texts is None or not entry.texts:
        return entry.unchanged
    return {name for name, text in entry.texts.items() if texts.get(name) == text}


def _new():
    return uuid4().hex


class _Bulk:
    """The entries of one assignment, each of another submission, in one transaction."""

    def __init__(self, connection, assignment, entries):
        self.connection, self.entries = connection, entries
        self.assignment, self.books = assignment
        for entry in entries:
            if entry.notebook not in self.books:
                raise GradebookError(
                    f"the gradebook has no notebook {entry.notebook} in {entry.assignment}; "
                    f"run: nbgrader generate_assignment {entry.assignment} --force"
                )
            known = {name for name, _ in self.books[entry.notebook].graded.values()}
            if strangers := sorted(set(entry.scores) - known):
                raise GradebookError(
                    f"the gradebook has no cell {strangers[0]} in {entry.assignment}; "
                    f"run: nbgrader generate_assignment {entry.assignment} --force"
                )

    def select(self, query, column, values):
        values = list(values)
        for at in range(0, len(values), CHUNK):
            yield from self.connection.execute(query.where(column.in_(values[at : at + CHUNK])))

    def insert(self, table, rows):
        if rows:
            self.connection.execute(sa.insert(table), rows)

    def update(self, table, rows, *names):
        if rows:
            values = {name: sa.bindparam(f"new_{name}") for name in names}
            self.connection.execute(sa.update(table).where(table.c.id == sa.bindparam("row")).values(values), rows)

    def write(self):
        submissions = self.submissions()
        notebooks = self.notebooks(submissions)
        mine = [notebooks[submissions[entry.student], self.books[entry.notebook].id] for entry in self.entries]
        grades, comments, texts = self.rows(GRADE, mine), self.rows(COMMENT, mine), self.texts(mine)
        self.save_grades(mine, grades, texts)
        self.save_comments(mine, comments)
        self.save_texts(mine, texts)
        return self.finish(mine, grades, comments)

    def hold(self):
        query = sa.select(SUBMITTED.c.id, SUBMITTED.c.notebook_id, SUBMISSION.c.student_id)
        query = query.join(SUBMISSION, SUBMISSION.c.id == SUBMITTED.c.assignment_id)
        query = query.where(SUBMISSION.c.assignment_id == self.assignment)
        students = {entry.student for entry in self.entries}
        there = {
            (row.student_id, row.notebook_id): row.id for row in self.select(query, SUBMISSION.c.student_id, students)
        }
        keys = [there.get((entry.student, self.books[entry.notebook].id)) for entry in self.entries]
        self.entries = [entry for entry, key in zip(self.entries, keys, strict=True) if key]
        mine = [key for key in keys if key]
        grades, texts, changed = self.rows(GRADE, mine), self.texts(mine), []
        for entry, key in zip(self.entries, mine, strict=True):
            same = _unchanged(entry, texts.get(key))
            for cell, (name, _) in self.books[entry.notebook].graded.items():
                row = grades[key][cell]
                stands = row["manual_score"] is not None and name in same
                if not stands and not row["needs_manual_grade"]:
                    changed.append({"row": row["id"], "new_needs_manual_grade": True})
        self.update(GRADE, changed, "needs_manual_grade")

    def submissions(self):
        """{student: id of the submission}; students and submissions that are missing are made."""
        # A refused notebook says nothing of the time: it comes first, so that another one of its student overrules it.
        students = {entry.student: entry for entry in sorted(self.entries, key=lambda entry: not entry.refused)}
        known = {row.id for row in self.select(sa.select(STUDENT.c.id), STUDENT.c.id, students)}
        self.insert(STUDENT, [{"id": student} for student in students if student not in known])
        query = sa.select(SUBMISSION.c.id, SUBMISSION.c.student_id, SUBMISSION.c.timestamp)
        query = query.where(SUBMISSION.c.assignment_id == self.assignment)
        found = {row.student_id: row for row in self.select(query, SUBMISSION.c.student_id, students)}
        made = [
            {"id": _new(), "assignment_id": self.assignment, "student_id": student, "timestamp": entry.timestamp}
            for student, entry in students.items()
            if student not in found
        ]
        self.insert(SUBMISSION, made)
        later = [
            {"row": found[student].id, "new_timestamp": entry.timestamp}
            for student, entry in students.items()
            if student in found and not entry.refused and entry.timestamp != found[student].timestamp
        ]
        self.update(SUBMISSION, later, "timestamp")
        return {student: row.id for student, row in found.items()} | {row["student_id"]: row["id"] for row in made}

    def notebooks(self, submissions):
        """{(submission, notebook): id of the submitted notebook}; what is missing is made, with all its rows."""
        query = sa.select(SUBMITTED.c.id, SUBMITTED.c.assignment_id, SUBMITTED.c.notebook_id)
        found = {
            (row.assignment_id, row.notebook_id): row.id
            for row in self.select(query, SUBMITTED.c.assignment_id, submissions.values())
        }
        made = [
            {"id": _new(), "assignment_id": submission, "notebook_id": book.id}
            for submission in submissions.values()
            for book in self.books.values()
            if (submission, book.id) not in found
        ]
        self.insert(SUBMITTED, [row | {"flagged": False} for row in made])
        by_id = {book.id: book for book in self.books.values()}
        for table, cells in ((GRADE, "graded"), (COMMENT, "commented")):
            rows = [
                {"id": _new(), "notebook_id": row["id"], "cell_id": cell}
                for row in made
                for cell in getattr(by_id[row["notebook_id"]], cells)
            ]
            self.insert(table, [row | {"needs_manual_grade": True} for row in rows] if table is GRADE else rows)
        return found | {(row["assignment_id"], row["notebook_id"]): row["id"] for row in made}

    def rows(self, table, mine):
        """{submitted notebook: {cell: row}}; rows that are missing are made, as after a cell was added."""
        query = sa.select(table).with_for_update()
        out = {key: {} for key in mine}
        for row in self.select(query, table.c.notebook_id, mine):
            out[row.notebook_id][row.cell_id] = dict(row._mapping)
        made = []
        for entry, key in zip(self.entries, mine, strict=True):
            book = self.books[entry.notebook]
            for cell in book.graded if table is GRADE else book.commented:
                if cell not in out[key]:
                    row = dict.fromkeys(column.name for column in table.columns)
                    row |= {"id": _new(), "notebook_id": key, "cell_id": cell}
                    row |= {"needs_manual_grade": True} if table is GRADE else {}
                    made.append(row)
                    out[key][cell] = row
        self.insert(table, made)
        return out

    def texts(self, mine):
        """{submitted notebook: {grade_id: digest of the text that its mark is about}}, as far as it is known."""
        return {
            row.notebook_id: json.loads(row.texts) for row in self.select(sa.select(TEXTS), TEXTS.c.notebook_id, mine)
        }

    def save_texts(self, mine, texts):
        changed = {
            key: json.dumps(entry.texts, sort_keys=True)
            for entry, key in zip(self.entries, mine, strict=True)
            if entry.texts and not entry.refused and entry.texts != texts.get(key)
        }
        if changed:
            self.connection.execute(sa.delete(TEXTS).where(TEXTS.c.notebook_id.in_(changed)))
        self.insert(TEXTS, [{"notebook_id": key, "texts": text} for key, text in changed.items()])

    def save_grades(self, mine, grades, texts):
        changed = []
        for entry, key in zip(self.entries, mine, strict=True):
            same = _unchanged(entry, texts.get(key))
            for cell, (name, most) in self.books[entry.notebook].graded.items():
                row = grades[key][cell]
                score = 0.0 if entry.refused else entry.scores.get(name)
                score = None if score is None else min(max(float(score), 0.0), most)
                waits = not entry.refused and score is None
                if row["manual_score"] is not None:
                    waits = row["needs_manual_grade"] if entry.refused or name in same else True
                if (row["auto_score"], bool(row["needs_manual_grade"])) != (score, bool(waits)):
                    row |= {"auto_score": score, "needs_manual_grade": bool(waits)}
                    changed.append({"row": row["id"], "new_auto_score": score, "new_needs_manual_grade": bool(waits)})
        self.update(GRADE, changed, "auto_score", "needs_manual_grade")

    def save_comments(self, mine, comments):
        changed = []
        for entry, key in zip(self.entries, mine, strict=True):
            for cell, name in self.books[entry.notebook].commented.items():
                row, text = comments[key][cell], entry.comments.get(name)
                if not entry.refused and row["auto_comment"] != text:
                    row["auto_comment"] = text
                    changed.append({"row": row["id"], "new_auto_comment": text})
        self.update(COMMENT, changed, "auto_comment")

    def finish(self, mine, grades, comments):
        """Penalties, which depend on all marks; and what stands there now."""
        query = sa.select(SUBMITTED.c.id, SUBMITTED.c.late_submission_penalty)
        before = {row.id: row.late_submission_penalty for row in self.select(query, SUBMITTED.c.id, mine)}
        out, changed = {}, []
        for entry, key in zip(self.entries, mine, strict=True):
            book = self.books[entry.notebook]
            scores, waiting, marks = {}, {}, {}
            for cell, (name, most) in book.graded.items():
                row = grades[key][cell]
                base = row["auto_score"] if row["manual_score"] is None else row["manual_score"]
                scores[name] = 0.0 if base is None else float(base) + float(row["extra_credit"] or 0.0)
                if row["needs_manual_grade"]:
                    waiting[name] = most
                if row["manual_score"] is not None or row["extra_credit"] is not None:
                    marks[name] = {"score": row["manual_score"], "extra_credit": row["extra_credit"]}
            said = {name: comments[key][cell]["manual_comment"] for cell, name in book.commented.items()}
            penalty, sentence = None, ""
            if entry.penalty is not None:
                total = sum(score for name, score in scores.items() if name not in waiting)
                penalty, sentence = entry.penalty(total, sum(most for _, most in book.graded.values()))
                penalty = capped_penalty(penalty, total)
            if before[key] != penalty:
                changed.append({"row": key, "new_late_submission_penalty": penalty})
            said = {name: text for name, text in said.items() if text}
            out[id(entry)] = Written(scores, waiting, marks, said, penalty or 0.0, sentence or "")
        self.update(SUBMITTED, changed, "late_submission_penalty")
        return out
