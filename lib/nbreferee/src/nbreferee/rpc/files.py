"""Files that answers and tests write into their working folders: kept alike on both sides, as arguments are.

Contents cross, and nothing else: regular files, as bytes, below the folder. So no link, pipe or device of the student's
is ever opened on the trusted side, and its own files stay as they are: given files, which are links to what is read
only, and what given cells have written there. What could run there does not cross (Python's files, settings that
libraries look for), and from then on pickles that name more than plain containers, numbers and arrays are refused.
"""

import builtins
import hashlib
import os
import stat
import sys
import time

from .plugins import Garbled

__all__ = ["Folder", "Shared", "Sharing"]

MOST_FILES, MOST_BYTES = 200, 16 << 20
RECENT_NS = 50_000_000  # a file changed so shortly before it was looked at may change again without a new time
RUNS = (".py", ".pyc", ".pyd", ".so", ".pth", "matplotlibrc")  # ends of names
PLAIN = {  # what pickles may name: modules, and classes and functions of each
    "builtins": {"set", "frozenset", "complex", "bytearray", "slice", "range"},
    "collections": {"OrderedDict"},
    "_codecs": {"encode"},
    "numpy": {"_reconstruct", "_frombuffer", "scalar", "ndarray", "dtype"},
}


def _inside(path):
    """Whether this is the relative path of a file below a folder, in which no name is hidden."""
    parts = path.split("/")
    return len(path) <= 500 and all(part and part[0] != "." and len(part) <= 200 for part in parts) and "\0" not in path


class Folder:
    """The files below a folder, and which of them have changed since one last looked.

    Parameters
    ----------
    root : its path. Links in it, and names that begin with a dot, are none of ours.

    To look for changes takes nothing of ``os.path``, which asks ``isinstance``: a student may have replaced that.

    Attributes
    ----------
    left_out : the files that were not read, because they are too many or too large.
    """

    def __init__(self, root: str):
        self.root = os.path.realpath(root)
        self.folders, self.files, self.looked, self.left_out = {}, {}, 0, []

    def stirred(self) -> bool:
        """Whether anything may have changed: quick, and sometimes true for nothing."""
        recent = self.looked - RECENT_NS
        try:
            for path, stamp in self.folders.items():
                if stamp >= recent or os.stat(path).st_mtime_ns != stamp:
                    return True
            for path, (stamp, _) in self.files.items():
                if stamp[0] >= recent or self._stamp(path) != stamp:
                    return True
        except OSError:
            return True
        return not self.folders

    def changes(self) -> dict:
        """{path below the folder: content, or None if it is gone} of all that has changed since the last call."""
        if not self.stirred():
            return {}
        known, self.files, self.folders, self.looked, self.left_out = self.files, {}, {}, time.time_ns(), []
        found, room = {}, MOST_BYTES
        for path in self._walk():
            stamp = self._stamp(path)
            old = known.get(path)
            if old is not None and old[0] == stamp and stamp[0] < self.looked - RECENT_NS:
                self.files[path] = old
                continue
            if stamp is None or stamp[1] > room or len(found) >= MOST_FILES:
                self.left_out.append(path)
                continue
            try:
                with open(f"{self.root}/{path}", "rb") as file:
                    content = file.read(room)
            except OSError:
                continue
            digest = hashlib.blake2b(content).digest()
            self.files[path] = stamp, digest
            if old != self.files[path]:
                found[path] = content
                room -= len(content)
        gone = known.keys() - self.files.keys() - set(self.left_out)
        return found | dict.fromkeys(gone)

    def write(self, changes: dict) -> None:
        """Do over again what was changed elsewhere; what cannot be done here is left."""
        for path, content in changes.items():
            whole, folder = os.path.join(self.root, path), os.path.dirname(os.path.join(self.root, path))
            try:
                if os.path.islink(whole) or os.path.realpath(folder) != os.path.normpath(folder):
                    continue
                if content is None:
                    os.unlink(whole)
                    continue
                os.makedirs(folder, exist_ok=True)
                with open(whole, "wb") as file:
                    file.write(content)
                os.utime(whole, ns=(time.time_ns(), time.time_ns()))  # finer than a later writer's, so never the same
            except OSError:
                continue
        self.changes()

    def _stamp(self, path):
        try:
            found = os.lstat(f"{self.root}/{path}")
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None

    def _walk(self, below=""):
        """The paths of the files; the times of the folders are noted before they are read."""
        here = f"{self.root}/{below}"
        try:
            self.folders[here] = os.stat(here).st_mtime_ns
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if not _inside(path) or not _sayable(path):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path)
            elif entry.is_file(follow_symlinks=False):
                yield path


