"""One process per submission, several at a time, each under a wall limit."""

import hashlib
import json
import multiprocessing
import os
import shutil
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait
from pathlib import Path

import nbformat
import psutil
from nbgrader.utils import is_grade, is_solution, rmtree

from .course_root import Course, exercise_of, grade_id, points_by_exercise, quiet, why
from .intake import STUDENT_ID, Rejected, take_in

# In the order of what the report names first. NOT_GRADED need an instructor's eye: `course.py grade` then exits with 1.
NOT_GRADED = (
    "failed",
    "invalid-id",
    "misplaced",
    "symlink",
    "not-a-notebook",
    "no-notebook",
    "wrong-notebook",
    "empty",
)
NOTED = ("timeout", "crashed", "tests-edited", "missing-cells", "duplicate-cells", "renamed", "unanswered", "graded")
STATES = NOT_GRADED + NOTED
GRACE = 90  # seconds beyond a submission's own total before its process is killed: kernel start, gradebook, feedback


@dataclass
class Row:
    """One line of the report."""

    student: str
    set: str
    state: str = "graded"
    reasons: list = field(default_factory=list)
    points: dict = field(default_factory=dict)  # exercise: points; None if all of it waits for a grader
    total: float | None = None
    max: float = 0.0
    to_mark: float = 0.0
    cells: dict = field(default_factory=dict)  # grade id: points
    messages: dict = field(default_factory=dict)  # grade id: what the failed test said
    seconds: float = 0.0
    skipped: bool = False

    @property
    def reason(self):
        return "; ".join(dict.fromkeys(self.reasons))


def examine(path, stubs):
    """[(state, sentence)] and {test id: message} of an autograded notebook."""
    notes, messages = [], {}
    for cell in nbformat.read(path, 4).cells:
        errors = [output for output in cell.get("outputs", []) if output.output_type == "error"]
        if not errors:
            continue
        name = grade_id(cell) or "a cell of the student's own"
        test = is_grade(cell) and not is_solution(cell)
        if test:
            messages[name] = f"{errors[0].ename}: {errors[0].evalue}".strip()
        kinds = {error.ename for error in errors}
        if kinds & {"CellTimeoutError", "TotalTimeout"}:
            notes.append(("timeout", f"ran over its time in {name}"))
        elif "DeadKernelError" in kinds:
            notes.append(("crashed", f"the kernel died in {name}"))
        elif not test and not (name in stubs and errors[0].ename == "NotImplementedError"):
            notes.append(("crashed", f"{name} stopped with {errors[0].ename}: {errors[0].evalue}"[:160]))
    return notes, messages


def grade_one(root, limits, name, student, feedback, pipe):
    """In a process of its own: nbgrader's autograde, then its feedback."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"
    os.environ.update(PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
    course = Course(root, limits)
    log = course.work / "logs" / f"{student}.log"  # not the terminal: what a student's cell starts would hold on to it
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as file, open(os.devnull) as nothing:
        for descriptor, target in ((0, nothing), (1, file), (2, file)):
            os.dup2(target.fileno(), descriptor)
    folders = {"submitted": course.work / "submitted"}
    with quiet():
        result = course.api(**folders).autograde(name, student, force=True, create=True)
        if result["success"] and feedback:
            result = course.feedback(name, student)
    pipe.send((result["success"], "" if result["success"] else why(result)))
    pipe.close()


def context():
    if "forkserver" in multiprocessing.get_all_start_methods():
        chosen = multiprocessing.get_context("forkserver")
        heavy = [
            "nbconvert.exporters.html",
            "nbconvert.preprocessors",
            "jupyter_client.asynchronous",
            "sqlalchemy.dialects.sqlite",
        ]
        chosen.set_forkserver_preload(["grading.runner", "grading.preprocessors", *heavy])
        return chosen
    return multiprocessing.get_context("spawn")


def end(process):
    """Kill a process and all that it started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        family = []
    process.kill()
    for member in family:
        if member.is_running():
            member.kill()
    process.join()


def run_all(course, name, students, feedback=True, workers=2, on_done=lambda student: None):
    """{student: (how it ended, its log, seconds)}; how: "done", "failed" or "killed". A failure is tried once more."""
    start, queue, running, ended = context(), [(s, 1) for s in students], {}, {}
    wall = course.seconds + GRACE
    try:
        while queue or running:
            while queue and len(running) < workers:
                student, attempt = queue.pop(0)
                ours, theirs = start.Pipe(duplex=False)
                arguments = (course.root, course.limits, name, student, feedback, theirs)
                process = start.Process(target=grade_one, args=arguments, daemon=True)
                process.start()
                theirs.close()
                running[process.sentinel] = (student, attempt, process, ours, time.monotonic())
            ready = wait(list(running), timeout=0.5)
            for sentinel in list(running):
                student, attempt, process, ours, began = running[sentinel]
                seconds = time.monotonic() - began
                if sentinel not in ready and seconds < wall:
                    continue
                del running[sentinel]
                if sentinel not in ready:
                    end(process)
                    how, log = "killed", f"stopped after {wall:.0f} seconds"
                else:
                    process.join()
                    try:
                        success, log = (
                            ours.recv() if ours.poll() else (False, f"its process ended with {process.exitcode}")
                        )
                    except EOFError:
                        success, log = False, f"its process ended with {process.exitcode}"
                    how = "done" if success else "failed"
                ours.close()
                if how == "failed" and attempt == 1:
                    queue.append((student, 2))
                    continue
                ended[student] = (how, log, seconds)
                on_done(student)
    finally:
        for _, _, process, _, _ in running.values():
            end(process)
    return ended


