"""The command line: `nbreferee --help`, `nbreferee grade --help`."""

import argparse
import contextlib
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from .course.entries import GradebookError
from .course.run import BatchError, CourseFolder, Stopped, grade_assignment, needs_eye, read_source, writing
from .errors import NbrefereeError
from .export.marks import ExportError, handed_in, roster
from .intake.notebook import Refused, shown
from .pages.tables import TableError
from .walls.sandbox import SandboxError, abilities
from .workers.pool import Local, PoolError

__all__ = ["main"]

DEADLINES = "deadlines.toml"
ABOUT = """\
Grade the notebooks of strangers. The tests run in a process that the student's code cannot reach.

  nbreferee doctor                        what this machine can isolate, and what is missing
  nbreferee migrate set2                  what a course of plain nbgrader has to add, as a diff
  nbreferee check set2                    the reference must earn everything, the untouched version nothing
  nbreferee grade --assignment set2       grade what lies in submitted/<student>/set2/
  nbreferee export csv marks.csv          marks of all assignments; also long, canvas, moodle, moodle-import
  nbreferee similar set2                  pairs of submissions that share code, as a hint

A course is a folder as nbgrader lays it out: source/, submitted/, autograded/, feedback/, nbgrader_config.py. It may
hold nbreferee.toml (time, memory, what to import) and deadlines.toml (due dates, penalties, extensions) as well. Files
beside a source notebook, such as data/table.csv, lie beside answers and tests too, to be read.
Exit codes: 0 all is done; 1 it is done, and something wants your eye; 2 it could not be done, or not for every
assignment; 130 and 141 it was stopped. The last lines say what to do.
"""
CURES = """\
What a test cannot do by itself, the source says, in the metadata of the cell, {"nbreferee": {…}}:

  "changes": true        of a test: the answer may change the arguments that it is given, as one that sorts in place
  "asks": ["name"]       of an answer: more names, besides those that the reference binds, that tests take from it
  "run": "sandboxed"     of a test: it runs in the student's own process, as with nbgrader, for what cannot be split
                         (plots, mocks, isinstance of classes of the student's, source code); such points can be forged
  "needs": ["test"]      of a sandboxed test: it counts nothing unless these split tests pass

and nbreferee.toml beside source/ says what concerns the course:

  preload = ["pandas"]           what is imported beforehand
  [sandbox]
  readable = ["data"]            folders that all answers and tests may read, relative to that file

nbreferee migrate proposes the least of it with which the reference of each test passes.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command.

    Returns
    -------
    0; 1 if something wants the instructor's eye; 2 if the command could not be done, or not for every assignment; 130
    or 141 if it was stopped.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except Stopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except NbrefereeError as error:
        print(f"nbreferee: {error}", file=sys.stderr)
        return 2


def _parser():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="nbreferee", description=ABOUT, epilog=CURES, formatter_class=raw)
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name, function, text, **more):
        made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", **more)
        made.add_argument("--course", type=Path, default=Path(), help="the folder that holds source/ (default: here)")
        made.set_defaults(run=function)
        return made

    def which(made):
        made.add_argument("names", nargs="*", metavar="ASSIGNMENT", help="all in source/ if none is named")
        made.add_argument("--assignment", action="append", default=[], metavar="NAME", help="the same, as an option")

    def machine(made):
        cores = os.cpu_count() or 1
        made.add_argument("--workers", type=_count, default=cores, help=f"submissions at a time (default: {cores})")
        made.add_argument(
            "--unsafe", action="store_true", help="without walls: submissions can then do all that you can"
        )

    grade = command("grade", _grade, "grade what lies in submitted/")
    which(grade)
    machine(grade)
    grade.add_argument("--force", action="store_true", help="run unchanged submissions again")
    grade.add_argument("--db", default="", metavar="URL", help="the gradebook (default: what nbgrader_config.py says)")
    grade.add_argument(
        "--cell-seconds",
        type=float,
        metavar="S",
        help="of processor time, for one cell or test (nbreferee.toml: cell_s)",
    )
    grade.add_argument(
        "--total-seconds",
        type=float,
        metavar="S",
        help="of processor time, for one submission (nbreferee.toml: total_s)",
    )
    grade.add_argument("--scheduler", metavar="ADDRESS", help="tls://… of a dask.distributed scheduler: many machines")
    for name, what in (("ca", "the authority that signed"), ("cert", "our certificate"), ("key", "its key")):
        grade.add_argument(f"--tls-{name}", type=Path, metavar="PEM", help=f"{what}; with --scheduler")

    cures = {"epilog": CURES, "formatter_class": raw}
    check = command("check", _check, "grade the reference and the untouched version: everything, and nothing", **cures)
    which(check)
    machine(check)

    migrate = command("migrate", _migrate, "propose what a course of plain nbgrader has to add", **cures)
    which(migrate)
    machine(migrate)
    migrate.add_argument("--write", action="store_true", help="write it into source/ (default: show it as a diff)")

    doctor = command("doctor", _doctor, "say what this machine can isolate and what is missing")
    doctor.add_argument("--db", default="", metavar="URL", help="the gradebook (default: what nbgrader_config.py says)")

    export = command("export", _export, "write marks for a spreadsheet or a learning platform")
    export.add_argument("form", choices=["csv", "long", "canvas", "moodle", "moodle-import"])
    export.add_argument("file", type=Path, help="what to write")
    export.add_argument("--assignment", action="append", default=[], metavar="NAME", help="all if none is named")
    export.add_argument("--template", type=Path, help="the platform's own export, to be filled (canvas, moodle)")
    export.add_argument("--column", help="what the assignment is called on the platform (canvas)")
    export.add_argument("--ids", type=Path, metavar="CSV", help="a file with the columns student,lms_id")
    export.add_argument("--by", choices=["email", "id"], default="email", help="how moodle-import names students")
    export.add_argument("--missing", choices=["empty", "zero"], default="empty", help="who has not submitted")
    export.add_argument("--waiting", choices=["empty", "points"], default="empty", help="what waits for a person")
    export.add_argument("--overwrite", action="store_true", help="replace other marks that stand in the template")
    export.add_argument("--bom", action="store_true", help="begin with a byte order mark, for Excel")
    export.add_argument("--db", default="", metavar="URL", help="the gradebook (default: what nbgrader_config.py says)")

    similar = command("similar", _similar, "find submissions that share code: a hint, not a verdict")
    similar.add_argument("name", metavar="ASSIGNMENT")
    similar.add_argument("--share", type=_share, default=0.5, help="of an answer, to be named (default: 0.5)")
    similar.add_argument("--top", type=_count, default=50, help="pairs shown side by side (default: 50)")
    return parser


def _count(text):
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return number


def _share(text):
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no share above 0 and at most 1")


def _chosen(course, options):
    names = [*options.names, *options.assignment]
    there = course.assignments()
    for name in names:
        course.notebooks(name)
    if not there:
        raise BatchError(f"there is no assignment in {course.folder('source')}; one is source/<name>/<name>.ipynb")
    return names or there


@contextlib.contextmanager
def _pools(course, options):
    """A function that gives an assignment's pool; assignments beside whose notebooks nothing lies share one."""
    with contextlib.ExitStack() as running:
        made = {}

        def of(name):
            policy = course.policy(name)
            if policy not in made:
                running.close()
                made.clear()
                made[policy] = running.enter_context(_pool(course, options, policy))
            return made[policy]

        yield of


