"""The library's page, and for each module a page of its own: every public function, the two worlds in tabs.

Which functions there are is read from the files; what they say comes from their docstrings, through autodoc. The
library's page lists the modules, and leads on from the places where they once stood on it.
"""

import ast
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from generated import add_page
from virtual_pages import add_pages

WORLDS = {"numpy": "NumPy", "torch": "PyTorch"}
PAGE = "chapters/appendix/api"
EQUATION = re.compile(r"(?<![\w`:])eq:[\w-]*\w")


@dataclass(frozen=True)
class Module:
    """A file of the library, or the two files of the two worlds with one name."""

    name: str
    files: dict[str, Path]  # by world; by "" what belongs to both
    public: dict[str, list[str]]  # by the same: the dotted names of functions and classes

    @property
    def link(self) -> str:
        return f"{{doc}}`{self.name} </{PAGE}/{self.name}>`"

    @property
    def summary(self) -> str:
        """The first paragraph of what the file says of itself."""
        text = next(iter(self.files.values())).read_text(encoding="utf-8")
        return (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]

    def equations(self, index) -> set[str]:
        """The labels of the book that the files name."""
        texts = [path.read_text(encoding="utf-8") for path in self.files.values()]
        return {label for text in texts for label in EQUATION.findall(text) if label in index.places}


def modules(root) -> tuple[list[Module], list[Module]]:
    """Those of the two worlds, and those that belong to both."""
    from coverage_index import Index, definitions

    index, library = Index(root), root / "lib" / "attnmath"
    listed = {world: index.components(world) for world in WORLDS}
    twins = []
    for stem in sorted({*listed["numpy"], *listed["torch"]}):
        worlds = [world for world in WORLDS if stem in listed[world]]
        files = {world: library / world / f"{stem}.py" for world in worlds}
        twins.append(Module(stem, files, {w: [f"attnmath.{w}.{name}" for name in listed[w][stem]] for w in worlds}))
    alone = []
    for path in sorted(library.glob("[!_]*.py")):
        name = f"attnmath.{path.stem}"
        if found := [f"{name}.{node.name}" for node in definitions(path)]:
            alone.append(Module(name, {"": path}, {"": found}))
    return twins, alone


def write(root) -> str:
    """The list of modules."""
    twins, alone = modules(root)
    parts = ["## In both worlds", *map(entry, twins), "## Shared by both worlds", *map(entry, alone)]
    return "\n\n".join(parts) + "\n"


def entry(module: Module) -> str:
    """An item of the list. Its anchor is that of the heading under which the module once stood on this page."""
    anchor = re.sub(r"[._]+", "-", module.name).strip("-")
    names = {name.rsplit(".", 1)[1]: name for found in reversed(list(module.public.values())) for name in found}
    linked = ", ".join(f"{{py:obj}}`{short} <{name}>`" for short, name in sorted(names.items(), key=lambda one: one[0]))
    return f'- <span id="{anchor}"></span>{module.link}: {module.summary}\n  <br>{linked}'


def pages(root) -> dict[str, str]:
    """The modules' own pages."""
    from coverage_index import Index

    index = Index(root)
    return {f"{PAGE}/{module.name}": page(module, index) for one in modules(root) for module in one}


def page(module: Module, index) -> str:
    tabs = [
        f":::{{tab-item}} {WORLDS[world]}\n:sync: {world}\n\n{rst(names)}\n:::"
        for world, names in module.public.items()
        if world
    ]
    functions = (
        "\n\n".join(["::::{tab-set}\n:sync-group: world", *tabs, "::::"]) if tabs else rst(*module.public.values())
    )
    # A comment that changes with the labels of the book, to which the docstrings refer.
    labels = "% " + " ".join(sorted(module.equations(index)))
    return "\n\n".join([f"# {module.name}", module.summary, functions, labels]) + "\n"


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
    link = partial(EQUATION.sub, lambda m: f":eq:`{m[0]}`" if m[0] in places else m[0])
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


def by_name(app, what, name, thing, options, signature, returns):
    """A module as a default is written by its name: its repr holds the path of the machine that built the book."""
    return signature and re.sub(r"<module '([\w.]+)' from '[^']*'>", r"\1", signature), returns


def setup(app):
    app.connect("builder-inited", read_labels)
    app.connect("autodoc-process-signature", by_name)
    app.connect("autodoc-process-docstring", describe, priority=100)  # before napoleon
    add_page(app, PAGE, write)
    add_pages(app, PAGE, pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
