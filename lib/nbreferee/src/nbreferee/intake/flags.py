"""What nbgrader's metadata say of a cell, and the checksum by which formgrader and Validate know an untouched one."""

import hashlib

__all__ = ["checksum", "is_grade", "is_locked", "is_solution", "is_task"]


def _says(cell, key):
    return bool(cell.get("metadata", {}).get("nbgrader", {}).get(key, False))


def is_grade(cell) -> bool:
    """Whether it earns points."""
    return _says(cell, "grade")


def is_solution(cell) -> bool:
    """Whether students answer in it."""
    return _says(cell, "solution")


def is_task(cell) -> bool:
    """Whether it asks for something that a person marks, wherever it is answered."""
    return _says(cell, "task")


def is_locked(cell) -> bool:
    """Whether its text is the instructor's, whatever was handed in."""
    return not is_solution(cell) and (is_grade(cell) or _says(cell, "locked"))


def checksum(cell) -> str:
    """Digest of a cell's text and of what nbgrader's metadata say, as nbgrader computes it.

    Parameters
    ----------
    cell : with a ``grade_id``, and with points if it earns some.
    """
    flags = cell["metadata"]["nbgrader"]
    told = [cell["source"], cell["cell_type"], is_grade(cell), is_solution(cell), is_locked(cell), flags["grade_id"]]
    told += [float(flags["points"])] if is_grade(cell) else []
    return hashlib.md5("".join(map(str, told)).encode(), usedforsecurity=False).hexdigest()
