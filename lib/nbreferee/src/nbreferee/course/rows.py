"""What became of each notebook of each submission, for reports."""

from dataclasses import dataclass, field

__all__ = ["Row", "needs_eye"]


@dataclass
class Row:
    """What became of one notebook of one submission.

    Parameters
    ----------
    student, assignment, notebook : whose, of what; the student is empty where a folder's name is no id.
    state : graded; unanswered; timeout (what it lost, it lost because it waited, twice; the marks stand, and next time
        it runs again); a state of `nbreferee.intake.notebook.Refused`; or broken (no mark was given).
    reason : one sentence, empty if there is nothing to say.
    notes : all sentences about the submission.
    marks : {exercise: points}, None where all of it waits for a person.
    total, max : points in all, after a penalty for lateness; None if no mark was given.
    penalty : points taken off.
    waits : {grade_id: points} of what waits for a person.
    cells : {grade_id: points}.
    messages : {test: why it did not pass}.
    seconds : that grading took; of a cached result, those of its run.
    cached : whether nothing was run.
    sandboxed : points earned in tests that ran in the student's own process.
    by_file : whether the penalty rests on the time of a file, for want of a timestamp.txt.
    """

    student: str
    assignment: str
    notebook: str
    state: str = "graded"
    reason: str = ""
    notes: tuple = ()
    marks: dict = field(default_factory=dict)
    total: float | None = None
    max: float = 0.0
    penalty: float = 0.0
    waits: dict = field(default_factory=dict)
    cells: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)
    seconds: float = 0.0
    cached: bool = False
    sandboxed: float = 0.0
    by_file: bool = False

    @property
    def to_mark(self) -> float:
        """Points that wait for a person."""
        return sum(self.waits.values())


def needs_eye(rows: list[Row]) -> list[Row]:
    """The rows that want the instructor's eye; a command that has some returns 1."""
    return [row for row in rows if row.state not in ("graded", "unanswered")]
