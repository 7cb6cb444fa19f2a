"""Execute the book's notebooks, each once, and keep what they put out with all that determined it.

The build shows these outputs and scripts/compare_outputs.py holds them against the stored ones. Jupyter Book knows an
entry of its cache by the code cells alone. So an entry also says whose it is and with what it was made (the fingerprint
of library, pins and installed packages), and every other entry is thrown away before anything is built.
"""

import importlib.util
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import lean  # noqa: F401  (first, for it makes the next ones lighter)

# isort: split

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbval.kernel import CURRENT_ENV_KERNEL_NAME

import vector_figures
from cores import share_cores
from fingerprint import ROOT, fingerprint
from warm_kernels import ThisPython, WarmKernel

CELL_TIMEOUT = 300  # seconds; a notebook should stay below 20 in all, but on a busy machine one cell may need minutes


class NotExecuted(LookupError):
    """The cache holds no execution of exactly this notebook with this library."""


class NotExecutable(ValueError):
    """Executing the notebooks here would not tell what this book's notebooks put out."""


kernels = ThisPython  # a process of the build, which executes many notebooks, has warm ones


def run(notebook, folder: Path, figures: Path | None = None) -> None:
    """Execute a notebook in place, top to bottom, in a fresh kernel whose working directory is `folder`.

    Its figures are written as vectors to the folder `figures` too, if one is named.
    """
    NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name=CURRENT_ENV_KERNEL_NAME,
        kernel_manager_class=kernels,
        record_timing=False,  # in the metadata of cells, by which the cache would not know the notebook again
        shutdown_kernel="immediate",  # a kernel that has loaded PyTorch takes three seconds to say goodbye
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=vector_figures.arguments(figures) if figures else [],
    ).execute()


def notebooks(root: Path = ROOT) -> list[Path]:
    """Every notebook below chapters/, in the table of contents or not."""
    found = sorted((root / "chapters").rglob("*.ipynb"))
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


