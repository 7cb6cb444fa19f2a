"""Files that no honest editor writes, and some that one does; where answers can be found, they count."""

import json
import os

from ..assignment import NAME, RIGHT, only
from . import BROKEN, submission


@submission(BROKEN, None, state="not-json")
def truncated(s):
    """Ends in the middle, as after a broken download."""
    s.raw = json.dumps(s.book).encode()[:2000]


@submission(BROKEN, None, state="too-large")
def nested(s):
    """Is a list in a list in a list, two hundred thousand times."""
    s.raw = b'{"nbformat": 4, "cells": ' + b"[" * 200_000


@submission(BROKEN, None, state="too-large")
def nested_metadata(s):
    """Is a notebook with metadata that nest five thousand levels deep."""
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    s.raw = json.dumps(s.book).replace('"metadata": {', '"metadata": {"deep": ' + deep + ", ", 1).encode()


@submission(BROKEN)
def holds_nan(s):
    """Has NaN and Infinity among its JSON, which Python writes and nobody else reads."""
    s.raw = json.dumps(s.tree() | {"metadata": {"a": float("nan"), "b": float("inf")}}).encode()


@submission(BROKEN)
def doubles_keys(s):
    """Has every key of the notebook twice."""
    text = json.dumps(s.book)
    s.raw = text.replace('"nbformat": 4', '"nbformat": 4, "nbformat": 4, "metadata": {}').encode()


