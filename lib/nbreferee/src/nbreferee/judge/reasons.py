"""Why a test did not pass, in words for the student, and what state of the verdict that is."""

import ast
import builtins
import re
import traceback

from ..rpc.raised import Meddled, StudentError
from .job import ANSWER, GIVEN, TEST, bound
from .words import Authors, bounded, forms, unpacked, veiled

__all__ = ["NOT_PASSED", "UNANSWERED", "Reasons", "said"]

NOT_PASSED = "the test did not pass"
UNANSWERED = "nothing was written into the answer yet"
FILES = "given files lie beside the notebook, or in a folder that readable names in nbreferee.toml"
LINES = 64  # of an answer; in a longer one, the number of the line that raised in a hidden test could be the input
SWALLOWED = "A context manager that swallows errors"  # so begins the note of `nbreferee.rpc.proxies`
INSIDE = {"number": 2, "name": 0, "mark": 8}  # holes of a hidden sandboxed test, filled by the student's own process


class Reasons:
    """Explains errors.

    Parameters
    ----------
    job : with the instructor's cells and the answers.
    trusted : the `nbreferee.judge.trusted.Trusted` side, which knows what is the student's.
    cells : {step: `CellResult`} of the student's cells so far.
    halted : {given cell that stopped: (whether by the student's fault, the error)}.
    """

    def __init__(self, job, trusted, cells, halted):
        self.job, self.trusted, self.cells, self.halted = job, trusted, cells, halted
        theirs = [step for step in job.steps if step.kind in (GIVEN, TEST)]
        self.authors = Authors((f"<{step.name or step.kind}>" for step in theirs), job.packages)
        self.given = tuple(step.source for step in theirs if step.kind == GIVEN)

    def of(self, error, step, answers) -> tuple:
        """(state, message, known mistake, the student's lines) for what a test raised.

        Parameters
        ----------
        error : that ended the test.
        step : the test.
        answers : the names of the answers that it asks.
        """
        if isinstance(error, Meddled):
            return "failed", said(error, kind=False), "", ""
        if isinstance(error, StudentError):
            return self.students(error, step, answers)
        words = self.authors.words(error)
        if swallowed := [note for note in getattr(error, "__notes__", ()) if note.startswith(SWALLOWED)]:
            return "invalid", swallowed[0], "", ""
        if isinstance(error, AssertionError):
            return "failed", *self.assertion(error, step, words), ""
        if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
            if error.name not in self.trusted.names:
                return *self.missing(error, step), "", ""
        text = said(error, kind=False)
        if any(kind.__name__ == "OutcomeException" for kind in type(error).__mro__):  # pytest's word for a failure
            return "failed", self.passing(words or bounded(text), error, step) if step.hidden else text, "", ""
        if isinstance(error, ImportError | SyntaxError):
            return "broken", f"the test stopped with {type(error).__name__}: {text}", "", ""
        if words is not None and isinstance(error, Exception):
            return "failed", self.passing(words, error, step) or NOT_PASSED, "", ""
        if isinstance(error, FileNotFoundError):
            name = "" if step.hidden else f" {error.filename!r}"
            return "invalid", f"the test finds no file{name}, which no answer has written here; {FILES}", "", ""
        if isinstance(error, MemoryError):
            return "invalid", "what the answer returned needs more memory than a test may take", "", ""
        if plain := unpacked(text):
            return "failed", plain, "", ""
        # In a hidden test without the text, in which the answer could tell what it was asked.
        why = type(error).__name__ if step.hidden else f"{type(error).__name__}: {text}"
        return "invalid", f"the test cannot use what the answer returned ({why})", "", ""

    def students(self, error, step, answers):
        """What the student's own code raised."""
        if error.ename == "NotImplementedError":
            return "unanswered", UNANSWERED, "", ""
        state, text = "memory" if isinstance(error, MemoryError) else "failed", said(error, kind=False)
        cure = f"; {FILES}" if error.ename == "FileNotFoundError" else ""
        if not step.hidden:
            return state, f"your code raised {error.ename}{': ' + text if text else ''}{cure}", "", error.trace
        kind = error.ename if hasattr(builtins, error.ename) else "an error of its own"
        return state, f"your code raised {kind}{cure}", "", self.own_line(error.trace, answers)

    def assertion(self, error, step, words):
        """(message, known mistake) of an assertion that failed."""
        mistake = getattr(error, "mistake", "")
        mistake = mistake if isinstance(mistake, str) else ""
        if step.hidden:
            return self.passing(words or "", error, step) or NOT_PASSED, self.passing(mistake, error, step)
        return said(error, kind=False) or _condition(error, step) or NOT_PASSED, mistake

    def passing(self, text, error, step):
        """Of an author's message what may pass on to the student."""
        if not step.hidden:
            return text
        return veiled(text, (step.source, *self.given, *self.authors.sources(error)))

    def told(self, ran, step) -> str:
        """The message of a sandboxed test that failed, of which the student's process tells."""
        message = ran.error
        if ran.ename == "AssertionError" or not hasattr(builtins, ran.ename or ""):  # by any name
            message = message.removeprefix(ran.ename or "").lstrip(": ")
        if not step.hidden:
            return message
        # Whoever shares the process with a hidden test could put what it read there into a message.
        if not any(form.fullmatch(message) for form in forms(step.source)):
            return NOT_PASSED
        return veiled(message, (step.source,), INSIDE)

    def own_line(self, trace, answers):
        """Of a trace that a stranger's process tells, the last line that stands so in an answer that was asked.

        Not in a long answer, and not in other cells: there are so many lines that one could stand for each input.
        """
        steps = [step for step in self.job.steps if step.kind == ANSWER and step.name in answers]
        mine = [lines for step in steps if len(lines := step.source.split("\n")) <= LINES]
        for told in reversed(trace.split("\n")):
            found = re.fullmatch(r"→ *(\d{1,5})  (.*)", told)
            number, text = (int(found[1]), found[2].strip()) if found else (0, "")
            if text and any(number <= len(lines) and lines[number - 1].strip() == text for lines in mine):
                return f"→ {number:4}  {text}"
        return ""

    def missing(self, error, step):
        """(state, message) for a name that nobody has defined."""
        name, answer = error.name, self.trusted.asked.get(error.name)
        if answer is None:
            return self.not_given(name, step)
        cells = [cell for cell in self.cells.values() if cell.state not in ("ran", "skipped")]
        cell = next((cell for cell in cells if cell.name == answer), None) or (cells[0] if cells else None)
        why = f": {cell.name or 'a cell of your own'} stopped with {cell.error}" if cell else "; do not rename it"
        return "failed", f"{name or said(error, kind=False)} is not defined{why}"

    def not_given(self, name, step):
        """(state, message) for a name that is the instructor's to define."""
        steps = self.job.steps
        binds = [index for index, other in enumerate(steps) if other.kind != ANSWER and name in bound(other.source)]
        above = [steps[index] for index in binds if index < steps.index(step)]
        stopped = [self.halted[index] for index in binds if index in self.halted]
        if any(fault for fault, _ in stopped):
            return "failed", f"{name} is not defined: the given cell that defines it stopped with {stopped[0][1]}"
        if stopped or (not above and self.halted):
            why = (stopped or list(self.halted.values()))[0][1]
            cure = f"; {FILES}" if why.startswith("FileNotFoundError") else ""
            return "broken", f"the test needs {name}, and a given cell stopped on the trusted side with {why}{cure}"
        if any(other.kind == TEST for other in above):
            return "failed", f"{name} is not defined: the test above that defines it did not come so far"
        cure = "list it under asks in the answer's metadata"
        return "broken", f"the test needs {name}, which no cell above binds; {cure}"


def said(error, kind=True) -> str:
    """What an error says, in one piece; its kind before it."""
    try:
        text = str(error).strip()
    except Exception:  # a number of five thousand digits, for example
        text = "a text that cannot be shown"
    return f"{getattr(error, 'ename', '') or type(error).__name__}: {text}".rstrip(": ") if kind else text


def _condition(error, step):
    """The assertion of a shown test that failed, as it stands there."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == f"<{step.name}>"]
    asserts = [node for node in ast.walk(ast.parse(step.source)) if isinstance(node, ast.Assert)] if lines else []
    here = [node for node in asserts if node.lineno <= lines[-1] <= node.end_lineno]
    return f"{ast.unparse(here[-1].test)} does not hold" if here else ""
