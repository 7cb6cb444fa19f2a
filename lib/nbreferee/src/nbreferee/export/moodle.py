"""Marks for Moodle: its grading worksheet, filled, or a table for its gradebook."""

import math
import re
from pathlib import Path

from ..pages.tables import defused, number
from .marks import ExportError, Marks, some
from .worksheet import Filled, Table

__all__ = ["moodle", "moodle_import"]


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
    marks : from `nbreferee.export.marks.read_marks`.
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
    table = Table.read(template)
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

    how = {"missing": missing, "waiting": waiting, "overwrite": overwrite, "named": key, "blocked": blocked}
    filled.fill(marks, assignment, at, rows, known=known, mails=[] if mail is None else [mail], ids=ids, **how)
    if top is not None:
        filled.compare(table.rows[rows[0]][top].strip(), marks.possible[assignment], "Moodle")
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
    marks : from `nbreferee.export.marks.read_marks`.
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
        notes.append(f"{len(without)} students have no mark and were left out: {some(without)}.")
    if nameless:
        cure = "enter it in the gradebook, or give a mapping"
        notes.append(f"{len(nameless)} students with marks have no e-mail address: {some(nameless)}; {cure}.")
    if changed:
        what = f"{len(changed)} begin like a formula and got an apostrophe: {some(changed)}"
        notes.append(f"{what}; enter their marks by hand.")
    return rows, notes
