"""Tables that a learning platform handed out: only empty cells of one column are filled.

Every other field stays as it is, and what could not be placed on either side is named.
"""

import csv
import io
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ..intake.notebook import shown
from ..pages.tables import number, save
from .marks import STATES, ExportError, some

__all__ = ["Filled", "Table", "mapping"]


@dataclass
class Table:
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

    table: Table
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
        save(path, self.table.text(), self.table.bom)

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
                out.append(f"{len(mine)} students got no mark ({state}): {some(mine)}.")
        if self.unplaced:
            out.append(f"{len(self.unplaced)} students are not in {self.table.name}: {some(self.unplaced)}.")
        if self.unknown:
            out.append(f"{len(self.unknown)} rows of {self.table.name} belong to nobody here: {some(self.unknown)}.")
        return out + self.notes

    def fill(self, marks, assignment, column, rows, *, known, mails=(), ids=None, named=0, blocked=None, **how) -> None:
        """Put the marks of an assignment into a column, and write down what became of each.

        Parameters
        ----------
        marks, assignment : from `nbreferee.export.marks.read_marks`, and of which.
        column : where the marks go.
        rows : the places of the rows that stand for somebody.
        known, mails : columns that hold ids, and columns that may hold an e-mail address.
        ids : {student: what stands in the table in its place}.
        named : the column that names a row to people.
        blocked : ``blocked(row, points)``, why a row takes no such mark, or None.
        how : missing, waiting as in `Marks.given`, overwrite.
        """
        overwrite, placed = how.pop("overwrite"), self._placed(marks, rows, known, ids or {}, mails)
        for place, student in sorted(placed.items()):
            row = self.table.rows[place]
            points = marks.given(student.id, assignment, **how)
            if points is None:
                self.empty[student.id] = marks.marks[student.id, assignment].state
                continue
            old, new = row[column].strip(), number(points)
            if old and _equal(old, new):
                self.same.append(student.id)
            elif blocked and (why := blocked(row, points)) is not None:
                self.kept[student.id] = (why, new)
            elif not old or old == "-":
                row[column] = new
                self.filled.append(student.id)
            elif overwrite:
                row[column] = new
                self.replaced[student.id] = (old, new)
            else:
                self.kept[student.id] = (old, new)
        self.unknown = [self.table.rows[place][named].strip() for place in rows if place not in placed]

    def compare(self, theirs: str | None, ours: float, platform: str) -> None:
        """Say so if the assignment is worth something else there."""
        if theirs and not _equal(theirs, number(ours)):
            self.notes.append(
                f"The assignment is worth {shown(theirs)} in {platform} and {number(ours)} here; points are handed on "
                "as they are, so make them equal if that is not meant."
            )

    def _placed(self, marks, rows, known, ids, mails):
        """{row: Person} of those that fit for certain; the others are named.

        Who has an entry in `ids` is looked for by that alone. One who fits several rows, and several who fit one row,
        are placed nowhere.
        """
        by_id, by_mail = defaultdict(set), defaultdict(set)
        for place in rows:
            for columns, into, fold in ((known, by_id, str), (mails, by_mail, str.casefold)):
                for column in columns:
                    into[fold(self.table.rows[place][column].strip())].add(place)
        for into in (by_id, by_mail):
            into.pop("", None)
        if strangers := sorted(set(ids) - {student.id for student in marks.students}):
            self.notes.append(f"{len(strangers)} students of the mapping are not in the gradebook: {some(strangers)}.")
        claims, doubtful = defaultdict(list), []
        for student in marks.students:
            exact, folded = (student.id,), (student.id, student.email)
            if student.id in ids:
                exact = folded = (ids[student.id],)
            fit = {place for key in exact for place in by_id.get(key, ())}
            fit |= {place for key in folded for place in by_mail.get(key.strip().casefold(), ())}
            if len(fit) == 1:
                claims[fit.pop()].append(student)
            else:
                self.unplaced.append(student.id)
                if fit:
                    doubtful.append(student.id)
        for students in claims.values():
            if len(students) > 1:
                self.unplaced += [student.id for student in students]
                doubtful += [student.id for student in students]
        if doubtful:
            self.notes.append(
                f"{len(doubtful)} students fit several rows, or share one, and got no mark: {some(doubtful)}; "
                "give a mapping with the columns student,lms_id."
            )
        return {place: students[0] for place, students in claims.items() if len(students) == 1}


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
    table = Table.read(path)
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


def _equal(old, new):
    """Whether what stands there is the same mark; platforms show two decimals, some with a comma."""
    try:
        return abs(float(old.replace(",", ".")) - float(new)) < 0.005 + 1e-9
    except ValueError:
        return False
