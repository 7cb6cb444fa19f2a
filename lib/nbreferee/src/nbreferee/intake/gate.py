"""The gate between a folder that strangers wrote into and everything behind it.

`collect` says who submitted what, `admit` reads one file. Both look at the disk only through folders that they hold
open, follow no symbolic link below the submissions' root, open nothing but regular files, and write nothing. A
student's folder is never copied: what lies beside the notebook is named in a note and left behind.
"""

import hashlib
import os
import re
import stat
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

import nbformat

from .notebook import DEFAULT, ReadLimits, Refused, read, shown

__all__ = ["Admitted", "Found", "admit", "collect", "folder_at", "student_id"]

STUDENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
ASIDE = {"timestamp.txt", "Thumbs.db", "desktop.ini"}
MODULES = (".py", ".pyc", ".pyd", ".so", ".pth", ".dll", ".dylib")
ARCHIVES = (".ipynb.gz", ".ipynb.zip", ".zip", ".gz", ".7z", ".rar")
BY_FOLDER = {os.open, os.stat} <= os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
DEPTH = 4


@dataclass(frozen=True)
class Found:
    """One expected notebook of one student.

    Parameters
    ----------
    student : the id; empty if the folder's name is none.
    path : the file, None if there is none to read.
    notes : sentences for people.
    name : the notebook's name, as expected.
    root : the submissions' root, below which `admit` follows no link.
    refusal : why there is nothing to read, else None.
    """

    student: str
    path: Path | None
    notes: tuple = ()
    name: str = ""
    root: Path | None = None
    refusal: Refused | None = None


@dataclass(frozen=True)
class Admitted:
    """A notebook that passed the gate.

    Parameters
    ----------
    notebook : clean, in nbformat 4.5.
    notes : sentences about what was repaired.
    digest : SHA-256 of the file as it was sent.
    """

    notebook: nbformat.NotebookNode
    notes: tuple
    digest: str


def student_id(name: str) -> str:
    """Accept a folder's name as a student's id.

    Parameters
    ----------
    name : ASCII letters, digits, dots, underscores and hyphens, at most 64, the first no dot and no hyphen.

    Returns
    -------
    The name.

    Raises
    ------
    Refused : with state unsafe-name; rename the folder.

    Examples
    --------
    >>> student_id("ada.lovelace")
    'ada.lovelace'
    >>> student_id("=1+1")
    Traceback (most recent call last):
    nbreferee.intake.notebook.Refused: '=1+1' is no student id; rename the folder with ASCII letters, digits, '.', '_' and '-'.
    """  # noqa: E501
    if not STUDENT.fullmatch(name):
        plain = unicodedata.normalize("NFKC", name)
        what = "is too long for a student id" if STUDENT.fullmatch(name[:64]) else "is no student id"
        what = "looks like a student id but is none" if name != plain and STUDENT.fullmatch(plain) else what
        cure = "rename the folder with " + ("at most 64 " if "long" in what else "") + "ASCII letters, digits"
        raise Refused("unsafe-name", f"{shown(name)} {what}; {cure}, '.', '_' and '-'.")
    return name


