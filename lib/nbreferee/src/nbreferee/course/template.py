"""A source notebook: what its cells are, what they are worth, and which text each mark is about."""

import hashlib
import json
import re
from pathlib import Path

import nbformat

from ..intake.answers import Answers
from ..judge.job import JobError, kind_of, plan
from .files import BatchError, in_words

__all__ = ["Template", "digest", "exercise_of", "read_source"]


def exercise_of(name: str) -> str:
    """The exercise of a cell: ``window`` for ``window_test-hidden``; an id without underscore is its own."""
    return name.split("_", 1)[0]


def digest(text: str) -> str:
    """A short digest of a text, whatever characters are in it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def read_source(path: Path) -> nbformat.NotebookNode:
    """An instructor's notebook.

    Raises
    ------
    BatchError : it cannot be read.
    """
    try:
        return nbformat.read(path, 4)
    except Exception as error:
        raise BatchError(f"{path.name} cannot be read ({in_words(error)}); save it from Jupyter") from None


class Template:
    """One source notebook.

    Parameters
    ----------
    path : where it lies.

    Attributes
    ----------
    graded : {grade_id: points} of the cells that give marks. A notebook without any is handed out to be read.
    tests : those of them that are tests.
    solutions : {grade_id: what kind of cell an answer stands in, None for words}.
    points : {exercise: points}.

    Raises
    ------
    BatchError : it cannot be read, or a test makes no sense.
    """

    def __init__(self, path: Path):
        self.notebook = read_source(path)
        try:
            job = plan(self.notebook, Answers({}, (), (), ()))
        except JobError as error:
            raise BatchError(f"{path.name}: {error}") from None
        except Exception as error:
            raise BatchError(f"{path.name} cannot be read ({in_words(error)}); save it from Jupyter") from None
        self.text = nbformat.writes(self.notebook)
        self.tests, self.graded, self.solutions, self.points = set(job.points), {}, {}, {}
        for cell in self.notebook.cells:
            flags = cell.metadata.get("nbgrader", {})
            name = flags.get("grade_id")
            if flags.get("grade") or flags.get("task"):
                self.graded[name] = float(flags.get("points") or 0)
                exercise = exercise_of(name)
                self.points[exercise] = self.points.get(exercise, 0.0) + self.graded[name]
            if flags.get("solution"):
                self.solutions[name] = kind_of(cell)

    def unanswered(self, answers: Answers) -> list[str]:
        """The solution cells in which nothing was answered."""
        left = set(answers.unanswered)
        return [name for name in self.solutions if name in left or not (answers.cells.get(name) or "").strip()]

    def scores(self, answers: Answers, result) -> dict:
        """{grade_id: points, None where a person has to mark}, as nbgrader's SaveAutoGrades sets them."""
        by_hand = dict.fromkeys(self.unanswered(answers), 0.0)
        tests = result.by_test
        return {name: tests[name].points if name in self.tests else by_hand.get(name) for name in self.graded}

    def comments(self, answers: Answers) -> dict:
        """{grade_id: what nbgrader writes beside an answer that is none}."""
        return dict.fromkeys(self.solutions) | dict.fromkeys(self.unanswered(answers), "No response.")

    def digests(self, answers: Answers, file: str) -> dict:
        """{grade_id: digest of what a mark given by hand is about}; `file` is that of the whole submission."""
        code = [text or "" for name, text in answers.cells.items() if self.solutions.get(name)]
        code = digest(json.dumps([code, [own.source for own in answers.own_code]]))
        words = {name: self.written(answers, name) for name in self.graded if name in self.solutions}
        return {name: code if name in self.tests else words.get(name, file) for name in self.graded}

    @staticmethod
    def written(answers: Answers, name: str) -> str:
        """A digest of an answer in words, with the pictures to which it refers."""
        text = (answers.cells.get(name) or "").strip()
        seen = sorted(set(re.findall(r"picture-\d+\.[a-z]+", text)) & answers.pictures.keys())
        return digest("\0".join([text, *(json.dumps(answers.pictures[picture]) for picture in seen)]))
