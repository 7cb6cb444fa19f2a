"""What came out: one `Result` per submission, of plain values; as JSON, every field is checked when it is read."""

import json
import math
from dataclasses import asdict, dataclass, replace

import msgspec

from ..errors import NbrefereeError
from ..rpc.calls import Call

__all__ = ["CELL_STATES", "MARKED", "TEST_STATES", "Call", "CellResult", "Result", "ResultError", "TestResult"]

TEST_STATES = {
    "passed": "passed",
    "failed": "the answer is wrong, or it raised an error",
    "unanswered": "nothing was written into the answer",
    "crashed": "the student's process ended while this test was asking",
    "timeout": "the time was over",
    "memory": "the memory was used up",
    "invalid": "the answer returned something that a test cannot judge",
    "withheld": "a test that must pass first did not",
    "broken": "the test itself is at fault: it fails in the instructor's own code",
}
TEXT = 2_000_000  # characters that a whole result keeps of what the student's code printed and raised
LEFT_OUT = "\n[the rest was left out]\n"
CELL_STATES = ("ran", "failed", "crashed", "timeout", "memory", "skipped")
MARKED = frozenset(TEST_STATES) - {"broken"}  # a broken test gives no mark and wants the instructor's eye


class ResultError(NbrefereeError, ValueError):
    """What was to be read is no result."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """How one of the student's cells (an answer or an own one) ran, the last time it was run.

    ``error`` is ``ValueError: …`` or a sentence, ``trace`` the student's own lines, ``output`` what was printed.
    """

    name: str
    kind: str
    state: str
    error: str = ""
    trace: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class TestResult:
    """The verdict of one test.

    Parameters
    ----------
    name : grade_id.
    state : a key of TEST_STATES.
    points, worth : earned and possible.
    message : why it did not pass, for the student.
    mistake : the known mistake that the answer resembles, or nothing.
    trace : the student's own lines that raised.
    calls : the last questions asked before the verdict.
    output : what was printed meanwhile.
    sandboxed : whether the verdict was computed in the student's own process.
    seconds : wall time.
    """

    __test__ = False  # not for pytest
    name: str
    state: str
    points: float
    worth: float
    message: str = ""
    mistake: str = ""
    trace: str = ""
    calls: tuple[Call, ...] = ()
    output: str = ""
    sandboxed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """All of one submission.

    ``waited`` says that a cell or a test was lost because it waited, and not because it computed too long: on another
    day, or on a machine that does nothing else, it may be otherwise.
    """

    tests: tuple[TestResult, ...]
    cells: tuple[CellResult, ...] = ()
    seconds: float = 0.0
    waited: bool = False

    @property
    def points(self) -> float:
        return sum(test.points for test in self.tests)

    @property
    def by_test(self) -> dict:
        return {test.name: test for test in self.tests}

    def capped(self, room: int = TEXT) -> "Result":
        """The same with so many characters at most of what the student's code printed and raised, tests first."""

        def cut(text):
            nonlocal room
            kept, room = text[:room], max(0, room - len(text))
            return kept if kept == text else kept + LEFT_OUT

        def part(result, names):
            return replace(result, **{name: cut(getattr(result, name)) for name in names})

        tests = tuple(part(test, ("trace", "output")) for test in self.tests)
        return replace(self, tests=tests, cells=tuple(part(cell, ("error", "trace", "output")) for cell in self.cells))

    def to_json(self) -> str:
        """Text that any file takes: of what is not ASCII only lone surrogates are escaped."""
        text = json.dumps(asdict(self), sort_keys=True, allow_nan=False, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace").decode()

    @classmethod
    def from_json(cls, text: str) -> "Result":
        """Read a result; every field has the right type, and points lie between 0 and what the test is worth.

        Raises
        ------
        ResultError : it does not.
        """
        try:
            result = msgspec.convert(json.loads(text), cls)
        except (ValueError, RecursionError) as error:
            raise ResultError(f"no result: {error}") from None
        for test in result.tests:
            if test.state not in TEST_STATES or not 0 <= test.points <= test.worth < math.inf:
                raise ResultError(f"no result: test {test.name!r} is {test.state!r} with {test.points!r} points")
        if any(cell.state not in CELL_STATES for cell in result.cells) or len(result.by_test) != len(result.tests):
            raise ResultError("no result: a cell in an unknown state, or one test twice")
        return result