def _pool(course, options, policy):
    from .walls.supervisor import Zygote

    make = partial(Zygote, preload=course.settings.preload, policy=policy, unsafe=options.unsafe)
    if getattr(options, "scheduler", None):
        from .workers.cluster import Cluster

        missing = [name for name in ("ca", "cert", "key") if getattr(options, f"tls_{name}") is None]
        if missing:
            raise PoolError(f"--scheduler wants --tls-{missing[0]} too: a cluster trusts whoever can reach it")
        tls = {f"tls_{name}": getattr(options, f"tls_{name}") for name in ("ca", "cert", "key")}
        return Cluster(options.scheduler, make, packages=course.settings.packages, **tls)
    if not options.unsafe and (lacks := abilities().lacks):
        end = "; or pass --unsafe if you trust every submission as yourself."
        raise SandboxError(f"submissions are run behind walls, and this machine cannot build them: {lacks}{end}")
    return Local(make, options.workers)


def _course(options):
    course = CourseFolder.load(options.course, db_url=getattr(options, "db", ""))
    limits = {"cell_s": "cell_seconds", "total_s": "total_seconds"}
    said = {key: getattr(options, name, None) for key, name in limits.items()}
    said = {key: value for key, value in said.items() if value is not None}
    return replace(course, settings=replace(course.settings, limits=replace(course.settings.limits, **said)))