class _Folder:
    """A folder that is held open, so that nobody can put another one in its place."""

    def __init__(self, path, descriptor=None):
        self.path, self.descriptor = path, descriptor

    def _at(self, name):
        return (name, {"dir_fd": self.descriptor}) if BY_FOLDER else (self.path / name, {})

    def status(self, name):
        """What lstat says, or Refused."""
        place, at = self._at(name)
        try:
            status = os.stat(place, follow_symlinks=False, **at)
        except FileNotFoundError:
            raise Refused("missing", f"There is no {shown(name)}; submit it under this name.") from None
        except ValueError:
            raise Refused("unsafe-name", f"{shown(name)} is no name for a file; rename it.") from None
        except OSError as error:
            raise self._unreadable(name, error) from None
        if stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) in _LINKS:
            raise Refused("not-a-file", f"{shown(name)} is a symbolic link; submit what it points at.")
        return status

    @staticmethod
    def _unreadable(name, error):
        return Refused(
            "unreadable", f"{shown(name)} cannot be read ({error.strerror or 'unknown error'}); check its permissions."
        )

    def _open(self, name, status, flags):
        place, at = self._at(name)
        flags |= os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        flags |= getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(place, flags, **at)
        except OSError as error:
            raise self._unreadable(name, error) from None
        if not os.path.samestat(os.fstat(descriptor), status):
            os.close(descriptor)
            raise self._changed(name)
        return descriptor

    @staticmethod
    def _changed(name):
        return Refused("unreadable", f"{shown(name)} was changed while it was read; collect it again.")

    @contextmanager
    def inner(self, name):
        """A folder in this one."""
        status = self.status(name)
        if not stat.S_ISDIR(status.st_mode):
            raise Refused("not-a-file", f"{shown(name)} is no folder; submit a folder of this name.")
        descriptor = self._open(name, status, getattr(os, "O_DIRECTORY", 0)) if BY_FOLDER else None
        try:
            yield _Folder(self.path / name, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def entries(self):
        """(name, status) of what lies here; status is None for links and what cannot be looked at."""
        try:
            scan = os.scandir(self.descriptor if BY_FOLDER else self.path)
        except OSError as error:
            raise self._unreadable(self.path.name, error) from None
        with scan:
            for entry in scan:
                try:
                    yield entry.name, self.status(entry.name)
                except Refused as refusal:
                    if refusal.state != "missing":
                        yield entry.name, None

    def read(self, name, limits):
        """(bytes, notes) of a regular file."""
        status = self.status(name)
        if not stat.S_ISREG(status.st_mode):
            kind = next((what for test, what in _KINDS if test(status.st_mode)), "no regular file")
            raise Refused("not-a-file", f"{shown(name)} is {kind}; submit the notebook itself.")
        large = Refused(
            "too-large",
            f"{shown(name)} is larger than {limits.bytes / 1e6:g} MB; clear all outputs, save and submit again.",
        )
        if status.st_size > limits.bytes:
            raise large
        notes = []
        if status.st_nlink > 1:
            notes.append(f"{shown(name)} is a hard link to a file that also has another name; check whose it is.")
        with os.fdopen(self._open(name, status, 0), "rb") as file:
            try:
                data = file.read(limits.bytes + 1)
                after = os.fstat(file.fileno())
            except OSError as error:
                raise self._unreadable(name, error) from None
        if len(data) > limits.bytes:
            raise large
        if len(data) != status.st_size or (after.st_size, after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            raise self._changed(name)
        return data, notes


_LINKS = {getattr(stat, "IO_REPARSE_TAG_SYMLINK", -1), getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)}
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@contextmanager
def folder_at(path):
    """The one folder whose path may lead over symbolic links, since the instructor named it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if BY_FOLDER else None
    except FileNotFoundError:
        raise Refused("missing", f"There is no folder {shown(path.name)}; check the path.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a path"
        raise Refused("unreadable", f"The folder {shown(path.name)} cannot be read ({why}); check the path.") from None
    try:
        yield _Folder(path, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def admit(path: Path | str | Found, *, root: Path | str | None = None, limits: ReadLimits = DEFAULT) -> Admitted:
    """Read one submitted file and make a clean notebook of it.

    Parameters
    ----------
    path : the file, or what `collect` found, which knows its root.
    root : the folder from which on no symbolic link is followed; None: none anywhere in the path.
    limits : how much is read.

    Returns
    -------
    Admitted. The code in it is still a stranger's: it has been read, not judged.

    Raises
    ------
    Refused : with a state and a sentence that names the cure.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder).resolve() / "set1.ipynb"
    ...     cells = '[{"cell_type": "code", "source": "x = 1"}]'
    ...     _ = file.write_text(f'{{"nbformat": 4, "nbformat_minor": 4, "cells": {cells}}}')
    ...     admit(file).notebook.cells[0].source
    'x = 1'
    >>> admit("nowhere.ipynb")
    Traceback (most recent call last):
    nbreferee.intake.notebook.Refused: There is no nowhere.ipynb; submit it under this name.
    """
    if isinstance(path, Found):
        if path.refusal is not None:
            raise Refused(path.refusal.state, path.refusal.reason)
        path, root = path.path, path.root if root is None else root
    path = PurePath(path)
    if root is None:
        root = Path(path.anchor or ".")
        parts = path.relative_to(path.anchor).parts if path.anchor else path.parts
    else:
        try:
            parts = path.relative_to(root).parts
        except ValueError:
            parts = ()
        if not parts or ".." in parts:
            raise Refused("unsafe-name", f"{shown(path.name)} does not lie below the root; collect it again.")
    if not parts or any(not part.isprintable() for part in parts):
        raise Refused("unsafe-name", f"{shown(path.name)} is no name for a file; rename it and its folders.")
    data, notes = _descend(folder_at(Path(root)), parts, limits)
    notebook, more = read(data, name=parts[-1], limits=limits)
    if not parts[-1].endswith(".ipynb"):
        notes.append(f"{shown(parts[-1])} does not end with .ipynb; rename it.")
    return Admitted(notebook, (*notes, *more), hashlib.sha256(data).hexdigest())


def _descend(opening, parts, limits):
    with opening as folder:
        if len(parts) == 1:
            return folder.read(parts[0], limits)
        if len(parts) > 100:
            raise Refused("unsafe-name", f"{shown(parts[-1])} lies too deep; put it higher.")
        return _descend(folder.inner(parts[0]), parts[1:], limits)


def _plain(name):
    return unicodedata.normalize("NFKC", name).casefold()


def _variant(file, wanted):
    """Whether a file's name is what browsers, copies and other systems make of the wanted one."""
    stem = _plain(file)
    for suffix in (".ipynb.txt", ".ipynb.json", ".ipynb", ".json", ".txt"):
        if stem.endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    else:
        return False
    return re.sub(r"(\s*\(\d+\)|[-_ ]+copy[ _]?\d*|-checkpoint)+$", "", stem) == _plain(wanted)


