"""Marks out of nbgrader's gradebook: as plain tables, and filled into what Canvas and Moodle hand out.

The gradebook is opened read-only. Nothing is guessed: who has not submitted has no mark (not 0), and a mark that waits
for a person is not given out, unless asked. In a table of Canvas or Moodle only empty cells of one column are filled,
every other field stays as it is, and what could not be placed on either side is named.
"""

import csv
import io
import math
import os
import re
import tempfile
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import NbrefereeError
from ..intake.notebook import shown

__all__ = [
    "Exercise",
    "ExportError",
    "Filled",
    "Mark",
    "Marks",
    "Student",
    "canvas",
    "defused",
    "handed_in",
    "long",
    "mapping",
    "moodle",
    "moodle_import",
    "read",
    "roster",
    "wide",
    "write",
]

FORMULA = set("=+-@\t\r\n|%") | {"\u2212"}  # U+2212 is the minus sign, which some programs read as a hyphen
STATES = ("marked", "needs manual grading", "not submitted")
MARKED, WAITING, MISSING = STATES


class ExportError(NbrefereeError, ValueError):
    """Nothing can be exported; the text names the file and the cure."""


@dataclass(frozen=True, slots=True)
class Student:
    """Who is in the course."""

    id: str
    last_name: str = ""
    first_name: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True)
