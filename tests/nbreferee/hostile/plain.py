"""What plain nbgrader makes of the corpus: its stock autograde, each submission in a course of its own.

Around each run stands a wall (bubblewrap: own processes, own network with nothing but itself, own temporary files, an
uid of its own with limits), so that nothing here reaches the machine; inside the wall everything is as on an
instructor's machine: nbgrader, the students' code, the course and the gradebook belong to one user. Two honest students
are with it, one graded before (``abel``), one to be graded after (``zoe``).
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import psutil

from nbreferee.walls.sandbox import bubblewrap

from .assignment import CANARIES, FULL, NAME, bystander, source

UID = 47011
SECONDS = 150
MARKS = ("ESCAPED", "startup/00.py", "usercustomize.py", "_config.py")  # of files that nobody but a submission writes
HERE = Path(__file__).resolve().parent


def lacks():
    """Why this machine cannot run plain nbgrader in a throwaway environment, or nothing."""
    if not bubblewrap():
        return "bubblewrap is not installed"
    if os.getuid() == 0 and not shutil.which("setpriv"):
        return "setpriv is not installed"
    done = subprocess.run([bubblewrap(), "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True)
    return "" if done.returncode == 0 else "bubblewrap cannot make namespaces"


def _wall(course, result, student, feedback=False):
    """The command that runs what follows it inside the wall."""
    hidden = {"tmp", "home", "root", "run", "mnt", "srv", "course", "result", "proc", "dev", "sys"}
    command = [bubblewrap(), "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    for top in sorted(Path("/").iterdir()):
        if top.is_symlink():
            command += ["--symlink", str(top.readlink()), str(top)]
        elif top.is_dir() and top.name not in hidden:
            command += ["--ro-bind", str(top), str(top)]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/var/tmp", "--tmpfs", "/tmp", "--tmpfs", "/dev/shm"]
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        command += ["--chmod", "1777", place]
    for place in dict.fromkeys((sys.base_prefix, sys.prefix, str(HERE))):
        if Path(place).parts[1] in hidden:
            for above in reversed(Path(place).parents[:-1]):
                command += ["--perms", "0755", "--dir", str(above)]
            command += ["--ro-bind", place, place]
    home = result.parent / "home"
    command += ["--bind", str(course), "/course", "--bind", str(result), "/result"]
    command += [
        "--perms",
        "0755",
        "--dir",
        "/home",
        "--bind",
        str(home),
        "/home/teacher",
        "--ro-bind",
        str(result.parent / "passwd"),
        "/etc/passwd",
    ]
    command += ["--chdir", "/course", "--clearenv"]
    settings = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": "/home/teacher",
        "USER": "teacher",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "SECRET_TOKEN": CANARIES["environment"],
        "HOSTILE_STUDENT": student,
        "HOSTILE_FEEDBACK": "1" if feedback else "",
    }
    for name, value in settings.items():
        command += ["--setenv", name, os.fsdecode(value) if isinstance(value, bytes) else value]
    if os.getuid() == 0:
        drop = [f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
        command += ["setpriv", *drop, "--inh-caps=-all"]
    limits = "ulimit -u 600 -v 7000000 -f 400000 -n 2048 -c 0"
    return [*command, "bash", "-c", f'{limits}; exec "$@"', "bash"]


class _Watch(threading.Thread):
    """The most memory and the most processes that were seen below a process."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.memory, self.processes, self.over = pid, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.2):
            try:
                family = psutil.Process(self.pid).children(recursive=True)
                self.processes = max(self.processes, len(family))
                self.memory = max(self.memory, sum(one.memory_info().rss for one in family[:50]))
            except psutil.Error:
                pass


def _run(command, seconds):
    """Run a command; its exit status (None: killed after so many seconds) and what it took at most."""
    said = tempfile.TemporaryFile()
    process = subprocess.Popen(command, stdin=-3, stdout=said, stderr=said, start_new_session=True)
    watch = _Watch(process.pid)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait() and None
    watch.over.set()
    said.seek(0)
    watch.said = said.read(4000).decode("utf-8", "replace")
    said.close()
    return status, watch


