"""Release problem sets: `python course.py --help`, or `make release`. `make grade` is `nbreferee grade`.

python course.py release [SET ...]    student versions and their zips, after checks
python course.py zip     [SET ...]    only the zips that the book offers for download, without a gradebook

Each command imports what it needs of grading/, so that --help is quick.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOWNLOADS = HERE.parent / "_build" / "problem-sets"


def chosen(course, names, sets):
    for name in names:
        if name not in sets:
            raise SystemExit(
                f"There is no set {name!r} in {course.root.name}/source. There are: {', '.join(sets) or 'none'}."
            )
    if not sets:
        raise SystemExit(f"No set in {course.root.name}/source: a set is source/<set>/<set>.ipynb.")
    return names or sets


def released(course):
    """Where there are no sources, as in the public repository: the sets whose students' versions are there."""
    if course.folder("source").is_dir():
        return []
    return sorted(path.parent.name for path in course.folder("release").glob("*/*.ipynb"))


def release(course, options):
    from grading.release import release_set
    from nbreferee.walls.sandbox import abilities

    failed = False
    for name in chosen(course, options.sets, course.assignments()):
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
        tried += "" if options.quick or abilities() else " (tried without walls: this machine cannot build them)"
        seconds = time.monotonic() - began
        print(f"{name}: {len(points)} exercises, {sum(points.values()):g} points{tried} ({seconds:.1f} s)")
        print(f"  {course.root.name}/release/{name}/ and {course.root.name}/release/{name}.zip")
    return int(failed)


def zip_only(course, options):
    """Student versions from a temporary course, so that building the book touches no gradebook."""
    from grading.course_root import course_at
    from grading.release import release_set, write_zip

    failed, ready = False, released(course)
    for name in chosen(course, options.sets, ready or course.assignments()):
        target = options.downloads / f"{name}.zip"
        if ready:
            write_zip(course.folder("release") / name, [target])
            continue
        with tempfile.TemporaryDirectory(prefix="zip-") as folder:
            elsewhere = course_at(folder)
            skip = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
            shutil.copytree(course.notebooks(name)[name].parent, elsewhere.root / "source" / name, ignore=skip)
            wrong, _ = release_set(elsewhere, name, zips=[target], try_marks=False)
        for problem in wrong:
            print(f"{name}: {problem}")
        failed = failed or bool(wrong)
    return int(failed)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE, help="the folder that holds source/ (default: this one)")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, function, text in (
        ("release", release, "write the student versions and their zips, after checks"),
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
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error("--workers: at least 1")
    from grading.course_root import course_at

    return options.function(course_at(options.root), options)


if __name__ == "__main__":
    sys.exit(main())
