"""Wrong answers through the grader itself: what each earns, and the table of what is caught.

    grade("set2", {"mine": {"window_answer": "def ..."}})   -> {"mine": {"window_test-hidden": 0.0, ...}}
    catch("set2")                                -> the table; its rows also in _build/wrong-answers.json

`exercises/batteries/<set>.py` holds `WRONG = {exercise: {name: (description, {grade id: code})}}`. An exercise's cells
have the ids `<exercise>_<part>`. Cells that a wrong answer does not name hold the reference. Wrong answers of different
exercises are independent, so the k-th of every exercise travel together: seven each in eight exercises are seven
submissions, plus the reference and the stub.
"""

import contextlib
import importlib.util
import json
from functools import partial
from pathlib import Path

import nbformat

from grading.course_root import exercise_of, grade_id
from nbreferee.course.settings import load
from nbreferee.course.trial import reference_answers, trial
from nbreferee.walls.sandbox import abilities
from nbreferee.walls.supervisor import Zygote
from nbreferee.workers.pool import Local

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = ROOT / "exercises"
REPORT = ROOT / "_build" / "wrong-answers.json"
SETTINGS = load(EXERCISES)


shared = None  # the pool of `one_pool`, while it is open


def pool():
    """Grading processes as students have them; without walls where the machine has none, for these answers are ours."""
    make = partial(Zygote, preload=SETTINGS.preload, policy=SETTINGS.policy, unsafe=not abilities())
    return Local(make, workers=2)


@contextlib.contextmanager
def one_pool():
    """All that is graded inside comes of one zygote, as a class does, so that PyTorch is imported once."""
    global shared
    with pool() as shared:
        try:
            yield
        finally:
            shared = None


def results(source, submissions):
    """{who: Result} for `submissions`, {who: {grade id: code}}, by what grades students."""
    with contextlib.nullcontext(shared) if shared else pool() as grading:
        return trial(source, submissions, SETTINGS, grading.run)


def folder_of(name):
    return name if isinstance(name, Path) else EXERCISES / "source" / name


def notebook_of(name):
    folder = folder_of(name)
    return nbformat.read(folder / f"{folder.name}.ipynb", 4)


def grade(name, answers):
    """{who: {test cell: points}} for `answers`, {who: {grade id: code}}; `name` is a set or its source folder."""
    graded = results(notebook_of(name), answers)
    return {who: {test.name: test.points for test in result.tests} for who, result in graded.items()}


def wrong_answers(name):
    spec = importlib.util.spec_from_file_location(f"battery_{name}", EXERCISES / "batteries" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.WRONG


def compose(wrong, reference):
    """[{grade id: code}]: submission k carries every exercise's k-th wrong answer, or its reference."""
    submissions = []
    for k in range(max(map(len, wrong.values()), default=0)):
        answers = dict(reference)
        for exercise, cases in wrong.items():
            if k < len(cases):
                name, (_, cells) = list(cases.items())[k]
                strangers = [cell for cell in cells if cell not in reference or exercise_of(cell) != exercise]
                if strangers or not cells:
                    raise KeyError(f"{exercise}/{name}: {strangers or 'nothing'} is no answer cell of {exercise}")
                answers.update(cells)
        submissions.append(answers)
    return submissions


def points_of_tests(notebook):
    """{exercise: {test cell: points}}, the automatically graded ones."""
    tests = {}
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("grade") and not meta.get("solution"):
            tests.setdefault(exercise_of(grade_id(cell)), {})[grade_id(cell)] = float(meta["points"])
    return tests


def catch(name, wrong=None, report=REPORT):
    """Grade the reference, the stub and every wrong answer of a set; write and return the table."""
    folder = folder_of(name)
    name, wrong = folder.name, wrong_answers(folder.name) if wrong is None else wrong
    source = notebook_of(folder)
    tests, reference = points_of_tests(source), reference_answers(source)
    if strangers := set(wrong) - set(tests):
        raise KeyError(f"no such exercise: {', '.join(sorted(strangers))}")
    submissions = {k: answers for k, answers in enumerate(compose(wrong, reference))}
    graded = results(source, {"reference": reference, "stub": {}, **submissions})
    rows = {who: result.by_test for who, result in graded.items()}
    for who, row in rows.items():
        if broken := [test for test in row.values() if test.state == "broken"]:
            raise RuntimeError(f"{broken[0].name} is at fault itself, with {who}: {broken[0].message}")

    def earned(who, exercise):
        return sum(rows[who][test].points for test in tests[exercise])

    table = {"reference": {}, "stub": {}, "exercises": {}, "disturbed": []}
    for exercise, cells in tests.items():
        full = sum(cells.values())
        table["reference"][exercise], table["stub"][exercise] = earned("reference", exercise), earned("stub", exercise)
        cases = wrong.get(exercise, {})
        table["exercises"][exercise] = {"points": full, "wrong": []}
        for k, (case, (description, _)) in enumerate(cases.items()):
            failed = [test for test in cells if rows[k][test].points < cells[test]]
            points = earned(k, exercise)
            table["exercises"][exercise]["wrong"].append(
                {
                    "name": case,
                    "description": description,
                    "points": points,
                    "caught": points < full,
                    "failed": failed,
                    "message": rows[k][failed[0]].message if failed else "",
                }
            )
        for k in list(submissions)[len(cases) :]:  # here it carried its reference, among the others' wrong answers
            if earned(k, exercise) < full:
                table["disturbed"].append(f"{exercise}, by the wrong answers number {k + 1} of the others")
    every = [case for entry in table["exercises"].values() for case in entry["wrong"]]
    table |= {"total": len(every), "caught": sum(case["caught"] for case in every)}
    if report:
        report.parent.mkdir(parents=True, exist_ok=True)
        others = [row for row in json.loads(report.read_text("utf-8")) if row["set"] != name] if report.exists() else []
        report.write_text(json.dumps(others + rows_of(name, table), indent=1) + "\n", "utf-8")
    return table


def rows_of(name, table):
    """One flat row per wrong answer: what the status page counts and the instructor's page shows."""
    return [
        {"set": name, "exercise": exercise, "of": entry["points"]} | case
        for exercise, entry in table["exercises"].items()
        for case in entry["wrong"]
    ]
