"""What `nbreferee` makes of the corpus, all of it in one batch, and what must hold afterwards."""

import html
import os
import socket
import threading
import time
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import psutil

from nbreferee.intake.notebook import shown

from .assignment import CANARIES, CELL_S, FULL, NAME, SPELLED, TEXT_POINTS, bystander, source
from .submissions import corpus

HONEST = ("abel", "mira", "zoe")
PORT = 47011
PLACES = ("/tmp", "/dev/shm", "/var/tmp", "/run", "/")
SETTINGS = f"""preload = ["numpy", "torch"]

[limits]
cell_s = {CELL_S}
total_s = 45
patience = 1

[sandbox]
memory_mb = 1024
scratch_mb = 16
"""


@dataclass
class Graded:
    """A batch, and what was seen around it."""

    root: Path
    chosen: list
    rows: dict = field(default_factory=dict)  # student, or name where the id is none: Row
    results: dict = field(default_factory=dict)  # student: Result
    seconds: float = 0.0
    hits: list = field(default_factory=list)  # connections to the services of this machine
    left: list = field(default_factory=list)  # processes
    escaped: list = field(default_factory=list)  # files outside the course
    submitted: dict = field(default_factory=dict)  # what lay in submitted/ before, and what lies there now

    def page(self, student):
        path = self.root / "feedback" / student / NAME / f"{NAME}.html"
        return path.read_text("utf-8") if path.exists() else ""


class _Services:
    """A service on a port and one with an abstract name: nobody may reach them."""

    def __init__(self):
        self.hits, self.lines = [], []
        for family, address in ((socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_UNIX, f"\0hostile-{PORT}")):
            line = socket.socket(family)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                line.bind(address)
            except OSError:  # another run listens there
                line.close()
                continue
            line.listen()
            self.lines.append(line)
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line):
        while True:
            try:
                peer, _ = line.accept()
            except OSError:
                return
            self.hits.append(line.family.name)
            peer.close()

    def close(self):
        for line in self.lines:
            line.shutdown(socket.SHUT_RDWR)
            line.close()


