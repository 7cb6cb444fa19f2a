"""From a student's folder to a notebook whose tests are the instructor's.

What a student sent is read once, never executed in place, and never changed. The copy that is graded is built on the
student version that the source gives today: given cells and tests come from there, answers and the student's own cells
from the submission.
"""

import hashlib
import json
import os
import re
import stat
import warnings
from dataclasses import dataclass, field

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from .course_root import grade_id

STUDENT_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
MAX_BYTES, MAX_CELLS = 20_000_000, 2_000


class Rejected(Exception):
    """Nothing here can be graded: the state, and a sentence that says why."""

    def __init__(self, state, reason):
        super().__init__(reason)
        self.state, self.reason = state, reason


@dataclass
class Intake:
    """What the submission was like; `notes` are (state, sentence)."""

    notebook: object = None
    digest: str = ""
    notes: list = field(default_factory=list)
    unanswered: list = field(default_factory=list)


def read_regular(path):
    """The bytes of a regular file that is no link and not too large."""
    if path.is_symlink():
        raise Rejected("symlink", f"{path.name} is a symbolic link; it was not followed")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Rejected("not-a-notebook", f"{path.name} is not a regular file")
        if status.st_size > MAX_BYTES:
            raise Rejected(
                "not-a-notebook", f"{path.name} has {status.st_size / 1e6:.0f} MB; the limit is {MAX_BYTES / 1e6:.0f}"
            )
        return file.read(MAX_BYTES)


def parse(data, name="the file"):
    """The cells of a notebook as dicts with kind, source, id, grade_id, attachments. Tolerates what it can."""
    if not data.strip():
        raise Rejected("empty", f"{name} is empty")
    try:
        tree = json.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise Rejected("not-a-notebook", f"{name} is not JSON: cut short, or another kind of file") from None
    if isinstance(tree, dict) and "worksheets" in tree:
        tree = _from_version_3(tree, name)
    if not isinstance(tree, dict) or not isinstance(tree.get("cells"), list):
        raise Rejected("not-a-notebook", f"{name} is JSON, but holds no notebook")
    cells = [cell for cell in map(_cell, tree["cells"][:MAX_CELLS]) if cell]
    if not cells:
        raise Rejected("empty", f"{name} is a notebook without cells")
    return cells


def _from_version_3(tree, name):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return json.loads(json.dumps(nbformat.convert(nbformat.from_dict(tree), 4)))
    except Exception:
        raise Rejected("not-a-notebook", f"{name} is JSON, but holds no notebook") from None


def _cell(cell):
    if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
        return None
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return None
    meta = cell.get("metadata")
    meta = meta.get("nbgrader") if isinstance(meta, dict) else None
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    pictures = cell.get("attachments") if isinstance(cell.get("attachments"), dict) else {}
    return {
        "kind": cell["cell_type"],
        "source": source.encode("utf-8", "replace").decode(),
        "id": cell.get("id"),
        "grade_id": name if isinstance(name, str) else None,
        "attachments": {
            k: v for k, v in pictures.items() if isinstance(v, dict) and all(isinstance(x, str) for x in v.values())
        },
    }


def find(folder, name, known):
    """(path, cells, notes): the notebook in a student's folder, by name or, failing that, by the cells it holds."""
    for place in (folder.parent, folder):
        if place.is_symlink():
            raise Rejected("symlink", f"the folder {place.name} is a symbolic link; it was not followed")
    exact = folder / f"{name}.ipynb"
    if exact.is_symlink() or exact.exists():
        return exact, parse(read_regular(exact), exact.name), []
    found, seen = [], []
    for place, inner, files in os.walk(folder):
        inner[:] = [d for d in inner if d != ".ipynb_checkpoints" and not d.startswith("__")]
        seen += files
        for file in files[:50]:
            if file.endswith((".ipynb", ".txt", ".json")) and file != "timestamp.txt":
                path = folder / os.path.relpath(os.path.join(place, file), folder)
                try:
                    cells = parse(read_regular(path), file)
                except (Rejected, OSError) as error:
                    if file.endswith(".ipynb"):
                        found.append((-1, path, error))
                    continue
                score = len({cell["grade_id"] for cell in cells} & known)
                found.append((score, path, cells))
    if not found:
        held = ", ".join(sorted(seen)[:5]) or "nothing"
        raise Rejected("no-notebook", f"no {name}.ipynb; the folder holds {held}")
    score, path, cells = max(found, key=lambda item: (item[0], item[1].stat(follow_symlinks=False).st_mtime))
    if isinstance(cells, Rejected):
        raise cells
    if isinstance(cells, OSError):
        raise Rejected("not-a-notebook", f"{path.name} cannot be read: {cells.strerror}")
    return path, cells, [("renamed", f"took {path.relative_to(folder)}, for there is no {name}.ipynb")]


