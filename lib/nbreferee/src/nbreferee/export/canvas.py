"""Marks for Canvas: its own gradebook export, with one column filled."""

import re
from pathlib import Path

from ..intake.notebook import shown
from .marks import ExportError, Marks
from .worksheet import Filled, Table

__all__ = ["canvas"]


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
    marks : from `nbreferee.export.marks.read_marks`.
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
    table = Table.read(template)
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
    known = [n for n, text in enumerate(header) if text.strip() in ("ID", "SIS User ID", "SIS Login ID")]
    mails = [n for n, text in enumerate(header) if text.strip() == "SIS Login ID"]
    filled = Filled(table)
    how = {"missing": missing, "waiting": waiting, "overwrite": overwrite}
    filled.fill(marks, assignment, at, rows, known=known, mails=mails, ids=ids, **how)
    filled.compare(points, marks.possible[assignment], "Canvas")
    return filled