def fingerprint(course, name):
    """What marks depend on besides the submission: source, settings, these modules, versions."""
    parts = hashlib.sha256(json.dumps(course.limits, sort_keys=True).encode())
    here = Path(__file__).resolve().parent
    files = [
        *sorted((course.root / "source" / name).rglob("*")),
        *sorted(path for path in here.rglob("*") if path.suffix in (".py", ".j2", ".json")),
        here.parent / "nbgrader_config.py",
    ]
    for file in files:
        if file.is_file() and ".ipynb_checkpoints" not in file.parts:
            parts.update(file.name.encode() + b"\0" + file.read_bytes())
    for package in ("nbgrader", "ipykernel", "numpy", "torch", "attnmath"):
        try:
            parts.update(f"{package}=={version(package)}".encode())
        except PackageNotFoundError:
            pass
    return parts.hexdigest()


def collect(course, name):
    """([students to look at], [rows about what cannot be looked at]) in submitted/."""
    students, rows, sets = [], [], set(course.sets())
    root = course.root / "submitted"
    for entry in sorted(root.iterdir()) if root.is_dir() else []:
        if entry.name.startswith("."):
            continue
        if not STUDENT_ID.fullmatch(entry.name):
            sentence = "not an id: use letters, digits, dot, underscore and hyphen, 64 at most, a letter or digit first"
            rows.append(Row(entry.name, name, "invalid-id", [sentence]))
        elif not entry.is_dir():
            rows.append(Row(entry.name, name, "misplaced", [f"a file; it belongs into submitted/<student>/{name}/"]))
        elif (entry / name).is_symlink() or (entry / name).is_dir():
            students.append(entry.name)
        elif entry.is_symlink():
            rows.append(Row(entry.name, name, "symlink", ["the folder is a symbolic link; it was not followed"]))
        else:
            stray = sorted(p.name for p in entry.iterdir() if not p.name.startswith(".") and p.name not in sets)
            if stray:
                rows.append(
                    Row(entry.name, name, "misplaced", [f"{stray[0]} belongs into submitted/{entry.name}/{name}/"])
                )
    return students, rows


def set_aside(course, name, student, seen):
    """Enter a submission that cannot be run with 0 where no one has marked by hand, and tell the student why."""
    with course.gradebook() as gradebook:
        gradebook.update_or_create_student(student)
        submission = gradebook.update_or_create_submission(name, student)
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                grade.auto_score, grade.needs_manual_grade = 0, False
        gradebook.db.commit()
    for step in ("autograded", "feedback"):
        if (course.root / step / student / name).exists():
            rmtree(str(course.root / step / student / name))
    page = course.root / "feedback" / student / name / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    text = seen.replace("&", "&amp;").replace("<", "&lt;")
    page.write_text(
        f"<!doctype html><meta charset='utf-8'><title>{name}</title><p>{name} was not graded: {text}.</p>\n", "utf-8"
    )


def read_marks(course, name, row, points):
    """Fill a row from the gradebook."""
    row.max, row.points, row.to_mark, row.cells = sum(points.values()), dict.fromkeys(points), 0.0, {}
    with course.gradebook() as gradebook:
        for notebook in gradebook.find_submission(name, row.student).notebooks:
            for grade in notebook.grades:
                row.cells[grade.name] = float(grade.score)
                if grade.needs_manual_grade:
                    row.to_mark += float(grade.max_score)
                else:
                    exercise = exercise_of(grade.name)
                    row.points[exercise] = (row.points.get(exercise) or 0.0) + float(grade.score)
    row.total = sum(mark for mark in row.points.values() if mark is not None)


def by_hand(course, name, student):
    """{grade id: the answer's text} where a grader has given marks that stand."""
    path = course.root / "autograded" / student / name / f"{name}.ipynb"
    if not path.exists():
        return {}
    with course.gradebook() as gradebook:
        marked = {
            grade.name
            for notebook in gradebook.find_submission(name, student).notebooks
            for grade in notebook.grades
            if grade.manual_score is not None and not grade.needs_manual_grade
        }
    return {grade_id(cell): cell.source for cell in nbformat.read(path, 4).cells if grade_id(cell) in marked}