def _sayable(path):
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


class Shared:
    """The grading side's working folder, and whose the files in it are.

    Parameters
    ----------
    root : its path.
    """

    def __init__(self, root: str):
        self._folder = Folder(root)
        self._folder.changes()
        self._ours = {}  # what given cells wrote: {path: content}
        self._tests = None  # what the present test wrote: paths; None between tests
        self._theirs = set()

    def renew(self) -> dict:
        """Begin with a new process of the student's: what the one before wrote goes, ours is to be sent."""
        self.give()
        self._folder.write(dict.fromkeys(self._theirs))
        self._theirs.clear()
        return dict(self._ours)

    def begin(self) -> None:
        """A test begins."""
        self.give()
        self._tests = set()

    def end(self) -> None:
        """A test has ended: what it wrote goes."""
        if self._tests is not None:
            self.give()
            self._folder.write(dict.fromkeys(self._tests))
        self._tests = None

    def give(self) -> dict:
        """What was written on this side since this was last called."""
        changes = self._folder.changes()
        for path, content in changes.items():
            if self._tests is not None:
                self._tests.add(path)
            elif content is None:
                self._ours.pop(path, None)
            else:
                self._ours[path] = content
                self._theirs.discard(path)
        return changes

    def take(self, changes) -> None:
        """Write what the student's side has written.

        Raises
        ------
        Garbled : that is no list of files.
        """
        if type(changes) is not dict or len(changes) > 10 * MOST_FILES:
            raise Garbled("no files")
        for path, content in changes.items():
            if type(path) is not str or not _inside(path) or type(content) not in (bytes, type(None)):
                raise Garbled("no file")
        wanted = {path: content for path, content in changes.items() if path not in self._ours}
        wanted = {path: content for path, content in wanted.items() if not path.lower().endswith(RUNS)}
        if wanted:
            _guard_pickles()
        self._folder.write(wanted)
        self._theirs |= wanted.keys()


_guarded = False


def _guard_pickles():
    """Refuse from now on pickles that name more than plain values: to read one is to run what its writer wants."""
    global _guarded
    if not _guarded:
        _guarded = True
        sys.addaudithook(_heard)


def _heard(event, args):
    if event != "pickle.find_class":
        return
    module, name = args
    top = module.partition(".")[0]
    if name not in PLAIN.get("builtins" if top == "__builtin__" else top, ()):
        raise RuntimeError(
            f"a test does not read pickles that name {module}.{name}, since a file of the answer's could run code; "
            "let the answer write plain arrays, or run this test sandboxed"
        )


class Sharing:
    """What makes one end of an `nbreferee.rpc.exchange.Exchange`, the trusted one, share its folder and its ``input``.

    Attributes
    ----------
    folder : a `Shared`, or None: no files are shared.
    """

    folder = None
    _pending = _lent = None
    _stirred = False
    _usual = None

    def share(self, folder: Shared | None) -> None:
        """Share ``input`` from now on, which is as it should be, and this folder."""
        self._usual = builtins.input, sys.stdin
        self.folder = folder
        self._pending = None if folder is None else folder.renew()

    def ask(self, verb, payload, label=""):
        if self.level:
            return super().ask(verb, payload, label)
        self._lend_input()
        self._give_files()
        try:
            return super().ask(verb, payload, label)
        finally:
            if self._stirred:
                self._stirred = False
                self.folder.take(super().ask("files", ({},)))

    def hear(self, label=""):
        heard = super().hear(label)
        self._stirred = self.folder is not None and heard[:2] in (("=", "files"), ("!", "files"))
        return heard

    def _give_files(self):
        if self.folder is None:
            return
        pending, self._pending = self._pending, None
        changes = (pending or {}) | self.folder.give()
        if changes or pending is not None:
            self.folder.take(super().ask("files", (changes,)))

    def _lend_input(self):
        """A test that replaces ``input``, or what it reads from, replaces it for the answers too."""
        lent = self._usual is not None and (builtins.input, sys.stdin) != self._usual
        if lent != bool(self._lent):
            self._lent = lent

            def read(prompt=""):  # no function of a module: one would be found, and called, over there
                try:
                    return builtins.input(prompt)
                except StopIteration:
                    raise EOFError("the test gives no more input") from None

            super().ask("input", (read if lent else None,))