def _same(a, b):
    return [line.rstrip() for line in a.strip().split("\n")] == [line.rstrip() for line in b.strip().split("\n")]


def normalise(base, cells, released=None):
    """The notebook to grade, made of `base` (today's student version) and the student's cells; and what was noticed.

    Order: that of `base`. A cell of the student's own stays behind the cell that it followed. If an id occurs more than
    once, all copies that were worked on run in order and the last carries the id. What is missing is put back.
    """
    anchors = {grade_id(cell): cell for cell in base.cells if grade_id(cell)}
    given = {None: [], **{name: [] for name in anchors}}  # the student's own cells, by the cell that they follow
    copies, after = {}, None
    for cell in cells:
        if cell["grade_id"] in anchors:
            after = cell["grade_id"]
            copies.setdefault(after, []).append(cell)
        else:
            given[after].append(cell)
    if not copies:
        raise Rejected(
            "wrong-notebook", "no cell carries an id of this set: another notebook, or a tool that drops metadata"
        )

    intake, out = Intake(), []
    once = {grade_id(cell): cell.source for cell in released.cells if grade_id(cell)} if released else {}
    own_code = [cell for group in given.values() for cell in group if cell["kind"] == "code"]
    edited, missing, doubled = [], [], []

    texts = {cell.source for cell in base.cells if cell.cell_type == "markdown" and not grade_id(cell)}

    def add_own(cell):
        make = new_code_cell if cell["kind"] == "code" else new_markdown_cell
        new = make(cell["source"], metadata={} if cell["source"] in texts else {"student": True})
        if cell["kind"] == "markdown" and cell["attachments"]:
            new["attachments"] = cell["attachments"]
        out.append(new)

    for cell in given[None]:
        add_own(cell)
    for plain in base.cells:
        name = grade_id(plain)
        if name is None:  # an ungraded, unlocked cell: the student's version counts; code that was deleted comes back
            known = any(c["id"] == plain.get("id") or _same(c["source"], plain.source) for c in own_code)
            if plain.cell_type == "code" and not known:
                out.append(new_code_cell(plain.source))
            continue
        cell, mine = nbformat.from_dict(json.loads(json.dumps(plain))), copies.get(name, [])
        if not mine and (not once or name in once):
            missing.append(name)
        if len(mine) > 1:
            doubled.append(name)
        if not cell.metadata.nbgrader.get("solution"):
            if mine and not any(
                _same(mine[-1]["source"], text) for text in (plain.source, once.get(name, plain.source))
            ):
                edited.append(name)
        else:
            worked = [c for c in mine if not _same(c["source"], plain.source)]
            if not worked:
                intake.unanswered.append(name)
            elif cell.metadata.nbgrader.get("grade"):  # marked by hand: the grader sees it all
                cell.source = "\n\n".join(c["source"] for c in worked)
                pictures = {k: v for c in worked for k, v in c["attachments"].items()}
                if pictures and cell.cell_type == "markdown":
                    cell["attachments"] = pictures
            else:
                for earlier in worked[:-1]:
                    out.append(new_code_cell(earlier["source"]))
                cell.source = worked[-1]["source"]
        out.append(cell)
        for own in given[name]:
            add_own(own)

    for number, cell in enumerate(out):
        cell["id"] = f"cell-{number}"
    intake.notebook = nbformat.v4.new_notebook(cells=out, metadata=base.metadata)
    intake.notebook.nbformat_minor = 5
    for state, names, sentence in (
        ("tests-edited", edited, "changed given cells or tests, graded with the originals: {}"),
        ("missing-cells", missing, "cells were missing and were put back: {}"),
        ("duplicate-cells", doubled, "cells occurred more than once, all ran in order: {}"),
    ):
        if names:
            intake.notes.append((state, sentence.format(", ".join(names))))
    return intake


def take_in(folder, name, base, released=None):
    """Read, choose, normalise: an Intake, or Rejected."""
    known = {grade_id(cell) for cell in base.cells} - {None}
    try:
        path, cells, notes = find(folder, name, known)
    except OSError as error:
        raise Rejected("not-a-notebook", f"cannot be read: {error.strerror}") from None
    intake = normalise(base, cells, released)
    intake.notes = notes + intake.notes
    extra = sorted(
        file.name
        for file in folder.iterdir()
        if file != path and file.name not in ("timestamp.txt", ".ipynb_checkpoints", ".DS_Store")
    )
    if extra and not notes:
        intake.notes.append(("graded", f"other files were left aside: {', '.join(extra[:5])}"))
    intake.digest = hashlib.sha256(nbformat.writes(intake.notebook).encode()).hexdigest()
    return intake
