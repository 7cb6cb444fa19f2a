"""The grader's page, and for each of its rooms, from the ground up, a page: in each module what `__all__` names.

What a room and a module are for is read from their files; the rest comes from docstrings, through autodoc.
"""

import ast
import re
from pathlib import Path

from api import rst
from generated import add_page
from virtual_pages import add_pages

PAGE = "chapters/appendix/grader_api"
ROOMS = ("course", "judge", "intake", "workers", "walls", "rpc", "pages", "export")


def write(root) -> str:
    """The list of rooms and their modules."""
    folders = {name: package(root) / name for name in ROOMS}
    return "\n\n".join(entry(name, folder) for name, folder in folders.items()) + "\n"


def pages(root) -> dict[str, str]:
    return {f"{PAGE}/{name}": room(package(root) / name) for name in ROOMS}


def package(root) -> Path:
    return root / "lib" / "nbreferee" / "src" / "nbreferee"


def entry(name, folder) -> str:
    """A section of the list, with anchors where the modules' headings once stood."""
    lines = [f"## {name}", f"{summary(folder / '__init__.py')}\n\nAll of it: {{doc}}`{name} </{PAGE}/{name}>`."]
    for path in files(folder):
        found = public(path)
        if found:
            anchor = re.sub(r"[._]+", "-", dotted(path))
            linked = ", ".join(f"{{py:obj}}`{one.rsplit('.', 1)[1]} <{one}>`" for one in found)
            lines.append(f'- <span id="{anchor}"></span>`{dotted(path)}`: {summary(path)}\n  <br>{linked}')
    return "\n\n".join(lines)


def summary(path) -> str:
    """The first paragraph of a module's docstring, as Markdown."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("``", "`")


def room(folder) -> str:
    parts = [f"# {folder.name}", summary(folder / "__init__.py"), *filter(None, map(module, files(folder)))]
    return "\n\n".join(parts) + "\n"


def files(folder) -> list[Path]:
    return [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]


def dotted(path) -> str:
    return f"nbreferee.{path.parent.name}.{path.stem}"


def public(path) -> list[str]:
    from coverage_index import definitions, exports

    there = {node.name for node in definitions(path)}
    return [f"{dotted(path)}.{one}" for one in exports(path) if one in there]


def module(path) -> str:
    found = public(path)
    return f"## {dotted(path)}\n\n{summary(path)}\n\n{rst(found)}" if found else ""


def setup(app):
    add_page(app, PAGE, write)
    add_pages(app, PAGE, pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
