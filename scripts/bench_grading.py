"""`make bench-grading`: submissions a minute of stock nbgrader and of nbreferee, in one run, on two cores.

Both begin with a folder of submissions and end with notebooks, a gradebook and feedback pages. nbgrader gets half of
the class in each of two processes, each with a gradebook of its own, so that none waits for the other. Both are also
run on a class of one for each process: what that takes is the start-up, and the rates are those of the rest.
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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from grading_class import differences, marks, numpy_set, torch_set, write  # noqa: E402

GOAL = 10.0
WORKERS = 2
SETTINGS = {"arrays": 'preload = ["numpy"]\n', "tensors": 'preload = ["numpy", "torch"]\n'}
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
ENVIRONMENT = os.environ | ONE_THREAD | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
GRADE = """
import sys
from nbreferee.batch import CourseFolder, grade_assignment
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

    def found(self):
        return marks(gradebook(self.folder), self.name)

    def pages(self):
        return sum(1 for _ in self.folder.glob("feedback/*/*/*.html"))


def measure(grader, assignment, students):
    """One run: seconds, and whether the marks are those that were expected."""
    with tempfile.TemporaryDirectory(prefix="bench-grading-") as folder:
        course = grader(Path(folder), assignment, students)
        seconds = course.run()
        wrong = differences(course.expected, course.found())
        crashed = {student for student, submission in course.expected.items() if submission.crash}
        return {
            "students": len(students),
            "seconds": round(seconds, 2),
            "pages": course.pages(),
            "wrong marks": len(wrong),
            "of these with a crash": len(set(wrong) & crashed),
            "crashes": len(crashed),
        }


def compare(assignment, options):
    """Rounds of both in turn, after a class of one for each process."""
    rows = {"assignment": assignment.name, "tests": len(assignment.points), "workers": WORKERS}
    sizes = {Stock: options.stock_students, Ours: options.students}
    fewest = {Stock: WORKERS, Ours: 1}
    for grader in (Stock, Ours):
        times = [measure(grader, assignment, range(fewest[grader]))["seconds"] for _ in range(options.rounds)]
        rows[grader.title] = {"start-up s": min(times), "rounds": []}
    for _ in range(options.rounds):
        for grader in (Stock, Ours):
            row = measure(grader, assignment, range(sizes[grader]))
            seconds = row["seconds"] - rows[grader.title]["start-up s"]
            row["per minute"] = round(60 * (sizes[grader] - fewest[grader]) / seconds, 1)
            row["per minute with start-up"] = round(60 * sizes[grader] / row["seconds"], 1)
            rows[grader.title]["rounds"].append(row)
            print(f"  {assignment.name}, {grader.title}: {row}", flush=True)
    pairs = zip(*(rows[grader.title]["rounds"] for grader in (Ours, Stock)), strict=True)
    rows["ratios"] = [round(ours["per minute"] / stock["per minute"], 2) for ours, stock in pairs]
    rows["ratio"] = {
        "least": min(rows["ratios"]),
        "median": statistics.median(rows["ratios"]),
        "most": max(rows["ratios"]),
    }
    return rows


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


def show(report):
    print(f"\nsubmissions per minute, start-up apart; {WORKERS} workers; goal: {GOAL:g} times as many")
    columns = {"nbgrader": 22, "nbreferee": 11, "ratio": 8, "least": 8, "most": 8, "start-up s": 16, "wrong marks": 16}
    print("".join(f"{title:>{width}}" for title, width in columns.items()))
    for row in report["assignments"]:
        stock, ours = row["nbgrader"], row["nbreferee"]
        rates = [statistics.median(r["per minute"] for r in each["rounds"]) for each in (stock, ours)]
        wrong = [max(r["wrong marks"] for r in each["rounds"]) for each in (stock, ours)]
        ratio = row["ratio"]
        print(
            f"{row['assignment']:12}{rates[0]:10.0f}{rates[1]:11.0f}{ratio['median']:8.1f}{ratio['least']:8.1f}"
            f"{ratio['most']:8.1f}{stock['start-up s']:9.1f}{ours['start-up s']:7.1f}{wrong[0]:9}{wrong[1]:7}"
        )
    for row in report["assignments"]:
        if "memory MB" in row:
            parts = ", ".join(f"{role} {size['median']:g}" for role, size in row["memory MB"].items())
            print(f"memory of {row['assignment']} (MB, shared pages divided): {parts}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=300, help="for nbreferee (default: 300)")
    parser.add_argument("--stock-students", type=int, default=24, help="for nbgrader, which is slow (default: 24)")
    parser.add_argument("--rounds", type=int, default=3, help="how often, in turn (default: 3)")
    parser.add_argument("--only", choices=list(SETTINGS), help="one assignment")
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "bench-grading.json")
    options = parser.parse_args()
    sets = [each for each in (numpy_set(), torch_set()) if options.only in (None, each.name)]
    cores = sorted(os.sched_getaffinity(0))[:WORKERS] if hasattr(os, "sched_setaffinity") else []
    if cores:
        os.sched_setaffinity(0, cores)  # both graders inherit it
    report = {"cores": len(cores) or os.cpu_count(), "load before": os.getloadavg(), "goal": GOAL, "assignments": []}
    for assignment in sets:
        row = compare(assignment, options)
        row["memory MB"] = memory(assignment, range(min(100, options.students)))
        report["assignments"].append(row)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(report)
    ours = [r for row in report["assignments"] for r in row["nbreferee"]["rounds"]]
    if any(r["wrong marks"] or r["pages"] != r["students"] for r in ours):
        raise SystemExit("nbreferee gave wrong marks, or not every page; see the table")
    missed = [row["assignment"] for row in report["assignments"] if row["ratio"]["median"] < GOAL]
    if missed:
        raise SystemExit(f"the goal of {GOAL:g} is missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