def _walk(folder, limits, seen, at=()):
    """(parts, status) of the files below, at most `limits.entries`, which `seen` counts; what is hidden is left out."""
    inner = []
    for name, status in folder.entries():
        seen[0] += 1
        if seen[0] > limits.entries:
            return
        if name.startswith(".") or name in ("__pycache__", "__MACOSX") or name in ASIDE:
            continue
        if status is not None and stat.S_ISDIR(status.st_mode):
            inner.append(name)
        else:
            yield (*at, name), status
    for name in sorted(inner):
        if len(at) + 1 >= DEPTH:
            yield (*at, name), None
            continue
        try:
            with folder.inner(name) as below:
                yield from _walk(below, limits, seen, (*at, name))
        except Refused:
            yield (*at, name), None
        if seen[0] > limits.entries:
            return


def _choose(files, wanted, names):
    """The parts of the file that stands for the wanted name, and a note; or Refused."""
    regular = [parts for parts, status in files if status is not None and stat.S_ISREG(status.st_mode)]
    others = {f"{name}.ipynb" for name in names if name != wanted}
    regular = [parts for parts in regular if parts[-1] not in others]
    top, deep = ([p for p in regular if (len(p) == 1) is level] for level in (True, False))
    stages = [[p for p in level if _variant(p[-1], wanted)] for level in (top, deep)]
    if len(names) == 1:
        stages += [[p for p in level if p[-1].lower().endswith(".ipynb")] for level in (top, deep)]
    stages.append([p for p in regular if p[-1].lower().endswith(ARCHIVES) and _plain(p[-1]).startswith(_plain(wanted))])
    for stage in stages:
        if len(stage) == 1:
            return stage[0], f"{_held(stage)} was taken, for there is no {wanted}.ipynb; rename it."
        if stage:
            raise Refused(
                "ambiguous",
                f"There is no {wanted}.ipynb but {_held(stage)}; keep one and name it {wanted}.ipynb.",
            )
    held = _held([parts for parts, _ in files]) or "nothing"
    raise Refused("missing", f"There is no {wanted}.ipynb, the folder holds {held}; submit it under this name.")


