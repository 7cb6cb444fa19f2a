"""What this machine can do for grading, tried out: ``nbreferee doctor``.

The walls are not guessed from versions: a student's process is started, attacks each of them, and says how far it came.
"""

import argparse
import errno
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..rpc.framing import WireError
from .sandbox import Policy, SandboxError, abilities
from .supervisor import Zygote, ZygoteError

__all__ = ["Finding", "diagnose", "main"]

MIB, GIB = 1 << 20, 1 << 30
SMALL = Policy(memory_bytes=256 * MIB, processes=32, scratch_bytes=8 * MIB, file_bytes=4 * MIB)
VERSIONS = {"numpy": (1, 24), "nbformat": (5, 0), "nbgrader": (0, 9), "ipython": (8, 0)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried.

    Parameters
    ----------
    name : what.
    works : whether it is as it should be.
    found : what was seen.
    cure : what to do if it is not.
    needed : whether grading is unsafe or impossible without it.
    """

    name: str
    works: bool
    found: str = ""
    cure: str = ""
    needed: bool = True


# What runs behind the walls, for real.


def _grader(channel, start):
    """Run one attack per message in a new student, then kill it; answer what it said, how it ended, and how soon."""
    while True:
        question = channel.receive(600)
        with start() as line:
            line.channel.send(question, 10)
            try:
                answer = line.channel.receive(60).decode()
            except WireError:
                answer = line.ended(10) or "silent"
            begin = time.monotonic()
            line.kill()
            channel.send(json.dumps([answer, line.ended() or "alive", time.monotonic() - begin]).encode(), 10)


def _student(channel):
    question = json.loads(channel.receive(60))
    try:
        answer = _ATTACKS[question[0]](*question[1:])
    except OSError as error:
        answer = errno.errorcode.get(error.errno, str(error))
    except MemoryError:
        answer = "MemoryError"
    channel.send(str(answer).encode(), 10)
    channel.receive(600)  # wait to be killed


def _connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return "connected"


def _read(*paths):
    return ",".join(path for path in paths if os.path.exists(path)) or "nothing"


def _fork(most):
    count = 0
    try:
        while count < most:
            if os.fork() == 0:
                time.sleep(600)
            count += 1
    except OSError:
        pass
    return count


def _fill(most):
    total = 0
    try:
        for number in range(most):
            with open(f"bomb{number}", "wb", buffering=0) as file:
                total += file.write(b"x" * MIB)
    except OSError:
        pass
    return total >> 20


_ATTACKS = {
    "connect": _connect,
    "read": _read,
    "user": lambda: os.getuid(),
    "see": lambda: sum(name.isdecimal() for name in os.listdir("/proc")),
    "fork": _fork,
    "memory": lambda size: len(b"x" * size),
    "fill": _fill,
    "write": lambda path: os.open(f"{path}/nbreferee-was-here", os.O_CREAT | os.O_WRONLY),
}

# The findings.


def diagnose(db: str | None = None, folder: str = ".") -> list[Finding]:
    """Try everything that grading needs on this machine.

    Parameters
    ----------
    db : the gradebook's address, ``sqlite:///gradebook.db`` or ``postgresql+psycopg2://…``; it is read, not changed.
    folder : the course, for disk space and file locks.

    Returns
    -------
    one `Finding` each; none is missing, and each that does not work names its cure.
    """
    found = [_python(), *_versions(), *_sizes(folder)]
    found.append(_database(db) if db else _sqlite(folder))
    found += _guard(folder)
    able = abilities()
    found += [Finding(a.name, a.works, a.why or a.by or "yes", a.cure, a.needed) for a in able.found]
    try:
        found += _attack(folder) if able else []
    except (SandboxError, ZygoteError, WireError, OSError) as error:
        found.append(Finding("walls", False, str(error), "see above; report this text if all else works"))
    return found


def _python():
    version = platform.python_version()
    return Finding("Python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _versions():
    for name, least in VERSIONS.items():
        wanted = ".".join(map(str, least))
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, False, "not installed", f"pip install '{name}>={wanted}'")
            continue
        parts = tuple(int(part) for part in version.split(".")[: len(least)] if part.isdecimal())
        yield Finding(name, parts >= least, version, f"pip install '{name}>={wanted}'")
    try:
        yield Finding("torch", True, importlib.metadata.version("torch"), needed=False)
    except importlib.metadata.PackageNotFoundError:
        cure = "pip install torch, if the course uses it"
        yield Finding("torch", False, "not installed", cure, needed=False)


def _sizes(folder):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("cores", cores >= 2, str(cores), "with one core graders wait for each other", needed=False)
    pages = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else 0
    free = pages * resource.getpagesize()
    cure = "use fewer workers, or a smaller memory limit for students"
    yield Finding("memory free", free >= 2 * GIB, f"{free / GIB:.1f} GiB", cure, needed=False)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = files == resource.RLIM_INFINITY or files >= 1024
    yield Finding("open files", enough, "no limit" if files < 0 else str(files), "ulimit -n 4096")
    space = shutil.disk_usage(folder).free
    yield Finding("disk space", space >= GIB, f"{space / GIB:.1f} GiB", "free 1 GiB, or use another disk")


def _sqlite(folder):
    """Whether the disk keeps SQLite's promises: network file systems often have no locks."""
    try:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            with _closing(sqlite3.connect(f"{place}/try.db", timeout=1)) as one:
                mode = one.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                one.execute("CREATE TABLE t (x)")
                one.commit()
                one.execute("BEGIN IMMEDIATE")
                with _closing(sqlite3.connect(f"{place}/try.db", timeout=0)) as two:
                    try:
                        two.execute("BEGIN IMMEDIATE")
                        return Finding("database", False, "two writers at once", "put the course on a local disk")
                    except sqlite3.OperationalError:
                        return Finding("database", mode == "wal", f"SQLite, {mode}", "put the course on a local disk")
    except (sqlite3.Error, OSError) as error:
        return Finding("database", False, str(error), "make the course's folder writable, on a local disk")


def _guard(folder):
    """Whether nbgrader's own commands and buttons keep out of a course; see `nbreferee.course.guard`."""
    config = Path(folder, "nbgrader_config.py")
    if not config.is_file():
        return
    works = "nbreferee.course.guard" in config.read_text("utf-8", "replace")
    found = "refuse" if works else "would run students' code as you, beside the tests"
    cure = "add to nbgrader_config.py: from nbreferee.course.guard import guard; guard()"
    yield Finding("nbgrader's graders", works, found, cure, needed=False)


@contextmanager
def _closing(database):
    try:
        yield database
    finally:
        database.close()


def _database(db):
    if find_spec("nbgrader") is None:
        cure = "to have marks entered into a gradebook: pip install 'nbreferee[nbgrader]'"
        return Finding("gradebook", False, "nbgrader is not installed", cure, needed=False)
    import sqlalchemy

    try:
        url = sqlalchemy.make_url(db)
        if url.get_backend_name() == "sqlite" and url.database and not os.path.exists(url.database):
            return _sqlite(Path(url.database).parent)  # to look into it would make it
        engine = sqlalchemy.create_engine(url)
        try:
            tables = sqlalchemy.inspect(engine).get_table_names()
        finally:
            engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        return Finding("database", False, str(error).splitlines()[0], "correct the address, or install its driver")
    fine = not tables or "submitted_assignment" in tables
    return Finding("database", fine, f"{len(tables)} tables", "this is no gradebook; correct the address")


def _attack(folder):
    names = {"grader": f"{_HERE}:_grader", "student": f"{_HERE}:_student"}
    found = []
    begin = time.monotonic()
    with (
        Zygote(preload=(), policy=SMALL, **names) as zygote,
        socket.create_server(("127.0.0.1", 0)) as server,
        tempfile.NamedTemporaryFile(dir=folder, prefix=".nbreferee-") as secret,
    ):
        os.chmod(secret.name, 0o644)
        ready = time.monotonic() - begin
        with zygote.grader(30) as line:

            def attack(*question):
                line.channel.send(json.dumps(question).encode(), 10)
                return json.loads(line.channel.receive(90))

            def judge(name, question, sound, text):
                answer = attack(*question)[0]
                works = sound(answer)
                found.append(Finding(name, works, text.format(answer), "" if works else _REPORT))

            begin = time.monotonic()
            user = attack("user")[0]
            took = time.monotonic() - begin
            found.append(
                Finding("start", took < 1, f"zygote {ready:.2f} s, student {1000 * took:.0f} ms", _BUSY, False)
            )
            found.append(Finding("user", user != "0", f"a student's process is user {user}", _REPORT))
            port = server.getsockname()[1]
            judge("network", ("connect", port), lambda a: a in ("ENETUNREACH", "ECONNREFUSED"), "a port here: {}")
            secrets = ("/etc/shadow", "/etc/passwd", "/home", "/var", os.path.abspath(secret.name))
            judge("files", ("read", *secrets), lambda a: a == "nothing", "outside, it sees {}")
            judge("writing", ("write", "/usr"), lambda a: a in ("EROFS", "EACCES", "EPERM"), "into /usr: {}")
            judge("scratch", ("fill", 64), lambda a: a.isdecimal() and int(a) <= 8, "{} MiB of 64 fitted into 8")
            judge("visible processes", ("see",), lambda a: a == "1", "it sees {}, itself included")
            judge("processes", ("fork", 1000), lambda a: a.isdecimal() and int(a) < 40, "{} of 1000 forks, 32 allowed")
            judge("memory", ("memory", GIB), lambda a: a == "MemoryError", "1 GiB, with 256 MiB allowed: {}")
            _, end, took = attack("fork", 20)
            found.append(Finding("kill", end == "signal 9", f"21 processes in {1000 * took:.0f} ms: {end}", _REPORT))
    return found


_HERE = "nbreferee.walls.doctor"
_REPORT = "do not grade on this machine; report this line together with the kernel's version (uname -r)"
_BUSY = "the machine is busy; grade when it is not, or with fewer workers"


def main(arguments=None) -> int:
    """Print the findings as a table.

    Returns
    -------
    0 if all that is needed works, else 1.
    """
    parser = argparse.ArgumentParser(prog="nbreferee doctor", description=diagnose.__doc__.splitlines()[0])
    parser.add_argument("--db", help="the gradebook's address, such as sqlite:///gradebook.db")
    parser.add_argument("--course", default=".", help="the course's folder (default: this one)")
    options = parser.parse_args(arguments)
    found = diagnose(options.db, options.course)
    width = max(len(finding.name) for finding in found)
    for finding in found:
        word = "yes" if finding.works else "NO" if finding.needed else "no"
        print(f"{finding.name:{width}}  {word:3}  {finding.found}")
        if not finding.works:
            print(f"{'':{width}}       cure: {finding.cure}")
    bad = [finding.name for finding in found if finding.needed and not finding.works]
    print(f"This machine is not ready: {', '.join(bad)}." if bad else "This machine is ready.")
    return 1 if bad else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
