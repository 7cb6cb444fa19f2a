"""Student versions, their checks, the zip."""

import re
import shutil
import zipfile
from functools import partial

import nbformat

from nbreferee.course import trial
from nbreferee.course.run import BatchError
from nbreferee.course.settings import load
from nbreferee.walls.sandbox import abilities
from nbreferee.walls.supervisor import Zygote
from nbreferee.workers.pool import Local, PoolError

from .course_root import HERE, exercise_of, grade_id, points_by_exercise
from .leaks import regions

MARKERS = ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")
GRADE_ID = re.compile(r"[a-z0-9-]+_[a-z0-9-]+")
RUNS = ("split", "sandboxed")
HEADING = re.compile(r"^#+ .*\((\d+) points?\)", re.M)
EXERCISE = re.compile(r"^#+ Exercise (\d+)\.", re.M)
COUNT = re.compile(r"\b(\w+) exercises?, (\d+) points\b(?:: (\w+) that a program marks, (\w+) proofs?)?")
NUMBERS = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()


def secrets(notebook):
    """The lines of solutions and hidden tests that occur nowhere else in the source."""
    hidden, public = regions(notebook)
    secret = {line for _, lines in hidden for line in lines} - public
    return {line for line in secret if len(line) >= 8 and not line.startswith("import ")}


def check_ways(notebook):
    """[which test cells do not say how they are run, or say it wrongly]; `nbreferee` grades by these words."""
    tests, wrong = {}, []
    for cell in notebook.cells:
        flags = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and flags.get("grade") and not flags.get("solution"):
            tests[flags.get("grade_id")] = cell.metadata.get("nbreferee", {})
    for test, ours in tests.items():
        if ours.get("run") not in RUNS:
            cure = 'put {"nbreferee": {"run": "split"}} into its metadata'
            wrong.append(f"{test} does not say how it is run: {cure}")
        elif ours["run"] == "sandboxed":
            needs = ours.get("needs") or []
            if not str(ours.get("reason") or "").strip():
                wrong.append(f"{test} is sandboxed without a reason: give one in its metadata, or make it split")
            if not needs or any(tests.get(other, {}).get("run") != "split" for other in needs):
                wrong.append(f"{test} is sandboxed: name under needs the split tests that must pass first")
    return wrong


def check_count(notebook):
    """[what the opening text counts wrongly], "Ten exercises, 100 points: nine that a program marks, one proof …"."""
    points = points_by_exercise(notebook)
    by_hand = {
        exercise_of(grade_id(cell))
        for cell in notebook.cells
        if cell.cell_type == "markdown" and cell.metadata.get("nbgrader", {}).get("grade")
    }
    numbers = [int(n) for cell in notebook.cells for n in EXERCISE.findall(cell.source)]
    there = [len(numbers), f"{sum(points.values()):g}", len(points.keys() - by_hand), len(by_hand)]
    wrong = []
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append(f"the exercises are numbered {', '.join(map(str, numbers))}")
    for stated in (found for cell in notebook.cells for found in COUNT.finditer(cell.source)):
        said = [NUMBERS.index(word.lower()) if word.lower() in NUMBERS else word for word in stated.groups() if word]
        if list(map(str, said)) != list(map(str, there[: len(said)])):
            wrong.append(
                f"the text says {stated.group()!r}; there are {there[0]} exercises with {there[1]} points, "
                f"{there[2]} that a program marks and {there[3]} that a person marks"
            )
    return wrong