class Executions:
    """The execution cache of one checkout, in the folder where Jupyter Book looks for it."""

    def __init__(self, root: Path = ROOT):
        self.root = root
        self.folder = root / "_build" / ".jupyter_cache"
        self.cache = get_cache(self.folder)
        self.cache.change_cache_limit(1000)
        self.fingerprint = fingerprint(root)

    def keep(self, path: Path, notebook, seconds: float, made_with: str) -> None:
        """Store an executed notebook; `made_with` is the fingerprint of all else that its outputs depend on."""
        data = {"execution_seconds": seconds, "made_with": made_with}
        self.cache.cache_notebook_bundle(CacheBundleIn(notebook, str(path), data=data), overwrite=True)

    def of(self, path: Path) -> list:
        """Return the executed code cells of the notebook at `path`, if they are this notebook's and this library's."""
        name = path.relative_to(self.root)
        stored = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        if not stored:
            return []
        cure = f"{name} has not been executed with this library and these cells: run `make book`"
        try:
            record = self.cache.match_cache_notebook(nbformat.read(path, as_version=4))
            cells = self.cache.get_cache_bundle(record.pk).nb.cells
        except KeyError:
            raise NotExecuted(cure) from None
        same_cells = [cell.source for cell in cells] == [cell.source for cell in stored]
        if not same_cells or record.uri != str(path) or record.data.get("made_with") != self.fingerprint:
            raise NotExecuted(cure)
        return cells

    def missing(self) -> list[Path]:
        """Return the notebooks that have to be executed."""
        return [path for path in notebooks(self.root) if not self._has(path)]

    def _has(self, path: Path) -> bool:
        try:
            self.of(path)
        except NotExecuted:
            return False
        return True

    def forget_others(self) -> None:
        """Throw away what another library, another checkout or a notebook that is gone has left."""
        for record in self.cache.list_cache_records():
            folder = self.folder / "executed" / record.hashkey
            if record.data.get("made_with") != self.fingerprint or not self._is_ours(record.uri) or not folder.exists():
                folder.mkdir(parents=True, exist_ok=True)  # its removal is an error if it is gone already
                (folder / "base.ipynb").touch()
                self.cache.remove_cache(record.pk)

    def _is_ours(self, uri: str) -> bool:
        return Path(uri).is_relative_to(self.root) and Path(uri).exists()

    def fill(self, jobs: int) -> list[str]:
        """Execute what is missing, the longest first; return a report for each notebook that failed."""
        self._check_library()
        self._check_twins()
        self.forget_others()
        waiting = self.missing()
        if not waiting:
            return []
        print(f"Executing {len(waiting)} notebooks, {jobs} at a time", flush=True)
        share_cores(jobs)
        known, failures = Seconds(self.root), []
        log = self.root / "_build" / "kernels.log"
        with ProcessPoolExecutor(min(jobs, len(waiting)), initializer=many_kernels, initargs=(log,)) as pool:
            runs = [pool.submit(execute_one, path, self.root) for path in known.longest_first(waiting)]
            for done in as_completed(runs):
                path, notebook, seconds, made_with, error = done.result()
                name = path.relative_to(self.root).as_posix()
                print(f"  {seconds:5.1f} s  {name}" + ("  FAILED" if error else ""), flush=True)
                if not error and made_with != self.fingerprint:
                    error = "The library or the pins changed while it ran: run `make book` again"
                if error:
                    failures.append(f"{name}\n{error}")
                    continue
                self.keep(path, notebook, seconds, made_with)
                if self._has(path):
                    known.note(name, seconds)
                else:
                    failures.append(f"{name}\nThe notebook changed while it ran: run `make book` again")
        return failures

    def _check_library(self) -> None:
        found = importlib.util.find_spec("attnmath")
        ours = self.root / "lib" / "attnmath"
        if found is None or Path(found.origin).resolve().parent != ours.resolve():
            where = found.origin if found else "nowhere"
            raise NotExecutable(f"The notebooks import attnmath from {where}, not from {ours}: run `make setup` here")

    def _check_twins(self) -> None:
        """The cache must be able to tell any two notebooks apart."""
        seen = {}
        for path in notebooks(self.root):
            notebook = nbformat.read(path, as_version=4)
            if any(cell.cell_type == "code" for cell in notebook.cells):
                other = seen.setdefault(self.cache.create_hashed_notebook(notebook)[1], path)
                if other != path:
                    raise NotExecutable(f"{other} and {path} have the same code cells: keep one, or change one of them")


class Seconds:
    """How long each notebook ran the last time that it ran, kept when the cache is emptied."""

    def __init__(self, root: Path):
        self.root, self.file = root, root / "_build" / "notebook-seconds.json"
        self.known = json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {}

    def note(self, name: str, seconds: float) -> None:
        self.known[name] = round(seconds, 1)
        self.file.write_text(json.dumps(self.known, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def longest_first(self, paths: list[Path]) -> list[Path]:
        """Sort so that none that takes long begins last, while the other cores have nothing left to do.

        One of which nothing is known comes early, since it may be the longest; of these, the later chapters train.
        """

        def seconds(path):
            name = path.relative_to(self.root).as_posix()
            return self.known.get(name, float("inf")), name

        return sorted(paths, key=seconds, reverse=True)


def many_kernels(log: Path) -> None:
    """Fork the kernels of this process, and let their own log lines go to a file.

    What a notebook writes to stderr is an output and stays one.
    """
    global kernels
    kernels = WarmKernel
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)


def execute_one(path: Path, root: Path):
    """Run one notebook in its own folder; return path, notebook, seconds, what it was made with, and any error."""
    notebook = nbformat.read(path, as_version=4)
    made_with, error = fingerprint(root), None
    start = time.perf_counter()
    try:
        run(notebook, path.parent, root / "_build" / "figures")
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as failed:
        error = str(failed) or repr(failed)
    seconds = time.perf_counter() - start
    return path, notebook, seconds, made_with if made_with == fingerprint(root) else None, error
