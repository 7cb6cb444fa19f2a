"""The build does nothing when nothing has changed, and something whenever anything has."""

import json
import subprocess

import nbformat
import psutil
import pytest

import build_book
import fingerprint
from execution import Executions, NotExecutable, Seconds

INPUTS = (
    "chapters/one.md",
    "chapters/page.ipynb",
    "lib/attnmath/numpy/softmax.py",
    "lib/attnmath/data.json",
    "requirements.txt",
    "_config.yml",
    "_toc.yml",
    "_ext/status.py",
    "_static/style.css",
    "references.bib",
    "tests/test_claims.py",
    "exercises/source/set1/set1.ipynb",
    "scripts/coverage_index.py",
    "_build/test-report.xml",
    "_build/notebooks-report.xml",
    "_build/wrong-answers.json",
    "_build/hostile.json",
    "_build/times.json",
)
MADE = ("_build/html/index.html", "_build/html/chapters/one.html", "_build/.jupyter_cache/executed/1/base.ipynb")


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A repository with one file of each kind, and what its last build left."""
    for name in (*INPUTS, *MADE):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one")
    (tmp_path / ".gitignore").write_text("_build/\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "chapters", "lib", "_config.yml"], cwd=tmp_path, check=True)  # the others are new
    build = tmp_path / "_build"
    for name, value in {
        "ROOT": tmp_path,
        "BUILD": build,
        "STAMP": build / "built",
        "INDEX": build / "html" / "index.html",
        "inputs": lambda: fingerprint.inputs(tmp_path),
        "outputs": lambda: fingerprint.outputs(tmp_path),
        "looks": lambda: "",
    }.items():
        monkeypatch.setattr(build_book, name, value)
    monkeypatch.setattr("sys.argv", ["build_book.py"])
    return tmp_path


@pytest.fixture
def parts(house, monkeypatch):
    """What a build calls, replaced by what notes it; `parts` decides what each returns."""
    parts = {"calls": [], "execute": lambda: True, "pages": lambda: True}

    def call(name):
        parts["calls"].append(name)
        return parts[name]()

    monkeypatch.setattr(build_book, "execute_notebooks", lambda jobs: call("execute"))
    monkeypatch.setattr(build_book, "write_pages", lambda: call("pages"))
    return parts


def calls(parts):
    """Build once; what was called."""
    parts["calls"].clear()
    build_book.main()
    return list(parts["calls"])


def test_nothing_is_done_when_nothing_has_changed(parts, house, capsys):
    assert calls(parts) == ["execute", "pages"]
    assert calls(parts) == []
    assert "up to date" in capsys.readouterr().out
    assert json.loads((house / "_build/book-times.json").read_text())["stages"][0]["title"] == "nothing to do"


@pytest.mark.parametrize("name", [*INPUTS, *MADE])
@pytest.mark.parametrize("change", ["written", "removed"])
def test_any_change_is_built(parts, house, name, change):
    assert calls(parts) == ["execute", "pages"] and calls(parts) == []
    path = house / name
    path.write_text("two") if change == "written" else path.unlink()
    assert calls(parts) == ["execute", "pages"]


@pytest.mark.parametrize("name", ["chapters/new.ipynb", "lib/attnmath/new.py", "tests/test_new.py", "_build/new.json"])
def test_a_new_file_is_built(parts, house, name):
    assert calls(parts) == ["execute", "pages"] and calls(parts) == []
    (house / name).write_text("new")
    assert calls(parts) == ["execute", "pages"]


def test_another_package_is_built(parts, monkeypatch):
    assert calls(parts) == ["execute", "pages"] and calls(parts) == []
    monkeypatch.setattr(fingerprint, "installed", lambda: "numpy-99.dist-info")
    assert calls(parts) == ["execute", "pages"]


@pytest.mark.parametrize("part", ["execute", "pages"])
def test_a_failed_build_is_done_again(parts, part, house):
    assert calls(parts) == ["execute", "pages"]
    (house / "_config.yml").write_text("broken")
    parts[part] = lambda: False
    assert build_book.main() == 1
    (house / "_config.yml").write_text("one")  # back to what the last successful build was made from
    parts[part] = lambda: True
    assert calls(parts) == ["execute", "pages"]


def test_a_change_during_the_build_is_built_next_time(parts, house):
    parts["pages"] = lambda: (house / "_config.yml").write_text("changed meanwhile")
    assert calls(parts) == ["execute", "pages"]
    (house / "_config.yml").write_text("one")  # back again: the pages may show what stood there meanwhile
    parts["pages"] = lambda: True
    assert calls(parts) == ["execute", "pages"]
    assert calls(parts) == []


def test_without_git_everything_is_built(parts, house):
    (house / ".git").rename(house / "git")
    assert calls(parts) == ["execute", "pages"] and calls(parts) == ["execute", "pages"]


def test_inside_a_repository_that_ignores_it_everything_is_built(parts, house):
    (house / ".gitignore").write_text("*\n")
    subprocess.run(["git", "rm", "-rq", "--cached", "."], cwd=house, check=True)
    assert calls(parts) == ["execute", "pages"] and calls(parts) == ["execute", "pages"]


def test_what_no_page_shows_is_not_built(parts, house):
    assert calls(parts) == ["execute", "pages"]
    for name in fingerprint.SHOWN_NOWHERE:
        (house / "_build" / name).write_text("two")
    assert calls(parts) == []


# -- the executions


@pytest.fixture
def book(tmp_path):
    """A book with a library of its own and two notebooks, the second of which fails."""
    for folder in ("chapters", "_build"):
        (tmp_path / folder).mkdir()
    (tmp_path / "requirements.txt").touch()
    for name, source in {"good": "print(1 + 1)", "bad": "assert 1 + 1 == 3"}.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
        nbformat.write(notebook, tmp_path / "chapters" / f"{name}.ipynb")
    return tmp_path


@pytest.mark.slow
def test_a_notebook_is_executed_once_and_a_failed_one_again(book, monkeypatch, capfd):
    monkeypatch.setattr(Executions, "_check_library", lambda self: None)
    executions = Executions(book)
    [report] = executions.fill(jobs=2)
    assert "bad.ipynb" in report and "AssertionError" in report
    assert executions.of(book / "chapters/good.ipynb")[0].outputs[0].text == "2\n"
    assert executions.missing() == [book / "chapters/bad.ipynb"]
    told = capfd.readouterr().out
    assert "Executing 2 notebooks" in told and "bad.ipynb  FAILED" in told
    assert list(Seconds(book).known) == ["chapters/good.ipynb"]


FORKED = """import os, sys
print("torch" in sys.modules, "torch" in globals(), "warm_kernels" in globals())
print([place for place in sys.path if "scripts" in place], os.path.basename(os.getcwd()), os.getsid(0) == os.getpid())
from matplotlib import pyplot
pyplot.plot([1, 2]);"""


@pytest.mark.slow
def test_a_forked_kernel_has_what_was_imported_and_nothing_else(book, monkeypatch):
    """PyTorch is loaded and not named, the build's own modules are out of sight, and a figure is shown."""
    monkeypatch.setattr(Executions, "_check_library", lambda self: None)
    page = book / "chapters/bad.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FORKED)]), page)
    executions = Executions(book)
    assert executions.fill(jobs=2) == []
    told, figure = executions.of(page)[0].outputs
    assert told.text == "True False False\n[] chapters True\n"
    assert "image/png" in figure.data and psutil.Process().children() == []