def _own(folder):
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, UID, UID, follow_symlinks=False)


def template(folder):
    """A course with the assignment released, ``abel`` graded, and ``zoe`` still to be graded."""
    course = folder / "course"
    (course / "source" / NAME).mkdir(parents=True)
    nbformat.write(source(), course / "source" / NAME / f"{NAME}.ipynb")
    bystander("abel").write(course / "submitted" / "abel" / NAME, course)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for command in (
        ["generate_assignment", NAME, "--create"],
        ["autograde", NAME],
    ):
        call = [sys.executable, "-P", "-m", "nbgrader", *command]
        done = subprocess.run(call, cwd=course, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"nbgrader {command[0]} failed in an honest course: {done.stderr[-800:]}")
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "") as gradebook:
        gradebook.update_or_create_student("abel", last_name=CANARIES["gradebook"])
    bystander("zoe").write(course / "submitted" / "zoe" / NAME, course)
    return course


@contextmanager
def _temporary():
    folder = tempfile.mkdtemp(prefix="plain-")
    try:
        yield Path(folder)
    finally:
        subprocess.run(["rm", "-rf", folder], stderr=subprocess.DEVNULL)  # Python's rmtree cannot go a thousand deep


def run(one, course):
    """Grade one submission of the corpus with plain nbgrader.

    Parameters
    ----------
    one : a `Submission`.
    course : what `template` returned.

    Returns
    -------
    what was found, as a dict of plain values; `outcome` puts it into words.
    """
    with _temporary() as world:
        world.chmod(0o755)
        mine, result, home = world / "course", world / "result", world / "home"
        shutil.copytree(course, mine, symlinks=True)
        result.mkdir()
        home.mkdir()
        (home / "outside.txt").write_text(CANARIES["outside"])
        (world / "passwd").write_text(
            f"root:x:0:0::/root:/bin/sh\nteacher:x:{UID if not os.getuid() else os.getuid()}:"
        )
        with open(world / "passwd", "a") as file:
            file.write(f"{UID if not os.getuid() else os.getuid()}::/home/teacher:/bin/sh\n")
        one.sheet().write(mine / "submitted" / one.student / NAME, mine)
        _own(world)
        before = {str(path.relative_to(world)) for path in world.rglob("*")}
        wall = _wall(mine, result, one.student, one.kind == "secret")
        inside = [sys.executable, "-P", str(HERE / "inside.py")]
        status, watch = _run([*wall, *inside, "grade", str(SECONDS)], SECONDS + 20)
        found = {"ended": status, "memory_mb": watch.memory >> 20, "processes": watch.processes, "said": watch.said}
        found["grade"] = _json(result / "grade.json")
        found["network"] = (result / "network").exists()
        found["log"] = _text(result / "autograde.log")[-3000:]
        _run([*wall, *inside, "probe"], 140)
        found["probe"] = _json(result / "probe.json")
        found["new"] = sorted(
            name
            for name in (str(path.relative_to(world)) for path in _below(world))
            if name not in before
            and any(mark in name for mark in MARKS)
            and not name.startswith(f"course/autograded/{one.student}/")
        )[:50]
        return found


def _below(folder):
    for top, folders, files in os.walk(folder):
        if len(Path(top).relative_to(folder).parts) > 12:
            folders.clear()
        yield from (Path(top) / name for name in (*folders, *files))


def _text(path):
    try:
        return path.read_text("utf-8", "replace") if stat.S_ISREG(path.lstat().st_mode) else ""
    except OSError:
        return ""


def _json(path):
    try:
        return json.loads(_text(path) or "null")
    except ValueError:
        return None


