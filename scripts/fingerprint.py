"""Hashes of what a build depends on besides the pages: for outputs, library and pins; for every page, its looks."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def fingerprint(root: Path = ROOT) -> str:
    """Of everything that a notebook's outputs depend on besides its own cells."""
    return _hash(root, [*sorted((root / "lib" / "attnmath").rglob("*.py")), root / "requirements.txt"])


def looks(root: Path = ROOT) -> str:
    """Of everything that every built page depends on besides its own text."""
    return _hash(root, [*sorted((root / "_static").rglob("*.*")), *sorted((root / "_ext").glob("*.py"))])


def _hash(root: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
