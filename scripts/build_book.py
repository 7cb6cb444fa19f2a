"""`make book`: execute the notebooks that need it, in parallel, then let Jupyter Book build, warnings being errors.

Jupyter Book executes one notebook after another and knows its cache by the code cells alone. So the cache is filled
here first, on all cores, and emptied when the library or the pins have changed, as every notebook uses them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "_build" / ".jupyter_cache"
CELL_TIMEOUT = (
    300  # seconds; a whole notebook should stay below 20; on a busy machine a cell that trains may take minutes
)


def fill_cache(jobs: int) -> list[str]:
    """Execute what is not in the cache; return a report for each notebook that failed."""
    import yaml
    from jupyter_cache import get_cache

    from fingerprint import fingerprint

    cache = get_cache(CACHE)
    mark = CACHE / "fingerprint"
    if not mark.exists() or mark.read_text() != fingerprint():
        cache.clear_cache()
        CACHE.mkdir(parents=True, exist_ok=True)
        mark.write_text(fingerprint())
    cache.change_cache_limit(1000)
    listed = (ROOT / "_toc.yml").read_text()
    assert yaml.safe_load(listed)["format"] == "jb-book"
    for record in cache.list_project_records():
        if not Path(record.uri).exists():
            cache.remove_nb_from_project(record.pk)
    for path in sorted((ROOT / "chapters").rglob("*.ipynb")):
        if path.relative_to(ROOT).with_suffix("").as_posix() in listed:
            cache.add_nb_to_project(str(path))
    waiting = cache.list_unexecuted()
    if not waiting:
        return []
    print(f"Executing {len(waiting)} notebooks, {jobs} at a time", flush=True)
    return execute(cache, [record.pk for record in waiting], jobs)


def execute(cache, keys: list[int], jobs: int) -> list[str]:
    """Run notebooks in other processes; keep, in this one, those that ended well."""
    from concurrent.futures import ProcessPoolExecutor, as_completed

    from jupyter_cache.executors.utils import create_cache_bundle

    from cores import share_cores

    share_cores(jobs)
    failures = []
    notebooks = [cache.get_project_notebook(key) for key in keys]
    with ProcessPoolExecutor(min(jobs, len(keys)), initializer=quiet_kernels) as pool:
        waiting = {pool.submit(execute_one, notebook): notebook for notebook in notebooks}
        for future in as_completed(waiting):
            notebook, done = waiting[future], future.result()
            name = os.path.relpath(notebook.uri, ROOT)
            print(f"  {done.time:5.1f} s  {name}" + ("  FAILED" if done.err else ""), flush=True)
            if done.err:
                failures.append(f"{name}\n{done.exc_string}")
                continue
            notebook.nb.cells = done.notebook.cells
            bundle = create_cache_bundle(notebook, done.cwd, None, done.time, done.exc_string)
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return failures


def quiet_kernels() -> None:
    """Let the kernels' own log lines go to a file; what a notebook writes to stderr is an output and stays one."""
    os.dup2(os.open(CACHE.with_name("kernels.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)


def execute_one(notebook):
    """Run one notebook in its own folder."""
    from types import SimpleNamespace

    from jupyter_cache.executors.utils import single_nb_execution

    folder = str(Path(notebook.uri).parent)
    start = time.perf_counter()
    done = single_nb_execution(notebook.nb, cwd=folder, timeout=CELL_TIMEOUT, allow_errors=False)
    seconds = done.time if done.time is not None else time.perf_counter() - start
    err = str(done.err) if done.err else None
    return SimpleNamespace(notebook=notebook.nb, cwd=folder, time=seconds, err=err, exc_string=done.exc_string)


def forget_looks() -> None:
    """Have every page written anew if style or extensions changed: Sphinx copies them only when it writes a page."""
    from fingerprint import looks

    mark, info = ROOT / "_build" / "looks", ROOT / "_build" / "html" / ".buildinfo"
    if mark.exists() and mark.read_text() != looks() and info.exists():
        info.write_text("# Sphinx build info version 1\n# of another look\nconfig: 0\ntags: 0\n")
    mark.write_text(looks())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    start = time.perf_counter()
    failures = fill_cache(options.jobs)
    if failures:
        print("\n\n".join(failures), file=sys.stderr)
        print(f"The book was not built: {len(failures)} notebook(s) failed, see above", file=sys.stderr)
        return 1
    forget_looks()
    log = ROOT / "_build" / "book.log"
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", ".", "-n", "-W", "--keep-going"]
    with log.open("w") as file:
        code = subprocess.run(
            command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        ).returncode
    text = log.read_text()
    if code:
        marks = ("WARNING", "ERROR", "Exception", "Traceback", "Error:")
        told = [line for line in text.splitlines() if any(mark in line for mark in marks)]
        print("\n".join(told or text.splitlines()[-25:]), file=sys.stderr)
        # Sphinx warns about a page when it reads it, and would not read it again: then the next build would pass.
        shutil.rmtree(ROOT / "_build" / ".doctrees", ignore_errors=True)
        print("The book was not built without warnings: all of the log is in _build/book.log", file=sys.stderr)
        return 1
    print(f"The book: {ROOT / '_build' / 'html' / 'index.html'}  ({time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
