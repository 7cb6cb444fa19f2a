"""Work that is meant to stop, or does stop, the grading of everybody else."""

import json
import os

from ..assignment import NAME, without
from . import KILLER, submission


@submission(KILLER, None, state="unsafe-name", student="ada\nbabbage")
def id_newline(s):
    """Is handed in under an id with a line break."""


@submission(KILLER, None, state="not-a-file")
def pipe(s):
    """Is a named pipe: whoever opens it waits for ever."""
    s.place = lambda path, root: os.mkfifo(path)


@submission(KILLER, None, state="not-a-file")
def device(s):
    """Is a link to a device that never ends."""
    s.place = lambda path, root: path.symlink_to("/dev/zero")


@submission(KILLER, None, state="not-a-file")
def socket_file(s):
    """Is a socket."""

    def place(path, root):
        import socket

        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket may have no more than 107 bytes
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.bind(path.name)
        finally:
            os.chdir(here)

    s.place = place


@submission(KILLER, None, state="not-a-file")
def link_to_itself(s):
    """Is a symbolic link to itself."""
    s.place = lambda path, root: path.symlink_to(path.name)


@submission(KILLER)
def link_to_the_root(s):
    """Has a link to the root of the disk beside its notebook: whoever copies the folder copies the disk."""

    def place(path, root):
        path.write_text(json.dumps(s.book))
        (path.parent / "data").symlink_to("/")
        (path.parent / "loop").symlink_to("..")

    s.place = place


@submission(KILLER)
def deletes_the_gradebook(s):
    """Deletes the gradebook, the course and all that it can reach."""
    s.own(
        """import glob, os, shutil
for path in glob.glob("../../../*.db") + glob.glob("/course/*.db"):
    os.remove(path)
for place in ("../../../source", "/course/source", "../../../feedback", "/course/submitted"):
    shutil.rmtree(place, ignore_errors=True)""",
    )


@submission(KILLER)
def locks_the_gradebook(s):
    """Begins a transaction on the gradebook, and never ends it, in a process that stays."""
    s.own(
        """import glob, os, sqlite3, time
for path in glob.glob("../../../*.db") + glob.glob("/course/*.db"):
    if os.fork() == 0:
        os.setsid()
        db = sqlite3.connect(path, isolation_level=None, timeout=1)
        db.execute("begin exclusive")
        time.sleep(60)
        os._exit(0)
time.sleep(0.5)""",
    )


@submission(KILLER, without("mean"))
def kills_the_grader_by_name(s):
    """Kills every process whose command line speaks of grading, when it is tested."""
    s.put(
        "mean",
        """import os
class RunningMean:
    def update(self, x):
        for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
            try: line = open(f"/proc/{pid}/cmdline").read()
            except OSError: continue
            if pid not in (1, os.getpid()) and ("nbgrader" in line or "python" in line):
                os.kill(pid, 9)""",
    )


@submission(KILLER)
def stops_the_grader(s):
    """Stops every process it may signal, so that the batch waits for ever."""
    s.own(
        """import os, signal
for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
    try:
        if pid not in (1, os.getpid()): os.kill(pid, signal.SIGSTOP)
    except OSError: pass""",
        after="gate_hidden",
    )


@submission(KILLER, without("centre"))
def sends_a_timestamp(s):
    """Hands in a timestamp that is no date, and an answer that raises when it is printed."""
    s.beside["timestamp.txt"] = "yesterday, I swear\n"
    s.put("centre", f"class Odd:\n    def __repr__(self): raise SystemExit('{NAME}')\ndef centre(x):\n    return Odd()")
