"""A page is read before it is run: what a reader sees of its code teaches, and the rest is folded under a label."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [path for path in sorted((ROOT / "chapters").rglob("*.ipynb")) if ".ipynb_checkpoints" not in path.parts]
WIDTH = 88
CHECK = re.compile(r"\s*(assert\b|check\.)")
DRAWING = re.compile(r"\s*(fig|ax|axes|plt|viz)\b")
IMPORT = re.compile(r"(import|from) ")
# The parts of a page, as CONTRIBUTING.md lists them: what each looks like in the source.
PARTS = {
    "a card that says what a reader can do afterwards, needs, and how long it takes": r"\*\*After this page\*\*",
    "a guess before the answer": r"Before you look",
    "a common mistake": r"A common mistake",
    "going deeper, closed": r"\{dropdown\} Going deeper|^#+ Going deeper",
    "questions to try": r"^## Try it",
    "what to remember": r"^## In five lines",
}
CORE = 2000  # words that a first reading takes at most
SHARE = 0.2  # of the lines that a reader sees without unfolding anything, at most so many are code
FIGURE = 16  # lines of text that are as high as a figure
MARGIN = 80  # characters of prose in a line of the built page


def name(path):
    return path.relative_to(ROOT / "chapters").with_suffix("").as_posix()


def visible(notebook):
    """The code cells that a reader sees without unfolding anything, with their numbers."""
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and not {"hide-input", "remove-input"} & set(cell.metadata.get("tags", [])):
            yield number, cell


def code_complaints(notebook):
    """What a reader would see of code that does not teach, one line each."""
    said = []
    for number, cell in visible(notebook):
        for line in cell.source.split("\n"):
            what = (
                ("a check", CHECK.match(line)),
                ("a drawing", DRAWING.match(line)),
                (f"more than {WIDTH} characters", len(line) > WIDTH),
            )
            said += [f"cell {number} shows {kind}: {line.strip()[:60]}" for kind, found in what if found]
        if cell.source and all(IMPORT.match(line) or not line for line in cell.source.split("\n")):
            said.append(f"cell {number} shows imports alone")
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and "hide-input" in cell.metadata.get("tags", []):
            if len(cell.metadata.get("mystnb", {}).get("code_prompt_show", "")) < 8:
                said.append(f"cell {number} is folded under no label")
    return said


def imports(tree):
    """The names that a cell imports."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name.partition(".")[0] for node in found for alias in node.names}


def names(tree, context):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def hidden_imports(notebook):
    """Which names a reader sees used and never sees imported, one line for each cell: such code can't be pasted."""
    shown, folded, said = set(), set(), []
    seen_cells = dict(visible(notebook))
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        tree = ast.parse(re.sub(r"^%.*", "", cell.source, flags=re.M))
        if number not in seen_cells:
            folded |= imports(tree)
            continue
        shown |= imports(tree) | names(tree, ast.Store) | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        if lost := sorted(names(tree, ast.Load) & folded - shown - {"warnings", "logging"}):
            said.append(f"cell {number} uses what only folded cells import: {', '.join(lost)}")
    return said


def core(notebook):
    """The text of the first reading: all that is neither folded nor under Going deeper."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    deeper = r"^#+ Going deeper.*?(?=^## Try it|^## In five lines|\Z)"
    text = re.sub(deeper, "", text, flags=re.M | re.S)
    text = re.sub(r"^## Take it with you.*", "", text, flags=re.M | re.S)  # for whoever has read the page
    text = re.sub(r"^(:{3,}|`{3,})\{dropdown\}.*?^\1$", "", text, flags=re.M | re.S)
    text = re.sub(r"^:still: .*$", "", text, flags=re.M)  # nobody reads it
    return re.sub(r"\$\$.*?\$\$", "", text, flags=re.S)


def seen(notebook):
    """How many lines of code, and how many others, a reader sees before unfolding anything."""
    code = other = 0
    deeper = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"^(:{3,}|`{3,})\{dropdown\}.*?^\1$", "fold", cell.source, flags=re.M | re.S)
            text = re.sub(r"\$\$.*?\$\$", "formula\nof\nthree", text, flags=re.S)
            for line in text.split("\n"):
                if re.match(r"## ", line):
                    deeper = line.startswith("## Going deeper")
                if not deeper and line.strip() and not re.match(r":{3,}|`{3,}|\([\w-]+\)=|:\w+:", line):
                    other += -(-len(line) // MARGIN)
        elif not deeper and "take_along" not in cell.metadata:  # its code is the point, and it stands at the end
            folded = {"hide-input", "remove-input"} & set(cell.metadata.get("tags", []))
            code += 0 if folded else sum(bool(line.strip()) for line in cell.source.split("\n"))
            other += bool(folded) + sum(map(height, cell.outputs))
    return code, other


def height(output):
    """The lines that an output takes."""
    if output.output_type == "stream":
        return output.text.rstrip().count("\n") + 1
    return FIGURE if "image/png" in output.get("data", {}) else 1


def form_complaints(notebook):
    """Which parts a page lacks, and whether its first reading is too long."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    said = [f"there is no part: {part}" for part, mark in PARTS.items() if not re.search(mark, text, re.M)]
    first = core(notebook)
    if (words := len(first.split())) > CORE:
        said.append(f"a first reading takes {words} words, more than {CORE}")
    if (lemmas := len(re.findall(r"\{prf:lemma\}", first))) > 2:
        said.append(f"a first reading meets {lemmas} lemmas, more than 2")
    return said


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_code_that_a_reader_sees_teaches(path):
    notebook = nbformat.read(path, as_version=4)
    assert code_complaints(notebook) + hidden_imports(notebook) == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_has_its_parts(path):
    assert form_complaints(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_is_not_a_listing(path):
    code, other = seen(nbformat.read(path, as_version=4))
    assert other > 100 and code / (code + other) <= SHARE, (
        f"{code} of {code + other} lines that a reader sees first are code: fold what measures and what sets up"
    )


def errata_complaints(text):
    """Which corrections run into one another, or do not end with the place where they are shown."""
    entries = [block for block in re.split(r"\n\s*\n", text) if block.startswith("**")]
    said = [f"two corrections in one paragraph: {block[:60]}" for block in entries if "\n**" in block]
    shown = r"→ \{ref\}`[^→]*`\.?$"
    return said + [f"no place is named: {block[:60]}" for block in entries if not re.search(shown, block.rstrip())]


def test_each_correction_is_a_paragraph_that_ends_with_its_place():
    text = (ROOT / "chapters" / "appendix" / "errata.md").read_text(encoding="utf-8")
    assert errata_complaints(text) == []
    assert "two corrections" in errata_complaints("**1.** a → {ref}`b`\n**2.** c → {ref}`d`\n")[0]
    assert "no place" in errata_complaints("**1.** a\n\n**2.** c → {ref}`d`\n")[0]


GOOD = """# Title

:::{card}
**After this page** you can. **You need** nothing. **Time:** 5 minutes.
:::

:::{dropdown} Before you look: how many?
Two.
:::

:::{admonition} A common mistake
One.
:::

:::{dropdown} Going deeper: why
Because.
:::

## Try it

## In five lines
"""


def page(text=GOOD, code="x = 1", tags=(), label=None):
    cell = nbformat.v4.new_code_cell(code, metadata={"tags": list(tags)})
    if label:
        cell.metadata["mystnb"] = {"code_prompt_show": label}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), cell])


