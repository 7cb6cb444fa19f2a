"""`make bench-grading`: submissions a minute of stock nbgrader and of nbreferee, in one run, on two cores.

Both begin with a folder of submissions and end with notebooks, a gradebook and feedback pages. nbgrader gets half of
the class in each of two processes, each with a gradebook of its own, so that none waits for the other. The rates are
those between the first and the last file of a folder; what else a run takes is its start-up. The ratio of the rates has
a goal for each assignment, and the ratio of the whole runs, start-up included, has one, too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from grading_class import differences, marks, numpy_set, torch_set, write

ROOT = Path(__file__).resolve().parents[1]
GOALS = {"arrays": 16.0, "tensors": 30.0}  # times nbgrader's rate, in as many shards as there are workers
GOAL_IN_ALL = 12.0  # of both, start-up included
WORKERS = 2
SETTINGS = {"arrays": 'preload = ["numpy"]\n', "tensors": 'preload = ["numpy", "torch"]\n'}
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
ENVIRONMENT = os.environ | ONE_THREAD | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
GRADE = """
import sys
from nbreferee.course.run import CourseFolder, grade_assignment
grade_assignment(CourseFolder.load(sys.argv[1]), sys.argv[2], workers=int(sys.argv[3]))
"""


def start(folder, *command):
    """A process with its output in a file beside what it works on."""
    log = open(folder.parent / f"{folder.name}.log", "a")
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def gradebook(folder):
    return f"sqlite:///{folder / 'gradebook.db'}?timeout=120"


def nbgrader(folder, command, name, *more):
    return start(
        folder, "nbgrader", command, name, f"--CourseDirectory.root={folder}", f"--db={gradebook(folder)}", *more
    )


def span(folder, step):
    """Seconds between the first and the last file of a step."""
    times = [path.stat().st_mtime for path in folder.glob(f"{step}/*/*/*.*") if path.suffix in (".ipynb", ".html")]
    return max(times) - min(times)


class Stock:
    """nbgrader as it is installed, one process for each shard."""

    title = "nbgrader"

    def __init__(self, folder, assignment, students):
        self.name, self.shards, self.expected = assignment.name, [], {}
        for number in range(WORKERS):
            shard = folder / f"shard{number}"
            part = students[number * len(students) // WORKERS : (number + 1) * len(students) // WORKERS]
            self.expected |= write(shard, [assignment], part)[self.name]
            if nbgrader(shard, "generate_assignment", self.name).wait():
                raise SystemExit(f"nbgrader generate_assignment failed: {shard.with_suffix('.log')}")
            self.shards.append(shard)
        self.each = len(students) // WORKERS

    def run(self):
        began, todo = time.perf_counter(), {shard: ["generate_feedback", "autograde"] for shard in self.shards}
        running = {}
        while todo or running:
            for shard in [shard for shard in todo if shard not in running]:
                running[shard] = nbgrader(shard, todo[shard].pop(), self.name)  # 1 if a submission was lost
                if not todo[shard]:
                    del todo[shard]
            time.sleep(0.01)
            running = {shard: process for shard, process in running.items() if process.poll() is None}
        return time.perf_counter() - began

    def rate(self):
        """Submissions a minute: each shard grades all, then writes all pages. What it lost counts as done."""
        steps = ("autograded", "feedback")
        return sum(60 * (self.each - 1) / sum(span(shard, step) for step in steps) for shard in self.shards)

    def found(self):
        return {student: row for shard in self.shards for student, row in marks(gradebook(shard), self.name).items()}

    def pages(self):
        return sum(1 for shard in self.shards for _ in shard.glob("feedback/*/*/*.html"))


class Ours:
    """nbreferee, one process with two workers, all walls up."""

    title = "nbreferee"

    def __init__(self, folder, assignment, students):
        self.name, self.folder = assignment.name, folder / "course"
        self.expected = write(self.folder, [assignment], students)[self.name]
        (self.folder / "nbreferee.toml").write_text(SETTINGS[self.name])

    def begin(self):
        return start(self.folder, sys.executable, "-c", GRADE, str(self.folder), self.name, str(WORKERS))

    def run(self):
        began = time.perf_counter()
        if self.begin().wait():
            raise SystemExit((self.folder.parent / f"{self.folder.name}.log").read_text()[-2000:])
        return time.perf_counter() - began

    def rate(self):
        return 60 * (len(self.expected) - 1) / span(self.folder, "feedback")

    def found(self):
        return marks(gradebook(self.folder), self.name)

    def pages(self):
        return sum(1 for _ in self.folder.glob("feedback/*/*/*.html"))


def measure(grader, assignment, students):
    """One run: seconds, submissions a minute, and whether the marks are those that were expected."""
    with tempfile.TemporaryDirectory(prefix="bench-grading-") as folder:
        course = grader(Path(folder), assignment, students)
        seconds = course.run()
        wrong = differences(course.expected, course.found())
        crashed = {student for student, submission in course.expected.items() if submission.crash}
        rate = course.rate()
        return {
            "students": len(students),
            "seconds": round(seconds, 2),
            "per minute": round(rate, 1),
            "per minute with start-up": round(60 * len(students) / seconds, 1),
            "start-up s": round(seconds - 60 * len(students) / rate, 2),
            "pages": course.pages(),
            "wrong marks": len(wrong),
            "of these with a crash": len(set(wrong) & crashed),
            "crashes": len(crashed),
        }


def compare(assignment, options):
    """Rounds of both in turn."""
    sizes = {Stock: options.stock_students, Ours: options.students}
    rows = {"assignment": assignment.name, "tests": len(assignment.points), "workers": WORKERS}
    rows |= {grader.title: {"rounds": []} for grader in sizes}
    for _ in range(options.rounds):
        for grader, size in sizes.items():
            row = measure(grader, assignment, range(size))
            rows[grader.title]["rounds"].append(row)
            print(f"  {assignment.name}, {grader.title}: {row}", flush=True)
    return rows | ratios(rows)


def ratios(rows):
    """How many times nbgrader's rate, round by round: between the first and the last file, and of the whole run."""
    found = {}
    for rate, title in (("per minute", "ratio"), ("per minute with start-up", "ratio with start-up")):
        pairs = zip(*(rows[grader.title]["rounds"] for grader in (Ours, Stock)), strict=True)
        each = [round(ours[rate] / stock[rate], 2) for ours, stock in pairs]
        found[f"{title}, each round"] = each
        found[title] = {"least": min(each), "median": statistics.median(each), "most": max(each)}
    return found


