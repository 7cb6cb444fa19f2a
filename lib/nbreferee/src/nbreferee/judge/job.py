"""What is to be run for one submission: the instructor's cells, the student's answers between them, and the limits.

Tests and given cells come from the instructor's notebook alone. Of the submission only answers and own cells are
used, so deleted, doubled, edited or re-tagged cells change nothing.
"""

import ast
import json
import math
import symtable
from dataclasses import asdict, dataclass, field

import msgspec
import nbformat

from ..errors import NbrefereeError
from ..intake.answers import Answers

__all__ = ["ANSWER", "GIVEN", "OWN", "TEST", "Job", "JobError", "RunLimits", "Step", "plan"]

GIVEN, ANSWER, OWN, TEST = "given", "answer", "own", "test"
SPLIT, SANDBOXED = "split", "sandboxed"
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what Python's parser raises for odd source


class JobError(NbrefereeError, ValueError):
    """The instructor's notebook cannot be graded as it is; the text names the cell and the cure."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How long and how much.

    Parameters
    ----------
    cell_s : seconds of processor time for one cell, and for one test with all that it asks of the student's code;
        those of threads and child processes count.
    total_s : seconds of processor time for a submission.
    patience : so many times these seconds a cell, or a submission, may wait without computing.
    output : characters of printed text that are kept of one cell or test.
    restarts : how often the student's process is started anew after it was lost.
    """

    cell_s: float = 20.0
    total_s: float = 120.0
    patience: float = 5.0
    output: int = 20_000
    restarts: int = 8

    def __post_init__(self):
        for name in ("cell_s", "total_s", "patience", "output", "restarts"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
                raise JobError(f"the limit {name} is {value!r}; it must be a positive number")

    @property
    def far_s(self) -> float:
        """Seconds after which a grading process that says nothing is given up, also on a very busy machine."""
        return 4 * (1 + self.patience) * self.total_s


@dataclass(frozen=True, slots=True)
class Step:
    """One cell.

    Parameters
    ----------
    kind : given (runs on both sides), answer or own (the student's side alone), test (the trusted side).
    name : its grade_id; for an own cell the cell that it follows; may be empty.
    source : code.
    points : what a test earns.
    run : split or sandboxed; tests only.
    needs : names of the tests without which a sandboxed one counts nothing.
    hidden : whether the released version shows less of this test.
    changes : whether an answer may change the arguments that a split test gives it, as one that sorts in place does.
    asks : names that an answer is asked for: those that the instructor's own solution binds, and those that the
        cell's metadata list under ``asks``. Tests take them from the student, and no other names.
    imports : the import statements of the instructor's own solution, a line each: modules are not the student's.
    classes : names that the instructor's own solution binds to a class, or to an instance of one: what a method of
        theirs says is an answer. What a method of any other object says of itself is none.
    untouched : whether an answer is as it was handed out: a test of it does not fail, it is not answered.
    """

    kind: str
    name: str
    source: str
    points: float = 0.0
    run: str = SPLIT
    needs: tuple[str, ...] = ()
    hidden: bool = False
    asks: tuple[str, ...] = ()
    changes: bool = False
    imports: str = ""
    classes: tuple[str, ...] = ()
    untouched: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """All that the grading process needs; plain values only.

    Parameters
    ----------
    steps : the cells.
    limits : seconds and sizes.
    packages : the course's own, whose words in a failed test are the author's.
    """

    steps: tuple[Step, ...]
    limits: RunLimits = field(default_factory=RunLimits)
    packages: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Read a job; every field has the right type, or a ValueError says which has not."""
        return msgspec.convert(json.loads(text), cls)

    @property
    def points(self) -> dict:
        """What each test is worth, by its name, in order."""
        return {step.name: step.points for step in self.steps if step.kind == TEST}


def kind_of(cell) -> str | None:
    """given, answer or test for an instructor's code cell; None for text and for answers that a person marks."""
    flags = cell.get("metadata", {}).get("nbgrader", {})
    if cell.cell_type != "code":
        return None
    if flags.get("solution"):
        return ANSWER
    return TEST if flags.get("grade") else GIVEN


def plain(source: str) -> str:
    """A cell without its magics; lines keep their numbers."""
    return "\n".join("pass" if line.lstrip().startswith(("%", "!")) else line for line in source.split("\n"))


def bound(source: str, *, imports: bool = True) -> tuple:
    """The names that a cell binds at its top level; magics are skipped, and a cell that is no Python binds none."""
    try:
        table = symtable.symtable(plain(source), "cell", "exec")
    except UNREADABLE:
        return ()
    here = (s for s in table.get_symbols() if s.is_assigned() or s.is_imported())
    return tuple(s.get_name() for s in here if imports or not s.is_imported())


def _imports(source):
    """The import statements at the top level of a cell, a line each."""
    try:
        body = ast.parse(plain(source)).body
    except UNREADABLE:
        return ""
    return "\n".join(ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom))


