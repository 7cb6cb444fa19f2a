"""`make test`: build the book, compare every notebook's outputs, run tests/; then the status page gets the figures.

Pages are written on one core for most of the time. So the tests that read no page run beside that. Once the book is
there, every part runs even if one fails. Each leaves a JUnit report in _build, from which the status page is counted.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from cores import share_cores
from facts import counted
from fingerprint import ROOT
from times import Times

BUILD = ROOT / "_build"
QUICK = "not slow and not book"  # neither what takes minutes nor what needs the built pages
PAGELESS = ("tests/attnmath", "tests/theorems")  # these need nothing that a build or another test leaves in _build

INSTRUCTORS = (  # what reads the sources of the problem sets; scripts/public_repository.py takes it out
    "tests/course/test_exercises.py",
    "tests/course/test_grading.py",
    "tests/course/test_release.py",
    "tests/nbreferee/intake/test_gate.py",
    "tests/nbreferee/pages/test_feedback.py",
    "tests/house/test_public_repository.py",
)


def pytest(title: str, report: str, *arguments: str, **more: str) -> dict:
    """Run pytest with `more` in its environment; return title, exit code, seconds and a count of the outcomes."""
    start = time.perf_counter()
    print(f"\n== {title}", flush=True)
    target = BUILD / report
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={target}", *arguments]
    code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, env={**os.environ, **more}).returncode
    return {"title": title, "code": code, "seconds": time.perf_counter() - start, "result": tally(target)}


def tally(report: Path) -> str:
    if not report.exists():
        return "no report"
    count = counted(report)
    return f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"


def quick(workers: list[str]) -> list[dict]:
    """Run the tests that take seconds and need no built book."""
    return [pytest("fast tests", "quick-report.xml", "tests", "-m", QUICK, *workers)]


def whole(workers: list[str], jobs: int) -> list[dict]:
    """Run everything, and store where the time went before the status page, which shows it, is written."""
    build = [sys.executable, "scripts/build_book.py", "--jobs", str(jobs)]
    notebooks = step("notebooks executed", [*build, "--only-notebooks"])
    if notebooks["code"]:
        return [notebooks]
    start = time.perf_counter()
    pages = subprocess.Popen(build, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    beside = pytest("pages written, tests of the library beside", "library-report.xml", *PAGELESS, *workers)
    print(pages.communicate()[0], end="", flush=True)
    beside |= {"code": beside["code"] or pages.returncode, "seconds": time.perf_counter() - start}
    begun = [notebooks, beside]  # one row for both: the status page adds up the seconds
    if pages.returncode:
        return begun
    # A plugin that is named on the command line is imported before pytest reads its own setting of the path.
    path = os.pathsep.join(filter(None, [str(ROOT / "scripts"), os.environ.get("PYTHONPATH")]))
    compare = ["-p", "compare_outputs", "-p", "no:xdist", "-p", "no:cacheprovider", "-W", "ignore"]
    others = [f"--ignore={folder}" for folder in PAGELESS]
    runs = [
        *begun,
        pytest("notebooks: stored outputs", "notebooks-report.xml", "chapters", *compare, PYTHONPATH=path),
        pytest("all other tests", "others-report.xml", "tests", *others, "--durations=15", *workers),
    ]
    join(BUILD / "test-report.xml", BUILD / "library-report.xml", BUILD / "others-report.xml")
    times = Times(BUILD / "times.json")
    for run in runs:
        times.add(run["title"], run["seconds"], run["result"])
    facts = [sys.executable, "scripts/facts.py", "-q"]
    return [*runs, step("status page of this run", build), step("facts of this run", facts)]


def step(title: str, command: list[str]) -> dict:
    """Run a command that counts nothing; return title, exit code and seconds."""
    start = time.perf_counter()
    code = subprocess.run(command, cwd=ROOT).returncode
    return {"title": title, "code": code, "seconds": time.perf_counter() - start, "result": ""}


def join(target: Path, *reports: Path) -> None:
    """Put the suites of several JUnit reports into one and leave only that."""
    whole = ElementTree.Element("testsuites", name="pytest tests")
    for report in filter(Path.exists, reports):
        whole.extend(ElementTree.parse(report).getroot().iter("testsuite"))
        report.unlink()
    ElementTree.ElementTree(whole).write(target, encoding="utf-8", xml_declaration=True)


def left_out(root: Path) -> str:
    """One line that says which tests a repository without the instructor's side has not; nothing if it has all."""
    if (root / "exercises" / "source").is_dir():
        return ""
    files = ", ".join(name for name in INSTRUCTORS if not (root / name).exists())
    return f"This is the public repository. Left out, since exercises/source is the instructor's: {files}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="only the tests that take seconds and need no built book")
    options = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    if said := left_out(ROOT):
        print(said, flush=True)
    share_cores(options.jobs)
    # One process more than cores: some wait for a clock, a browser or a process of their own.
    workers = ["-n", str(options.jobs + 1), "--dist", "worksteal", "--ignore=tests/bench", "-p", "no:nbval"]
    runs = quick(workers) if options.quick else whole(workers, options.jobs)
    print("\n== where the time went")
    for run in runs:
        outcome = "FAILED" if run["code"] else "ok    "
        print(f"{run['seconds']:7.0f} s  {run['title']:46} {outcome}  {run['result']}")
    return int(any(run["code"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