def test_the_library_of_another_checkout_is_refused(book):
    with pytest.raises(NotExecutable, match=r"import attnmath from .*, not from .*make setup"):
        Executions(book).fill(jobs=1)


def test_two_notebooks_with_the_same_cells_are_refused(book, monkeypatch):
    monkeypatch.setattr(Executions, "_check_library", lambda self: None)
    (book / "chapters/copy.ipynb").write_bytes((book / "chapters/good.ipynb").read_bytes())
    with pytest.raises(NotExecutable, match="have the same code cells"):
        Executions(book).fill(jobs=1)


def test_executions_with_another_library_are_thrown_away(book):
    page = book / "chapters/good.ipynb"
    executions, notebook = Executions(book), nbformat.read(page, 4)
    notebook.cells[0].execution_count = 1
    executions.keep(page, notebook, 1.0, executions.fingerprint)
    executions.forget_others()
    assert len(executions.cache.list_cache_records()) == 1
    (book / "requirements.txt").write_text("numpy==1.0\n")
    Executions(book).forget_others()
    assert executions.cache.list_cache_records() == []


def test_the_longest_begins_first_and_the_unknown_before_it(book):
    seconds = Seconds(book)
    seconds.note("chapters/a.ipynb", 3.0)
    seconds.note("chapters/b.ipynb", 9.0)
    paths = [book / "chapters" / f"{name}.ipynb" for name in "abcd"]
    assert [path.stem for path in Seconds(book).longest_first(paths)] == ["d", "c", "b", "a"]
