"""Assignments and a class that hands them in, for measuring graders: every mark is known before anything is graded.

Each exercise has a right answer and wrong ones, and says which of its tests a wrong one loses. A student's answers
follow from the student's number alone. `check` runs all answers in this process, so that the marks are not an opinion.
"""

import contextlib
import datetime as dt
import io
import json
import os
import random
from dataclasses import dataclass, field
from decimal import ROUND_HALF_DOWN, Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

CRASH = "crash"  # this answer ends the process that runs it
ZONE = ZoneInfo("Europe/Zurich")
DUE = dt.datetime(2025, 10, 6, 18)  # of the first assignment; the others follow weekly, past a change of the clocks
RULE = """zone = "Europe/Zurich"

[default]
percent = 10
cap = 50
grace = "15 minutes"
latest = "+7 days"
"""
EXTENSION = 3  # days
TIMES = {  # how long after the due time, how often of a hundred, and the percent that it costs
    "in time": (dt.timedelta(hours=-27), 64, 0),
    "in the grace": (dt.timedelta(minutes=10), 6, 0),
    "a day late": (dt.timedelta(hours=2), 8, 10),
    "three days late": (dt.timedelta(days=2, hours=5), 5, 30),
    "a week late": (dt.timedelta(days=6, hours=5), 3, 50),
    "too late": (dt.timedelta(days=8), 2, 100),
    "extended": (dt.timedelta(days=2), 6, 0),
    "extended to a date": (dt.timedelta(days=2), 2, 0),
    "extended and late": (dt.timedelta(days=4, hours=5), 3, 20),
    "excused": (dt.timedelta(days=9), 1, 0),
}


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Parameters
    ----------
    name : the beginning of its cells' ids.
    text : what is asked.
    right : the instructor's answer.
    tests : {ending of the cell's id: (points, source)}.
    wrong : {what is wrong: (answer, endings of the tests that it loses)}.
    """

    name: str
    text: str
    right: str
    tests: dict
    wrong: dict = field(default_factory=dict)

    @property
    def points(self) -> dict:
        return {f"{self.name}_{ending}": float(points) for ending, (points, _) in self.tests.items()}

    def answer(self, kind: str | None) -> tuple:
        """(code, {test: points}) of the right answer (None) or of a wrong one."""
        if kind is None:
            return self.right, self.points
        code, lost = self.wrong[kind]
        return code, {test: 0.0 if test.removeprefix(f"{self.name}_") in lost else p for test, p in self.points.items()}


@dataclass(frozen=True)
class Submission:
    """What one student hands in, and what it is worth: {test: points}; ``crash`` names the exercise that crashes, and
    ``time``, one of TIMES, says when it comes."""

    student: str
    answers: dict
    expected: dict
    crash: str = ""
    time: str = "in time"

    @property
    def total(self) -> float:
        return sum(self.expected.values())

    @property
    def penalty(self) -> float:
        """What is taken off for lateness."""
        taken = Decimal(str(self.total)) * TIMES[self.time][2] / 100
        return float(taken.quantize(Decimal("0.01"), ROUND_HALF_DOWN))

    @property
    def final(self) -> float:
        return self.total - self.penalty


@dataclass(frozen=True)
class Assignment:
    """A set of exercises."""

    name: str
    setup: str
    exercises: tuple

    @property
    def points(self) -> dict:
        return {test: points for exercise in self.exercises for test, points in exercise.points.items()}

    def source(self) -> nbformat.NotebookNode:
        """The instructor's notebook."""
        cells = [new_markdown_cell(f"# {self.name}"), _code("setup", self.setup)]
        for exercise in self.exercises:
            head, _, body = exercise.right.partition("\n")
            solution = f"{head}\n    ### BEGIN SOLUTION\n{body.rstrip()}\n    ### END SOLUTION\n"
            cells += [new_markdown_cell(exercise.text), _code(f"{exercise.name}_answer", solution, solution=True)]
            cells += [
                _code(f"{exercise.name}_{ending}", source, points=points)
                for ending, (points, source) in exercise.tests.items()
            ]
        for number, cell in enumerate(cells):
            cell["id"] = f"cell-{number}"
        kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})

    def submission(self, number: int) -> Submission:
        """What student `number` hands in: most exercises right, some wrong, one student in forty with a crash."""
        draw, student = random.Random(f"{self.name} {number}"), f"s{number:05d}"
        crash = draw.choice(self.exercises).name if number % 40 == 7 else ""
        answers, expected = {}, {}
        for exercise in self.exercises:
            kinds = [kind for kind in exercise.wrong if kind != CRASH]
            kind = draw.choice(kinds) if draw.random() < 0.35 else None
            code, points = exercise.answer(CRASH if exercise.name == crash else kind)
            answers[f"{exercise.name}_answer"] = f"{code.rstrip()}\n# {student} {self.name} {exercise.name}\n"
            expected |= points
        shares = [share for _, share, _ in TIMES.values()]
        time = random.Random(f"{self.name} {number} time").choices(list(TIMES), shares)[0]
        return Submission(student, answers, expected, crash, time)


