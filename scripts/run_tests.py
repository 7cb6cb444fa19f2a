"""`make test`: compare every notebook's outputs, run tests/ in parallel; then the status page gets this run's figures.

Both parts run even if the first fails. Each leaves a JUnit report in _build, from which the status page is counted.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from cores import share_cores
from fingerprint import ROOT
from times import Times

BUILD = ROOT / "_build"
QUICK = "not slow and not book"  # neither what takes minutes nor what needs the built pages

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
    suite = ElementTree.parse(report).getroot().find("testsuite")
    count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    passed = count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    return f"{passed} passed, {count['failures'] + count['errors']} failed, {count['skipped']} skipped"


def quick(workers: list[str]) -> list[dict]:
    """Run the tests that take seconds and need no built book."""
    return [pytest("fast tests", "quick-report.xml", "tests", "-m", QUICK, *workers)]


def whole(workers: list[str], jobs: int) -> list[dict]:
    """Run everything, and store where the time went before the status page, which shows it, is written."""
    # A plugin that is named on the command line is imported before pytest reads its own setting of the path.
    path = os.pathsep.join(filter(None, [str(ROOT / "scripts"), os.environ.get("PYTHONPATH")]))
    compare = ["-p", "compare_outputs", "-p", "no:xdist", "-p", "no:cacheprovider", "-W", "ignore"]
    runs = [
        *built(),
        pytest("notebooks: stored outputs", "notebooks-report.xml", "chapters", *compare, PYTHONPATH=path),
        pytest("tests", "test-report.xml", "tests", "--durations=15", *workers),
    ]
    times = Times(BUILD / "times.json")
    for run in runs:
        times.add(run["title"], run["seconds"], run["result"])
    start = time.perf_counter()
    again = [sys.executable, "scripts/build_book.py", "--jobs", str(jobs)]
    code = (
        subprocess.run(again, cwd=ROOT).returncode
        or subprocess.run([sys.executable, "scripts/facts.py", "-q"], cwd=ROOT).returncode
    )
    seconds = time.perf_counter() - start
    return [*runs, {"title": "status page and facts of this run", "code": code, "seconds": seconds, "result": ""}]


def left_out(root: Path) -> str:
    """One line that says which tests a repository without the instructor's side has not; nothing if it has all."""
    if (root / "exercises" / "source").is_dir():
        return ""
    files = ", ".join(name for name in INSTRUCTORS if not (root / name).exists())
    return f"This is the public repository. Left out, since exercises/source is the instructor's: {files}"


def built() -> list[dict]:
    """What the build before this run did, as it stored it."""
    told = BUILD / "book-times.json"
    stages = json.loads(told.read_text(encoding="utf-8"))["stages"] if told.exists() else []
    return [{**stage, "title": f"book: {stage['title']}", "code": 0} for stage in stages]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="only the tests that take seconds and need no built book")
    options = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    if said := left_out(ROOT):
        print(said, flush=True)
    share_cores(options.jobs)
    workers = ["-n", str(options.jobs), "--dist", "worksteal", "--ignore=tests/bench", "-p", "no:nbval"]
    runs = quick(workers) if options.quick else whole(workers, options.jobs)
    print("\n== where the time went")
    for run in runs:
        outcome = "FAILED" if run["code"] else "ok    "
        print(f"{run['seconds']:7.0f} s  {run['title']:36} {outcome}  {run['result']}")
    return int(any(run["code"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