def _rules(course):
    from .course.late import load

    return load(course.root / DEADLINES) if (course.root / DEADLINES).exists() else None


def _grade(options):
    course = _course(options)
    names, rules, attention, graded, faults = _chosen(course, options), _rules(course), False, 0, []
    for sentence in rules.check(_students(course), course.assignments(), names) if rules else ():
        print(sentence, file=sys.stderr)
    with _pools(course, options) as pool:
        for name in names:
            began, how = time.monotonic(), {"force": options.force, "rules": rules}
            try:
                with _Bar(name) as bar:
                    rows = grade_assignment(course, name, pool=pool(name), progress=bar, **how)
                if rows:
                    _report(course, name, rows, time.monotonic() - began)
            except (BatchError, ExportError, GradebookError, TableError) as fault:  # of this set; the others go on
                faults.append(fault)
                continue
            graded += len(rows)
            attention = attention or bool(needs_eye(rows))
    if not graded and not faults:
        example = _near(course.folder("submitted")) / "ada" / names[0] / f"{names[0]}.ipynb"
        print(f"Nothing to grade. Put each notebook in its place, for instance {example}.")
    for fault in faults:
        print(f"nbreferee: {fault}", file=sys.stderr)
    return 2 if faults else int(attention)


def _report(course, name, rows, seconds):
    """Write the reports of one assignment, and say what it came to."""
    from .course.report import summary, table, write_csv, write_markdown

    reports = _reports(course)
    write_csv(reports / f"{name}.csv", rows)
    with writing(reports / f"{name}.md"):
        write_markdown(reports / f"{name}.md", name, rows)
    print(table(rows))
    print(f"\n{name}: {summary(rows)}; {seconds:.0f} s, {60 * len(rows) / max(seconds, 1e-9):.0f} a minute.")
    if waiting := sum(bool(row.to_mark) for row in rows):
        print(f"{waiting} wait for marks by hand, in nbgrader's formgrader.")
    if by_file := sum(row.by_file for row in rows):
        late = sum(bool(row.penalty) for row in rows)
        print(
            f"{by_file} of {late} late submissions are judged by the time of their file; "
            "if copying or unpacking changed it, lay a timestamp.txt beside each and give the command again."
        )
    if odd := needs_eye(rows):
        named = [f"{row.student or '?'} ({row.state})" for row in odd]
        cure = "The reason beside each says what to do; then give the command again."
        print(f"{len(odd)} want your eye: {_some(named)}. {cure}")
    if gone := sorted(set(_known(handed_in, course, name)) - {row.student for row in rows}):
        where = _near(course.folder("submitted"))
        print(f"Marked earlier, and no longer in {where}/: {_some(gone)}; the gradebook keeps these marks.")
    if course.bookless:
        print("No gradebook is kept, for nbgrader is not installed; for one: pip install 'nbreferee[nbgrader]'.")
    print(f"Marks: {_near(reports / name)}.csv; feedback: {_near(course.folder('feedback'))}/<student>/{name}/")


def _some(names):
    return ", ".join(map(shown, names[:8])) + (" …" if len(names) > 8 else "")


def _reports(course):
    folder = course.root / "reports"
    with writing(folder):
        folder.mkdir(exist_ok=True)
    return folder