def _lying(folder):
    """{path: (size, time of change)} of all that lies in a folder, without following a link."""
    out = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            status = os.lstat(os.path.join(top, name))
            out[os.path.join(top, name)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return out


def _escaped():
    found = set()
    for place in (*PLACES, str(Path.home()), os.getcwd()):
        try:
            found |= {os.path.join(place, name) for name in os.listdir(place) if "ESCAPED" in name}
        except OSError:
            pass
    return found


def write(root, chosen):
    """Lay out the course: the assignment, three honest students, and the chosen submissions."""
    (root / "source" / NAME).mkdir(parents=True)
    nbformat.write(source(), root / "source" / NAME / f"{NAME}.ipynb")
    (root / "nbreferee.toml").write_text(SETTINGS)
    (root.parent / "outside.txt").write_text(CANARIES["outside"])
    for name in HONEST:
        bystander(name).write(root / "submitted" / name / NAME, root)
    for one in chosen:
        one.sheet().write(root / "submitted" / one.student / NAME, root)


def grade(root, names=(), workers=2):
    """Grade the corpus, or some of it, in one batch.

    Parameters
    ----------
    root : an empty folder for the course; a file is put beside it.
    names : of submissions; all if empty.
    workers : how many at a time.

    Returns
    -------
    Graded.
    """
    from nbgrader.api import Gradebook

    from nbreferee.course.run import CourseFolder, grade_assignment
    from nbreferee.judge.results import Result

    chosen = [one for one in corpus() if not names or one.name in names]
    write(root, chosen)
    course = CourseFolder.load(root)
    course.prepare(NAME)
    with Gradebook(course.gradebook, "") as gradebook:
        gradebook.update_or_create_student("abel", last_name=CANARIES["gradebook"])
    out, services = Graded(root, chosen), _Services()
    children, escaped = set(psutil.Process().children(recursive=True)), _escaped()
    out.submitted = {"before": _lying(root / "submitted")}
    os.environ["SECRET_TOKEN"] = CANARIES["environment"]
    began = time.monotonic()
    try:
        rows = grade_assignment(course, NAME, workers=workers)
    finally:
        del os.environ["SECRET_TOKEN"]
        services.close()
    out.seconds, out.hits = time.monotonic() - began, services.hits
    out.left = _left(children)
    out.escaped = sorted(_escaped() - escaped)
    out.submitted["after"] = _lying(root / "submitted")
    odd = {shown(one.student): one for one in chosen}
    for row in rows:
        one = next((odd[name] for name in odd if not row.student and row.reason.startswith(name)), None)
        out.rows[row.student or (one.student if one else row.reason)] = row
    out.results = {student: Result.from_json(text) for student, text in _stored(course)}
    return out


def _left(before):
    """Processes that were not there before, after a moment in which they may end."""
    end = time.monotonic() + 3
    while True:
        mine = [p for p in psutil.Process().children(recursive=True) if p not in before]
        daemons = [p for p in psutil.process_iter(["cmdline"]) if "ESCAPED" in " ".join(p.info["cmdline"] or ())]
        if not mine + daemons or time.monotonic() > end:
            return [f"{p.pid} {' '.join(p.cmdline())[:100]}" for p in mine + daemons if p.is_running()]
        time.sleep(0.1)


def _stored(course):
    import sqlite3

    with sqlite3.connect(course.state / "results.db") as db:
        return db.execute("select student, result from result").fetchall()


def worse_and_better(graded, one):
    """{test: (got, just)} where the mark is not the just one; a stated limit may be exceeded."""
    row, wrong = graded.rows.get(one.student), {}
    for name in FULL:
        got = None if row is None else row.cells.get(name)
        just = one.just[name] if one.just is not None else 0
        if got != just and not (name in one.limit and got is not None and got >= just):
            wrong[name] = (got, just)
    return wrong


def faults_of_marks(graded):
    """{name: …} of submissions whose marks are not just."""
    out = {}
    for one in graded.chosen:
        row = graded.rows.get(one.student)
        if row is None:
            out[one.name] = "no row at all"
        elif one.state == "unsafe-name":
            continue
        elif wrong := worse_and_better(graded, one):
            result = graded.results.get(one.student)
            told = (
                {n: (result.by_test[n].state, result.by_test[n].message[:200]) for n in wrong} if result else row.reason
            )
            out[one.name] = (wrong, told)
    for name in HONEST:
        cells = {test: graded.rows[name].cells.get(test) for test in FULL} if name in graded.rows else {}
        if cells != FULL:
            out[name] = cells
    return out


def faults_of_states(graded):
    """{name: …} of submissions that did not end as they must, or whose tests did not."""
    out = {}
    for one in graded.chosen:
        row = graded.rows.get(one.student)
        state = row.state if row else None
        if state == "timeout" and any("timeout" in wanted for wanted in one.tests.values()):
            state = "graded"  # it has its marks, wants an eye, and is not kept
        if state != one.state and not (one.name == "untouched" and state == "unanswered"):
            out[one.name] = (state, one.state, row and row.reason)
        elif one.note and one.note not in " ".join(row.notes):
            out[one.name] = (row.notes, one.note)
        for test, wanted in one.tests.items():
            wanted = (wanted,) if isinstance(wanted, str) else wanted
            got = _state(graded, one.student, test)
            if got not in wanted:
                out[one.name] = (test, got, row and row.messages.get(test, "")[:200], wanted)
    return out


def _state(graded, student, test):
    """The state of a test; where a wait has cost something no result is kept, and the message tells."""
    if student in graded.results:
        return graded.results[student].by_test[test].state
    row = graded.rows.get(student)
    return "timeout" if row and "it computed little and waited" in row.messages.get(test, "") else None


def faults_of_sizes(graded):
    """{student: characters} of what is kept of a submission and exceeds what a cell may print."""
    out = {}
    for student, result in graded.results.items():
        longest = max(len(text) for text in _texts(result))
        if longest > 25_000:
            out[student] = longest
    return out


def _texts(result):
    """All that a result says in the student's words."""
    for cell in result.cells:
        yield from (cell.error, cell.trace, cell.output)
    for test in result.tests:
        yield from (test.message, test.trace, test.output, test.mistake)
        yield from (text for call in test.calls for text in (call.what, call.came))


def faults_of_secrets(graded):
    """{name: words} of canaries that stand where they must not."""
    out = {}
    for student in graded.rows:
        page, result = graded.page(student), graded.results.get(student)
        told = "\n".join(_texts(result)) if result else ""
        own = {"other"} if student in (*HONEST, "links-hard-to-another-student") else set()
        found = {f"page: {name}" for name, word in CANARIES.items() if word in page and name not in own}
        found |= {f"page: spelled {text}" for text in SPELLED if text in html.unescape(page)}
        # The instructor may see hidden inputs, but of those students only whose own functions were called with them.
        own |= {"input"} if "hidden-inputs" in student else set()
        found |= {f"result: {name}" for name, word in CANARIES.items() if word in told and name not in own}
        if found:
            out[student] = sorted(found)
    return out


def faults_of_pages(graded):
    """{student: …} of pages that a browser or a terminal would obey, that are too large, or that are missing."""
    from .plain import live

    out = {}
    for student, row in graded.rows.items():
        if not row.student:
            continue
        page = graded.page(student)
        text = " ".join((row.reason, *row.notes))
        if not page:
            out[student] = "no page"
        elif live(page):
            out[student] = live(page)
        elif len(page) > 1_000_000:
            out[student] = f"{len(page)} characters"
        elif odd := {c for c in page + text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t\u200b"}:
            out[student] = sorted(map(ascii, odd))
        elif not text.isprintable():
            out[student] = ascii(text)
    return out


def faults_of_files(graded):
    """What lies where nothing may lie, or was changed."""
    out = list(graded.escaped)
    before, after = graded.submitted["before"], graded.submitted["after"]
    out += [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    students = {row.student for row in graded.rows.values() if row.student}
    for step, name in (("autograded", f"{NAME}.ipynb"), ("feedback", f"{NAME}.html")):
        for path in _lying(graded.root / step):
            parts = Path(path).relative_to(graded.root / step).parts
            if parts[0] not in students or parts[1:] not in ((), (NAME,), (NAME, name), (NAME, "timestamp.txt")):
                out.append(path)
    known = {"source", "submitted", "autograded", "feedback", "nbreferee.toml", ".nbreferee"}
    out += [name for name in os.listdir(graded.root) if name not in known and not name.startswith("gradebook.db")]
    out += [name for name in os.listdir(graded.root.parent) if name not in ("outside.txt", graded.root.name)]
    for path in (graded.root / "autograded").rglob("*.ipynb"):
        if path.stat().st_size > 2_000_000:
            out.append(f"{path.parent.parent.name}: {path.stat().st_size} bytes")
    return sorted(map(str, out))


def faults_of_the_gradebook(graded):
    """What is wrong in the gradebook."""
    import sqlite3

    from nbgrader.api import Gradebook, MissingEntry

    path, out = graded.root / "gradebook.db", []
    with sqlite3.connect(path) as db:
        if (said := db.execute("pragma integrity_check").fetchone()[0]) != "ok":
            out.append(said)
        if found := db.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            out.append(f"triggers {found}")
    students = {row.student for row in graded.rows.values() if row.student}
    with Gradebook(f"sqlite:///{path}", "") as gradebook:
        if gradebook.find_student("abel").last_name != CANARIES["gradebook"]:
            out.append("abel's name")
        if {student.id for student in gradebook.students} != students:
            out.append(f"students {({student.id for student in gradebook.students}) ^ students}")
        if not any(CANARIES["hidden"] in cell.source for cell in gradebook.find_notebook(NAME, NAME).source_cells):
            out.append("tests")
        for student in students:
            try:
                book = gradebook.find_submission_notebook(NAME, NAME, student)
            except MissingEntry:
                out.append(f"no submission of {student}")
                continue
            for grade in book.grades:
                row = graded.rows[student]
                if grade.manual_score is not None or grade.extra_credit:
                    out.append(f"{student}: a mark by hand in {grade.name}")
                elif grade.name in FULL and grade.auto_score != row.cells.get(grade.name):
                    out.append(f"{student}: {grade.name} is {grade.auto_score}, not {row.cells.get(grade.name)}")
                elif grade.max_score != FULL.get(grade.name, TEXT_POINTS):
                    out.append(f"{student}: {grade.name} is worth {grade.max_score}")
    return out


def outcome(graded, one):
    """The row for the table: points, and what there is to say."""
    row, result = graded.rows.get(one.student), graded.results.get(one.student)
    if row is None or row.state not in ("graded", "unanswered"):
        return {"points": None, "words": [f"refused: {row.state}" if row else "lost"]}
    points = sum(row.cells.get(name) or 0 for name in FULL)
    words = []
    if one.just is not None and points > sum(one.just.values()):
        words.append(f"{points - sum(one.just.values()):g} points too many, in a sandboxed test")
    states = {}
    for test in result.tests if result else ():
        if test.state not in ("passed", "failed"):
            states.setdefault(test.state, []).append(test.name)
    words += [f"{state}: {', '.join(names)}" for state, names in states.items()]
    cells = [cell for cell in result.cells if cell.state in ("crashed", "timeout", "memory")] if result else ()
    words += [f"{cell.state}: {'an own cell' if cell.kind == 'own' else 'cell ' + cell.name}" for cell in cells]
    return {"points": points, "words": list(dict.fromkeys(words))}