def _held(many):
    names = [shown("/".join(parts)) if len(parts) == 1 else "/".join(map(shown, parts)) for parts in sorted(many)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _look(folder, names, given, limits):
    """{name: (parts or None, notes, refusal)} for one student's assignment folder."""
    seen = [0]
    files = list(_walk(folder, limits, seen))
    taken, out = set(), {}
    for wanted in names:
        try:
            folder.status(f"{wanted}.ipynb")
        except Refused as refusal:
            if refusal.state != "missing":
                out[wanted] = None, [], refusal
                continue
            try:
                parts, note = _choose(files, wanted, names)
            except Refused as refused:
                out[wanted] = None, [], refused
            else:
                out[wanted] = parts, [note], None
                taken.add(parts)
        else:
            parts, notes = (f"{wanted}.ipynb",), []
            twins = [p for p, _ in files if len(p) == 1 and p != parts and _variant(p[-1], wanted)]
            if twins:
                notes.append(f"{wanted}.ipynb was taken and {_held(twins)} left aside; remove what is not meant.")
            out[wanted] = parts, notes, None
            taken |= {parts, *twins}
    left = [parts for parts, _ in files if parts not in taken and "/".join(parts) not in given]
    shadows = [parts for parts in left if parts[-1].lower().endswith(MODULES)]
    left = [parts for parts in left if parts not in shadows]
    aside = []
    if shadows:
        aside.append(
            f"Files that could be imported in place of a module were left behind ({_held(shadows)}); "
            "put code into the notebook."
        )
    if left:
        aside.append(f"Other files were left behind ({_held(left)}); put what the code needs into the notebook.")
    if seen[0] > limits.entries:
        aside.append(f"Only {limits.entries} files of the folder were looked at; remove what is not needed.")
    for _, notes, _ in out.values():
        notes += aside
    return out


def collect(folder: Path | str, assignment: str, *, names=None, given=(), limits: ReadLimits = DEFAULT) -> list[Found]:
    """List who submitted an assignment, in nbgrader's layout ``<folder>/<student>/<assignment>/<name>.ipynb``.

    One odd folder never stops the others: it becomes a Found with a refusal. A student without a folder for the
    assignment has not submitted and is not listed. If the name is not there exactly, what browsers and copies make of
    it is taken, then any single notebook, each with a note; of several none is taken.

    Parameters
    ----------
    folder : the submissions' root, which may itself be reached over a symbolic link.
    assignment : the assignment's name.
    names : the names of its notebooks, without ending; None: one, named as the assignment.
    given : relative paths of the files that were handed out with the notebooks: they are not asked for again, and the
        instructor's count.
    limits : how many files of a folder are looked at.

    Returns
    -------
    Found for each student and name, sorted. Hand them to `admit` one by one.

    Raises
    ------
    Refused : if the root cannot be read.
    ValueError : if the assignment's or a notebook's name is not one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for student in ("ada", "=1+1"):
    ...         place = Path(root) / student / "set1"
    ...         place.mkdir(parents=True)
    ...         _ = (place / "set1.ipynb").write_text("{}")
    ...     for found in collect(root, "set1"):
    ...         print(repr(found.student), found.path and found.path.name, found.refusal and found.refusal.state)
    '' None unsafe-name
    'ada' set1.ipynb None
    """
    names = [assignment] if names is None else list(dict.fromkeys(names))
    for name in (assignment, *names):
        if not name or name.startswith(".") or not name.isprintable() or set(name) & set('/\\:"<>|?*'):
            raise ValueError(f"{shown(name)} is no name of an assignment or a notebook")
    path, out = Path(folder), []

    def refuse(student, refusal):
        out.append(Found(student, None, (), names[0], path, refusal))

    with folder_at(path) as root:
        students = list(root.entries())
        twins = {}
        for name, _ in students:
            twins.setdefault(name.casefold(), []).append(name)
        for name, status in students:
            if name.startswith(".") and (status is None or not stat.S_ISDIR(status.st_mode)):
                continue
            if name in ASIDE or name == ".ipynb_checkpoints":
                continue
            try:
                student = student_id(name)
            except Refused as refusal:
                refuse("", refusal)
                continue
            if status is not None and not stat.S_ISDIR(status.st_mode):
                reason = f"{shown(name)} lies beside the students' folders; move it into {assignment} of its student."
                refuse("", Refused("misplaced", reason))
                continue
            notes = []
            if len(twins[name.casefold()]) > 1:
                held = _held((twin,) for twin in twins[name.casefold()])
                notes.append(f"Student ids differ only in case ({held}); rename all but one.")
            try:
                with root.inner(name) as mine:
                    place = assignment
                    try:
                        mine.status(place)
                    except Refused as refusal:
                        if refusal.state != "missing":
                            raise
                        alike = [
                            (n,) for n, _ in islice(mine.entries(), limits.entries) if _plain(n) == _plain(assignment)
                        ]
                        if not alike:
                            continue
                        if len(alike) > 1:
                            raise Refused(
                                "ambiguous", f"There is no {assignment} but {_held(alike)}; keep one."
                            ) from None
                        place = alike[0][0]
                        notes.append(f"The folder {_held(alike)} was taken; rename it {assignment}.")
                    with mine.inner(place) as work:
                        seen = _look(work, names, given, limits)
            except Refused as refusal:
                refuse(student, refusal)
                continue
            for wanted, (parts, more, refusal) in seen.items():
                file = path.joinpath(name, place, *parts) if parts else None
                out.append(Found(student, file, (*notes, *more), wanted, path, refusal))
    return sorted(out, key=lambda found: (found.student, found.name, found.refusal.reason if found.refusal else ""))
