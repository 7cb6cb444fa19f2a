"""What a reader takes along: each file stands alone, compiles, is the library's function, and stands on its page."""

import ast
import importlib
import json
import subprocess
import sys

import nbformat
import numpy as np
import pytest

from fingerprint import ROOT
from tests.take_along import alone

FILES = sorted(path.stem for path in alone.FOLDER.glob("*.py"))
PAGES = sorted(path for path in (ROOT / "chapters").glob("0[2-9]*/*.ipynb"))
LINES = range(15, 46)  # of code, empty lines left out
# Pages that teach no component: what each of them is about instead.
NOT_A_COMPONENT = {
    "02_foundations/notation": "letters, shapes and sums",
    "08_at_work/systems": "a map of published systems",
    "09_theory/open_questions": "which questions are open, and how far theorems lie from trained models",
}


@pytest.fixture(scope="session")
def tried_alone():
    """What went wrong with each file in a process that has no attnmath."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.take_along.alone", *FILES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(map(json.loads, done.stdout.splitlines()))


def plain(x):
    return x.detach().double().numpy() if hasattr(x, "detach") else np.asarray(x, float)


def cells(path):
    """The cells of a page that hold a file to take along, by the file's name."""
    found = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    return {cell.metadata["take_along"]: cell for cell in found if "take_along" in cell.metadata}


def page(path):
    return path.relative_to(ROOT / "chapters").with_suffix("").as_posix()


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_it_runs_without_the_library_and_compiled(name, tried_alone):
    assert tried_alone[name] is None


@pytest.mark.parametrize("name", FILES)
def test_it_is_the_librarys(name):
    import torch

    module, case = alone.own(name), importlib.import_module(f"tests.take_along.cases.{name}")
    torch.manual_seed(0)
    function, arguments = case.example(module)
    got, want = (
        list(map(plain, alone.flat(x))) for x in (function(*arguments), case.library(module, function, arguments))
    )
    assert len(got) == len(want) > 0 and max(abs(x).max() for x in want) > 1e-2
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FILES)
def test_it_is_short_and_imports_no_library_of_ours(name):
    text = (alone.FOLDER / f"{name}.py").read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    taken = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    taken |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in taken} <= {"numpy", "torch", "math"}
    assert sum(bool(line.strip()) for line in text.splitlines()) in LINES


@pytest.mark.parametrize("path", PAGES, ids=page)
def test_a_page_ends_with_something_to_take_along(path):
    if page(path) in NOT_A_COMPONENT:
        return
    found = cells(path)
    assert found, f"{page(path)} has no cell with the metadata take_along, and is not listed as a page of no component"
    text = "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown")
    assert "## Take it with you" in text
    for name, cell in found.items():
        assert cell.source.strip() == (alone.FOLDER / f"{name}.py").read_text(encoding="utf-8").strip()


def test_each_file_stands_on_a_page_and_each_exception_is_a_page():
    assert {name for path in PAGES for name in cells(path)} == set(FILES)
    assert set(NOT_A_COMPONENT) <= set(map(page, PAGES))


def test_a_file_that_needs_the_library_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(alone, "FOLDER", tmp_path)
    monkeypatch.setitem(sys.modules, "attnmath", None)
    (tmp_path / "scaling.py").write_text("import attnmath.torch as at\n")
    assert "ModuleNotFoundError" in alone.wrong("scaling")
