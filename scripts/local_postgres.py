"""A PostgreSQL of one's own, for as long as it is needed: in a temporary folder, on a socket, without a network."""

import contextlib
import glob
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


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
    Absent : PostgreSQL or its user is not installed.
    """
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")) or [shutil.which("initdb")]
    if found[-1] is None:
        raise Absent("PostgreSQL is not installed (Debian: apt install postgresql)")
    programs, become = Path(found[-1]).parent, {}
    if os.geteuid() == 0:
        import pwd

        try:
            become = {"user": pwd.getpwnam("postgres").pw_uid, "group": pwd.getpwnam("postgres").pw_gid}
        except KeyError:
            raise Absent("PostgreSQL refuses to run as root, and there is no user postgres") from None
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
        call("initdb", "-D", f"{folder}/data", "-U", "grader", "-A", "trust", "--no-sync")
        settings = f"-k {folder} -c listen_addresses=''" + ("" if durable else " -c fsync=off")
        call("pg_ctl", "-D", f"{folder}/data", "-o", settings, "-l", f"{folder}/log", "-w", "start")
        try:
            yield create
        finally:
            call("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
