"""One hash of everything that a notebook's outputs depend on besides its own cells: the library and the pins."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def fingerprint(root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    files = [*sorted((root / "lib" / "attnmath").rglob("*.py")), root / "requirements.txt"]
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
