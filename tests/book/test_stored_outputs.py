"""The comparison of stored outputs with the execution for the book sees every fault that is planted in a notebook."""

from xml.etree import ElementTree

import nbformat
import pytest

from execution import Executions, execute_one

pytest_plugins = ["pytester"]

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CELLS = (
    "total = 6 * 7\nprint('six times seven')",
    "total",
    f"from IPython.display import Image\nImage(data=__import__('base64').b64decode('{PICTURE}'), alt='a point')",
    "import os\nprint(os.path.basename(os.getcwd()))",
    "assert total == 42",
)


def write(notebook, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A notebook of five cells, executed once, in a book of its own."""
    root = tmp_path_factory.mktemp("book")
    path = root / "chapters" / "01_one" / "page.ipynb"
    (root / "requirements.txt").touch()
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    write(nbformat.v4.new_notebook(cells=cells), path)
    _, notebook, seconds, made_with, error = execute_one(path, root)
    assert error is None and made_with == Executions(root).fingerprint
    return root, notebook, seconds, made_with


@pytest.fixture
def book(executed, tmp_path):
    """A fresh book with that notebook: stored as it was executed, and known to the cache."""
    _, notebook, seconds, _ = executed
    (tmp_path / "requirements.txt").touch()
    page = tmp_path / "chapters" / "01_one" / "page.ipynb"
    write(notebook, page)
    executions = Executions(tmp_path)
    executions.keep(page, nbformat.read(page, 4), seconds, executions.fingerprint)
    return page


def outcome(pytester, page):
    """What the comparison of one page says: how many cells passed, how many failed, and the text of its report."""
    root = page.parents[2]
    done = pytester.runpytest_inprocess(
        "-p", "compare_outputs", "-p", "no:cacheprovider", "--color=no", f"--rootdir={root}", "--junitxml=report.xml",
        str(root / "chapters"),
    )  # fmt: skip
    suite = ElementTree.parse(pytester.path / "report.xml").getroot().find("testsuite")
    bad = int(suite.get("failures")) + int(suite.get("errors"))
    return int(suite.get("tests")) - bad, bad, done.stdout.str()


def edit(page, change):
    notebook = nbformat.read(page, 4)
    change(notebook.cells)
    nbformat.write(notebook, page)


def test_equal_outputs_pass_cell_by_cell(pytester, book):
    assert "01_one" in nbformat.read(book, 4).cells[3].outputs[0].text, "it ran in its own folder"
    assert outcome(pytester, book)[:2] == (len(CELLS), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "failed", "said"),
    [
        (lambda cells: cells[0].outputs[0].update(text="six times eight\n"), 1, "Cell outputs differ"),
        (lambda cells: cells[1].outputs[0].data.update({"text/plain": "43"}), 1, "mismatch 'text/plain'"),
        (lambda cells: cells[0].outputs.clear(), 1, "Unexpected output fields"),
        (lambda cells: cells[4].outputs.extend(cells[0].outputs), 1, "Missing output fields"),
        (lambda cells: cells[2].outputs[0].data.pop("image/png"), 1, "The stored outputs are of the kinds"),
        (lambda cells: cells[1].outputs.extend(cells[1].outputs), 1, "Cell outputs differ"),
        (lambda cells: cells[1].update(execution_count=None), 1, "never run"),
        (lambda cells: cells[4].update(execution_count=None), 1, "never run"),
        (lambda cells: cells[0].update(source="print('six times eight')"), len(CELLS), "has not been executed"),
        (lambda cells: cells.append(nbformat.v4.new_code_cell("1", execution_count=6)), 6, "has not been executed"),
        (lambda cells: cells.pop(), 4, "has not been executed"),
    ],
)
def test_a_planted_fault_is_seen(pytester, book, fault, failed, said):
    edit(book, fault)
    _, bad, text = outcome(pytester, book)
    assert bad == failed and said in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "requirements.txt").write_text("numpy==1.0\n"),
        lambda root: (root / "lib" / "attnmath").mkdir(parents=True) or (root / "lib" / "attnmath" / "x.py").touch(),
        lambda root: (root / "chapters" / "01_one").rename(root / "chapters" / "02_two"),
    ],
    ids=["other pins", "another library", "another folder"],
)
def test_a_stale_execution_is_not_compared(pytester, book, change):
    root = book.parents[2]
    change(root)
    _, bad, text = outcome(pytester, next(root.glob("chapters/*/page.ipynb")))
    assert bad == len(CELLS) and "has not been executed" in text


def test_an_error_in_the_recording_fails(pytester, book):
    notebook = nbformat.read(book, 4)
    notebook.cells[4].outputs = [nbformat.v4.new_output("error", ename="AssertionError", evalue="", traceback=["no"])]
    executions = Executions(book.parents[2])
    executions.keep(book, notebook, 1.0, executions.fingerprint)
    _, bad, text = outcome(pytester, book)
    assert bad == 1 and "Cell execution caused an exception" in text


def test_a_notebook_outside_the_table_of_contents_is_compared(pytester, book):
    draft = book.with_name("draft.ipynb")
    write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", execution_count=1)]), draft)
    assert Executions(book.parents[2]).missing() == [draft]
    passed, bad, text = outcome(pytester, book)
    assert (passed, bad) == (len(CELLS), 1) and "draft.ipynb has not been executed" in text


def test_a_cell_that_a_tag_excuses_may_differ_and_no_other(pytester, book):
    edit(book, lambda cells: cells[0].metadata.update(tags=["nbval-ignore-output"]))
    executions = Executions(book.parents[2])
    executions.keep(book, nbformat.read(book, 4), 1.0, executions.fingerprint)
    edit(book, lambda cells: cells[0].outputs[0].update(text="another text\n"))
    assert outcome(pytester, book)[:2] == (len(CELLS), 0)
    edit(book, lambda cells: cells[1].outputs[0].data.update({"text/plain": "43"}))
    assert outcome(pytester, book)[:2] == (len(CELLS) - 1, 1)
