"""A small assignment, what a right and a wrong answer to it are, and the sheet on which a student hands one in.

Five exercises: a function, a function that returns a closure, a class, PyTorch with a gradient, and one that is judged
in the student's own process; and a text. `CANARIES` are words that stand where no student may look.
"""

import copy
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.nbreferee.toyset import meta

NAME = "small"
CELL_S = 3

# Words and a number that must not come out: whoever shows one has looked where he must not.
CANARIES = {
    "hidden": "kestrel4471",  # in the code of hidden tests
    "input": "0.7351926408",  # among the numbers that hidden tests hand to a student's function
    "solution": "osprey2093",  # in the instructor's solutions
    "other": "merlin8850",  # in another student's submission
    "gradebook": "goshawk3168",  # in the gradebook
    "outside": "harrier7702",  # in a file beside the course
    "environment": "buzzard5526",  # in the environment of whoever grades
}

SETUP = '''import numpy as np
import torch


def compare(got, want, name, tol=1e-9):
    """Assert that got is an array of the numbers in want."""
    got, want = np.asarray(got, dtype=float), np.asarray(want, dtype=float)
    assert got.shape == want.shape, f"{name} has shape {got.shape}; expected {want.shape}"
    assert np.allclose(got, want, rtol=tol, atol=tol), f"{name} is wrong"
'''

RIGHT = {
    "softmax": """def softmax(x):
    x = np.asarray(x, dtype=float)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
""",
    "affine": """def affine(x, w, b):
    def vjp(g):
        return g @ w.T, x.T @ g, g.sum(0)

    return x @ w + b, vjp
""",
    "mean": """class RunningMean:
    def __init__(self):
        self.value, self.count = 0.0, 0

    def update(self, x):
        self.count += 1
        self.value += (x - self.value) / self.count
""",
    "gate": """def gate(x):
    return x * torch.sigmoid(x)
""",
    "centre": """def centre(x):
    x -= x.mean()
    return x
""",
    "why": "The sum is one because each weight is divided by the sum of all.",
}

WRONG = {
    "softmax": "def softmax(x):\n    return np.zeros(np.shape(x))\n",
    "affine": "def affine(x, w, b):\n    return x @ w, lambda g: (x, w, b)\n",
    "mean": """class RunningMean:
    value, count = -1.0, -1

    def update(self, x):
        pass
""",
    "gate": "def gate(x):\n    return -x\n",
    "centre": "def centre(x):\n    return x + 7\n",
}

