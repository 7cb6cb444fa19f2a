"""Each library is a distribution of its own: its wheel works where neither the other nor PyTorch is installed."""

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from nbreferee.walls.sandbox import abilities
from tests.nbreferee import courses

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def build(folder, project):
    """The wheel of a project, made from a copy, so that nothing is left in the repository."""
    copy = folder / "project"
    kept = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".*")
    for path in ("pyproject.toml", "README.md", "docs", "src", "lib"):
        if (project / path).is_dir():
            shutil.copytree(project / path, copy / path, ignore=kept)
        elif (project / path).exists():
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy(project / path, copy)
    call = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder]
    done = subprocess.run([*call, copy], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return next(folder.glob("*.whl"))


def needed(wheel):
    """The distributions that a wheel asks for, without its extras, and those that they ask for."""
    with zipfile.ZipFile(wheel) as file:
        metadata = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        lines = file.read(metadata).decode().split("\n\n")[0].splitlines()
    waiting = [(Requirement(line.partition(": ")[2]), "") for line in lines if line.startswith("Requires-Dist: ")]
    found = {}
    while waiting:
        asked, extra = waiting.pop()
        if asked.marker and not asked.marker.evaluate({"extra": extra}):
            continue
        for each in ("", *asked.extras):
            if (asked.name.lower(), each) not in found:
                found[asked.name.lower(), each] = there = distribution(asked.name)
                waiting += [(Requirement(line), each) for line in there.requires or ()]
    return {there.metadata["Name"]: there for there in found.values()}


def link(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def environment(folder, wheel):
    """A virtual environment with a wheel and what it asks for, out of the one that runs this; nothing is downloaded."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for there in needed(wheel).values():
        for path in there.files:
            if ".." not in path.parts and "__pycache__" not in path.parts:
                link(path.locate(), site / path)
    call = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return python


def run(*command, code=0, **more):
    """What a command prints, in a shell that knows nothing of the repository."""
    clean = {key: os.environ[key] for key in ("NBREFEREE_BWRAP",) if key in os.environ}
    clean |= {"PATH": "/usr/bin:/bin", "HOME": str(more.get("cwd", "/")), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
    done = subprocess.run([*map(str, command)], env=clean, capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def absent(python, *names):
    """See that an environment lacks these modules."""
    ask = "import sys; from importlib.util import find_spec; print(*[n for n in sys.argv[1:] if find_spec(n)])"
    return run(python, "-P", "-c", ask, *names).split() == []


@pytest.fixture(scope="module")
def grader(tmp_path_factory):
    """(the wheel, an environment in which only it and what it needs are installed)."""
    folder = tmp_path_factory.mktemp("nbreferee")
    wheel = build(folder, ROOT / "lib" / "nbreferee")
    return wheel, environment(folder / "environment", wheel)


def test_the_graders_wheel_holds_the_package_and_what_is_written_about_it(grader):
    wheel, _ = grader
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    package = {name for name in names if name.startswith("nbreferee/")}
    source = ROOT / "lib" / "nbreferee" / "src"
    kept = [path for path in source.rglob("*") if path.is_file() and path.suffix in {".py", ".typed", ".j2", ".css"}]
    assert package == {str(path.relative_to(source)) for path in kept} and "nbreferee/py.typed" in package
    pages = {Path(name).name for name in names if "/share/doc/nbreferee/" in name}
    assert pages == {path.name for path in (ROOT / "lib/nbreferee/docs").glob("*.md")} and pages
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"nbreferee"}, "nothing else"


@pytest.mark.uses("walls")
def test_the_grader_grades_a_strangers_course_by_itself(grader, tmp_path):
    _, python = grader
    command = python.with_name("nbreferee")
    assert absent(python, "attnmath", "torch", "pandas", "nbgrader", "jupyterlab", "notebook", "sqlalchemy")

    toy = courses.load("checks")
    toy.write(tmp_path)
    walls = [] if abilities() else ["--unsafe"]
    assert "sandboxed" in run(command, "migrate", "--write", cwd=tmp_path)
    assert "the reference earns all" in run(command, "check", cwd=tmp_path)
    said = run(command, "grade", *walls, cwd=tmp_path)
    lines = (tmp_path / "reports/checks.csv").read_text().splitlines()
    totals = {row["student"]: float(row["total"]) for row in csv.DictReader(lines)}
    assert totals == {"ada": 7, "bea": 2, "blank": 0, "cal": 7}, said
    for student in toy.students:
        assert (tmp_path / f"feedback/{student}/checks/checks.html").stat().st_size > 1000
    assert not (tmp_path / "gradebook.db").exists() and "No gradebook is kept, for nbgrader is not installed" in said
    said = run(command, "export", "csv", "marks.csv", cwd=tmp_path, code=2)
    assert said.strip() == "nbreferee: the gradebook wants nbgrader; install it with: pip install 'nbreferee[nbgrader]'"


def test_the_librarys_wheel_computes_without_torch(tmp_path):
    wheel = build(tmp_path, ROOT)
    python = environment(tmp_path / "environment", wheel)
    assert absent(python, "nbreferee", "torch", "nbgrader")
    ask = "import numpy as np, attnmath.numpy as an; P, vjp = an.softmax(np.array([0.0, 1.0])); print(P, vjp(P)[0])"
    assert run(python, "-P", "-c", ask).split()[:2] == ["[0.26894142", "0.73105858]"]
