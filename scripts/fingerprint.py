"""Hashes of what a build depends on: outputs on library and packages, every page on its looks, the book on all."""

import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What a build, a test run or a count leaves in _build and no page shows.
SHOWN_NOWHERE = ("facts.json", "book-times.json", "notebook-seconds.json", "quick-report.xml")


def fingerprint(root: Path = ROOT) -> str:
    """Of everything that a notebook's outputs depend on besides its own cells."""
    library = [path for path in (root / "lib" / "attnmath").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return _hash(root, [*sorted(library), root / "requirements.txt"], installed())


def looks(root: Path = ROOT) -> str:
    """Of everything that every built page depends on besides its own text."""
    made = [path for folder in ("_static", "_ext") for path in sorted((root / folder).rglob("*.*"))]
    return _hash(root, [path for path in made if path.is_file() and path.suffix != ".pyc"])


def inputs(root: Path = ROOT) -> str | None:
    """Of every file that the book could be made from, and what makes it; None where git cannot tell which these are.

    Those are all files of the repository, new ones included, for the generated pages read the library, the tests and
    the problem sets, and what earlier runs left in _build for the pages to show.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-per-directory=.gitignore"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        return None
    if "_config.yml" not in listed:  # a copy that lies, ignored, in the repository of something else
        return None
    files = {root / name for name in listed if name}
    left = [path for kind in ("*.json", "*.xml") for path in (root / "_build").glob(kind)]
    files |= {path for path in left if path.name not in SHOWN_NOWHERE}
    return _hash(root, sorted(path for path in files if path.is_file()), installed())


def outputs(root: Path = ROOT) -> str:
    """Of the names, sizes and times of the built pages and of the executed notebooks."""
    digest = hashlib.sha256()
    for folder in ("html", ".jupyter_cache/executed", "problem-sets"):
        for path in sorted((root / "_build" / folder).rglob("*")):
            if path.is_file():
                state = path.stat()
                digest.update(f"{path.relative_to(root)} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def installed() -> str:
    """Which interpreter runs, and the names and versions of all packages that it finds."""
    packages = Path(sysconfig.get_path("purelib")).glob("*.dist-info")
    return "\n".join([sys.executable, sys.version, *sorted(path.name for path in packages)])


def _hash(root: Path, files: list[Path], more: str = "") -> str:
    digest = hashlib.sha256(more.encode())
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