TESTS = {  # test: (exercise, points, source)
    "softmax_shown": (
        "softmax",
        1,
        """x = np.array([[0.0, 1.0], [2.0, 2.0]])
want = np.array([[0.26894142137, 0.73105857863], [0.5, 0.5]])
compare(softmax(x), want, "softmax", tol=1e-6)
assert all(map(lambda n: abs(softmax(np.zeros(n))[0] - 1 / n) < 1e-9, (4, 5))), "equal scores have equal weights"
""",
    ),
    "softmax_hidden": (
        "softmax",
        2,
        f"""assert len(softmax(np.array([1.0, 2.0]))) == 2, "one weight for each score"
### BEGIN HIDDEN TESTS
{CANARIES["hidden"]} = np.array([{CANARIES["input"]}, -1.5, 3.0])
want = np.exp({CANARIES["hidden"]}) / np.exp({CANARIES["hidden"]}).sum()
compare(softmax({CANARIES["hidden"]}), want, "softmax of three scores")
compare(softmax(np.array([2000.0, 2000.0])), [0.5, 0.5], "softmax of large scores")
try:
    softmax(np.zeros(0))
except ValueError:
    pass
else:
    raise AssertionError("softmax of no scores must raise ValueError")
### END HIDDEN TESTS
""",
    ),
    "affine_shown": (
        "affine",
        1,
        """x, w, b = np.arange(6.0).reshape(3, 2), np.eye(2), np.array([1.0, -1.0])
want = np.array([[1.0, 0.0], [3.0, 2.0], [5.0, 4.0]])
got, vjp = affine(x, w, b)
compare(got, want, "affine")
assert callable(vjp), "affine returns its value and a function"
""",
    ),
    "affine_hidden": (
        "affine",
        2,
        f"""assert len(affine(np.ones((3, 2)), np.ones((2, 4)), np.zeros(4))) == 2, "two results"
### BEGIN HIDDEN TESTS
rng = np.random.default_rng(5)
x, w, b, g = (rng.standard_normal(shape) for shape in ((3, 2), (2, 4), (4,), (3, 4)))
x[0, 0] = {CANARIES["input"]}
want = {CANARIES["hidden"]} = [g @ w.T, x.T @ g, g.sum(0)]
got, vjp = affine(x, w, b)
compare(got, x @ w + b, "affine of random numbers")
for mine, theirs, name in zip(vjp(g), want, ("gradient of x", "gradient of w", "gradient of b"), strict=True):
    compare(mine, theirs, name)
slope = (affine(x, w, b + 1e-6 * g[0])[0] - got).sum() / 1e-6
assert abs(slope - 3 * g[0].sum()) < 1e-3
### END HIDDEN TESTS
""",
    ),
    "mean_test": (
        "mean",
        2,
        """from numpy.testing import assert_allclose

mean = RunningMean()
for value in [1.0, 2.0, 6.0]:
    mean.update(value)
assert mean.count == 3, "three numbers were seen"
assert_allclose(mean.value, 3.0, err_msg="the mean of 1, 2 and 6 is 3")
""",
    ),
    "gate_shown": (
        "gate",
        1,
        """x = torch.tensor([0.0, 1.0, -2.0])
want = torch.tensor([0.0, 0.73105858, -0.23840584])
assert gate(x).shape == (3,), "gate keeps the shape"
assert torch.allclose(gate(x), want, atol=1e-5), "gate(x) is x sigmoid(x)"
""",
    ),
    "gate_hidden": (
        "gate",
        1,
        f"""assert gate(torch.zeros(2)).shape == (2,), "gate keeps the shape"
### BEGIN HIDDEN TESTS
x = torch.tensor([{CANARIES["input"]}, -1.25], dtype=torch.float64, requires_grad=True)
s = torch.sigmoid(x.detach())
want = {CANARIES["hidden"]} = s + x.detach() * s * (1 - s)
gate(x).sum().backward()
compare(x.grad, want, "the gradient of gate")
### END HIDDEN TESTS
""",
    ),
    "centre_value": (
        "centre",
        1,
        """want = np.array([-1.0, 0.0, 1.0])
compare(centre(np.array([1.0, 2.0, 3.0])), want, "centre")
compare(sum(list(centre(np.array([5.0, 7.0, 9.0])))), 0.0, "the sum of what centre returns")
""",
    ),
    "centre_inplace": (
        "centre",
        1,
        """import numpy as np

x = np.array([4.0, 6.0])
centre(x)
assert (x == [-1.0, 1.0]).all(), "centre changes its argument"
""",
    ),
}

# The canary among the inputs, as an answer can spell it: digits, axes of a shape (a digit and one), a line's number.
SPELLED = ("7351926", "8, 4, 6", "0.73519", "→  737", "73519264-")

FULL = {name: points for name, (_, points, _) in TESTS.items()}
NONE = dict.fromkeys(FULL, 0)
TEXT_POINTS = 2


def without(*exercises, **marks):
    """Full marks but for some exercises, and single marks as they are named."""
    return {name: 0 if TESTS[name][0] in exercises else FULL[name] for name in FULL} | marks


def only(*exercises, **marks):
    """No marks but for some exercises."""
    return {name: FULL[name] if TESTS[name][0] in exercises else 0 for name in FULL} | marks


def _solution(text, comment="#"):
    """An answer as it stands in the instructor's notebook."""
    head, _, rest = text.partition("\n")
    begin, end = "    ### BEGIN SOLUTION", "    ### END SOLUTION"
    return "\n".join([head, begin, f"    {comment} {CANARIES['solution']}", rest.rstrip("\n"), end])


