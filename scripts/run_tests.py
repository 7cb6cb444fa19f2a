"""`make test`: nbval over every notebook, then tests/, both in parallel; then the status page gets this run's figures.

Both parts run even if the first fails. Each leaves a JUnit report in _build, from which the status page is counted.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from cores import share_cores

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "_build"
# What needs the built book or takes minutes: left to the whole run.
SLOW = (
    "test_book*",
    "test_pages*",
    "test_notebooks*",
    "test_exercises*",
    "test_course*",
    "test_grad*",
    "test_setup*",
    "test_release*",
    "test_faults*",
    "test_minilm*",
    "test_bench*",
    *(f"test_referee_{part}*" for part in ("batch", "big_class", "cluster", "hostile", "postgres", "sandbox")),
)


def pytest(title: str, report: str, *arguments: str) -> tuple[str, int, float, str]:
    start = time.perf_counter()
    print(f"\n== {title}", flush=True)
    target = BUILD / report
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={target}", *arguments]
    code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    return title, code, time.perf_counter() - start, tally(target)


def tally(report: Path) -> str:
    if not report.exists():
        return "no report"
    suite = ElementTree.parse(report).getroot().find("testsuite")
    count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    passed = count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    return f"{passed} passed, {count['failures'] + count['errors']} failed, {count['skipped']} skipped"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--quick", action="store_true", help="only the tests that need no built book and no notebook run"
    )
    options = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    share_cores(options.jobs)
    workers = ["-n", str(options.jobs), "--ignore=tests/bench"]
    if options.quick:
        ignored = [f"--ignore-glob=tests/{pattern}" for pattern in SLOW]
        runs = [pytest("unit tests", "quick-report.xml", "tests", *ignored, *workers)]
    else:
        nbval = ["--nbval", "--nbval-current-env", "-W", "ignore", "-p", "no:cacheprovider", "--dist", "loadfile"]
        runs = [
            pytest("notebooks: stored outputs", "notebooks-report.xml", "chapters", *nbval, *workers),
            pytest("tests", "test-report.xml", "tests", "--durations=15", "--dist", "worksteal", *workers),
        ]
        start = time.perf_counter()
        again = [sys.executable, "scripts/build_book.py", "--jobs", str(options.jobs)]
        code = (
            subprocess.run(again, cwd=ROOT).returncode
            or subprocess.run([sys.executable, "scripts/facts.py", "-q"], cwd=ROOT).returncode
        )
        runs.append(("status page and facts of this run", code, time.perf_counter() - start, ""))
    print("\n== where the time went")
    for title, code, seconds, counted in runs:
        print(f"{seconds:7.0f} s  {title:36} {'ok    ' if code == 0 else 'FAILED'}  {counted}")
    return int(any(code for _, code, _, _ in runs))


if __name__ == "__main__":
    sys.exit(main())