class Exercise:
    """The mark of one graded cell.

    Parameters
    ----------
    notebook, name : where it stands; `name` is the grade_id.
    kind : code or markdown.
    points : extra credit included; None while it waits for a person.
    possible : what it is worth.
    extra : of the points, how many are extra credit.
    """

    notebook: str
    name: str
    kind: str
    points: float | None
    possible: float
    extra: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One student's mark of one assignment.

    Parameters
    ----------
    state : a member of STATES.
    points : after the penalty and never below 0; without what still waits for a person; None if nothing was submitted.
    possible : what the assignment is worth.
    penalty : what was taken off for lateness.
    exercises : cell by cell.
    """

    state: str
    points: float | None
    possible: float
    penalty: float = 0.0
    exercises: tuple = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """All of a gradebook.

    Parameters
    ----------
    students : in the order of their ids.
    possible : {assignment: what it is worth}, in the order of the names.
    marks : {(student id, assignment): Mark}; complete.
    """

    students: tuple
    possible: dict
    marks: dict

    def given(self, student: str, assignment: str, *, missing: str = "empty", waiting: str = "empty") -> float | None:
        """The points to hand on, or None for none.

        Parameters
        ----------
        student, assignment : the ids.
        missing : "empty", or "zero" for who has not submitted.
        waiting : "empty", or "points" for what the mark is as long as it waits for a person.
        """
        if missing not in ("empty", "zero") or waiting not in ("empty", "points"):
            raise ExportError(f"missing is {missing!r}, waiting {waiting!r}; take empty or zero, empty or points")
        if assignment not in self.possible:
            there = ", ".join(map(shown, self.possible)) or "none"
            raise ExportError(f"the gradebook has no assignment {shown(assignment)}; there are: {there}")
        mark = self.marks[student, assignment]
        if mark.state == MISSING:
            return 0.0 if missing == "zero" else None
        if mark.state == WAITING:
            return mark.points if waiting == "points" else None
        return mark.points


@contextmanager
def _session(db_url):
    """A session on the gradebook that cannot write."""
    from sqlalchemy import create_engine, event, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.orm import Session

    try:
        url = make_url(db_url)
        sqlite = url.get_backend_name() == "sqlite"
        if sqlite:
            file = Path(url.database or "")
            if not file.is_file():
                raise ExportError(f"there is no gradebook {shown(file.name)}; check the path, or grade first")
            query = dict(url.query)
            query.pop("uri", None)
            path = file.absolute().as_uri()
            url = url.set(database=path, query={**query, "mode": "ro", "uri": "true"})
        engine = create_engine(url)
    except ExportError:
        raise
    except Exception as error:  # SQLAlchemy's many, and a driver that is not installed
        cure = "write sqlite:///gradebook.db or the like"
        raise ExportError(f"the gradebook's address is of no use ({_first(error)}); {cure}") from None
    if not sqlite:

        @event.listens_for(engine, "begin")
        def _(connection):
            if engine.dialect.name == "postgresql":
                connection.execute(text("SET TRANSACTION READ ONLY"))

    try:
        with Session(engine, autoflush=False) as session:
            yield session
            session.rollback()
    except ExportError:
        raise
    except Exception as error:
        from sqlalchemy.exc import SQLAlchemyError

        if not isinstance(error, SQLAlchemyError):
            raise
        cure = "check that it is nbgrader's, of this version (nbgrader db upgrade)"
        raise ExportError(f"the gradebook cannot be read ({_first(error)}); {cure}") from None
    finally:
        engine.dispose()


def _first(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _finite(value, what):
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    raise ExportError(f"{what} is {value!r}, which is no number; grade it again")


def read(db_url: str, assignments=None) -> Marks:
    """Read marks from nbgrader's gradebook, without writing to it.

    Parameters
    ----------
    db_url : as in nbgrader's configuration, ``sqlite:///gradebook.db``.
    assignments : the names wanted; None: all.

    Returns
    -------
    Marks.

    Raises
    ------
    ExportError : if the gradebook cannot be read, an assignment is not in it, or a mark is no number.
    """
    from nbgrader.api import Assignment, GradeCell, TaskCell
    from nbgrader.api import Grade as G
    from nbgrader.api import Notebook as N
    from nbgrader.api import Student as S
    from nbgrader.api import SubmittedAssignment as SA
    from nbgrader.api import SubmittedNotebook as SN
    from sqlalchemy import select

    with _session(db_url) as db:
        names = {key: name for key, name in db.execute(select(Assignment.id, Assignment.name))}
        unknown = [name for name in assignments or () if name not in names.values()]
        if unknown:
            there = ", ".join(map(shown, sorted(names.values()))) or "none"
            raise ExportError(f"the gradebook has no assignment {shown(unknown[0])}; there are: {there}")
        wanted = {k: n for k, n in names.items() if assignments is None or n in assignments}
        people = db.execute(select(S.id, S.last_name, S.first_name, S.email).order_by(S.id))
        students = tuple(Student(*(value or "" for value in row)) for row in people)
        sheets = {n: (name, owner) for n, name, owner in db.execute(select(N.id, N.name, N.assignment_id))}
        cells, possible = {}, {name: 0.0 for name in sorted(wanted.values())}
        for kind in (GradeCell, TaskCell):
            for cell in db.scalars(select(kind)):
                notebook, owner = sheets.get(cell.notebook_id, ("", None))
                if owner in wanted:
                    of = f"what {shown(cell.name)} of {shown(wanted[owner])} is worth"
                    worth = _finite(cell.max_score or 0.0, of)
                    cells[cell.id] = (notebook, cell.name, cell.cell_type or "", worth)
                    possible[wanted[owner]] += worth
        sent, penalties, exercises = {}, {}, {}
        for key, student, owner in db.execute(select(SA.id, SA.student_id, SA.assignment_id)):
            if owner in wanted:
                sent[key] = (student, wanted[owner])
        works = {}
        for key, owner, penalty in db.execute(select(SN.id, SN.assignment_id, SN.late_submission_penalty)):
            if owner in sent:
                works[key] = owner
                of = f"the penalty of {shown(sent[owner][0])} in {shown(sent[owner][1])}"
                penalties[owner] = penalties.get(owner, 0.0) + max(0.0, _finite(penalty, of) or 0.0)
        columns = select(G.notebook_id, G.cell_id, G.auto_score, G.manual_score, G.extra_credit, G.needs_manual_grade)
        for work, cell, auto, manual, extra, waits in db.execute(columns):
            if work not in works or cell not in cells:
                continue
            owner, (notebook, name, kind, worth) = works[work], cells[cell]
            of = f"the mark of {shown(sent[owner][0])} in {shown(name)}"
            extra = _finite(extra, of) or 0.0
            points = _finite(manual if manual is not None else auto, of)
            # as nbgrader has it: a person's mark goes before the machine's, and none at all is 0
            points = None if waits else (points or 0.0) + extra
            exercises.setdefault(owner, []).append(Exercise(notebook, name, kind, points, worth, extra))
    marks = {(student.id, name): Mark(MISSING, None, worth) for student in students for name, worth in possible.items()}
    handed_in = set(works.values())
    for key, who in sent.items():
        mine = tuple(sorted(exercises.get(key, ()), key=lambda e: (e.notebook, e.name)))
        total = math.fsum(e.points for e in mine if e.points is not None)
        penalty = penalties.get(key, 0.0)
        if key not in handed_in:  # nbgrader keeps an empty submission for who has not handed in
            continue
        waits = any(e.points is None for e in mine) or (not mine and possible[who[1]] > 0)
        state = WAITING if waits else MARKED
        marks[who] = Mark(state, max(0.0, total - penalty), possible[who[1]], penalty, mine)
    return Marks(students, possible, marks)


def roster(db_url: str) -> list[str]:
    """The ids of all students of a gradebook, whether they have handed in anything or not.

    Raises
    ------
    ExportError : there is no gradebook, or it cannot be read.
    """
    from nbgrader.api import Student as S
    from sqlalchemy import select

    with _session(db_url) as db:
        return sorted(db.scalars(select(S.id)))


def handed_in(db_url: str, assignment: str) -> list[str]:
    """The ids of the students whose work on an assignment stands in a gradebook.

    Raises
    ------
    ExportError : there is no gradebook, or it cannot be read.
    """
    from nbgrader.api import Assignment
    from nbgrader.api import SubmittedAssignment as SA
    from nbgrader.api import SubmittedNotebook as SN
    from sqlalchemy import select

    query = select(SA.student_id).distinct().join(SN, SN.assignment_id == SA.id)
    query = query.join(Assignment, Assignment.id == SA.assignment_id).where(Assignment.name == assignment)
    with _session(db_url) as db:
        return sorted(db.scalars(query))


# --- tables ----------------------------------------------------------------------------------------------------------


def defused(text: str) -> str:
    """A text that no spreadsheet takes for a formula.

    Parameters
    ----------
    text : anything that a student or a file may have chosen.

    Returns
    -------
    The text, behind an apostrophe if it begins like a formula, in whatever width and behind whatever blanks or
    invisible characters. Line breaks become blanks.

    Examples
    --------
    >>> defused("=1+1"), defused(" ＝1"), defused("ada")
    ("'=1+1", "' ＝1", 'ada')
    """
    plain = unicodedata.normalize("NFKC", text)
    skipped = 0
    while skipped < len(plain) and unicodedata.category(plain[skipped])[0] in "ZC" and plain[skipped] not in FORMULA:
        skipped += 1
    risky = skipped < len(plain) and plain[skipped] in FORMULA
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    text = text.encode("utf-8", "replace").decode()
    return "'" + text if risky else text


def number(value: float | None) -> str:
    """Points in decimal figures: at most four behind the point, none that are not needed; None is empty.

    Examples
    --------
    >>> number(0.1 + 0.2), number(3.0), number(None)
    ('0.3', '3', '')
    """
    if value is None:
        return ""
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def wide(marks: Marks, *, missing: str = "empty", waiting: str = "empty") -> list[list]:
    """A row for each student, four columns for each assignment.

    Parameters
    ----------
    marks : from `read`.
    missing, waiting : as in `Marks.given`.

    Returns
    -------
    rows of texts and numbers, the first one with the names; for `write`.
    """
    header = ["student", "last name", "first name", "email"]
    for name in marks.possible:
        header += [f"{name} points", f"{name} possible", f"{name} late penalty", f"{name} state"]
    rows = [header]
    for student in marks.students:
        row = [student.id, student.last_name, student.first_name, student.email]
        for name in marks.possible:
            mark = marks.marks[student.id, name]
            points = marks.given(student.id, name, missing=missing, waiting=waiting)
            penalty = None if mark.state == MISSING else mark.penalty
            row += [points, mark.possible, penalty, mark.state]
        rows.append(row)
    return rows


def long(marks: Marks) -> list[list]:
    """A row for each exercise of each submission; a student who has not submitted has one row for the assignment."""
    rows = [["student", "assignment", "notebook", "exercise", "kind", "points", "possible", "extra credit", "state"]]
    for (student, name), mark in sorted(marks.marks.items()):
        for e in mark.exercises:
            state = WAITING if e.points is None else MARKED
            rows.append([student, name, e.notebook, e.name, e.kind, e.points, e.possible, e.extra, state])
        if not mark.exercises:
            rows.append([student, name, "", "", "", None, mark.possible, None, mark.state])
    return rows


def write(path: Path | str, rows, *, bom: bool = False) -> None:
    """Write a table as CSV, whole or not at all.

    Every text is defused, and all stands in quotes, so that no program that splits at semicolons finds a formula
    inside one.

    Parameters
    ----------
    path : of the file; what was there is replaced.
    rows : lists of texts, numbers and None.
    bom : whether to begin with a byte order mark, by which Excel knows UTF-8.

    Raises
    ------
    ExportError : if the file cannot be written.
    """
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    for row in rows:
        writer.writerow([number(v) if v is None or _is_number(v) else defused(str(v)) for v in row])
    _save(path, out.getvalue(), bom)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _save(path, text, bom):
    path = Path(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8-sig" if bom else "utf-8", newline="") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise ExportError(f"{shown(path.name)} cannot be written ({error.strerror}); check the folder") from None


# --- tables that a learning platform handed out ----------------------------------------------------------------------


@dataclass
class _Table:
    """A CSV file as it came: rows of texts, and how they were written."""

    name: str
    rows: list
    delimiter: str
    newline: str
    bom: bool

    @classmethod
    def read(cls, path):
        path = Path(path)
        name = shown(path.name)
        try:
            data = path.read_bytes()
            text = data.decode("utf-8-sig")
        except OSError as error:
            raise ExportError(f"{name} cannot be read ({error.strerror}); check the path") from None
        except UnicodeDecodeError:
            raise ExportError(f"{name} is not UTF-8; export it again, and do not save it from a spreadsheet") from None
        first = text.split("\n", 1)[0]
        delimiter = max(",;\t", key=first.count)
        newline = "\r\n" if "\r\n" in text else "\n"
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
        except csv.Error as error:
            raise ExportError(f"{name} is no CSV ({error}); export it again") from None
        while rows and not any(rows[-1]):
            rows.pop()
        if len(rows) < 2:
            raise ExportError(f"{name} holds no rows below its first one; export it again")
        for place, row in enumerate(rows, 1):
            if row and len(row) != len(rows[0]):
                what = f"row {place} of {name} has {len(row)} fields, the first {len(rows[0])}"
                raise ExportError(f"{what}; export it again")
        return cls(name, rows, delimiter, newline, data.startswith(b"\xef\xbb\xbf"))

    def column(self, wanted, cure):
        """The place of a column."""
        places = [place for place, text in enumerate(self.rows[0]) if text.strip() == wanted]
        if len(places) != 1:
            what = "has no column" if not places else "has more than one column"
            raise ExportError(f"{self.name} {what} {shown(wanted)}; {cure}")
        return places[0]

    def text(self):
        out = io.StringIO()
        csv.writer(out, delimiter=self.delimiter, lineterminator=self.newline).writerows(self.rows)
        return out.getvalue()


@dataclass
class Filled:
    """A platform's table with one column filled, and what to say about it.

    Parameters
    ----------
    filled : students whose mark was put in.
    same : students whose mark stood there already.
    replaced : {student: (old, new)} that were overwritten.
    kept : {student: (old, new)} that differ and were left, since overwriting was not asked for or is not possible.
    empty : students without a mark to hand on, {student: state}.
    unplaced : students of the gradebook that the table does not have, or not for certain.
    unknown : rows of the table that no student of the gradebook belongs to.
    notes : further sentences.
    """

    table: _Table
    filled: list = field(default_factory=list)
    same: list = field(default_factory=list)
    replaced: dict = field(default_factory=dict)
    kept: dict = field(default_factory=dict)
    empty: dict = field(default_factory=dict)
    unplaced: list = field(default_factory=list)
    unknown: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    def write(self, path: Path | str) -> None:
        """Write the table; separators, line ends and byte order mark are those of the one that was read."""
        _save(path, self.table.text(), self.table.bom)

    def sentences(self) -> list[str]:
        """What a person must know, one line each."""
        out = [f"{len(self.filled)} marks were filled in."]
        if self.same:
            out.append(f"{len(self.same)} stood there already.")
        if self.replaced:
            out.append(f"{len(self.replaced)} other marks were overwritten: {_changes(self.replaced)}.")
        if self.kept:
            out.append(f"{len(self.kept)} other marks were left as they are: {_changes(self.kept)}.")
        for state in STATES:
            mine = [student for student, why in self.empty.items() if why == state]
            if mine:
                out.append(f"{len(mine)} students got no mark ({state}): {_some(mine)}.")
        if self.unplaced:
            out.append(f"{len(self.unplaced)} students are not in {self.table.name}: {_some(self.unplaced)}.")
        if self.unknown:
            out.append(f"{len(self.unknown)} rows of {self.table.name} belong to nobody here: {_some(self.unknown)}.")
        return out + self.notes


def _some(names):
    names = sorted(map(shown, names))
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _changes(pairs):
    out = [f"{shown(student)} {shown(old)} (new: {new})" for student, (old, new) in sorted(pairs.items())]
    return ", ".join(out[:10]) + (f" and {len(out) - 10} more" if len(out) > 10 else "")


def mapping(path: Path | str) -> dict:
    """Read which id a student has on the platform.

    Parameters
    ----------
    path : a CSV file with the columns student and lms_id.

    Returns
    -------
    {student: lms_id}.

    Raises
    ------
    ExportError : if a column is missing, or a student or an id occurs twice.
    """
    table = _Table.read(path)
    cure = "begin it with the line student,lms_id"
    left, right = table.column("student", cure), table.column("lms_id", cure)
    out, seen = {}, set()
    for place, row in enumerate(table.rows[1:], 2):
        if not row:
            continue
        student, other = row[left].strip(), row[right].strip()
        if not student or not other or student in out or other in seen:
            why = "is not complete" if not student or not other else "repeats a student or an id"
            raise ExportError(f"row {place} of {table.name} {why}; correct it")
        out[student] = other
        seen.add(other)
    return out


def _place(marks, table, rows, columns, ids, mails, filled):
    """{row: Student} of those that fit for certain; the others are named in `filled`.

    `columns` hold ids, `mails` may hold an e-mail address too. A student with an entry in `ids` is looked for by that
    alone. One who fits several rows, and several who fit one row, are placed nowhere.
    """
    by_id, by_mail = {}, {}
    for place in rows:
        for column in columns:
            key = table.rows[place][column].strip()
            if key:
                by_id.setdefault(key, set()).add(place)
        for column in mails:
            key = table.rows[place][column].strip().casefold()
            if key:
                by_mail.setdefault(key, set()).add(place)
    claims, doubtful = {}, []
    strangers = sorted(set(ids) - {student.id for student in marks.students})
    if strangers:
        filled.notes.append(f"{len(strangers)} students of the mapping are not in the gradebook: {_some(strangers)}.")
    for student in marks.students:
        if student.id in ids:
            fit = by_id.get(ids[student.id], set()) | by_mail.get(ids[student.id].casefold(), set())
        else:
            fit = set(by_id.get(student.id, ()))
            for key in (student.id, student.email):
                fit |= by_mail.get(key.strip().casefold(), set()) if key.strip() else set()
        if len(fit) == 1:
            claims.setdefault(next(iter(fit)), []).append(student)
        else:
            filled.unplaced.append(student.id)
            if fit:
                doubtful.append(student.id)
    placed = {}
    for place, students in claims.items():
        if len(students) == 1:
            placed[place] = students[0]
        else:
            filled.unplaced += [student.id for student in students]
            doubtful += [student.id for student in students]
    if doubtful:
        filled.notes.append(
            f"{len(doubtful)} students fit several rows, or share one, and got no mark: {_some(doubtful)}; "
            "give a mapping with the columns student,lms_id."
        )
    return placed


def _equal(old, new):
    """Whether what stands there is the same mark; platforms show two decimals, some with a comma."""
    try:
        return abs(float(old.replace(",", ".")) - float(new)) < 0.005 + 1e-9
    except ValueError:
        return False


def _fill(marks, assignment, filled, placed, column, options, overwrite, blocked):
    for place, student in sorted(placed.items()):
        row = filled.table.rows[place]
        points = marks.given(student.id, assignment, **options)
        if points is None:
            filled.empty[student.id] = marks.marks[student.id, assignment].state
            continue
        old, new = row[column].strip(), number(points)
        if old and _equal(old, new):
            filled.same.append(student.id)
        elif (why := blocked(row, points)) is not None:
            filled.kept[student.id] = (why, new)
        elif not old or old == "-":
            row[column] = new
            filled.filled.append(student.id)
        elif overwrite:
            row[column] = new
            filled.replaced[student.id] = (old, new)
        else:
            filled.kept[student.id] = (old, new)


def canvas(
    template: Path | str,
    marks: Marks,
    assignment: str,
    *,
    column: str | None = None,
    ids: dict | None = None,
    missing: str = "empty",
    waiting: str = "empty",
    overwrite: bool = False,
) -> Filled:
    """Fill one column of Canvas's own gradebook export, for Grades, Import.

    Canvas knows students by the columns ID, SIS User ID and SIS Login ID and an assignment by the number in brackets
    behind its name, so its export is the form to fill. Students are found by SIS Login ID, SIS User ID or ID, by their
    e-mail address if that is the login, or by `ids`. Names are not compared.

    Canvas overwrites its marks by those of the file, empty ones included; so all other columns stay as they were
    exported. Export shortly before, and import soon.

    Parameters
    ----------
    template : Canvas's export.
    marks : from `read`.
    assignment : its name here.
    column : its name in Canvas, with or without the number in brackets; None: as here.
    ids : {student: SIS Login ID, SIS User ID or ID}, from `mapping`.
    missing, waiting : as in `Marks.given`.
    overwrite : whether to replace other marks that stand there.

    Returns
    -------
    Filled; call `write` and show the `sentences`.

    Raises
    ------
    ExportError : if the template is not Canvas's, or the column is not there or cannot be written.
    """
    # What the file must look like was read in Canvas's source, lib/gradebook_importer.rb (github.com/instructure/
    # canvas-lms): the first field of the header holds "Student", the second "ID"; SIS columns and Section follow; a row
    # whose first field holds "Points Possible" changes what an assignment is worth; rows of nothing but "Muted" or
    # "Manual Posting" are skipped; "read only" in the points row closes a column; "EX" excuses; commas or semicolons.
    # Also teaching.resources.osu.edu, "Import CSV File for Carmen Grades". Not tried on a running Canvas.
    table = _Table.read(template)
    header = table.rows[0]
    if len(header) < 4 or "Student" not in header[0] or "ID" not in header[1:3]:
        raise ExportError(f"{table.name} is no gradebook of Canvas; take the file of Grades, Export")
    wanted = assignment if column is None else column
    fits = [n for n, text in enumerate(header) if n > 2 and wanted in (text, re.sub(r"\s*\(\d+\)\s*$", "", text))]
    if len(fits) != 1:
        what = "has no assignment" if not fits else "has more than one assignment"
        raise ExportError(f"{table.name} {what} {shown(wanted)}; name the column with its number, as in 'Set 1 (123)'")
    at = fits[0]
    points, rows = None, []
    for place, row in enumerate(table.rows[1:], 1):
        if not row or all(re.fullmatch(r"\s*(Muted|Manual Posting.*)?\s*", text) for text in row):
            continue
        if "Points Possible" in row[0]:
            points = row[at].strip()
        else:
            rows.append(place)
    if points is not None and "read only" in points:
        raise ExportError(f"{shown(header[at])} of {table.name} is read only; name the column of an assignment")
    columns = [n for n, text in enumerate(header) if text.strip() in ("ID", "SIS User ID", "SIS Login ID")]
    mails = [n for n, text in enumerate(header) if text.strip() == "SIS Login ID"]
    filled = Filled(table)
    options = {"missing": missing, "waiting": waiting}
    placed = _place(marks, table, rows, columns, ids or {}, mails, filled)
    _fill(marks, assignment, filled, placed, at, options, overwrite, lambda row, value: None)
    filled.unknown = [table.rows[place][0].strip() for place in rows if place not in placed]
    _worth(filled, points, marks.possible[assignment], "Canvas")
    return filled


def _worth(filled, theirs, ours, platform):
    if theirs and not _equal(theirs, number(ours)):
        filled.notes.append(
            f"The assignment is worth {shown(theirs)} in {platform} and {number(ours)} here; points are handed on as "
            "they are, so make them equal if that is not meant."
        )


def moodle(
    template: Path | str,
    marks: Marks,
    assignment: str,
    *,
    columns: dict | None = None,
    ids: dict | None = None,
    missing: str = "empty",
    waiting: str = "empty",
    overwrite: bool = False,
) -> Filled:
    """Fill the column Grade of Moodle's offline grading worksheet of one assignment.

    Download it from the assignment's submissions (Download grading worksheet; it must be switched on among the
    feedback types) and upload it there. Students are found by ID number, Username or Email address, or by `ids`.
    Worksheets of anonymous submissions hold nothing but the Identifier, "Participant 123": then `ids` is needed.

    Moodle leaves out, without a word, marks above the maximum and rows whose grade cannot be changed; they are left
    empty and named here. It also leaves out a mark that was changed in Moodle after the worksheet was downloaded.

    Parameters
    ----------
    template : the worksheet.
    marks : from `read`.
    assignment : its name here.
    columns : how another language calls Identifier, Grade, Maximum grade, Grade can be changed, Email address,
        ID number, Username, and the No below Grade can be changed, as {English: other}.
    ids : {student: Identifier, ID number, Username or e-mail address}, from `mapping`.
    missing, waiting : as in `Marks.given`.
    overwrite : whether to replace other grades that stand there.

    Returns
    -------
    Filled; call `write` and show the `sentences`.

    Raises
    ------
    ExportError : if the template is not a worksheet.
    """
    # Read in Moodle's source (github.com/moodle/moodle): mod/assign/gradingtable.php writes the columns, of which some
    # depend on settings; mod/assign/feedback/offline/importgradeslib.php needs Identifier, Grade and Last modified
    # (grade) under the names of the site's language, and takes the number at the end of the Identifier; locallib.php
    # there skips empty grades, those above the maximum and those that are locked. Not tried on a running Moodle.
    table = _Table.read(template)
    header = [text.strip() for text in table.rows[0]]
    names = columns or {}
    cure = "take the file of Download grading worksheet, or say how your language calls it"
    key, at = (table.column(names.get(name, name), cure) for name in ("Identifier", "Grade"))

    def optional(name):
        name = names.get(name, name)
        return header.index(name) if header.count(name) == 1 else None

    top, open_, mail = optional("Maximum grade"), optional("Grade can be changed"), optional("Email address")
    rows = [place for place, row in enumerate(table.rows) if place and row]
    known = [key, *(n for n in (optional("ID number"), optional("Username")) if n is not None)]
    ids = dict(ids or {})
    bare = {}  # "Participant 123" may be written 123 in a mapping
    for place in rows:
        digits = re.search(r"\d+$", table.rows[place][key].strip())
        if digits:
            bare.setdefault(digits[0], []).append(table.rows[place][key].strip())
    for student, other in ids.items():
        if len(bare.get(other, ())) == 1 and not any(table.rows[p][n].strip() == other for p in rows for n in known):
            ids[student] = bare[other][0]
    filled = Filled(table)
    locked = {"no", names.get("No", "No").casefold()}

    def blocked(row, value):
        if open_ is not None and row[open_].strip().casefold() in locked:
            return "locked in Moodle"
        try:
            most = float(row[top].replace(",", ".")) if top is not None else math.inf
        except ValueError:
            return None
        return f"above the maximum of {number(most)}" if value > most + 1e-9 else None

    options = {"missing": missing, "waiting": waiting}
    placed = _place(marks, table, rows, known, ids, [] if mail is None else [mail], filled)
    _fill(marks, assignment, filled, placed, at, options, overwrite, blocked)
    filled.unknown = [table.rows[place][key].strip() for place in rows if place not in placed]
    if top is not None:
        _worth(filled, table.rows[rows[0]][top].strip(), marks.possible[assignment], "Moodle")
    return filled


def moodle_import(
    marks: Marks,
    assignments=None,
    *,
    by: str = "email",
    ids: dict | None = None,
    missing: str = "empty",
    waiting: str = "empty",
) -> tuple[list[list], list[str]]:
    """Make a table for Moodle's Grades, Import, CSV file.

    There, choose "Identify user by" the first column, and map each other column to its grade item. What comes in this
    way counts in Moodle as marked by hand, so the assignment itself can no longer change it. E-mail addresses must
    agree in case. Who has no mark at all is left out, since what an empty grade does was not found described.

    Parameters
    ----------
    marks : from `read`.
    assignments : the names; None: all.
    by : "email" (column Email address) or "id" (column ID number: the student's id).
    ids : {student: what stands in its place}, from `mapping`.
    missing, waiting : as in `Marks.given`.

    Returns
    -------
    rows for `write`, and sentences about who was left out.

    Raises
    ------
    ExportError : if `by` is neither, or there is no such assignment.
    """
    # docs.moodle.org/311/en/Grade_import: "Map from" Email address or ID number, then the items; and the warning that
    # imported grades cannot be edited in the assignment any more.
    if by not in ("email", "id"):
        raise ExportError(f"by is {by!r}; take email or id")
    names = list(marks.possible if assignments is None else assignments)
    rows, nameless, without, changed = [["Email address" if by == "email" else "ID number", *names]], [], [], []
    for student in marks.students:
        key = (ids or {}).get(student.id) or (student.email if by == "email" else student.id)
        points = [marks.given(student.id, name, missing=missing, waiting=waiting) for name in names]
        if all(value is None for value in points):
            without.append(student.id)
        elif not key.strip():
            nameless.append(student.id)
        else:
            rows.append([key.strip(), *points])
            if defused(key.strip()) != key.strip():
                changed.append(student.id)
    notes = [f"{len(rows) - 1} students are in the table."]
    if without:
        notes.append(f"{len(without)} students have no mark and were left out: {_some(without)}.")
    if nameless:
        cure = "enter it in the gradebook, or give a mapping"
        notes.append(f"{len(nameless)} students with marks have no e-mail address: {_some(nameless)}; {cure}.")
    if changed:
        what = f"{len(changed)} begin like a formula and got an apostrophe: {_some(changed)}"
        notes.append(f"{what}; enter their marks by hand.")
    return rows, notes
