"""Release and grade problem sets: `python course.py --help`, or `make release` and `make grade`.

python course.py release [SET ...]    student versions and their zips, after checks
python course.py grade   [SET ...]    grade what lies in submitted/<student>/<set>/<set>.ipynb
python course.py zip     [SET ...]    only the zips that the book offers for download, without a gradebook
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOWNLOADS = HERE.parent / "_build" / "problem-sets"
sys.path.insert(0, str(HERE))  # the modules in grading/; each command imports what it needs, so that --help is quick


def chosen(course, names):
    sets = course.sets()
    for name in names:
        if name not in sets:
            raise SystemExit(
                f"There is no set {name!r} in {course.root.name}/source. There are: {', '.join(sets) or 'none'}."
            )
    if not sets:
        raise SystemExit(f"No set in {course.root.name}/source: a set is source/<set>/<set>.ipynb.")
    return names or sets


def release(course, options):
    from grading.release import release_set

    failed = False
    for name in chosen(course, options.sets):
        began = time.monotonic()
        zips = [course.root / "release" / f"{name}.zip", options.downloads / f"{name}.zip"]
        wrong, points = release_set(course, name, zips=zips, try_marks=not options.quick, workers=options.workers)
        for problem in wrong:
            print(f"{name}: {problem}")
        if wrong:
            print(f"{name}: not released.")
            failed = True
            continue
        tried = "" if options.quick else "; the reference gets all points, the student version none"
        seconds = time.monotonic() - began
        print(f"{name}: {len(points)} exercises, {sum(points.values()):g} points{tried} ({seconds:.1f} s)")
        print(f"  {course.root.name}/release/{name}/ and {course.root.name}/release/{name}.zip")
    return int(failed)


def zip_only(course, options):
    """Student versions from a temporary course, so that building the book touches no gradebook."""
    from grading.course_root import Course
    from grading.release import release_set

    failed = False
    for name in chosen(course, options.sets):
        with tempfile.TemporaryDirectory(prefix="zip-") as folder:
            elsewhere = Course(folder)
            skip = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
            shutil.copytree(course.source(name).parent, elsewhere.root / "source" / name, ignore=skip)
            wrong, _ = release_set(elsewhere, name, zips=[options.downloads / f"{name}.zip"], try_marks=False)
        for problem in wrong:
            print(f"{name}: {problem}")
        failed = failed or bool(wrong)
    return int(failed)


def grade(course, options):
    from tqdm import tqdm

    from grading.report import needs_eye, summary, table, write_csv, write_markdown
    from grading.runner import grade_set

    failed, any_row = False, False
    for name in chosen(course, options.sets):

        def progress(students, name=name):
            bar = tqdm(total=len(students), desc=name, unit=" submissions", disable=None)

            def done(student):
                bar.update()
                bar.set_postfix_str(student, refresh=False)
                if bar.n == bar.total:
                    bar.close()

            return done

        began = time.monotonic()
        rows, points = grade_set(course, name, force=options.force, workers=options.workers, progress=progress)
        if not rows:
            continue
        any_row = True
        reports = course.root / "reports"
        write_csv(reports / f"{name}.csv", rows, points)
        write_markdown(reports / f"{name}.md", name, rows, points)
        print(table(rows))
        print(f"\n{name}: {summary(rows)}; {time.monotonic() - began:.0f} s.")
        if waiting := [row for row in rows if row.to_mark]:
            print(f"{len(waiting)} wait for marking by hand: make lab, then Nbgrader, Formgrader.")
        if odd := needs_eye(rows):
            print(
                f"{len(odd)} could not be graded as they are: "
                + ", ".join(f"{row.student} ({row.state})" for row in odd)
            )
            failed = True
        here = course.root.name
        print(f"Marks: {here}/reports/{name}.csv; feedback: {here}/feedback/<student>/{name}/{name}.html")
    if not any_row:
        print(
            f"Nothing to grade. Put each notebook at {course.root.name}/submitted/<student>/<set>/<set>.ipynb, "
            f"for instance {course.root.name}/submitted/ada/{course.sets()[0]}/{course.sets()[0]}.ipynb."
        )
    return int(failed)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE, help="the folder that holds source/ (default: this one)")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, function, text in (
        ("release", release, "write the student versions and their zips, after checks"),
        ("grade", grade, "grade what lies in submitted/"),
        ("zip", zip_only, "write only the zips for the book"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("sets", nargs="*", metavar="SET", help="all sets if none is named")
        command.add_argument("--workers", type=int, default=2, help="how many submissions at a time (default: 2)")
        command.add_argument("--downloads", type=Path, default=DOWNLOADS, help="where the book's zips go")
        command.set_defaults(function=function)
        if name == "release":
            command.add_argument(
                "--quick", action="store_true", help="do not grade the reference and the student version first"
            )
        if name == "grade":
            command.add_argument("--force", action="store_true", help="grade unchanged submissions again")
            command.add_argument(
                "--timeout", type=int, metavar="S", help="seconds per cell (default: nbgrader_config.py)"
            )
            command.add_argument("--total", type=int, metavar="S", help="seconds per notebook (default: the same)")
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error("--workers: at least 1")
    from grading.course_root import Course

    limits = {name: vars(options).get(name) for name in ("timeout", "total")}
    course = Course(options.root, {name: seconds for name, seconds in limits.items() if seconds is not None})
    return options.function(course, options)


if __name__ == "__main__":
    sys.exit(main())