def _code(name, source, *, solution=False, points=None):
    flags = {
        "grade": points is not None,
        "grade_id": name,
        "locked": not solution,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    return new_code_cell(source, metadata={"nbgrader": flags | ({"points": points} if points is not None else {})})


def _shown(source):
    """A test as students see it."""
    lines, hidden = [], False
    for line in source.split("\n"):
        hidden = hidden or "### BEGIN HIDDEN TESTS" in line
        if not hidden:
            lines.append(line)
        hidden = hidden and "### END HIDDEN TESTS" not in line
    return "\n".join(lines)


def write(root: Path, assignments, students: range) -> dict:
    """Lay out source/ and submitted/ of a course.

    Returns
    -------
    {assignment: {student: Submission}}.
    """
    made = {}
    for assignment in assignments:
        source, name = assignment.source(), assignment.name
        folder = root / "source" / name
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(source, folder / f"{name}.ipynb")
        handed_out = json.loads(nbformat.writes(source))
        places = {}
        for cell in handed_out["cells"]:
            flags = cell["metadata"].get("nbgrader", {})
            cell["source"] = _shown("".join(cell["source"]))
            if flags.get("solution"):
                places[flags["grade_id"]] = cell
        made[name] = {}
        for number in students:
            submission = assignment.submission(number)
            for place, code in submission.answers.items():
                places[place]["source"] = code
            folder = root / "submitted" / submission.student / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.ipynb").write_text(json.dumps(handed_out), "utf-8")
            made[name][submission.student] = submission
    return made


def set_deadlines(root: Path, made: dict) -> None:
    """Write deadlines.toml, with who was given more time and who is excused, and when each submission came.

    Parameters
    ----------
    root, made : a course's folder, and what `write` has returned of it.
    """
    lines = [RULE]
    for week, (name, submissions) in enumerate(made.items()):
        due, later = DUE + dt.timedelta(weeks=week), dt.timedelta(days=EXTENSION)
        excused = [each.student for each in submissions.values() if each.time == "excused"]
        lines += [f"[assignments.{name}]\ndue = {due.isoformat()}\nexcused = {json.dumps(excused)}\n"]
        lines += [f"[assignments.{name}.extensions]"]
        for each in submissions.values():
            if each.time in ("extended", "extended and late"):
                lines.append(f'{each.student} = "+{EXTENSION} days"')
            elif each.time == "extended to a date":
                lines.append(f"{each.student} = {(due + later).isoformat()}")
            moment = (due + TIMES[each.time][0]).replace(tzinfo=ZONE).astimezone(dt.UTC)
            folder = root / "submitted" / each.student / name
            (folder / "timestamp.txt").write_text(f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC")
            os.utime(folder / f"{name}.ipynb", (moment.timestamp(),) * 2)
    (root / "deadlines.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def penalties(db_url: str, name: str) -> dict:
    """{student: what was taken off for lateness} of an assignment, read from a gradebook with SQL."""
    query = """
        SELECT submitted_assignment.student_id, submitted_notebook.late_submission_penalty
        FROM submitted_notebook
        JOIN submitted_assignment ON submitted_assignment.id = submitted_notebook.assignment_id
        JOIN assignment ON assignment.id = submitted_assignment.assignment_id
        WHERE assignment.name = :name"""
    return {student: float(taken or 0) for student, taken in _rows(db_url, query, name)}


def _rows(db_url, query, name):
    import sqlalchemy as sa

    engine = sa.create_engine(db_url)
    with engine.connect() as connection:
        found = connection.execute(sa.text(query), {"name": name}).all()
    engine.dispose()
    return found


def marks(db_url: str, name: str) -> dict:
    """{student: {test: points}} of an assignment, read from a gradebook with SQL; None: no mark."""
    query = """
        SELECT submitted_assignment.student_id, base_cell.name, grade.auto_score
        FROM grade
        JOIN base_cell ON base_cell.id = grade.cell_id
        JOIN submitted_notebook ON submitted_notebook.id = grade.notebook_id
        JOIN submitted_assignment ON submitted_assignment.id = submitted_notebook.assignment_id
        JOIN assignment ON assignment.id = submitted_assignment.assignment_id
        WHERE assignment.name = :name"""
    found = {}
    for student, test, score in _rows(db_url, query, name):
        found.setdefault(student, {})[test] = None if score is None else float(score)
    return found


def differences(expected: dict, found: dict) -> dict:
    """{student: (expected, found)} where the marks are not those that the submission is worth."""
    return {
        student: (submission.expected, found.get(student))
        for student, submission in expected.items()
        if found.get(student) != submission.expected
    }


def check(assignment: Assignment) -> list[str]:
    """Sentences about answers that do not earn what they are said to earn; crashing ones are not run."""
    wrong = []
    for exercise in assignment.exercises:
        for kind in [None, *exercise.wrong]:
            code, expected = exercise.answer(kind)
            if kind == CRASH:
                continue
            space = {"__name__": "__main__"}
            exec(assignment.setup + "\n" + code, space)
            for ending, (points, source) in exercise.tests.items():
                test = f"{exercise.name}_{ending}"
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(source, space)
                except Exception:
                    points = 0
                if points != expected[test]:
                    wrong.append(f"{assignment.name}: {test} gives {points} to {kind or 'the right answer'}")
    return wrong


def _crash(head):
    return f"{head}\n    import os\n    os._exit(3)\n"


def numpy_set(name: str = "arrays") -> Assignment:
    """Four exercises, twelve test cells, NumPy only."""
    softmax = Exercise(
        "softmax",
        "## Exercise 1. Softmax (4 points)\n\nWrite `softmax(x)` along the last axis. Large scores must not overflow.",
        "def softmax(x):\n"
        "    x = np.asarray(x, dtype=float)\n"
        "    e = np.exp(x - x.max(-1, keepdims=True))\n"
        "    return e / e.sum(-1, keepdims=True)\n",
        {
            "values": (
                1,
                "got = softmax(np.array([[0.0, np.log(3.0)], [2.0, 2.0]]))\n"
                "assert got.shape == (2, 2), f'expected shape (2, 2), got {got.shape}'\n"
                "np.testing.assert_allclose(got, [[0.25, 0.75], [0.5, 0.5]], atol=1e-12)",
            ),
            "rows": (
                1,
                "rng = np.random.default_rng(1)\n"
                "x = rng.standard_normal((5, 4, 7))\n"
                "np.testing.assert_allclose(softmax(x).sum(-1), np.ones((5, 4)), atol=1e-12)",
            ),
            "large": (
                2,
                "assert abs(softmax(np.array([1.0, 1.0]))[0] - 0.5) < 1e-12\n"
                "### BEGIN HIDDEN TESTS\n"
                "got = softmax(np.array([1000.0, 1000.0, 0.0]))\n"
                "assert np.isfinite(got).all(), 'large scores overflow'\n"
                "np.testing.assert_allclose(got, [0.5, 0.5, 0.0], atol=1e-12)\n"
                "### END HIDDEN TESTS",
            ),
        },
        {
            "overflow": (
                "def softmax(x):\n    e = np.exp(np.asarray(x, dtype=float))\n"
                "    return e / e.sum(-1, keepdims=True)\n",
                {"large"},
            ),
            "first axis": (
                "def softmax(x):\n    x = np.asarray(x, dtype=float)\n"
                "    e = np.exp(x - x.max())\n    return e / e.sum(0)\n",
                {"values", "rows"},
            ),
            "stub": ("def softmax(x):\n    raise NotImplementedError()\n", {"values", "rows", "large"}),
            CRASH: (_crash("def softmax(x):"), {"values", "rows", "large"}),
        },
    )
    standard = Exercise(
        "standard",
        "## Exercise 2. Standardise (4 points)\n\nWrite `standardise(x, eps=1e-5)`: mean 0 and variance 1 in each row.",
        "def standardise(x, eps=1e-5):\n"
        "    centred = x - x.mean(-1, keepdims=True)\n"
        "    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)\n",
        {
            "mean": (
                1,
                "x = np.random.default_rng(2).normal(3.0, 2.0, (6, 32))\n"
                "np.testing.assert_allclose(standardise(x).mean(-1), np.zeros(6), atol=1e-10)",
            ),
            "variance": (
                1,
                "x = np.random.default_rng(3).normal(-1.0, 5.0, (6, 32))\n"
                "np.testing.assert_allclose(standardise(x).var(-1), np.ones(6), atol=1e-4)",
            ),
            "constant": (
                2,
                "assert standardise(np.array([[1.0, 2.0]])).shape == (1, 2)\n"
                "### BEGIN HIDDEN TESTS\n"
                "got = standardise(np.full((2, 8), 4.0))\n"
                "assert np.isfinite(got).all(), 'a constant row divides by zero'\n"
                "np.testing.assert_allclose(standardise(np.array([[0.0, 2.0]]), eps=3.0), [[-0.5, 0.5]])\n"
                "### END HIDDEN TESTS",
            ),
        },
        {
            "eps forgotten": (
                "def standardise(x, eps=1e-5):\n    c = x - x.mean(-1, keepdims=True)\n"
                "    return c / np.sqrt((c**2).mean(-1, keepdims=True) + 1e-5)\n",
                {"constant"},
            ),
            "whole array": (
                "def standardise(x, eps=1e-5):\n    return (x - x.mean()) / np.sqrt(x.var() + eps)\n",
                {"mean", "variance"},
            ),
            "not centred": (
                "def standardise(x, eps=1e-5):\n    return x / np.sqrt(x.var(-1, keepdims=True) + eps)\n",
                {"mean", "constant"},
            ),
            CRASH: (_crash("def standardise(x, eps=1e-5):"), {"mean", "variance", "constant"}),
        },
    )
    distances = Exercise(
        "distances",
        "## Exercise 3. Distances (4 points)\n\nWrite `distances(a, b)`, the Euclidean distances of all pairs of rows.",
        "def distances(a, b):\n    return np.sqrt(((a[:, None, :] - b[None, :, :]) ** 2).sum(-1))\n",
        {
            "values": (
                1,
                "got = distances(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 4.0]]))\n"
                "np.testing.assert_allclose(got, [[4.0], [5.0]])",
            ),
            "shape": (
                1,
                "got = distances(np.zeros((3, 5)), np.zeros((4, 5)))\n"
                "assert got.shape == (3, 4), f'expected shape (3, 4), got {got.shape}'",
            ),
            "random": (
                2,
                "assert distances(np.ones((1, 1)), np.ones((1, 1)))[0, 0] == 0\n"
                "### BEGIN HIDDEN TESTS\n"
                "rng = np.random.default_rng(4)\n"
                "a, b = rng.standard_normal((30, 8)), rng.standard_normal((20, 8))\n"
                "want = [[np.linalg.norm(x - y) for y in b] for x in a]\n"
                "np.testing.assert_allclose(distances(a, b), want, atol=1e-9)\n"
                "### END HIDDEN TESTS",
            ),
        },
        {
            "no root": (
                "def distances(a, b):\n    return ((a[:, None] - b[None]) ** 2).sum(-1)\n",
                {"values", "random"},
            ),
            "swapped": (
                "def distances(a, b):\n    return np.sqrt(((b[:, None] - a[None]) ** 2).sum(-1))\n",
                {"values", "shape", "random"},
            ),
            "city block": (
                "def distances(a, b):\n    return np.abs(a[:, None] - b[None]).sum(-1)\n",
                {"values", "random"},
            ),
            CRASH: (_crash("def distances(a, b):"), {"values", "shape", "random"}),
        },
    )
    running = Exercise(
        "running",
        "## Exercise 4. Running mean (4 points)\n\nWrite `running_mean(x, n)`: the means of all windows of n numbers.",
        "def running_mean(x, n):\n"
        "    if not 1 <= n <= len(x):\n"
        "        raise ValueError(f'n is {n}; it must lie between 1 and {len(x)}')\n"
        "    total = np.concatenate([[0.0], np.cumsum(x)])\n"
        "    return (total[n:] - total[:-n]) / n\n",
        {
            "values": (
                1,
                "got = running_mean(np.array([1.0, 2.0, 3.0, 6.0]), 2)\n"
                "np.testing.assert_allclose(got, [1.5, 2.5, 4.5])",
            ),
            "length": (
                1,
                "for n in (1, 2, 5):\n"
                "    assert len(running_mean(np.arange(5.0), n)) == 6 - n, f'wrong length for n = {n}'",
            ),
            "bad": (
                2,
                "for n in (0, 6):\n"
                "    try:\n"
                "        running_mean(np.arange(5.0), n)\n"
                "    except ValueError:\n"
                "        pass\n"
                "    else:\n"
                "        raise AssertionError(f'n = {n} must raise ValueError')",
            ),
        },
        {
            "no check": (
                "def running_mean(x, n):\n    total = np.concatenate([[0.0], np.cumsum(x)])\n"
                "    return (total[n:] - total[: len(total) - n]) / max(n, 1)\n",
                {"bad"},
            ),
            "sum": (
                "def running_mean(x, n):\n    if not 1 <= n <= len(x):\n        raise ValueError('n')\n"
                "    return np.convolve(x, np.ones(n), 'valid')\n",
                {"values"},
            ),
            "same length": (
                "def running_mean(x, n):\n    return np.convolve(x, np.ones(n) / n, 'same')\n",
                {"values", "length", "bad"},
            ),
            CRASH: (_crash("def running_mean(x, n):"), {"values", "length", "bad"}),
        },
    )
    return Assignment(name, "import numpy as np", (softmax, standard, distances, running))


def torch_set(name: str = "tensors") -> Assignment:
    """Three exercises, seven test cells, PyTorch with gradients."""
    gate = Exercise(
        "gate",
        "## Exercise 1. A gate (3 points)\n\nWrite `gate(x)`, x times its sigmoid, for tensors.",
        "def gate(x):\n    return x * torch.sigmoid(x)\n",
        {
            "values": (
                1,
                "got = gate(torch.tensor([0.0, 1.0, -2.0]))\n"
                "torch.testing.assert_close(got, torch.nn.functional.silu(torch.tensor([0.0, 1.0, -2.0])))",
            ),
            "gradient": (
                2,
                "x = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)\n"
                "(slope,) = torch.autograd.grad(gate(x).sum(), x)\n"
                "s = torch.sigmoid(x.detach())\n"
                "torch.testing.assert_close(slope, s * (1 + x.detach() * (1 - s)))",
            ),
        },
        {
            "no gradient": ("def gate(x):\n    return x * torch.sigmoid(x).detach()\n", {"gradient"}),
            "tanh": ("def gate(x):\n    return x * torch.tanh(x)\n", {"values", "gradient"}),
            CRASH: (_crash("def gate(x):"), {"values", "gradient"}),
        },
    )
    attention = Exercise(
        "attention",
        "## Exercise 2. Attention (4 points)\n\n"
        "Write `attention(q, k, v)`, scaled by the root of the width of the keys.",
        "def attention(q, k, v):\n    return torch.softmax(q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5, -1) @ v\n",
        {
            "shape": (
                1,
                "q, k, v = (torch.zeros(shape) for shape in ((3, 4), (5, 4), (5, 2)))\n"
                "assert attention(q, k, v).shape == (3, 2), 'one row for each query'",
            ),
            "mean": (
                1,
                "v = torch.arange(6.0).reshape(3, 2)\n"
                "torch.testing.assert_close(attention(torch.zeros(1, 4), torch.ones(3, 4), v), v.mean(0, "
                "keepdim=True))",
            ),
            "random": (
                2,
                "assert attention(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1)).item() == 1\n"
                "### BEGIN HIDDEN TESTS\n"
                "torch.manual_seed(5)\n"
                "q, k, v = (torch.randn(2, n, 8) for n in (3, 6, 6))\n"
                "want = torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
                "torch.testing.assert_close(attention(q, k, v), want)\n"
                "### END HIDDEN TESTS",
            ),
        },
        {
            "no scale": (
                "def attention(q, k, v):\n    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v\n",
                {"random"},
            ),
            "over the queries": (
                "def attention(q, k, v):\n"
                "    return torch.softmax(q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5, -2) @ v\n",
                {"mean", "random"},
            ),
            CRASH: (_crash("def attention(q, k, v):"), {"shape", "mean", "random"}),
        },
    )
    entropy = Exercise(
        "entropy",
        "## Exercise 3. Cross-entropy (3 points)\n\nWrite `cross_entropy(logits, labels)`, averaged over the rows.",
        "def cross_entropy(logits, labels):\n"
        "    return -torch.log_softmax(logits, -1)[torch.arange(len(labels)), labels].mean()\n",
        {
            "uniform": (
                1,
                "got = cross_entropy(torch.zeros(2, 8), torch.tensor([0, 3]))\n"
                "assert abs(float(got) - np.log(8)) < 1e-5",
            ),
            "random": (
                2,
                "torch.manual_seed(6)\n"
                "logits, labels = torch.randn(16, 5), torch.randint(5, (16,))\n"
                "torch.testing.assert_close(cross_entropy(logits, labels), "
                "torch.nn.functional.cross_entropy(logits, labels))",
            ),
        },
        {
            "sum": (
                "def cross_entropy(logits, labels):\n"
                "    return -torch.log_softmax(logits, -1)[torch.arange(len(labels)), labels].sum()\n",
                {"uniform", "random"},
            ),
            "first class": (
                "def cross_entropy(logits, labels):\n    return -torch.log_softmax(logits, -1)[:, 0].mean()\n",
                {"random"},
            ),
            CRASH: (_crash("def cross_entropy(logits, labels):"), {"uniform", "random"}),
        },
    )
    return Assignment(name, "import numpy as np\nimport torch", (gate, attention, entropy))


def small_set(number: int) -> Assignment:
    """Two exercises, three test cells; another one for each number."""
    a, b = number + 2, 3 * number + 1
    line = Exercise(
        "line",
        f"## Exercise 1. A line (3 points)\n\nWrite `line(x)`, which is {a} x + {b}.",
        f"def line(x):\n    return {a} * x + {b}\n",
        {
            "numbers": (1, f"assert line(0) == {b}, 'line(0)'\nassert line(2) == {2 * a + b}, 'line(2)'"),
            "arrays": (
                2,
                f"assert line(1) == {a + b}\n"
                "### BEGIN HIDDEN TESTS\n"
                f"np.testing.assert_allclose(line(np.arange(4.0)), [{b}, {a + b}, {2 * a + b}, {3 * a + b}])\n"
                "### END HIDDEN TESTS",
            ),
        },
        {
            "numbers only": (f"def line(x):\n    return {a} * int(x) + {b}\n", {"arrays"}),
            "swapped": (f"def line(x):\n    return {b} * x + {a}\n", {"numbers", "arrays"}),
            CRASH: (_crash("def line(x):"), {"numbers", "arrays"}),
        },
    )
    top = Exercise(
        "top",
        f"## Exercise 2. The largest (2 points)\n\nWrite `top(x)`: the {a} largest numbers of x, largest first.",
        f"def top(x):\n    return sorted(x, reverse=True)[:{a}]\n",
        {
            "test": (
                2,
                "x = [float(n * 7 % 31) for n in range(31)]\n"
                f"assert list(top(x)) == [float(30 - n) for n in range({a})], 'top of 31 numbers'",
            )
        },
        {
            "smallest": (f"def top(x):\n    return sorted(x)[:{a}]\n", {"test"}),
            "raises": (f"def top(x):\n    return sorted(x)[{a + 100}]\n", {"test"}),
            CRASH: (_crash("def top(x):"), {"test"}),
        },
    )
    return Assignment(f"small{number}", "import numpy as np", (line, top))


if __name__ == "__main__":
    sets = [numpy_set(), torch_set(), *(small_set(number) for number in range(8))]
    faults = [fault for each in sets for fault in check(each)]
    print("\n".join(faults) or f"{len(sets)} assignments: every answer earns what it is said to earn")
    raise SystemExit(bool(faults))