def _classes(source):
    """The names at the top level of a cell that are classes, or are bound to what a call of one of these returns."""
    try:
        body = ast.parse(plain(source)).body
    except UNREADABLE:
        return ()
    found = [node.name for node in body if isinstance(node, ast.ClassDef)]
    for node in body:
        made = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.func
        if isinstance(made, ast.Name) and made.id in found:
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return tuple(found)


def plan(template: nbformat.NotebookNode, answers: Answers, limits: RunLimits | None = None, packages=()) -> Job:
    """Make the job of one submission.

    Parameters
    ----------
    template : the instructor's source notebook, hidden tests included.
    answers : what `nbreferee.intake.answers.answers` found in the submission.
    limits : seconds and sizes.
    packages : the course's own, see `Job`.

    Raises
    ------
    JobError : a test's points or metadata make no sense.
    """
    own = {}
    for cell in answers.own_code:
        own.setdefault((cell.place, cell.before), []).append(Step(OWN, cell.place or "", cell.source))
    steps, tests = list(own.get((None, False), [])), set()
    for cell in template.cells:
        flags = cell.get("metadata", {}).get("nbgrader", {})
        name, kind = flags.get("grade_id", ""), kind_of(cell)
        steps += own.get((name, True), []) if name else []
        if kind == ANSWER:
            listed = cell.metadata.get("nbreferee", {}).get("asks", ())
            asks = tuple(dict.fromkeys([*bound(cell.source, imports=False), *listed]))
            mine, left = answers.cells.get(name) or "", name in answers.unanswered
            solved = {"asks": asks, "imports": _imports(cell.source), "classes": _classes(cell.source)}
            steps.append(Step(ANSWER, name, mine, untouched=left, **solved))
        elif kind == GIVEN:
            steps.append(Step(GIVEN, name, cell.source))
        elif kind == TEST:
            steps.append(_test(cell, name, flags, tests))
            tests.add(name)
        steps += own.get((name, False), []) if name else []
    return Job(tuple(steps), limits or RunLimits(), tuple(packages))


def _test(cell, name, flags, before):
    if not name:
        raise JobError("a test cell has no grade_id; give it one in nbgrader's panel")
    if name in before:
        raise JobError(f"two test cells are called {name}; rename one")
    points = flags.get("points")
    if isinstance(points, bool) or not isinstance(points, int | float) or not math.isfinite(points) or points < 0:
        raise JobError(f"{name} is worth {points!r} points; give it a number, 0 or more")
    ours = cell.metadata.get("nbreferee", {})
    run = ours.get("run", SPLIT)
    if run not in (SPLIT, SANDBOXED):
        raise JobError(f"{name} is to be run {run!r}; say split or sandboxed")
    needs = tuple(ours.get("needs", ()))
    if run == SPLIT and needs:
        raise JobError(f"{name} runs split and needs {', '.join(needs)}; only a sandboxed test needs others")
    hidden = "### BEGIN HIDDEN TESTS" in cell.source
    return Step(TEST, name, cell.source, float(points), run, needs, hidden, changes=ours.get("changes") is True)
