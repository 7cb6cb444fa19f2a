"""What is entered into a gradebook about a submission, and what a course does where there is none.

Marks are kept in nbgrader's gradebook. nbgrader brings JupyterLab along, so a machine that only grades may do without:
notebooks, pages and reports are then all that is written.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec

from ..errors import NbrefereeError

__all__ = ["Bookless", "Entry", "GradebookError", "Written", "capped_penalty", "has_nbgrader", "require_nbgrader"]


class GradebookError(NbrefereeError):
    """The gradebook cannot be read or written; the text is one line that names the cure."""


@dataclass(frozen=True)
class Entry:
    """What is to stand in the gradebook about one notebook of one submission.

    Parameters
    ----------
    student, assignment, notebook : whose, of what.
    scores : {grade_id: points of the autograder, None where a person has to mark}. What is left out counts None.
    comments : {grade_id: the autograder's comment, or None}.
    unchanged : grade_ids of which the text is the one that the last mark was given for: a mark given by hand stands.
        Where the gradebook knows itself which texts its marks are about, `texts` are compared with those instead.
    timestamp : of ``timestamp.txt``, in UTC; None if there is none. Of a refused submission it is not asked for.
    penalty : ``penalty(score, max_score) -> (points, sentence)`` for lateness; None: no penalty.
    refused : nothing could be read. All counts 0 where no person has given a mark. What a person gave stays as it is:
        what counted counts, what waited to be confirmed waits.
    texts : {grade_id: digest of the text that a mark is about}.
    """

    student: str
    assignment: str
    notebook: str
    scores: dict = field(default_factory=dict)
    comments: dict = field(default_factory=dict)
    unchanged: frozenset = frozenset()
    timestamp: datetime | None = None
    penalty: Callable | None = None
    refused: bool = False
    texts: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """What stands in the gradebook now.

    Parameters
    ----------
    scores : {grade_id: points in all, what a person gave included}.
    waiting : {grade_id: points possible} of what waits for a person.
    marks : {grade_id: {"score", "extra_credit"}} given by hand.
    comments : {grade_id: text} written by hand.
    penalty, sentence : for lateness.
    """

    scores: dict
    waiting: dict
    marks: dict
    comments: dict
    penalty: float = 0.0
    sentence: str = ""


def has_nbgrader() -> bool:
    """Whether nbgrader is installed."""
    return find_spec("nbgrader") is not None


def require_nbgrader() -> None:
    """See that nbgrader is installed.

    Raises
    ------
    GradebookError : it is not; the text names the extra that brings it.
    """
    if not has_nbgrader():
        raise GradebookError("the gradebook wants nbgrader; install it with: pip install 'nbreferee[nbgrader]'")


def capped_penalty(penalty: float | None, total: float) -> float | None:
    """A penalty for lateness as nbgrader keeps it: at most the points that there are, and None for nothing."""
    if penalty is None or not math.isfinite(penalty):
        return None
    return min(max(float(penalty), 0.0), total) or None


class Bookless:
    """Stands for a `nbreferee.course.gradebook.Writer` where marks are entered nowhere: nothing a person gave is known.

    Parameters
    ----------
    books : {notebook: {grade_id: points possible}} of the assignment.
    """

    def __init__(self, books: dict):
        self._books, self._buffer, self._since = books, [], 0.0

    def write(self, entry: Entry) -> None:
        """Take an entry; see `flush`."""
        self._since = self._since if self._buffer else time.monotonic()
        self._buffer.append(entry)

    @property
    def due(self) -> bool:
        """Whether an entry has waited for a second."""
        return bool(self._buffer) and time.monotonic() - self._since >= 1.0

    def flush(self) -> list[Written]:
        """What a gradebook would say about the entries taken so far, in order."""
        entries, self._buffer = self._buffer, []
        return [self._written(entry) for entry in entries]

    def _written(self, entry):
        possible = self._books[entry.notebook]
        given = dict.fromkeys(possible, 0.0) if entry.refused else dict.fromkeys(possible) | entry.scores
        waiting = {name: possible[name] for name, score in given.items() if score is None}
        scores = {name: min(max(float(score or 0.0), 0.0), possible[name]) for name, score in given.items()}
        penalty, sentence = None, ""
        if entry.penalty is not None:
            total = sum(score for name, score in scores.items() if name not in waiting)
            penalty, sentence = entry.penalty(total, sum(possible.values()))
            penalty = capped_penalty(penalty, total)
        return Written(scores, waiting, {}, {}, penalty or 0.0, sentence or "")

    def hold(self, entries: list[Entry]) -> None:
        """There is no mark that could wait."""

    def close(self) -> None:
        """There is nothing to be let go."""
