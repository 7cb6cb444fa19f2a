"""Small courses as strangers write them for plain nbgrader, each with the work of a few honest students.

A course is a text file, one cell after the other. A line `# %% answer squares` begins an answer, `# %% test name 2` a
test worth two points, `# %% given` a cell of the instructor's, `# %% words proof 3` an answer that a person marks.
Below an answer stands what students hand in for it, `# %% by bea`; who has nothing there hands in the reference, and
`blank` what was handed out. What lies beside the notebook stands at the end, `# %% file data/d.csv`.
"""

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import v4

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.stem for path in HERE.glob("*.txt"))
CELL = re.compile(r"^# %% (.*)\n", re.M)
SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION", re.M | re.S)
HIDDEN = re.compile(r"^### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS\n?", re.M | re.S)
STUB = {"code": "# YOUR CODE HERE\nraise NotImplementedError()", "markdown": "YOUR ANSWER HERE"}


def released(cell):
    """The text of a cell as nbgrader hands it out."""
    text = HIDDEN.sub("", cell.source)
    if cell.metadata.get("nbgrader", {}).get("solution"):
        stub = STUB[cell.cell_type]
        marked = SOLUTION.search(text)
        text = SOLUTION.sub(lambda found: textwrap.indent(stub, found[1]), text) if marked else stub
    return text


@dataclass
class Toy:
    """A course of one assignment: the source, what lies beside it, {student: {answer: text}}."""

    name: str
    source: nbformat.NotebookNode
    files: dict = field(default_factory=dict)
    students: dict = field(default_factory=dict)

    def write(self, root):
        """Lay it out as nbgrader does, submissions included."""
        self._put(root / "source" / self.name, self.source)
        for student, answers in self.students.items():
            self._put(root / "submitted" / student / self.name, self.handed_in(answers))

    def _put(self, folder, book):
        for path, text in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(book, folder / f"{self.name}.ipynb")

    def handed_in(self, answers):
        """The notebook of somebody who was handed out the released version; None: who answered nothing."""
        book = nbformat.from_dict(self.source)
        for cell in book.cells:
            flags = cell.metadata.get("nbgrader", {})
            if flags.get("solution") and answers is not None:
                cell.source = answers.get(flags.grade_id, cell.source)
            else:
                cell.source = released(cell)
        return book


def load(name):
    """A course by its file's name."""
    toy, students, answer = Toy(name, v4.new_notebook()), {"ada": {}, "blank": None}, None
    _, *parts = CELL.split((HERE / f"{name}.txt").read_text("utf-8"))
    for head, text in zip(parts[::2], parts[1::2], strict=True):
        kind, *words = head.split()
        text = text.strip("\n")
        if kind == "file":
            toy.files[words[0]] = text + "\n"
        elif kind == "by":
            students.setdefault(words[0], {})[answer] = text
        else:
            toy.source.cells.append(cell(kind, words, text))
            answer = words[0] if words else None
    toy.students = students
    return toy


def cell(kind, words, text):
    flags = {"schema_version": 3, "grade": kind in ("test", "words"), "solution": kind in ("answer", "words")}
    flags |= {"locked": kind == "test", "task": False}
    if kind == "given":
        flags = {}
    else:
        flags["grade_id"] = words[0]
    if len(words) > 1:
        flags |= {"points": float(words[1])}
    make = v4.new_markdown_cell if kind == "words" else v4.new_code_cell
    return make(text, metadata={"nbgrader": flags} if flags else {})
