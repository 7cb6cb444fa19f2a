"""A set of two exercises and a proof, small enough to try the grading machinery on."""

import copy
import json
import subprocess
import sys

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook


def meta(name, *, grade=False, solution=False, points=None):
    """The metadata of a cell that nbgrader knows."""
    flags = {
        "grade_id": name,
        "grade": grade,
        "solution": solution,
        "locked": not solution,
        "schema_version": 3,
        "task": False,
    }
    return {"nbgrader": flags | ({"points": points} if points is not None else {})}


def given(name, source):
    return new_code_cell(source, metadata=meta(name))


def answer(name, source):
    return new_code_cell(source, metadata=meta(name, solution=True))


def test(name, points, source):
    return new_code_cell(source, metadata=meta(name, grade=True, points=points) | {"nbreferee": {"run": "split"}})


test.__test__ = False

DOUBLE = """def double(x):
    ### BEGIN SOLUTION
    secret_sum = x + x
    return secret_sum
    ### END SOLUTION
"""
SQUARE = """def square(x):
    ### BEGIN SOLUTION
    return x**2 + 0
    ### END SOLUTION
"""
SHOWN = "assert double(3) == 6, 'double(3) should be 6'"
HIDDEN = """assert double(0) == 0, 'double of nothing is nothing'
### BEGIN HIDDEN TESTS
hidden_inputs = [-7, 2.5]
assert [double(x) for x in hidden_inputs] == [-14, 5.0], 'wrong beyond small integers'
### END HIDDEN TESTS"""


def notebook():
    proof = new_markdown_cell("### BEGIN SOLUTION\nBy distributivity.\n### END SOLUTION")
    proof.metadata = meta("proof_text", grade=True, solution=True, points=2)
    cells = [
        new_markdown_cell("# A toy set\n\n<details><summary>Hint</summary>Add.</details>"),
        given("setup_imports", "import math"),
        new_markdown_cell("## Exercise 1. Doubling (3 points)"),
        answer("double_answer", DOUBLE),
        test("double_test-shown", 1, SHOWN),
        test("double_test-hidden", 2, HIDDEN),
        new_markdown_cell("## Exercise 2. Squaring (1 point)"),
        answer("square_answer", SQUARE),
        test("square_test", 1, "assert square(3) == 9, 'square(3) should be 9'"),
        new_markdown_cell("## Exercise 3. A proof (2 points)"),
        proof,
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"c{number}"
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def fill(base, answers):
    """The student version with these answers, {grade id: text}, written into it."""
    notebook, left = copy.deepcopy(base), dict(answers)
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in left:
            cell.source = left.pop(name)
    if left:
        raise KeyError(f"no such cell: {', '.join(sorted(left))}")
    return notebook


def write(root, name="toy", made=None):
    folder = root / "source" / name
    folder.mkdir(parents=True)
    nbformat.write(made or notebook(), folder / f"{name}.ipynb")
    return folder


LISTED = """
import json, sys
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
course = CourseDirectory(root=sys.argv[1], db_url=f"sqlite:///{sys.argv[1]}/gradebook.db")
found = NbGraderAPI(course).get_submissions("toy")
print(json.dumps({each["student"]: each["score"] if each["autograded"] else None for each in found}))
"""


def formgrader_scores(root, first=""):
    """{student: score, None if formgrader takes the submission for ungraded}, from an nbgrader in its own process."""
    call = [sys.executable, "-c", f"{first}\n{LISTED}", str(root)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