@pytest.mark.parametrize(
    ("code", "tags", "label", "said"),
    [
        ("x = 1\nassert x", (), None, "shows a check"),
        ("    check.compare(x, 1)", (), None, "shows a check"),
        ("fig, ax = plt.subplots()", (), None, "shows a drawing"),
        ("x = " + "1 + " * 30 + "1", (), None, "more than 88"),
        ("import numpy as np", (), None, "imports alone"),
        ("assert x", ["hide-input"], None, "under no label"),
    ],
)
def test_code_that_does_not_teach_is_seen(code, tags, label, said):
    assert said in "".join(code_complaints(page(code=code, tags=tags, label=label)))


def test_folded_code_and_teaching_code_are_welcome():
    assert code_complaints(page(code="assert x", tags=["hide-input"], label="Checked here: x")) == []
    assert code_complaints(page(code="axis = 1\nfigure = 2\nchecked = 3")) == []


def test_code_that_cannot_be_pasted_is_seen():
    notebook = page(code="import numpy as np\nnp.ones(2)", tags=["hide-input"], label="Imports and settings")
    use = nbformat.v4.new_code_cell("x = np.ones(3)")
    notebook.cells.append(use)
    assert "only folded cells import: np" in hidden_imports(notebook)[0]
    use.source = "import numpy as np\n\nx = np.ones(3)"
    assert hidden_imports(notebook) == []


def test_a_page_in_form_is_welcome():
    assert form_complaints(page()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("**After this page**", "After", "a card"),
        ("Before you look", "Look", "a guess"),
        ("A common mistake", "Note", "a common mistake"),
        (":::{dropdown} Going deeper", ":::{dropdown} More", "going deeper"),
        ("## Try it", "## Questions", "questions to try"),
        ("## In five lines", "## End", "what to remember"),
        ("## Try it", "word " * 2001 + "\n\n## Try it", "words, more than"),
        ("## Try it", "```{prf:lemma} A\n```\n" * 3 + "## Try it", "meets 3 lemmas"),
    ],
)
def test_a_page_without_a_part_is_seen(old, new, said):
    assert old in GOOD
    assert said in "".join(form_complaints(page(GOOD.replace(old, new, 1))))


def test_what_is_folded_costs_no_words():
    assert form_complaints(page(GOOD.replace("Because.", "word " * 3000))) == []
    assert form_complaints(page(GOOD + "\n## Going deeper\n\n" + "word " * 3000)) == []


def test_lines_are_counted_as_a_reader_sees_them():
    stream = nbformat.v4.new_output("stream", name="stdout", text="1\n2\n")
    figure = nbformat.v4.new_output("display_data", data={"image/png": "x"})
    text = "word " * 32 + "\n\n$$\nx\n$$\n\n:::{dropdown} Closed\n" + "word " * 99 + "\n:::\n"
    shown = page(text, code="x = 1\n\ny = 2")
    shown.cells[1].outputs = [stream, figure]
    assert seen(shown) == (2, 2 + 3 + 1 + 2 + FIGURE)
    folded = page(text, code="x = 1\n\ny = 2", tags=["hide-input"], label="Checked here")
    assert seen(folded) == (0, 2 + 3 + 1 + 1)
    assert seen(page(text + "\n## Going deeper\n\nmore\n", code="x = 1")) == (0, 2 + 3 + 1)