def source():
    """The instructor's notebook."""
    cells = [
        new_markdown_cell("# A small set\n\nRead each exercise, then write your answer below it."),
        new_code_cell(SETUP.rstrip("\n"), metadata=meta("setup")),
    ]
    for exercise in ("softmax", "affine", "mean", "gate", "centre"):
        tests = [name for name in TESTS if TESTS[name][0] == exercise]
        cells.append(new_markdown_cell(f"## Exercise. {exercise}"))
        cells.append(new_code_cell(_solution(RIGHT[exercise]), metadata=meta(exercise, solution=True)))
        for name in tests:
            _, points, text = TESTS[name]
            cells.append(new_code_cell(text.rstrip("\n"), metadata=meta(name, grade=True, points=points)))
            if name == "centre_value" or exercise == "softmax":  # nobody was told to leave the argument alone
                cells[-1].metadata["nbreferee"] = {"run": "split", "changes": True}
            if name == "centre_inplace":
                reason = "whether an argument was changed is seen in the student's process only"
                how = {"run": "sandboxed", "reason": reason, "needs": ["centre_value"]}
                cells[-1].metadata["nbreferee"] = how
    text = f"### BEGIN SOLUTION\nBy its definition. {CANARIES['solution']}\n### END SOLUTION"
    flags = meta("why", grade=True, solution=True, points=TEXT_POINTS)
    cells += [new_markdown_cell("## Exercise. Why is the sum one?"), new_markdown_cell(text, metadata=flags)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell{number}"
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def release():
    """The notebook that students get: no solutions, no hidden tests."""
    book = source()
    for cell in book.cells:
        stub = "YOUR ANSWER HERE"
        if cell.cell_type == "code":
            stub = "    # YOUR CODE HERE\n    raise NotImplementedError()"
        cell.source = re.sub(r"(?s) *### BEGIN SOLUTION.*### END SOLUTION", stub, cell.source)
        cell.source = re.sub(r"(?s)\n### BEGIN HIDDEN TESTS.*### END HIDDEN TESTS", "", cell.source)
        cell.metadata.pop("nbreferee", None)
    return book


@dataclass
class Sheet:
    """What one student hands in: a notebook with right answers, until somebody changes it.

    Parameters
    ----------
    book : the notebook.
    raw : bytes to be handed in instead of it.
    beside : files that lie beside it, by name.
    place : what makes the file, ``place(path, root)``, where it is no regular file.
    """

    book: nbformat.NotebookNode
    raw: bytes | None = None
    beside: dict = field(default_factory=dict)
    place: object = None

    def cell(self, name):
        """The cell with this grade_id."""
        return next(cell for cell in self.book.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == name)

    def put(self, name, text):
        """Answer an exercise."""
        self.cell(name).source = text.rstrip("\n")

    def add(self, name, text):
        """Write more code into the cell of a right answer."""
        self.put(name, RIGHT[name] + text)

    def forge(self, name, text):
        """Answer wrong, and do something about it."""
        self.put(name, WRONG[name] + text)

    def own(self, text, after="setup", kind=new_code_cell):
        """Put in a cell of one's own; after None: at the very top."""
        at = 0 if after is None else self.book.cells.index(self.cell(after)) + 1
        self.book.cells.insert(at, kind(text.rstrip("\n")))

    def tree(self):
        """The notebook as plain JSON values, to be spoiled."""
        return json.loads(json.dumps(self.book))

    def write(self, folder: Path, root: Path):
        """Hand it in."""
        folder.mkdir(parents=True)
        path = folder / f"{NAME}.ipynb"
        for name, content in self.beside.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        if self.place is not None:
            self.place(path, root)
        elif self.raw is not None:
            path.write_bytes(self.raw)
        else:
            path.write_text(json.dumps(self.book))


_right = []


def sheet():
    """A sheet with right answers to everything."""
    if not _right:
        made = Sheet(release())
        for name, text in RIGHT.items():
            made.put(name, text)
        _right.append(made.book)
    return Sheet(copy.deepcopy(_right[0]))


def bystander(name):
    """An honest student's sheet with a word that only he may see, and a file beside it."""
    made = sheet()
    made.own(f"mine = '{CANARIES['other']}'")
    made.put("why", f"{RIGHT['why']} {CANARIES['other']} {name}")
    made.beside["helper.py"] = f"word = {CANARIES['other']!r}\nimport numpy as np\n{RIGHT['softmax']}"
    return made
