"""`make grade-big-class`: a thousand students, eight assignments, one run that is killed again and again.

The run is killed with signal 9, with its whole process group, at random moments, and given again, until it comes to its
end. The class has deadlines, extensions and excused students, and every third submission comes after its due time. Then
every mark and every penalty is compared with what the submission is worth, in the gradebook's rows and through
nbgrader's own interface; every submission must have been run no more after its result was stored; no process and no
file is left over.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from grading_class import differences, marks, penalties, set_deadlines, small_set, write

ROOT = Path(__file__).resolve().parents[1]
WHO = re.compile(rb"# (s\d{5}) (small\d+) ")
AHEAD = 16  # so many submissions at most are under way when a run is killed


def grade(root: Path, workers: int) -> None:
    """What an instructor's command does, with a journal of what was asked of the graders and what was stored."""
    from nbreferee.course import late
    from nbreferee.course.run import CourseFolder, grade_assignment
    from nbreferee.course.store import Store
    from nbreferee.walls.supervisor import Zygote
    from nbreferee.workers.message import read_request
    from nbreferee.workers.pool import Local

    journal = os.open(root.parent / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    put = Store.put

    class Pool(Local):
        def submit(self, message, timeout_s):
            student, name = WHO.search(message).groups()
            word = b"asked" if read_request(message).result is None else b"shown"  # a page with its penalty, no run
            os.write(journal, b"%s %s %s\n" % (word, student, name))
            return super().submit(message, timeout_s)

    def put_and_tell(self, key, student, assignment, *kept):
        put(self, key, student, assignment, *kept)
        os.write(journal, f"stored {student} {assignment}\n".encode())

    Store.put = put_and_tell
    course, rules = CourseFolder.load(root), late.load(root / "deadlines.toml")
    with Pool(Zygote, workers) as pool:
        for name in course.assignments():
            grade_assignment(course, name, pool=pool, rules=rules)


def start(root, workers):
    folder = root.parent / "temporary"
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--run", str(root), "--workers", str(workers)]
    with open(root.parent / "log", "a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def stored(root):
    journal = root.parent / "journal"
    return journal.read_bytes().count(b"stored ") if journal.exists() else 0


def kill(process, faults):
    """Kill the whole group, and see that all that it had started goes too."""
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    faults += [f"process {each.pid} outlived its run" for each in alive]
    return len(family)


def run(root: Path, *, students: int, sets: int, kills: int, workers: int = 2, seed: int = 0, say=print) -> dict:
    """Grade a class with kills.

    Parameters
    ----------
    root : a folder that does not exist yet; beside it lie a log and a journal.
    students, sets : how many.
    kills : how often the run is killed.

    Returns
    -------
    the report; ``faults`` is empty if all is as it should be.
    """
    assignments, draw, faults = [small_set(number) for number in range(sets)], random.Random(seed), []
    expected = write(root, assignments, range(students))
    set_deadlines(root, expected)
    total, began, killed, seconds = students * sets, time.monotonic(), [], 0.0
    moments = sorted(draw.sample(range(1, max(kills + 1, int(total * 0.95))), kills))
    while True:
        process = start(root, workers)
        once = time.monotonic()
        due = moments[len(killed)] if len(killed) < kills else None
        while process.poll() is None:
            if due is not None and stored(root) >= due:
                time.sleep(draw.uniform(0, 0.4))
                if process.poll() is None:
                    killed.append({"after": stored(root), "processes": kill(process, faults)})
                    say(f"killed after {killed[-1]['after']} of {total}")
                break
            time.sleep(0.02)
        else:
            if process.returncode:
                raise RuntimeError(f"the run failed: {(root.parent / 'log').read_text()[-2000:]}")
            seconds = time.monotonic() - once
            if due is None:
                break
            raise RuntimeError(f"the run ended before kill {len(killed) + 1}")
    report = {"students": students, "sets": sets, "submissions": total, "workers": workers, "kills": killed}
    report |= {"seconds": round(time.monotonic() - began, 1), "seconds of the last run": round(seconds, 1)}
    report["came"] = Counter(each.time for submissions in expected.values() for each in submissions.values())
    report["per minute, kills included"] = round(60 * total / report["seconds"], 1)
    faults += look(root, expected)
    report |= count(root, total, len(killed), faults)
    return report | {"faults": faults}


def look(root, expected):
    """Sentences about marks, pages and files that are not as they should be."""
    url = f"sqlite:///{root / 'gradebook.db'}"
    for name, submissions in expected.items():
        wrong = differences(submissions, marks(url, name))
        for student, (want, got) in list(wrong.items())[:5]:
            yield f"{name}: {student} has {got} instead of {want}"
        if len(wrong) > 5:
            yield f"{name}: {len(wrong)} wrong marks in all"
        yield from look_at_penalties(name, submissions, penalties(url, name))
        for folder, suffix in (("autograded", "ipynb"), ("feedback", "html")):
            files = {path.parts[-3] for path in root.glob(f"{folder}/*/{name}/{name}.{suffix}") if path.stat().st_size}
            if files != set(submissions):
                yield f"{name}: {len(files)} files in {folder}, not {len(submissions)}"
    yield from ask_nbgrader(url, expected)
    leftover = [path for path in root.rglob("*.part")] + list((root.parent / "temporary").iterdir())
    yield from (f"left over: {path.name}" for path in leftover)


def look_at_penalties(name, submissions, taken):
    """Sentences about final marks that lateness has not changed as it should."""
    wrong = [each for each in submissions.values() if taken.get(each.student) != each.penalty]
    for each in wrong[:5]:
        yield f"{name}: {each.student}, {each.time}, loses {taken.get(each.student)} instead of {each.penalty}"
    if len(wrong) > 5:
        yield f"{name}: {len(wrong)} wrong penalties in all"


def ask_nbgrader(url, expected, sample=20):
    """The same marks as nbgrader's own interface gives them, for some students."""
    import warnings

    from nbgrader.api import Gradebook

    for name, submissions in expected.items():
        some = list(submissions.values())[:: max(1, len(submissions) // sample)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Gradebook(url) as gradebook:
                for each in some:
                    found = gradebook.find_submission(name, each.student)
                    got = {grade.name: grade.score for book in found.notebooks for grade in book.grades}
                    if got != each.expected or found.score != each.total or found.needs_manual_grade:
                        yield f"{name}: nbgrader says {found.score} for {each.student}, not {each.total}"
                    final = found.score - (found.late_submission_penalty or 0.0)
                    if abs(final - each.final) > 1e-9:
                        yield f"{name}: nbgrader's final mark of {each.student} is {final}, not {each.final}"


def count(root, total, kills, faults):
    """How often each submission was run: never after its result was stored."""
    asked, done = Counter(), Counter()
    for line in (root.parent / "journal").read_text().splitlines():
        word, who = line.split(" ", 1)
        if word == "asked":
            asked[who] += 1
            if done[who]:
                faults.append(f"{who} was run again after its result was stored")
        elif word == "stored":
            done[who] += 1
    twice, missing = [who for who, times in done.items() if times > 1], total - len(done)
    faults += [f"{who} was stored twice" for who in twice]
    if len(asked) != total or missing > kills:  # a kill may fall between a result and its line in the journal
        faults.append(f"{len(asked)} of {total} submissions were run, {len(done)} stored")
    again = sum(asked.values()) - total
    if again > AHEAD * kills:
        faults.append(f"{again} runs were lost to {kills} kills")
    return {"runs": sum(asked.values()), "runs lost to kills": again, "stored": len(done)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=1000)
    parser.add_argument("--sets", type=int, default=8)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the moments (default: another)")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return grade(options.run, options.workers)
    print(f"{options.students} students, {options.sets} assignments, {options.kills} kills, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="big-class-") as folder:
        size = {"students": options.students, "sets": options.sets, "kills": options.kills}
        report = run(Path(folder) / "course", **size, workers=options.workers, seed=options.seed)
    report["seed"] = options.seed
    out = ROOT / "_build" / "big-class.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    faults = report.pop("faults")
    for key, value in report.items():
        print(f"{key}: {value}")
    print(f"faults: {len(faults) or 'none'}", *faults[:10], sep="\n  ")
    if faults:
        raise SystemExit("not every mark is right, or something was left over; see the faults")


if __name__ == "__main__":
    main()