def missed(assignments):
    """A sentence for each goal that the median of the rounds does not reach."""
    for row in assignments:
        name = row["assignment"]
        for title, goal in (("ratio", GOALS[name]), ("ratio with start-up", GOAL_IN_ALL)):
            if (median := row[title]["median"]) < goal:
                yield f"{name}: the {title} is {median:g}; the goal is {goal:g}"


class Memory(threading.Thread):
    """Samples the proportional set size of a process and of all that it starts, by role."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.top, self.samples, self.totals = psutil.Process(pid), {}, []

    def run(self):
        while self.top.is_running() and self.top.status() != psutil.STATUS_ZOMBIE:
            total = 0
            try:
                family = [self.top, *self.top.children(recursive=True)]
            except psutil.Error:
                break
            for process in family:
                try:
                    size, role = process.memory_full_info().pss, self.role(process)
                except (psutil.Error, OSError):
                    continue
                total += size
                self.samples.setdefault(role, []).append(size)
            self.totals.append(total)
            time.sleep(0.05)

    def role(self, process):
        """What a process is, from its place in the tree and from its sockets."""
        if process == self.top:
            return "supervisor"
        if process.name().startswith("bwrap"):
            return "outer wall"
        parents = [parent.name() for parent in process.parents()]
        depth = next((n for n, name in enumerate(parents) if name.startswith("bwrap")), None)
        if depth is None:
            return "other"
        if depth == 0:
            return "zygote"
        if depth == 1:
            return "warder"
        sockets = 0
        for number in os.listdir(f"/proc/{process.pid}/fd"):
            sockets += os.readlink(f"/proc/{process.pid}/fd/{number}").startswith("socket:")
        return "grader" if sockets > 1 else "student"

    def summary(self):
        """MB: median and most of each role, and of all together."""
        rows = {role: _megabytes(sizes) for role, sizes in sorted(self.samples.items())}
        return rows | {"all together": _megabytes(self.totals)}


def _megabytes(sizes):
    return {
        "median": round(statistics.median(sizes) / 1e6, 1),
        "most": round(max(sizes) / 1e6, 1),
        "samples": len(sizes),
    }


def memory(assignment, students):
    """What our processes hold, in a run of its own, since looking costs time."""
    with tempfile.TemporaryDirectory(prefix="bench-grading-") as folder:
        course = Ours(Path(folder), assignment, students)
        process = course.begin()
        watch = Memory(process.pid)
        watch.start()
        if process.wait():
            raise SystemExit("the run whose memory was measured failed")
        watch.join()
        return watch.summary()


def stages(root, name):
    """In a process of its own: where the time of a submission goes, in milliseconds."""
    from collections import Counter
    from functools import wraps

    from nbreferee.course import gradebook, publication, store, submission
    from nbreferee.course import run as batch
    from nbreferee.workers import pool

    spent, inside = Counter(), []

    def timed(owner, attribute, title, clock):
        function = getattr(owner, attribute)

        @wraps(function)
        def timing(*arguments, **options):
            began = clock()
            try:
                return function(*arguments, **options)
            finally:
                spent[title] += clock() - began

        setattr(owner, attribute, timing)

    for owner, attribute, title in (
        (submission.Inbox, "read", "supervisor: read and check the submission"),
        (batch, "write_request", "supervisor: write the request"),
        (batch, "read_reply", "supervisor: read and check the reply"),
        (store.Store, "put", "supervisor: keep the result"),
        (publication, "put", "supervisor: write notebook and page"),
        (gradebook.Writer, "flush", "supervisor: the gradebook"),
        (store.Store, "publish", "supervisor: note what is public"),
    ):
        timed(owner, attribute, title, time.thread_time)
    timed(pool.Local, "_line", "worker: start a grading process", time.perf_counter)
    timed(pool.Local, "_ask", "worker: run and render", time.perf_counter)
    read = batch.read_reply
    batch.read_reply = lambda *arguments: inside.append(read(*arguments)) or inside[-1]
    course = batch.CourseFolder.load(root)
    course.prepare(name)
    batch.CourseFolder.prepare = lambda self, name: None
    began = time.process_time()
    rows = batch.grade_assignment(course, name, workers=1)
    spent["supervisor: all, start-up included"] = time.process_time() - began
    spent["worker: of this, cells and tests"] = sum(reply.result.seconds for reply in inside)
    print(json.dumps({title: round(1000 * seconds / len(rows), 2) for title, seconds in sorted(spent.items())}))


def by_stage(assignment, students):
    with tempfile.TemporaryDirectory(prefix="bench-grading-") as folder:
        course = Ours(Path(folder), assignment, students)
        command = [sys.executable, str(Path(__file__).resolve()), "--stages", str(course.folder), assignment.name]
        return json.loads(subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True).stdout)


def writing(url, assignment, students):
    """The single writer alone: submissions and rows a second."""
    from nbreferee.course.gradebook import Entry, Writer

    scores, rows = assignment.points, 3 + len(assignment.points) + len(assignment.exercises)
    began = time.perf_counter()
    with Writer(url) as writer:
        for number in range(students):
            writer.write(Entry(f"s{number:05d}", assignment.name, assignment.name, scores))
            if writer.due:
                writer.flush()
    seconds = time.perf_counter() - began
    found = len(marks(url, assignment.name))
    if found != students:
        raise SystemExit(f"{found} of {students} submissions reached the gradebook")
    return {"submissions per second": round(students / seconds), "rows per second": round(rows * students / seconds)}


def writers(assignment, students):
    """The writer on SQLite, and on PostgreSQL where there is one."""
    from local_postgres import Absent, server
    from nbreferee.course.run import CourseFolder

    with tempfile.TemporaryDirectory(prefix="bench-grading-") as folder:
        root = Ours(Path(folder), assignment, range(0)).folder
        CourseFolder.load(root).prepare(assignment.name)
        found = {"SQLite": writing(gradebook(root), assignment, students)}
        try:
            with server(durable=True) as create:
                url = create("bench")
                CourseFolder.load(root, db_url=url).prepare(assignment.name)
                found["PostgreSQL"] = writing(url, assignment, students)
        except Absent as absent:
            found["PostgreSQL"] = str(absent)
    return found


def show(report):
    print(f"\nsubmissions per minute; {WORKERS} workers, nbgrader in {WORKERS} shards")
    titles = {"nbgrader": 22, "nbreferee": 11, "times": 8, "least": 8, "most": 8, "goal": 8}
    print("".join(f"{title:>{width}}" for title, width in (titles | {"start-up s": 16, "wrong marks": 16}).items()))
    for row in report["assignments"]:
        both = row["nbgrader"]["rounds"], row["nbreferee"]["rounds"]
        wrong = [max(r["wrong marks"] for r in rounds) for rounds in both]
        begin = [statistics.median(r["start-up s"] for r in rounds) for rounds in both]
        print(
            f"{row['assignment']:12}{_rates(row, 'per minute', 'ratio', GOALS[row['assignment']])}"
            f"{begin[0]:9.1f}{begin[1]:7.1f}{wrong[0]:9}{wrong[1]:7}"
        )
        print(f"{'  in all':12}{_rates(row, 'per minute with start-up', 'ratio with start-up', GOAL_IN_ALL)}")
    for row in report["assignments"]:
        if "memory MB" in row:
            parts = ", ".join(f"{role} {size['median']:g}" for role, size in row["memory MB"].items())
            print(f"memory of {row['assignment']} (MB, shared pages divided): {parts}")
    for row in report["assignments"]:
        print(f"milliseconds of a submission of {row['assignment']}, one worker:")
        for title, spent in row["stages ms"].items():
            print(f"  {title:48}{spent:8.1f}")
    for database, row in report["writer"].items():
        print(f"the writer alone, {database}: {row}")


def _rates(row, rate, title, goal):
    """The part of a line of the table that tells rates, their ratio, and the goal."""
    rates = [statistics.median(r[rate] for r in row[each]["rounds"]) for each in ("nbgrader", "nbreferee")]
    ratio = row[title]
    return f"{rates[0]:10.0f}{rates[1]:11.0f}{ratio['median']:8.1f}{ratio['least']:8.1f}{ratio['most']:8.1f}{goal:8.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=300, help="for nbreferee (default: 300)")
    parser.add_argument("--stock-students", type=int, default=24, help="for nbgrader, which is slow (default: 24)")
    parser.add_argument("--rounds", type=int, default=3, help="how often, in turn (default: 3)")
    parser.add_argument("--only", choices=list(SETTINGS), help="one assignment")
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "bench-grading.json")
    parser.add_argument("--stages", nargs=2, metavar=("ROOT", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stages:
        return stages(*options.stages)
    sets = [each for each in (numpy_set(), torch_set()) if options.only in (None, each.name)]
    cores = sorted(os.sched_getaffinity(0))[:WORKERS] if hasattr(os, "sched_setaffinity") else []
    if cores:
        os.sched_setaffinity(0, cores)  # both graders inherit it
    report = {"cores": len(cores) or os.cpu_count(), "load before": os.getloadavg(), "assignments": []}
    report |= {"goals": GOALS, "goal with start-up": GOAL_IN_ALL}
    for assignment in sets:
        row = compare(assignment, options)
        row["memory MB"] = memory(assignment, range(min(100, options.students)))
        row["stages ms"] = by_stage(assignment, range(min(100, options.students)))
        report["assignments"].append(row)
    report["writer"] = writers(sets[0], 10 * options.students)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(report)
    ours = [r for row in report["assignments"] for r in row["nbreferee"]["rounds"]]
    if any(r["wrong marks"] or r["pages"] != r["students"] for r in ours):
        raise SystemExit("nbreferee gave wrong marks, or not every page; see the table")
    if short := list(missed(report["assignments"])):
        raise SystemExit("missed: " + "; ".join(short))


if __name__ == "__main__":
    main()