def _near(path):
    """As short as the reader needs it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def _students(course):
    """Who has handed in, and who stands in the gradebook, if there is one yet."""
    folder, known = course.folder("submitted"), set(_known(roster, course))
    return sorted(known.union(path.name for path in folder.iterdir()) if folder.is_dir() else known)


def _known(ask, course, *about):
    """What the gradebook says, if there is one that can be read."""
    try:
        return ask(course.gradebook, *about)
    except (ExportError, GradebookError):
        return []


class _Bar:
    """A progress bar with rate and time left, once there is something to count."""

    def __init__(self, name):
        self.name, self.bar = name, None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.bar is not None:
            self.bar.close()

    def __call__(self, done, total, row):
        from tqdm import tqdm

        if self.bar is None:
            self.bar = tqdm(total=total, desc=self.name, unit=" submissions", disable=None)
        self.bar.update(done - self.bar.n)
        self.bar.set_postfix_str(row.student, refresh=False)


def _check(options):
    from .course.trial import check_marks, doubts_in, ways

    course, failed = _course(options), False
    options.unsafe = options.unsafe or not abilities()  # what is run here is the instructor's own
    with _pools(course, options) as pool:
        for name in _chosen(course, options):
            for book, path in course.notebooks(name).items():
                source = read_source(path)
                wrong = check_marks(source, course.settings, pool(name).run)
                for sentence in (*wrong, *doubts_in(source, course.settings)):
                    print(f"{name}: {sentence}")
                failed = failed or bool(wrong)
                points = ways(source)
                how = ", ".join(f"{points[way]:g} points {way}" for way in sorted(points, reverse=True))
                if not points:
                    print(f"{name}: {book} has no tests")
                elif not wrong:
                    print(f"{name}: {book} is sound: the reference earns all, the untouched version nothing ({how})")
    return int(failed)


def _migrate(options):
    from .course.migrate import migrate

    course = _course(options)
    options.unsafe = options.unsafe or not abilities()  # what is run here is the instructor's own
    with _pools(course, options) as pool:
        pools = lambda name: contextlib.nullcontext(pool(name))  # noqa: E731
        return migrate(course, _chosen(course, options), pools, write=options.write)


def _doctor(options):
    from .walls.doctor import main as diagnose

    return diagnose(["--course", str(options.course), "--db", _course(options).gradebook])


def _export(options):
    from .export.canvas import canvas
    from .export.marks import read_marks
    from .export.moodle import moodle, moodle_import
    from .export.tables import long, wide
    from .export.worksheet import mapping
    from .pages.tables import write

    names = options.assignment or None
    marks = read_marks(_course(options).gradebook, names)
    ids = mapping(options.ids) if options.ids else None
    choice = {"missing": options.missing, "waiting": options.waiting}
    if options.form in ("canvas", "moodle"):
        if options.template is None or len(options.assignment) != 1:
            raise ExportError(f"{options.form} wants --template FILE, its own export, and one --assignment NAME")
        fill = partial(canvas, column=options.column) if options.form == "canvas" else moodle
        filled = fill(options.template, marks, *names, ids=ids, overwrite=options.overwrite, **choice)
        filled.write(options.file)
        said = filled.sentences()
    else:
        said = []
        if options.form == "moodle-import":
            rows, said = moodle_import(marks, names, by=options.by, ids=ids, **choice)
        else:
            rows = wide(marks, **choice) if options.form == "csv" else long(marks)
        write(options.file, rows, bom=options.bom)
        said.append(f"{options.file}: {len(rows) - 1} rows")
    print(*said, *marks.unmarked(names, waiting=options.waiting), sep="\n")
    return 0


def _similar(options):
    from .intake import gate
    from .intake.answers import answers
    from .pages import similarity

    course = _course(options)
    thresholds = similarity.Thresholds(share=options.share)
    stubs = {"code_stub": course.settings.code_stub, "text_stub": course.settings.text_stub}
    books, odd = course.notebooks(options.name), 0
    for book, path in books.items():
        template, submitted = read_source(path), {}
        for found in gate.collect(course.folder("submitted"), options.name, names=list(books)):
            if found.name != book:
                continue
            try:
                submitted[found.student] = answers(gate.admit(found).notebook, template, **stubs)
            except Refused:
                odd += 1
        report = similarity.compare(similarity.from_answers(submitted), similarity.handed_out(template), thresholds)
        reports = _reports(course)
        stem = f"{options.name}-{book}-similar" if len(books) > 1 else f"{options.name}-similar"
        similarity.table(report, reports / f"{stem}.csv")
        title = f"{options.name}: shared code"
        with writing(reports / f"{stem}.html"):
            (reports / f"{stem}.html").write_text(similarity.page(report, title=title, top=options.top), "utf-8")
        print(*report.notes, sep="\n", end="\n" if report.notes else "")
        print(f"{len(report.pairs)} pairs of {len(submitted)} submissions: {_near(reports / stem)}.html and .csv")
    if odd:
        print(f"{odd} submissions could not be read and were left out.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