@submission(BROKEN, None, state="too-large")
def hundred_megabytes(s):
    """Has an output of a hundred megabytes."""
    tree = s.tree()
    cell = next(cell for cell in tree["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 100_000_000}]
    s.raw = json.dumps(tree).encode()


@submission(BROKEN, note="byte order mark")
def byte_order_mark(s):
    """Begins with a byte order mark, as Windows' editors write it."""
    s.raw = b"\xef\xbb\xbf" + json.dumps(s.book).encode()


@submission(BROKEN, note="UTF-16")
def utf16(s):
    """Is encoded as UTF-16."""
    s.raw = json.dumps(s.book).encode("utf-16")


@submission(BROKEN)
def not_utf8(s):
    """Holds bytes that are no UTF-8 in a comment."""
    s.add("softmax", "# gr\u00fc\u00dfe")
    s.raw = json.dumps(s.book, ensure_ascii=False).encode("latin-1", "replace")


@submission(BROKEN)
def format_three(s):
    """Is saved in notebook format 3, of 2013."""
    cells = []
    for cell in s.tree()["cells"]:
        if cell["cell_type"] == "code":
            more = {
                "input": cell["source"],
                "language": "python",
                "collapsed": False,
                "outputs": [],
                "prompt_number": 1,
            }
            cells.append({"cell_type": "code", "metadata": cell["metadata"], **more})
        else:
            cells.append({"cell_type": "markdown", "metadata": cell["metadata"], "source": cell["source"]})
    tree = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": cells}]}
    s.raw = json.dumps(tree).encode()


@submission(BROKEN)
def format_five(s):
    """Says that it is of minor format 99, which does not exist yet."""
    s.raw = json.dumps(s.tree() | {"nbformat_minor": 99}).encode()


@submission(BROKEN, None, state="too-large")
def hundred_thousand_cells(s):
    """Has a hundred thousand cells."""
    tree = s.tree()
    empty = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": [], "execution_count": None}
    tree["cells"] += [empty | {"id": f"e{n}"} for n in range(100_000)]
    s.raw = json.dumps(tree).encode()


@submission(BROKEN)
def lone_surrogates(s):
    """Holds half of a character and a NUL, in a source, in a text and in an id."""
    s.add("softmax", "# \ud800")
    s.own("x = '\ud800'", after="affine")
    s.put("why", RIGHT["why"] + " \ud83d \x00")
    s.book.cells[0]["id"] = "\udfff"


@submission(BROKEN)
def wrong_types(s):
    """Has numbers, lists and nulls wherever a notebook has something else."""
    tree = s.tree()
    tree["cells"] += [7, None, [], {"cell_type": "poem"}, {"cell_type": "code", "source": 3}, {"source": {}}]
    tree["cells"].append({"cell_type": "code", "source": ["y = ", 1, "2"], "metadata": [], "outputs": 5})
    tree["metadata"], tree["nbformat_minor"] = 3, "five"
    for cell in tree["cells"][:4]:
        cell["id"] = ["no", "id"]
    s.raw = json.dumps(tree).encode()


@submission(BROKEN)
def odd_flags(s):
    """Has flags of nbgrader with points of NaN, versions of text, null ids and schema 99."""
    tree = s.tree()
    for number, cell in enumerate(cell for cell in tree["cells"] if "nbgrader" in cell["metadata"]):
        odd = ({"points": float("nan")}, {"schema_version": "x"}, {"points": -5}, {"task": 1}, {"cell_type": 7})
        cell["metadata"]["nbgrader"] |= odd[number % 5] | {"schema_version": 99}
    tree["cells"].append(
        {"cell_type": "code", "source": "", "metadata": {"nbgrader": {"grade_id": None, "grade": True}}}
    )
    tree["cells"].append({"cell_type": "code", "source": "", "metadata": {"nbgrader": "yes"}})
    s.raw = json.dumps(tree).encode()


@submission(BROKEN)
def odd_outputs(s):
    """Has outputs without a type, with a picture that is none, and execution counts of 10^30."""
    tree = s.tree()
    for cell in tree["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"data": {"image/png": "no picture"}}, {"output_type": "error"}, 5]
            cell["execution_count"] = 10**30
    s.raw = json.dumps(tree).encode()


@submission(BROKEN, only("softmax"))
def one_cell_is_left(s):
    """Has lost everything but one answer."""
    s.book.cells = [s.cell("softmax")]


@submission(BROKEN, None, state="empty")
def empty(s):
    """Is an empty file."""
    s.raw = b""


@submission(BROKEN, None, state="empty")
def no_cells(s):
    """Is a notebook without cells."""
    s.raw = json.dumps(s.tree() | {"cells": []}).encode()


@submission(BROKEN, None, state="not-json")
def web_page(s):
    """Is the page of a login form, saved under the notebook's name."""
    s.raw = b"<!DOCTYPE html><html><script>alert('XSS-page')</script></html>"


@submission(BROKEN, None, state="compressed")
def zipped(s):
    """Is a zip archive under the notebook's name."""
    s.raw = b"PK\x03\x04" + bytes(2000)


@submission(BROKEN, None, state="not-a-notebook")
def list_of_numbers(s):
    """Is JSON, but a list."""
    s.raw = b"[1, 2, 3]"


@submission(BROKEN, None, state="wrong-notebook")
def another_assignment(s):
    """Is the notebook of another assignment."""
    for cell in s.book.cells:
        cell.metadata, cell["id"] = {}, "other" + cell["id"]
        cell.source = "# last week"


@submission(BROKEN, None, state="not-json")
def merge_conflict(s):
    """Holds the marks of a Git merge."""
    s.raw = json.dumps(s.book, indent=1).replace('\n "nbformat"', '\n<<<<<<< HEAD\n "nbformat"').encode()


@submission(BROKEN, None, state="not-a-file")
def folder(s):
    """Is a folder with the notebook's name."""
    s.place = lambda path, root: path.mkdir()


@submission(BROKEN, note="rename")
def renamed(s):
    """Is called as a browser calls the second download."""
    s.beside[f"{NAME} (1).ipynb"] = json.dumps(s.book)
    s.place = lambda path, root: None


@submission(BROKEN, None, state="ambiguous")
def two_versions(s):
    """Comes in two copies under other names."""
    s.beside |= {f"{NAME} (1).ipynb": json.dumps(s.book), f"{NAME} (2).ipynb": json.dumps(s.book)}
    s.place = lambda path, root: None


@submission(BROKEN, None, state="missing")
def nothing(s):
    """Hands in a folder with a text."""
    s.beside["answers.txt"] = "42"
    s.place = lambda path, root: None


@submission(BROKEN)
def shadows_numpy(s):
    """Has files beside its notebook that are called as modules are: numpy.py, torch.py, sitecustomize.py, json/."""
    for name in ("numpy.py", "torch.py", "sitecustomize.py", "ipykernel.py", "json.py", "nbreferee.py"):
        s.beside[name] = "raise RuntimeError('shadow')"


@submission(BROKEN)
def forbids_reading_the_rest(s):
    """Has a folder beside its notebook that nobody may enter, and a broken link."""

    def place(path, root):
        path.write_text(json.dumps(s.book))
        (path.parent / "gone").symlink_to("/nowhere/at/all")
        (path.parent / "private").mkdir(mode=0o000)

    s.place = place


@submission(BROKEN, None, state="unsafe-name", student="=1+1")
def id_formula(s):
    """Is handed in under an id that a spreadsheet would compute."""


@submission(BROKEN, None, state="unsafe-name", student="ada lovelace")
def id_space(s):
    """Is handed in under an id with a space."""


@submission(BROKEN, None, state="unsafe-name", student="\u0430bel")
def id_lookalike(s):
    """Is handed in under an id that looks like another student's, with a Cyrillic letter."""


@submission(BROKEN, None, state="unsafe-name", student="...")
def id_dots(s):
    """Is handed in under an id of dots."""


@submission(BROKEN, None, state="unsafe-name", student="a" * 240)
def id_long(s):
    """Is handed in under an id of 240 letters."""


@submission(BROKEN, None, state="unsafe-name", student="ada[1]")
def id_brackets(s):
    """Is handed in under an id with brackets, which a pattern of file names takes for a set of letters."""


@submission(BROKEN, None, state="unsafe-name", student="{assignment_id}")
def id_braces(s):
    """Is handed in under an id with the braces of a format."""


@submission(BROKEN, None, state="unsafe-name", student="-rf")
def id_option(s):
    """Is handed in under an id that a command takes for an option."""


@submission(BROKEN, None, state="unsafe-name", student="<img src=x onerror=alert('XSS-id')>")
def id_html(s):
    """Is handed in under an id that a browser would run."""


@submission(BROKEN, None, state="unsafe-name", student="\x1b[2J\u202eleba")
def id_terminal(s):
    """Is handed in under an id that clears the terminal and writes from right to left."""


@submission(BROKEN, None, state="unsafe-name", student=os.fsdecode(b"caf\xe9"))
def id_not_utf8(s):
    """Is handed in under an id that is no UTF-8."""
