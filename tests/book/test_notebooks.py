"""Every notebook of the book is in canonical form, so that comparing its stored outputs compares something."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "chapters").rglob("*.ipynb"))
LONGEST = 12  # lines of a function in a notebook; what is longer belongs into the library
# A loop of training or measuring that is read there, whole, as the cell's metadata "experiment" says; or what a reader
# takes along.
EXPERIMENT = 30


def name(path):
    return str(path.relative_to(ROOT))


def glued(notebook, number):
    """Whether the text that follows is the caption of a figure which another page shows too: one in italics."""
    following = [cell for cell in notebook.cells[number + 1 :] if cell.cell_type == "markdown"]
    return bool(following) and following[0].source.startswith("*")


def complaints(notebook):
    """What is wrong with a notebook, one line each."""
    said = []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        said.append(f"not run top to bottom: counts {counts}")
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        said.append("its kernel is not python3")
    if not notebook.cells or not re.match(r"(\([\w-]+\)=\n)*# \S", notebook.cells[0].source):
        said.append("it does not open with a title")
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            continue
        tags = cell.metadata.get("tags", [])
        if {"nbval-ignore-output", "nbval-skip", "NBVAL_IGNORE_OUTPUT", "NBVAL_SKIP"} & {*tags, *cell.source.split()}:
            if len(cell.metadata.get("reason", "")) < 15:
                said.append(f"cell {number}: its output is not compared, and no reason stands in its metadata")
        names = [output.get("name") for output in cell.outputs]
        if any(first == second == "stdout" for first, second in pairwise(names)):
            said.append(f"cell {number}: what it prints is stored in pieces")
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                said.append(f"cell {number}: an error or stderr is stored")
            if "image/png" in output.get("data", {}):
                if len(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")) < 20:
                    said.append(f"cell {number}: a figure without alt text")
                if "caption" not in cell.metadata.get("mystnb", {}).get("figure", {}) and not glued(notebook, number):
                    said.append(f"cell {number}: a figure without a caption")
                if not output.get("metadata", {}).get("image/png", {}).get("width"):
                    said.append(f"cell {number}: a figure that is not sharp: call viz.style() before it is drawn")
                if "assert" not in cell.source and "check." not in cell.source:
                    later = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
                    if later.count("assert ") + later.count("check.compare") == 0:
                        said.append(f"cell {number}: a figure, and nothing asserted in the notebook")
        source = re.sub(r"^[%!].*$", "", cell.source, flags=re.M)
        whole = len(cell.metadata.get("experiment", "")) > 20 or "take_along" in cell.metadata
        longest = EXPERIMENT if whole else LONGEST
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno + 1 > longest:
                said.append(
                    f"cell {number}: {node.name} has more than {longest} lines; the library is the place for it"
                )
    return said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_canonical(path):
    assert complaints(nbformat.read(path, as_version=4)) == []


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 11


def good():
    cells = [
        nbformat.v4.new_markdown_cell("# A title"),
        nbformat.v4.new_code_cell("assert 1 + 1 == 2", execution_count=1),
    ]
    return nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )


def plant(fault):
    notebook = good()
    fault(notebook, notebook.cells[1])
    return complaints(notebook)


PICTURE = nbformat.v4.new_output(
    "display_data", data={"image/png": "x", "text/plain": "<Figure>"}, metadata={"image/png": {"width": 500}}
)
DULL = nbformat.v4.new_output("display_data", data=PICTURE.data)
STDOUT = nbformat.v4.new_output("stream", name="stdout", text="!")
STDERR = nbformat.v4.new_output("stream", name="stderr", text="!")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda nb, cell: cell.update(execution_count=None), "not run top to bottom"),
        (lambda nb, cell: cell.update(execution_count=2), "not run top to bottom"),
        (lambda nb, cell: nb.metadata.kernelspec.update(name="my-kernel"), "kernel"),
        (lambda nb, cell: nb.cells[0].update(source="Text"), "title"),
        (lambda nb, cell: cell.metadata.update(tags=["nbval-ignore-output"]), "no reason"),
        (lambda nb, cell: cell.outputs.append(STDERR), "stderr"),
        (lambda nb, cell: cell.outputs.extend([STDOUT, STDOUT]), "in pieces"),
        (lambda nb, cell: cell.outputs.append(PICTURE), "without alt text"),
        (lambda nb, cell: cell.outputs.append(DULL), "not sharp"),
        (lambda nb, cell: cell.outputs.append(PICTURE), "without a caption"),
        (lambda nb, cell: cell.update(source="def f():\n" + "    x = 1\n" * 12), "more than 12 lines"),
        (
            lambda nb, cell: (
                cell.update(source="def f():\n" + "    x = 1\n" * 30),
                cell.metadata.update(experiment="the loop that is measured"),
            ),
            "more than 30 lines",
        ),
    ],
)
def test_a_planted_fault_is_seen(fault, said):
    assert complaints(good()) == []
    assert any(said in line for line in plant(fault))
