"""Given answers in, results out, through the path that grades students: reference, stub, wrong answers, empty ones."""

import re
from concurrent.futures import as_completed

import nbformat

from ..intake.answers import Answers, released_text
from ..judge import doubts as seen
from ..judge.job import TEST, Job, kind_of, plan
from ..judge.results import Result
from .probes import KINDS, probe
from .settings import Settings

__all__ = ["check_marks", "doubts_in", "reference_answers", "stub_answers", "trial", "vacuous"]

REGION = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[^\n]*\n?", re.M)


def _solutions(source):
    for cell in source.cells:
        flags = cell.metadata.get("nbgrader", {})
        if flags.get("solution"):
            yield flags["grade_id"], cell


def reference_answers(source: nbformat.NotebookNode) -> dict:
    """{grade_id: the instructor's answer} of a source notebook, written ones included."""
    return {name: REGION.sub("", cell.source) for name, cell in _solutions(source)}


def stub_answers(source: nbformat.NotebookNode, settings: Settings) -> dict:
    """{grade_id: what a student finds there}."""
    out = {}
    for name, cell in _solutions(source):
        stub = settings.code_stub if cell.cell_type == "code" else settings.text_stub
        out[name] = released_text(cell.source, stub) if "BEGIN SOLUTION" in cell.source else stub
    return out


def trial_job(source: nbformat.NotebookNode, answers: dict, settings: Settings) -> Job:
    """The job of somebody who handed in these answers and left the stub everywhere else.

    Raises
    ------
    KeyError : an answer is for a cell that there is not.
    """
    stubs = stub_answers(source, settings)
    if strangers := sorted(set(answers) - set(stubs)):
        raise KeyError(f"no such answer cell: {', '.join(strangers)}")
    left = tuple(name for name, stub in stubs.items() if answers.get(name, stub) == stub)
    return plan(source, Answers(stubs | answers, (), left, ()), settings.limits, settings.packages)


def trial(source: nbformat.NotebookNode, submissions: dict, settings: Settings, run) -> dict:
    """Grade answers that stand nowhere but in memory.

    Parameters
    ----------
    source : the instructor's notebook.
    submissions : {who: {grade_id: code}}; cells that are not named keep the stub.
    settings : of the course.
    run : takes a Job and returns a Future of its Result, as `nbreferee.workers.pool` does.

    Returns
    -------
    {who: Result}.
    """
    futures = {run(trial_job(source, answers, settings)): who for who, answers in submissions.items()}
    done = {futures[future]: future.result() for future in as_completed(futures)}
    return {who: done[who] for who in submissions}


def check_marks(source: nbformat.NotebookNode, settings: Settings, run) -> list[str]:
    """What is wrong with a set, told by grading its own answers and the untouched student version.

    Returns
    -------
    Sentences; none if the reference earns every point, the stub none, and no test is broken.
    """
    results = trial(source, {"reference": reference_answers(source), "stub": {}}, settings, run)
    return [sentence for who, result in results.items() for sentence in _wrong(who, result)]


def doubts_in(source: nbformat.NotebookNode, settings: Settings) -> list[str]:
    """Sentences that warn of tests, told by their text; see `nbreferee.judge.doubts`."""
    return seen.doubts(trial_job(source, reference_answers(source), settings))


def vacuous(source: nbformat.NotebookNode, settings: Settings, run) -> list[str]:
    """The tests that look at nothing, told by answers that are right but for what they return.

    Returns
    -------
    A sentence for each test that gives points to None, zeros, NaN or arrays without entries.
    """
    cells, reference = dict(_solutions(source)), reference_answers(source)
    empty = {kind: {name: probe(cells[name], text, kind) for name, text in reference.items()} for kind in KINDS}
    found = {}
    for kind, result in trial(source, empty, settings, run).items():
        for test in result.tests:
            if test.points > 0:
                found.setdefault((test.name, test.points), []).append(KINDS[kind])
    cure = "Let it ask for the shape and for values that are none of these."
    return [
        f"{test} gives {points:g} to answers that return {', or '.join(kinds)}. {cure}"
        for (test, points), kinds in found.items()
    ]


def _wrong(who: str, result: Result):
    for test in result.tests:
        want = test.worth if who == "reference" else 0.0
        if test.state == "broken":
            yield f"{test.name} is at fault itself: {test.message}"
        elif test.points != want:
            cure = "" if who == "reference" else " The untouched version must earn nothing."
            if who == "reference" and test.message.startswith("you changed your argument"):
                cure = ' If that is asked for, put "nbreferee": {"changes": true} into the metadata of the test.'
            yield f"{who}: {test.name} gives {test.points:g} instead of {want:g} ({test.state}). {test.message}{cure}"


def ways(source: nbformat.NotebookNode) -> dict:
    """{how tests run: their points}, for people who want to know how much of a set rests on sandboxed tests."""
    out = {}
    for cell in source.cells:
        if kind_of(cell) == TEST:
            run = cell.metadata.get("nbreferee", {}).get("run", "split")
            out[run] = out.get(run, 0.0) + float(cell.metadata.nbgrader.points)
    return out
