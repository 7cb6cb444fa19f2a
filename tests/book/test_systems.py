"""The map of systems: every row has a page, a command that exists, a number here and a number there."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "chapters/08_at_work/systems.ipynb"
TEXT = "\n\n".join(cell.source for cell in nbformat.read(PAGE, 4).cells if cell.cell_type == "markdown")
PRINTED = "".join(output.get("text", "") for cell in nbformat.read(PAGE, 4).cells for output in cell.get("outputs", []))
TABLES = re.findall(r":::\{list-table\} .*?\n(.*?)\n:::", TEXT, re.DOTALL)
ROWS = [
    [cell.strip() for cell in re.split(r"(?:^|\n)\s+- ", row.removeprefix("- "))]
    for table in TABLES
    for row in table.split("\n* ")[2:]
]
NAMED = (
    *("Transformer", "GPT", "GPT-3", "BERT", "T5", "PaLM", "LLaMA", "Switch", "Sparse Transformer", "Longformer"),
    *("BigBird", "Linformer", "linear attention", "Performer", "FlashAttention", "S4", "Vision Transformer", "CLIP"),
    *("Flamingo", "AlphaFold", "Shaped Transformer"),
)


def test_all_systems_of_the_sources_have_a_row():
    systems = " | ".join(row[0] for row in ROWS)
    assert [name for name in NAMED if not re.search(rf"\b{name}\b", systems)] == []
    assert len(ROWS) >= len(NAMED)


@pytest.mark.parametrize("row", ROWS, ids=[re.sub(r"\W+", "-", row[0])[:30] for row in ROWS])
def test_a_row_is_whole_and_true(row):
    assert len(row) == 4 and all(row), "system, here, there, page and command"
    system, here, there, place = row
    assert "{cite}`" in system and re.search(r"\d|unbiased|beat|limit", there)
    page = re.match(r"\{(doc|ref)\}`(?:.*<)?([^`>]+)>?`", place)
    assert page, "the last cell begins with the page"
    if page[1] == "doc":
        assert any((PAGE.parent / f"{page[2]}{end}").exists() for end in (".ipynb", ".md")), page[2]
    else:
        assert f"({page[2]})=" in TEXT
    for module in re.findall(r"python -m ([\w.]+)", place):
        assert importlib.util.find_spec(module), module
        source = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
        assert "__main__" in source, "a command has a main"
    assert re.search(r"\d", here)


def test_the_numbers_here_are_those_of_the_records():
    """The last cell computes them from the pages' records and prints a line for each row."""
    lines = re.findall(r"^map: (.+?): (.+)$", PRINTED, re.MULTILINE)
    assert len(lines) == len(ROWS) == len({system for system, _ in lines}), "a line for every row"
    for system, numbers in lines:
        own = [row[1] for row in ROWS if row[0].split(" {cite}")[0] == system]
        assert len(own) == 1, system
        missing = [
            number for number in numbers.split() if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", own[0])
        ]
        assert missing == [], f"{system}: {missing} in {own[0]!r}"
