"""A PostgreSQL of one's own, for as long as it is needed: in a temporary folder, on a socket, without a network."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import tools


class Absent(Exception):
    """There is none on this machine; the text says what is missing."""


@contextlib.contextmanager
def server(durable: bool = False):
    """Start a server and stop it.

    Parameters
    ----------
    durable : whether it waits for the disk, as a real one does.

    Yields
    ------
    ``create(name)``, which makes a database and returns its address.

    Raises
    ------
    Absent : PostgreSQL is not installed, or there is no user for it.
    """
    programs = tools.postgres()
    if programs is None:
        raise Absent(tools.lacks("postgres"))
    become = _ordinary_user() if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's path must be short

    def call(program, *arguments):
        options = {"cwd": folder, "check": True, "capture_output": True, "timeout": 60}
        return subprocess.run([programs / program, *arguments], **options, **become)

    def create(name):
        call("createdb", "-h", f"{folder}", "-U", "grader", name)
        return f"postgresql+psycopg2://grader@/{name}?host={folder}"

    try:
        if become:
            os.chown(folder, become["user"], become["group"])
            programs = _within_reach(programs, folder, become)
        call("initdb", "-D", f"{folder}/data", "-U", "grader", "-A", "trust", "--no-sync")
        settings = f"-k {folder} -c listen_addresses=''" + ("" if durable else " -c fsync=off")
        call("pg_ctl", "-D", f"{folder}/data", "-o", settings, "-l", f"{folder}/log", "-w", "start")
        try:
            yield create
        finally:
            call("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ordinary_user():
    """Whom root becomes, for PostgreSQL refuses to run as root; initdb refuses a user without a name."""
    import pwd

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise Absent("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it")


def _within_reach(programs, folder, become):
    """The programs, or a copy of them in `folder` where the user cannot go to where they lie, such as root's home."""
    try:
        subprocess.run([programs / "initdb", "--version"], check=True, capture_output=True, cwd="/", **become)
    except PermissionError:
        copy = copied(programs, folder / "programs")
        for path in ((folder / "programs"), *(folder / "programs").rglob("*")):
            os.chown(path, become["user"], become["group"], follow_symlinks=False)
        return copy
    return programs


def copied(programs, folder):
    """PostgreSQL in another folder, with the libraries that a wheel lays beside its package; returns the programs'."""
    package = programs.parents[1]
    target = folder / package.name / programs.parent.name
    shutil.copytree(programs.parent, target, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return target / programs.name
