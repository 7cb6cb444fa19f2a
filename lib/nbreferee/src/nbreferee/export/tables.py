"""Marks as plain tables: for each student a row, or for each exercise."""

from .marks import MARKED, MISSING, WAITING, Marks

__all__ = ["long", "wide"]


def wide(marks: Marks, *, missing: str = "empty", waiting: str = "empty") -> list[list]:
    """A row for each student, four columns for each assignment.

    Parameters
    ----------
    marks : from `nbreferee.export.marks.read_marks`.
    missing, waiting : as in `Marks.given`.

    Returns
    -------
    rows of texts and numbers, the first one with the names; for `nbreferee.pages.tables.write`.
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