class _Live(HTMLParser):
    """Whether a page holds something of a student's that a browser would run."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.live, self.script = set(), False

    def handle_starttag(self, tag, attributes):
        self.script = tag in ("script", "style")
        for name, value in attributes:
            value = value or ""
            risky = name.startswith("on") or name in ("href", "src", "action", "srcdoc", "data", "xlink:href")
            if "XSS-" in value and risky:
                self.live.add(value[value.index("XSS-") :][:6].strip("'\")"))

    def handle_data(self, data):
        if self.script and "XSS-" in data:
            self.live.add(data[data.index("XSS-") :][:6].strip("'\")"))

    def handle_endtag(self, tag):
        self.script = False


def live(page):
    """The marks of scripts, forms and pictures of a student's that a browser would run or load."""
    parser = _Live()
    parser.feed(page)
    return sorted(parser.live)


def outcome(one, found):
    """Put into words what `run` found.

    Returns
    -------
    points (None: lost), and sentences' parts.
    """
    grade, probe, words = found["grade"] or {}, found["probe"] or {}, []
    marks = (probe.get("marks") or {}).get(one.student)
    graded = marks is not None and not any(marks.get(name) is None for name in FULL)
    points = sum(marks[name] for name in FULL) if graded else None
    just = one.just
    if probe.get("gradebook"):
        words.append("gradebook destroyed")
    zoe = (probe.get("marks") or {}).get("zoe")
    if not found["grade"]:
        words.append("grading process killed" if found["ended"] is not None else "grading never ends")
    elif grade.get("status") is None:
        words.append(f"batch stopped: no end in {SECONDS} s")
    if not zoe or any(zoe.get(name) is None for name in FULL):
        if one.student < "zoe" and "gradebook destroyed" not in words:
            words.append("next student not graded")
    elif {name: zoe[name] for name in FULL} != FULL:
        words.append("next student's mark wrong")
    abel = (probe.get("marks") or {}).get("abel") or {}
    if abel and ({name: abel.get(name) for name in FULL} != FULL or abel.get("why")):
        words.append("earlier student's mark changed")
    if probe.get("tests_intact") is False:
        words.append("tests in the gradebook rewritten")
    if not graded:
        words.append("submission lost")
    elif just is None:
        words.append("mark forged" if one.kind == "forged verdict" and points else f"{points:g} points")
    else:
        more = sum(max(0, marks[name] - just[name]) for name in FULL)
        less = sum(max(0, just[name] - marks[name]) for name in FULL)
        if not (more == more):
            words.append("mark is NaN")
        elif more:
            words.append(f"mark forged: {more:g} points too many")
        if less:
            words.append(f"{less:g} honest points lost")
    read = sorted({name for name, word in CANARIES.items() for loot in probe.get("loot", ()) if word in loot})
    names = {
        "hidden": "hidden test",
        "input": "hidden inputs",
        "solution": "solutions",
        "other": "another student's work",
        "gradebook": "gradebook",
        "outside": "file outside the course",
        "environment": "environment",
    }
    if read:
        words.append("read: " + ", ".join(names[name] for name in read))
    if found["new"]:
        words.append("files left outside its folder")
    if found["network"]:
        words.append("network reached")
    left = [line for line in grade.get("left", ()) if "resource_tracker" not in line]
    if left:
        words.append(f"{len(left)} process{'es' * (len(left) > 1)} left running")
    if found["memory_mb"] > 3000:
        words.append(f"{found['memory_mb'] / 1000:.0f} GB of memory taken")
    if found["processes"] > 150:
        words.append(f"{found['processes']} processes at once")
    if probe.get("size", 0) > 5_000_000:
        words.append(f"{probe['size'] / 1e6:.0f} MB stored")
    if live(probe.get("feedback", "")):
        words.append("its scripts run in the feedback page")
    if any(cell.startswith("=") for line in probe.get("export", "").splitlines() for cell in line.split(",")):
        words.append("formula in the exported CSV")
    return points, words


def record(one, course):
    """A row for the table: what `run` found and its words."""
    found = run(one, course)
    points, words = outcome(one, found)
    points = None if points is None or points != points else points
    return {"points": points, "words": words}, found
