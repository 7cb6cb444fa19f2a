"""The order of a whole run: the pages beside what needs none, and nothing after a build that failed."""

import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

import run_tests
from facts import counted

BUILD_BOOK = """import sys, time
time.sleep(0.2)
notebooks = "--only-notebooks" in sys.argv
with open("order", "a") as order:
    order.write("notebooks\\n" if notebooks else "pages\\n")
if {fails!r} == ("notebooks" if notebooks else "pages"):
    sys.exit("the build says why")
"""


@pytest.fixture
def a_run(tmp_path, monkeypatch):
    """a_run(fails) -> (what ran in order, its rows); the build is a stand-in that may fail, and so is pytest."""

    def run(fails):
        for folder in ("scripts", "_build"):
            (tmp_path / folder).mkdir()
        (tmp_path / "scripts/build_book.py").write_text(BUILD_BOOK.format(fails=fails))
        (tmp_path / "scripts/facts.py").write_text("")
        monkeypatch.setattr(run_tests, "ROOT", tmp_path)
        monkeypatch.setattr(run_tests, "BUILD", tmp_path / "_build")

        def pytest_(title, report, *arguments, **more):
            with (tmp_path / "order").open("a") as order:
                order.write(f"{report} {' '.join(arguments)}\n")
            time.sleep(0.2)
            return {"title": title, "code": 0, "seconds": 0.2, "result": ""}

        monkeypatch.setattr(run_tests, "pytest", pytest_)
        start = time.perf_counter()
        rows = run_tests.whole(["-n", "3"], 2)
        assert sum(row["seconds"] for row in rows) <= time.perf_counter() - start, "what runs side by side counts once"
        return (tmp_path / "order").read_text().splitlines(), rows

    return run


def test_the_tests_without_pages_do_not_wait_for_the_pages(a_run):
    order, rows = a_run(None)
    assert order[0] == "notebooks" and {order[1].split()[0], order[2].split()[0]} == {"pages", "library-report.xml"}
    assert [line.split()[0] for line in order[3:]] == ["notebooks-report.xml", "others-report.xml", "pages"]
    assert not any(row["code"] for row in rows)


def test_every_test_belongs_to_one_part(a_run):
    order, _ = a_run(None)
    library, others = (next(line.split() for line in order if line.startswith(name)) for name in ("library", "others"))
    for folder in run_tests.PAGELESS:
        assert folder in library and f"--ignore={folder}" in others
        assert list((Path(__file__).parents[2] / folder).glob("test_*.py"))
    assert "tests" in others and "tests" not in library


@pytest.mark.parametrize("fails", ["notebooks", "pages"])
def test_nothing_is_tested_after_a_build_that_failed(fails, a_run, capfd):
    order, rows = a_run(fails)
    assert not [line for line in order if line.startswith(("others", "notebooks-report"))]
    assert any(row["code"] for row in rows) and "the build says why" in "".join(capfd.readouterr())


def test_the_reports_become_one(tmp_path):
    suite = (
        '<testsuites><testsuite tests="{}" failures="{}" errors="0" skipped="1" time="2.6">{}</testsuite></testsuites>'
    )
    parts = [tmp_path / "library.xml", tmp_path / "others.xml"]
    parts[0].write_text(suite.format(5, 0, '<testcase name="a"/>'))
    parts[1].write_text(suite.format(7, 2, '<testcase name="b"/><testcase name="c"/>'))
    run_tests.join(tmp_path / "all.xml", *parts)
    assert counted(tmp_path / "all.xml") == {"passed": 8, "failed": 2, "skipped": 2, "seconds": 5}
    assert run_tests.tally(tmp_path / "all.xml") == "8 passed, 2 failed, 2 skipped"
    assert [case.get("name") for case in ElementTree.parse(tmp_path / "all.xml").iter("testcase")] == ["a", "b", "c"]
    assert [path.name for path in tmp_path.iterdir()] == ["all.xml"]
    run_tests.join(tmp_path / "none.xml", *parts)
    assert counted(tmp_path / "none.xml")["passed"] == 0