def check_source(name, notebook):
    """[what is wrong with an instructor's notebook], without running it."""
    wrong, seen = [], set()
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        wrong.append(f"not a valid notebook: {str(error).splitlines()[0]}")
    for number, cell in enumerate(notebook.cells):
        meta = cell.metadata.get("nbgrader")
        if cell.cell_type == "code" and not meta:
            wrong.append(
                f"cell {number} is code that is neither an answer, nor a test, nor read-only: {cell.source[:40]!r}"
            )
        if not meta:
            continue
        if not GRADE_ID.fullmatch(meta.get("grade_id", "")):
            form = "<exercise>_<part> in small letters, digits, hyphens"
            wrong.append(f"cell {number}: the id {meta.get('grade_id')!r} is not {form}")
        if meta.get("grade_id") in seen:
            wrong.append(f"the id {meta['grade_id']} occurs twice")
        seen.add(meta.get("grade_id"))
        if meta.get("grade") and not float(meta.get("points") or 0) > 0:
            wrong.append(f"{meta['grade_id']} is graded, but worth nothing")
    wrong += check_ways(notebook)
    wrong += check_count(notebook)
    hidden, public = regions(notebook)
    for name, lines in hidden:
        telling = {line for line in lines if len(line) >= 12 and not line.startswith(("import ", "def "))}
        if telling and telling <= public:
            wrong.append(f"{name}: every line of what is hidden there stands in the open elsewhere")
    stated, found = 0, 0
    section, sums = None, {}
    for cell in notebook.cells:
        heading = HEADING.search(cell.source) if cell.cell_type == "markdown" else None
        if heading:
            section = heading.group(0)
            sums[section] = [int(heading.group(1)), 0]
            stated += int(heading.group(1))
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("grade") or meta.get("task"):
            found += float(meta["points"])
            if section:
                sums[section][1] += float(meta["points"])
    wrong += [
        f"{title!r} states {says:g}, its cells give {gives:g}" for title, (says, gives) in sums.items() if says != gives
    ]
    if stated != found:
        wrong.append(f"the headings state {stated} points in all, the cells give {found:g}")
    return wrong


def check_release(source, folder):
    """[what a student version gives away]."""
    wrong, hidden = [], secrets(source)
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".ipynb":
            notebook = nbformat.read(path, 4)
            nbformat.validate(notebook)
            text = "\n".join(cell.source for cell in notebook.cells)
            if any(cell.get("outputs") for cell in notebook.cells):
                wrong.append(f"{path.name} holds outputs")
            text += "\n" + nbformat.writes(notebook)
        elif path.is_file():
            text = path.read_text("utf-8", errors="replace")
        else:
            continue
        wrong += [f"{path.name} holds {marker!r}" for marker in MARKERS if marker in text]
        lines = {line.strip() for line in text.split("\n")}
        wrong += [
            f"{path.name} holds a line of a solution or a hidden test: {line!r}" for line in sorted(hidden & lines)
        ]
    return wrong


def check_marks(notebook, workers=2):
    """[what is wrong], from grading the instructor's own answers, the untouched student version, and empty answers.

    Nobody else's code is run, so a machine that cannot build the walls does without them.
    """
    settings = load(HERE)
    make = partial(Zygote, preload=settings.preload, policy=settings.policy, unsafe=not abilities())
    try:
        with Local(make, workers) as pool:
            wrong = trial.check_marks(notebook, settings, pool.run)
            return wrong or trial.vacuous(notebook, settings, pool.run)
    except PoolError as error:
        return [str(error)]


def write_zip(folder, targets):
    """The same bytes whenever the files are the same."""
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    entry = zipfile.ZipInfo(
                        f"{folder.name}/{path.relative_to(folder).as_posix()}", (1980, 1, 1, 0, 0, 0)
                    )
                    entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
                    archive.writestr(entry, path.read_bytes())


def release_set(course, name, *, zips, try_marks=True, workers=2):
    """Write release/<name>/ and the zips, unless something is wrong; ([what is wrong], {exercise: points})."""
    source = nbformat.read(course.notebooks(name)[name], 4)
    wrong = check_source(name, source)
    if wrong:
        return wrong, {}
    try:
        fresh = course.prepare(name)
    except BatchError as error:
        return [str(error).removeprefix(f"{name}: ")], {}
    wrong = check_release(source, fresh)
    if not wrong and try_marks:
        wrong = check_marks(source, workers)
    if wrong:
        return wrong, {}
    target = course.root / "release" / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(fresh, target)
    write_zip(target, zips)
    return [], points_by_exercise(source)
