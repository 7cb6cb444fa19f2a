"""The layout of the tests is what it is said to be: every marker and path that is named exists, no path is patched."""

import re
from pathlib import Path

import pytest

from run_tests import INSTRUCTORS, left_out

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
CODE = [path for top in ("_ext", "exercises", "lib", "scripts", "tests") for path in sorted((ROOT / top).rglob("*.py"))]
# What runs the tests, and what tells people about them.
RUNS = [ROOT / "Makefile", *sorted((ROOT / "scripts").glob("*.py")), *sorted((ROOT / ".github").rglob("*.yml"))]
PAGES = [path for form in ("*.md", "*.ipynb") for path in sorted((ROOT / "chapters").rglob(form))]
SOURCES = sorted((ROOT / "exercises").glob("source/*/*.ipynb"))
TOLD = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml", ROOT / "exercises" / "README.md"]

PATCH = re.compile(r"\bsys\.path(?:\.(?:insert|append|extend)\(|\[[^]]*\]\s*\+?=|\s*\+?=[^=])")
PATCHES = {
    "scripts/warm_kernels.py": "a page must not find the modules of the build that forks its kernel",
    "lib/nbreferee/src/nbreferee/walls/supervisor.py": "behind the walls only what is shown is found",
    "lib/nbreferee/src/nbreferee/walls/fork_server.py": "the modules beside a notebook, in the processes that run it",
    "lib/nbreferee/src/nbreferee/rpc/shell.py": "a cell imports what lies beside it or what a cell has written",
    "tests/nbreferee/hostile/submissions/forged.py": "a submission that tries to read another student's folder",
}
LEFT_OUT = re.compile(r"""(?:-m["']?,?|\b[A-Z]+ =) ["'](not \w+(?: and not \w+)*)["']""")  # for pytest's -m
PATH = re.compile(r"(?<![\w/.-])tests/[\w/.*-]*\w")
AWAY = INSTRUCTORS if left_out(ROOT) else ()  # the public repository has not these, and names them


def marks(text):
    """The markers that a call of pytest leaves out."""
    return {name for said in LEFT_OUT.findall(text) for name in said.split()} - {"and", "not"}


def missing(text):
    """The paths below tests/ that a text names and that match nothing."""
    return [path for path in PATH.findall(text) if path not in AWAY and not list(ROOT.glob(path))]


def test_nothing_patches_the_path():
    """Helpers are found by pytest's pythonpath, packages because they are installed, children by PYTHONPATH."""
    found = {str(path.relative_to(ROOT)) for path in CODE if PATCH.search(path.read_text(encoding="utf-8"))}
    assert found == set(PATCHES), "put the folder into pyproject.toml's pythonpath, or into the child's PYTHONPATH"


@pytest.mark.parametrize("call", [".insert(0, here)", "[:0] = [here]", " += [here]", ".append(here)", " = [here]"])
def test_a_patch_of_the_path_is_seen(call):
    assert PATCH.search(f"import sys\nsys.path{call}\n")
    assert not PATCH.search("if here in sys.path and sys.path == there:\n    pass")


def test_every_marker_that_is_named_is_registered_and_used(pytestconfig):
    registered = {line.partition(":")[0].partition("(")[0] for line in pytestconfig.getini("markers")}
    used = set(re.findall(r"pytest\.mark\.(\w+)", "".join(path.read_text("utf-8") for path in TESTS.rglob("*.py"))))
    named = set().union(*(marks(path.read_text(encoding="utf-8")) for path in RUNS))
    assert {"slow", "book"} <= named, "the quick run leaves these out"
    assert named <= registered & used


def test_a_marker_in_a_call_of_pytest_is_seen():
    assert marks('[executable, "-m", "pytest", "-m", "not slow and not book"]') == {"slow", "book"}
    assert marks("$(PY) -m pytest -m 'not slwo' tests") == {"slwo"}


def test_every_path_below_tests_that_is_named_exists():
    """In commands, and in what readers are told."""
    wrong = {str(path.relative_to(ROOT)): missing(path.read_text("utf-8")) for path in RUNS + TOLD + PAGES + SOURCES}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_a_path_that_does_not_exist_is_seen():
    assert missing("Look into `tests/attnmath/cases`.") == []
    assert missing('"tests/test_book*.py", tests/theorems/test_softmax.py') == ["tests/test_book*.py"]


def test_every_test_lies_in_a_folder_that_says_what_it_tests():
    assert list(TESTS.glob("test_*.py")) == []
    for folder in {path.parent for path in TESTS.rglob("test_*.py")} - {TESTS / "bench"}:  # which runs by itself
        assert (folder / "__init__.py").read_text(encoding="utf-8").startswith('"""Tests of '), folder
