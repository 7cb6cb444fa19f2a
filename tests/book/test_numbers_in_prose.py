"""A number in prose is printed or asserted by a cell of its page, or its paragraph names the source.

Looked at are numbers with three digits or more behind the leading zeros, with a decimal point or from 10,000 on.
Formulas, code, links and the names of labels are left out: what stands in a formula is worked out on the page.
"""

import re

import nbformat
import pytest

from fingerprint import ROOT

PAGES = sorted((ROOT / "chapters").glob("0*/*.ipynb"))
NUMBER = re.compile(
    r"(?<![\w.,^_/:-])(\d{1,3}(?:[, ]\d{3})+|\d+)(?:\.(\d+))?(?![\w]|[.,]\d)(\s?%| million| billion| trillion)?"
)
PRINTED = re.compile(r"\d[\d,_]*\.?\d*(?:e[+-]?\d+)?")
UNITS = {"%": 100, "million": 1e-6, "billion": 1e-9, "trillion": 1e-12}
DIGITS, WHOLE = 3, 10_000
SOURCE = re.compile(r"\{cite")


def prose(text):
    """The text without what is no prose."""
    for pattern in (
        r"^(`{3,})\{(?:code|literal|mermaid|interactive|figure-from|small-gpt).*?^\1$",
        r"\$\$.*?\$\$",
        r"\$[^$]*\$",
        r"\{[a-z:-]+\}`[^`]*`",
        r"`[^`\n]*`",
        r"https?://\S+",
        r"^:[\w-]+:.*$",
    ):
        text = re.sub(pattern, lambda found: "{cite" if "{cite" in found[0] else " ", text, flags=re.S | re.M)
    return text


def claimed(text):
    """Each number that has to be found: as it is written, its value, half a unit of its last digit, and its factor."""
    for block in re.split(r"\n\s*\n|\n(?=\||- |\d\. |   - )", prose(text)):
        if SOURCE.search(block):
            continue
        for found in NUMBER.finditer(block):
            whole, part, unit = re.sub(r"\D", "", found[1]), found[2] or "", (found[3] or "").strip()
            if len((whole + part).lstrip("0")) >= DIGITS and (part or int(whole) >= WHOLE):
                yield found[0].strip(), float(f"{whole}.{part or 0}"), 0.501 * 10 ** -len(part), UNITS.get(unit, 1)


def known(notebook):
    """All numbers that the cells print or hold, in order."""
    texts = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts.append(cell.source)
            for output in cell.outputs:
                texts += [output.get("text", ""), *map(str, output.get("data", {}).get("text/plain", "").splitlines())]
                texts.append(output.get("data", {}).get("text/html", ""))
    found = (number.replace(",", "").replace("_", "").rstrip(".") for text in texts for number in PRINTED.findall(text))
    return sorted({float(number) for number in found})


def unfounded(notebook):
    values = known(notebook)
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return [
        written
        for written, value, half, factor in claimed(text)
        if not any(abs(v * scale - value) <= half for v in values for scale in {1, factor})
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT / "chapters").with_suffix("").as_posix())
def test_a_number_in_prose_is_printed_or_sourced(path):
    assert unfounded(nbformat.read(path, 4)) == []


def page(text, code="x = 1", printed=""):
    cell = nbformat.v4.new_code_cell(code, outputs=[nbformat.v4.new_output("stream", name="stdout", text=printed)])
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), cell])


@pytest.mark.parametrize(
    ("text", "code", "printed", "missing"),
    [
        ("The loss is 0.768.", "x = 1", "", ["0.768"]),
        ("The loss is 0.768.", "x = 1", "0.7683", []),
        ("The loss is 0.768.", "assert round(x, 3) == 0.768", "", []),
        ("The loss is 0.768.", "x = 1", "0.7689", ["0.768"]),
        ("It is right in 84.8 %.", "x = 1", "0.848", []),
        ("It is right in 84.8 seconds.", "x = 1", "0.848", ["84.8"]),
        ("It has 64,273 steps.", "n = 64_273", "", []),
        ("It has 64,273 steps.", "x = 1", "", ["64,273"]),
        ("They report 25.8 {cite}`vaswani2017attention`.", "x = 1", "", []),
        ("The weight is $0.768$ in `0.768`.", "x = 1", "", []),
        ("| a | 0.768 |\n|---|---|", "x = 1", "", ["0.768"]),
        ("In 2017, with 512 units and 12 layers.", "x = 1", "", []),
    ],
)
def test_what_counts_as_founded(text, code, printed, missing):
    assert unfounded(page(text, code, printed)) == missing
