"""The API page of the grader: its rooms from the ground up, and in each module what `__all__` names.

What a room and a module are for is read from their files; the rest comes from docstrings, through autodoc.
"""

import ast

from api import rst
from generated import add_page

ROOMS = ("course", "judge", "intake", "workers", "walls", "rpc", "pages", "export")


def write(root) -> str:
    package = root / "lib" / "nbreferee" / "src" / "nbreferee"
    return "\n\n".join(room(package / name) for name in ROOMS) + "\n"


def summary(path) -> str:
    """The first paragraph of a module's docstring, as Markdown."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("``", "`")


def room(folder) -> str:
    paths = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    return "\n\n".join([f"## {folder.name}", summary(folder / "__init__.py"), *filter(None, map(module, paths))])


def module(path) -> str:
    from coverage_index import definitions, exports

    name = f"nbreferee.{path.parent.name}.{path.stem}"
    there = {node.name for node in definitions(path)}
    public = [f"{name}.{one}" for one in exports(path) if one in there]
    return f"### {name}\n\n{summary(path)}\n\n{rst(public)}" if public else ""


def setup(app):
    add_page(app, "chapters/appendix/grader_api", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
