"""Whether a text tells what nobody may read who has not yet answered: solutions, hidden tests, wrong answers."""

import json
from itertools import pairwise
from pathlib import Path

import nbformat

TEXT = (".py", ".md", ".ipynb", ".yml", ".toml", ".json", ".txt", ".css", ".bib")
# Shorter lines of code coincide by chance: a loop over n, a sum that is returned. No longer ones do today.
LINE, PAIR = 48, 40


class Secrets:
    """What stands in the sources and the wrong answers of `tree`, and in no student's version below exercises/release.

    A text tells a secret if it holds a long line of one that neither the library nor a chapter has, or two lines of one
    in a row.
    """

    def __init__(self, tree: Path):
        released = [lines(text) for path in (tree / "exercises/release").glob("*/*.ipynb") for text in texts(path)]
        said = {line for one in released for line in one}
        pairs = {pair for one in released for pair in adjacent(one)}
        taught = [path for top in ("lib/attnmath", "chapters") for path in (tree / top).rglob("*.*") if path.is_file()]
        taught = {line for path in taught if path.suffix in TEXT for text in texts(path) for line in lines(text)}
        self.lines, self.pairs = {}, {}
        for where, hidden in secret_regions(tree):
            secret = set(hidden) - said
            long = {line for line in secret - taught if len(line) >= LINE}
            both = {pair for pair in adjacent(hidden) if secret & set(pair) and sum(map(len, pair)) >= PAIR}
            self.lines |= dict.fromkeys(long, where)
            self.pairs |= dict.fromkeys(both - pairs, where)

    def told_by(self, text: str) -> list[str]:
        """[which secrets a text tells]."""
        found = lines(text)
        told = [(line, where) for line in found if (where := self.lines.get(line))]
        told += [(" / ".join(pair), where) for pair in adjacent(found) if (where := self.pairs.get(pair))]
        return [f"a line of {where}: {line!r}" for line, where in dict.fromkeys(told)]

    def told_by_file(self, path: Path) -> list[str]:
        return [told for text in texts(path) for told in self.told_by(text)]


def lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.split("\n")) if line]


def adjacent(found: list[str]) -> list[tuple[str, str]]:
    return list(pairwise(found))


def texts(path: Path) -> list[str]:
    """What a reader of a file sees: its text, or each string of a notebook or another JSON file by itself."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    if path.suffix not in (".ipynb", ".json"):
        return [text]
    try:
        return list(strings(json.loads(text)))
    except ValueError:
        return [text]


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield "".join(value) if any(item.endswith("\n") for item in value) else "\n".join(value)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def regions(notebook):
    """([(grade id, lines of a solution or of hidden tests)], the lines of all else)."""
    hidden, public = [], set()
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        inside = meta.get("solution") and "BEGIN SOLUTION" not in cell.source  # then the whole cell is the solution
        if inside:
            hidden.append((meta["grade_id"], []))
        for line in cell.source.split("\n"):
            if "BEGIN SOLUTION" in line or "BEGIN HIDDEN TESTS" in line:
                inside = True
                hidden.append((meta.get("grade_id"), []))
            elif "END SOLUTION" in line or "END HIDDEN TESTS" in line:
                inside = False
            elif inside:
                hidden[-1][1].append(line.strip())
            else:
                public.add(line.strip())
    return hidden, public


def secret_regions(tree: Path):
    """(where, lines) of each solution, each hidden test, and each file of wrong answers."""
    for path in sorted((tree / "exercises/source").glob("*/*.ipynb")):
        for cell, hidden in regions(nbformat.read(path, 4))[0]:
            yield f"{path.stem}: {cell}", [line for line in hidden if line]
    for path in sorted((tree / "exercises/batteries").glob("*.py")):
        yield f"batteries/{path.name}", lines(path.read_text("utf-8"))
