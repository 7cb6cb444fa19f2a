"""`make book`: execute the notebooks that need it, in parallel, then let Jupyter Book build, warnings being errors.

Nothing is done if every file that the book could be made from, and every page, is what the last successful build left.
Otherwise the execution cache is filled first, on all cores, since Jupyter Book executes one notebook after another.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time

from fingerprint import ROOT, inputs, looks, outputs
from times import Times

BUILD = ROOT / "_build"
INDEX = BUILD / "html" / "index.html"
STAMP = BUILD / "built"  # of the last successful build: a hash of what went in, and one of what came out


def is_up_to_date(made_from: str | None) -> bool:
    """Return whether the last build succeeded, from these very files, and its pages lie there untouched."""
    if not STAMP.exists() or not INDEX.exists():
        return False
    return STAMP.read_text() == f"{made_from}\n{outputs()}\n"


def forget_looks() -> None:
    """Have every page written anew if style or extensions changed: Sphinx copies them only when it writes a page."""
    mark, info = BUILD / "looks", BUILD / "html" / ".buildinfo"
    if mark.exists() and mark.read_text() != looks() and info.exists():
        info.write_text("# Sphinx build info version 1\n# of another look\nconfig: 0\ntags: 0\n")
    mark.write_text(looks())


def write_pages() -> bool:
    """Run Jupyter Book; tell its warnings and return False if there are any."""
    forget_looks()
    log = BUILD / "book.log"
    command = [sys.executable, "scripts/lean.py", "build", ".", "-n", "-W", "--keep-going"]
    with log.open("w") as file:
        code = subprocess.run(
            command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        ).returncode
    if code == 0:
        return True
    text = log.read_text()
    marks = ("WARNING", "ERROR", "Exception", "Traceback", "Error:")
    told = [line for line in text.splitlines() if any(mark in line for mark in marks)]
    print("\n".join(told or text.splitlines()[-25:]), file=sys.stderr)
    # Sphinx warns about a page when it reads it, and would not read it again: then the next build would pass.
    shutil.rmtree(BUILD / ".doctrees", ignore_errors=True)
    print("The book was not built without warnings: all of the log is in _build/book.log", file=sys.stderr)
    return False


def execute_notebooks(jobs: int) -> bool:
    """Execute what has to be executed; tell the failures and return False if there are any."""
    from execution import Executions, NotExecutable

    try:
        failures = Executions().fill(jobs)
    except NotExecutable as reason:
        print(f"The book was not built: {reason}", file=sys.stderr)
        return False
    if failures:
        print("\n\n".join(failures), file=sys.stderr)
        print(f"The book was not built: {len(failures)} notebook(s) failed, see above", file=sys.stderr)
    return not failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only-notebooks", action="store_true", help="execute, and leave the pages to the next call")
    options = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    start, times = time.perf_counter(), Times(BUILD / "book-times.json")
    made_from = inputs()
    if is_up_to_date(made_from):
        times.add("nothing to do", time.perf_counter() - start)
        print(f"The book is up to date: {INDEX}")
        return 0
    STAMP.unlink(missing_ok=True)
    with times.stage("notebooks executed"):
        executed = execute_notebooks(options.jobs)
    if not executed or options.only_notebooks:
        return int(not executed)
    with times.stage("pages written"):
        written = write_pages()
    if not written:
        return 1
    if made_from is not None and inputs() == made_from:  # else something changed meanwhile: the next build looks again
        STAMP.write_text(f"{made_from}\n{outputs()}\n")
    print(f"The book: {INDEX}  ({time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
