"""Marks out of nbgrader's gradebook, which is opened read-only.

Nothing is guessed: who has not submitted has no mark (not 0), and a mark that waits for a person is not given out,
unless asked.
"""

import math
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..course.entries import require_nbgrader
from ..errors import NbrefereeError
from ..intake.notebook import shown

__all__ = ["Exercise", "ExportError", "Mark", "Marks", "Person", "handed_in", "read_marks", "roster", "some"]

STATES = ("marked", "needs manual grading", "not submitted")
MARKED, WAITING, MISSING = STATES


class ExportError(NbrefereeError, ValueError):
    """Nothing can be exported; the text names the file and the cure."""


@dataclass(frozen=True, slots=True)
class Person:
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

    def unmarked(self, assignments=None, *, waiting: str = "empty") -> list[str]:
        """How many wait for a person's mark, and whose work it is, a sentence for each assignment that has some."""
        what = "the points that they have without it were given out" if waiting == "points" else "they got no mark"
        out = []
        for name in self.possible if assignments is None else assignments:
            who = [student.id for student in self.students if self.marks[student.id, name].state == WAITING]
            if who:
                cure = f"mark them in formgrader and export again ({what} for now)."
                out.append(f"{name}: {len(who)} wait for marks by hand: {some(who)}; {cure}")
        return out


def some(names) -> str:
    """Ten of the names at most, and how many more there are."""
    names = sorted(map(shown, names))
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


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


def read_marks(db_url: str, assignments=None) -> Marks:
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
    require_nbgrader()
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
        students = tuple(Person(*(value or "" for value in row)) for row in people)
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
    require_nbgrader()
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
    require_nbgrader()
    from nbgrader.api import Assignment
    from nbgrader.api import SubmittedAssignment as SA
    from nbgrader.api import SubmittedNotebook as SN
    from sqlalchemy import select

    query = select(SA.student_id).distinct().join(SN, SN.assignment_id == SA.id)
    query = query.join(Assignment, Assignment.id == SA.assignment_id).where(Assignment.name == assignment)
    with _session(db_url) as db:
        return sorted(db.scalars(query))