def let_stand(course, name, student, before):
    """After a new run nbgrader wants every mark given by hand confirmed; where the answer is the same, it stands."""
    path = course.root / "autograded" / student / name / f"{name}.ipynb"
    same = {grade_id(cell) for cell in nbformat.read(path, 4).cells if before.get(grade_id(cell)) == cell.source}
    with course.gradebook() as gradebook:
        for notebook in gradebook.find_submission(name, student).notebooks:
            for grade in notebook.grades:
                if grade.name in same:
                    grade.needs_manual_grade = False
        gradebook.db.commit()


def marks_digest(course, name, student):
    """Changes when a grader gives marks or writes a comment."""
    with course.gradebook() as gradebook:
        parts = [
            [[g.name, g.score, g.needs_manual_grade] for g in notebook.grades]
            + [[c.name, c.comment] for c in notebook.comments]
            for notebook in gradebook.find_submission(name, student).notebooks
        ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def grade_set(course, name, *, force=False, feedback=True, workers=2, progress=lambda students: lambda student: None):
    """Grade what lies in submitted/*/name; the rows of the report, by student."""
    base = course.prepare(name)
    release = course.root / "release" / name / f"{name}.ipynb"
    released = nbformat.read(release, 4) if release.exists() else None
    points, mark = points_by_exercise(base), fingerprint(course, name)
    memory = course.root / "reports" / f"{name}.json"
    before = json.loads(memory.read_text("utf-8")) if memory.exists() else {}
    students, rows = collect(course, name)
    for row in rows:
        row.max = sum(points.values())
    after, todo, stale = {}, {}, []

    for student in students:
        row = Row(student, name)
        rows.append(row)
        try:
            intake = take_in(course.root / "submitted" / student / name, name, base, released)
        except Rejected as rejected:
            row.state, row.reasons = rejected.state, [rejected.reason]
            set_aside(course, name, student, rejected.reason)
            continue
        key = hashlib.sha256(f"{intake.digest} {mark}".encode()).hexdigest()
        old = before.get(student, {})
        done = (course.root / "autograded" / student / name / f"{name}.ipynb").exists()
        if not force and old.get("key") == key and done:
            row.state, row.reasons, row.skipped = old["state"], old["reasons"], True
            row.messages = old["messages"]
            after[student] = old
            if feedback and old.get("marks") != marks_digest(course, name, student):
                stale.append(student)
            continue
        folder = course.work / "submitted" / student / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        nbformat.write(intake.notebook, folder / f"{name}.ipynb")
        todo[student] = (row, intake, key)

    marked = {student: by_hand(course, name, student) for student in todo}
    ended = run_all(course, name, list(todo), feedback, workers, progress(list(todo))) if todo else {}
    for student, (row, intake, key) in todo.items():
        how, log, row.seconds = ended[student]
        if marked[student] and (course.root / "autograded" / student / name / f"{name}.ipynb").exists():
            let_stand(course, name, student, marked[student])  # also when the run failed, for the next one asks
        if how == "done":
            path = course.root / "autograded" / student / name / f"{name}.ipynb"
            notes, row.messages = examine(path, intake.unanswered)
            notes = notes + intake.notes
            answers = [c for c in base.cells if c.metadata.get("nbgrader", {}).get("solution")]
            if intake.unanswered:
                everything = len(intake.unanswered) == len(answers)
                what = "nothing was answered" if everything else f"not answered: {', '.join(intake.unanswered)}"
                notes.append(("unanswered" if everything else "graded", what))
            row.state = min((state for state, _ in notes), key=STATES.index, default="graded")
            row.reasons = [sentence for _, sentence in sorted(notes, key=lambda note: STATES.index(note[0]))]
            after[student] = {k: getattr(row, k) for k in ("state", "reasons", "messages", "seconds")} | {"key": key}
        elif how == "killed":
            row.state, row.reasons = "timeout", [log]
            set_aside(course, name, student, log)
        else:
            row.state, row.reasons = (
                "failed",
                [f"the grader failed, no mark was given: {log.splitlines()[-1] if log else '?'}"],
            )
            (course.root / "reports").mkdir(exist_ok=True)
            (course.root / "reports" / f"{name}.{student}.log").write_text(log, "utf-8")

    for student in stale:  # marked by hand since: the feedback shows it
        with quiet():
            course.feedback(name, student)
    for row in rows:
        if row.state not in ("failed", "invalid-id", "misplaced") and row.student in students:
            read_marks(course, name, row, points)
            if row.student in after:
                after[row.student]["marks"] = marks_digest(course, name, row.student)
    memory.parent.mkdir(exist_ok=True)
    memory.write_text(json.dumps(after, indent=1, sort_keys=True), "utf-8")
    return sorted(rows, key=lambda row: row.student), points
