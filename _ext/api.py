"""The API page: every public function of the library, file by file, the two worlds side by side in tabs.

Which functions there are is read from the files; what they say comes from their docstrings, through autodoc.
"""

import ast
import re
from functools import partial
from pathlib import Path

from generated import add_page

WORLDS = {"numpy": "NumPy", "torch": "PyTorch"}


def write(root) -> str:
    from coverage_index import Index

    index = Index(root)
    files = {world: index.components(world) for world in WORLDS}
    names = list(dict.fromkeys([*files["numpy"], *files["torch"]]))
    parts = [component(stem, {world: files[world].get(stem, []) for world in WORLDS}) for stem in names]
    shared = [path for path in sorted((root / "lib" / "attnmath").glob("*.py")) if not path.name.startswith("_")]
    parts += ["## Shared by both worlds", *(module(path) for path in shared)]
    # A comment that changes with the labels of the book, to which the docstrings below refer.
    parts.append("% " + " ".join(sorted(label for label in index.places if label.startswith("eq:"))))
    return "\n\n".join(part for part in parts if part) + "\n"


def component(stem: str, worlds: dict[str, list[str]]) -> str:
    if not any(worlds.values()):
        return ""
    tabs = [
        f":::{{tab-item}} {WORLDS[world]}\n:sync: {world}\n\n"
        + rst(f"attnmath.{world}.{name}" for name in names)
        + "\n:::"
        for world, names in worlds.items()
        if names
    ]
    return f"## {stem}\n\n::::{{tab-set}}\n:sync-group: world\n\n" + "\n\n".join(tabs) + "\n::::"


def module(path) -> str:
    from coverage_index import definitions

    name = f"attnmath.{path.stem}"
    public = [node.name for node in definitions(path)]
    summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return f"### {name}\n\n{summary}\n\n" + rst(f"{name}.{one}" for one in public) if public else ""


def rst(names) -> str:
    """autodoc speaks reStructuredText."""
    lines = [line for name in names for line in directive(name)]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```"


def directive(name: str) -> list[str]:
    if name.rsplit(".", 1)[1][0].isupper():
        return [f".. autoclass:: {name}", "   :members:", ""]
    return [f".. autofunction:: {name}", ""]


def describe(app, what, name, obj, options, lines):
    """`S : (n, m) scores` says what S is, in prose. Put the prose below the name, where napoleon takes it for prose.

    And make a link of each `eq:label` that stands in the book.
    """
    if not lines:  # nothing is said of it
        return
    section, told = "", []
    places = app.book_index.places
    link = partial(re.sub, r"(?<![\w`:])eq:[\w-]*\w", lambda m: f":eq:`{m[0]}`" if m[0] in places else m[0])
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if re.fullmatch(r"-{3,}", following):
            section = line
        entry = re.fullmatch(r"(\*{0,2}\w[\w, *.]*?) : (.+)", line)
        told += (
            [entry[1], f"    {entry[2]}"] if entry and section in ("Parameters", "Attributes", "Returns") else [line]
        )
    lines[:] = map(link, told)


def read_labels(app):
    from coverage_index import Index

    app.book_index = Index(Path(app.srcdir))


def setup(app):
    app.connect("builder-inited", read_labels)
    app.connect("autodoc-process-docstring", describe, priority=100)  # before napoleon
    add_page(app, "chapters/appendix/api", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
