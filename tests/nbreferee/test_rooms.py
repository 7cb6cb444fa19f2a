"""The rooms of the package are what its `__init__` says: no import runs upward, nobody takes another's private name."""

import ast
import re
from pathlib import Path

import pytest

import nbreferee

ROOT = Path(nbreferee.__file__).parent
GROUND = ("errors",)  # below all rooms
ROOMS = ("rpc", "walls", "intake", "judge", "pages", "workers", "course", "export")
STOREYS = {name: height for height, name in enumerate((*GROUND, *ROOMS, "cli", "__main__"))}


def modules():
    """{its name below the package, "rpc.codec": its path}."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if name := ".".join(part for part in parts if part != "__init__"):
            found[name] = path
    return found


def imports(name, text, known, package=False):
    """(module of the package, name taken from it or None, the name it has here) of each import, wherever it stands.

    A module is imported whole, `from . import codec`, or in part, `from .codec import decode`.
    """
    home = name.split(".") if package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head, _, below = alias.name.partition(".")
                if head == "nbreferee" and below:
                    yield below, None, alias.asname or alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                stem = home[: len(home) - node.level + 1]
            elif (node.module or "").split(".")[0] == "nbreferee":
                stem, node.module = [], node.module.removeprefix("nbreferee").lstrip(".")
            else:
                continue
            base = ".".join([*stem, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{base}.{alias.name}".lstrip(".")
                if whole in known:
                    yield whole, None, alias.asname or alias.name
                else:
                    yield base, alias.name, alias.asname or alias.name


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def taken(name, text, known, package=False):
    """The private names of other modules that a module takes: by an import, or by a dot behind an imported module."""
    whole = {}
    for module, part, here in imports(name, text, known, package):
        if part is None:
            whole[here] = module
        elif is_private(part):
            yield f"{name}: {module}.{part}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) in whole:
            yield f"{name}: {whole[ast.unparse(node.value)]}.{node.attr}"


def storey(name):
    return STOREYS[name.split(".")[0]]


def upward(name, text, known, package=False):
    """The imports of a module that run from a lower room to a higher one."""
    for module, _, _ in imports(name, text, known, package):
        if module and storey(module) > storey(name):
            yield f"{name} -> {module}"


def everywhere(look):
    known = modules()
    seen = (look(name, path.read_text("utf-8"), known, path.name == "__init__.py") for name, path in known.items())
    return {found for each in seen for found in each}


def test_every_module_stands_in_a_room():
    assert {name.split(".")[0] for name in modules()} <= set(STOREYS)
    assert set(ROOMS) == {path.parent.name for path in ROOT.glob("*/__init__.py")}


def test_no_import_runs_upward():
    assert not everywhere(upward)


def test_nobody_takes_a_private_name_of_another_module():
    assert not everywhere(taken)


def test_the_map_in_the_docstring_names_every_module():
    """The lines of each room in `nbreferee.__doc__` name the modules that lie in it."""
    _, *parts = re.split(rf"^    ({'|'.join(ROOMS)}) ", nbreferee.__doc__, flags=re.M)
    said = {room: set(text.split()) for room, text in zip(parts[::2], parts[1::2], strict=True)}
    for room in ROOMS:
        there = {name.split(".")[1] for name in modules() if name.startswith(f"{room}.")}
        assert there <= said[room], f"{room}: the map does not name {', '.join(sorted(there - said[room]))}"


def test_every_room_says_what_it_is_for():
    for room in ROOMS:
        doc = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text("utf-8"))) or ""
        assert re.search(r"\bimports? ", doc), f"{room}/__init__.py says what the room is for, and what it may import"


KNOWN = ("rpc", "rpc.codec", "judge", "judge.results", "course", "course.store", "cli")


@pytest.mark.parametrize(
    "line", ["from ..course import store", "from ..course.store import Store", "import nbreferee.course.store as s"]
)
def test_an_import_that_runs_upward_is_seen(line):
    assert list(upward("judge.grader", f"def late():\n    {line}", KNOWN)) == ["judge.grader -> course.store"]
    assert not list(upward("course.run", line, KNOWN)) and not list(upward("cli", line, KNOWN))
    assert list(upward("rpc.codec", "from nbreferee import cli", KNOWN)) == ["rpc.codec -> cli"]


@pytest.mark.parametrize(
    "text",
    [
        "from .store import _secret",
        "from . import store\nstore._secret()",
        "from nbreferee.course.store import _secret",
    ],
)
def test_a_private_name_that_is_taken_is_seen(text):
    assert list(taken("course.run", text, KNOWN)) == ["course.run: course.store._secret"]
    assert not list(taken("course.run", text.replace("_secret", "__doc__"), KNOWN))
    assert not list(taken("course.run", "class A:\n    def f(self):\n        return self._secret", KNOWN))
