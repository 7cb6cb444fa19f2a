"""What a course of plain nbgrader has to add so that its tests can be run here: tried on its own reference answers.

Every test is run split first, where no answer can reach it. Of those that the reference does not pass that way, each
gets the first of these with which the reference passes, from the one that costs least trust to the one that costs most:

    changes      the answer may change the arguments that the test gives it
    asks         a name that a given cell binds, and an answer changes, is taken from the student
    sandboxed    the test runs inside the student's process, as all tests do with nbgrader

Nothing more is proposed: on honest work the marks are then nbgrader's.
"""

import ast
import builtins
import copy
import difflib
import json
import sys
import tomllib
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import nbformat

from ..judge.job import ANSWER, SANDBOXED, SPLIT, TEST, UNREADABLE, bound, kind_of, plain
from ..judge.trusted import reads
from .run import CourseFolder, read_source, writing
from .settings import Settings
from .trial import reference_answers, trial

__all__ = ["Proposal", "migrate", "propose"]

AUTOTEST = "### AUTOTEST", "### HASHED AUTOTEST"
DELIMITERS = {  # what nbgrader_config.py may call otherwise, and what it is called here
    ("ClearSolutions", "begin_solution_delimeter"): "BEGIN SOLUTION",
    ("ClearSolutions", "end_solution_delimeter"): "END SOLUTION",
    ("ClearHiddenTests", "begin_test_delimeter"): "BEGIN HIDDEN TESTS",
    ("ClearHiddenTests", "end_test_delimeter"): "END HIDDEN TESTS",
}
REASON = 200  # characters


@dataclass(frozen=True)
class Proposal:
    """What the cells of one notebook should say under ``nbreferee`` in their metadata.

    Parameters
    ----------
    metadata : {grade_id: what is to be added}.
    costs : what that costs in trust, a sentence each.
    left : what only a person can mend, a sentence each: tests that the reference does not pass in any way.
    points : {split or sandboxed: points that rest on such tests}.
    """

    metadata: dict = field(default_factory=dict)
    costs: tuple = ()
    left: tuple = ()
    points: dict = field(default_factory=dict)


def propose(source: nbformat.NotebookNode, settings: Settings, run) -> Proposal:
    """Find the least that the cells of a notebook have to say for its reference to earn everything.

    Parameters
    ----------
    source : the instructor's notebook, which is left as it is.
    settings : of the course.
    run : takes a Job and returns a Future of its Result, as `nbreferee.workers.pool` does.

    Returns
    -------
    Proposal.

    Raises
    ------
    JobError : a test makes no sense, whatever is added.
    """
    reference = reference_answers(source)

    def marks(metadata):
        return trial(_with(source, metadata), {"reference": reference}, settings, run)["reference"].by_test

    found, now = {}, marks({})
    first, before = now, None
    while found != before and _failing(now):
        before = found
        for means in (_changes, _asks, _sandboxed):
            failing = _failing(now)
            wanted = {test: means(_with(source, found), test, first[test].message) for test in failing}
            tried = marks(_merged(found, *wanted.values())) if any(wanted.values()) else {}
            for test in failing:
                if wanted[test] and tried[test].points == tried[test].worth:
                    found = _merged(found, wanted[test])
            now = marks(found) if found != before else now
    left = [f"{test} does not pass in any way: {now[test].message}" for test in _failing(now)]
    return Proposal(found, tuple(_costs(found, now)), (*_autotests(source), *left), _ways(_with(source, found)))


def _failing(tests):
    return [name for name, test in tests.items() if test.points != test.worth]


def _with(source, metadata):
    """A copy of a notebook whose cells say that too."""
    source = copy.deepcopy(source)
    for cell in source.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in metadata:
            cell.metadata["nbreferee"] = _joined(cell.metadata.get("nbreferee", {}), metadata[name])
    return source


def _joined(one, other):
    """Two tables as one; lists are joined."""
    both = {key: [*dict.fromkeys([*one[key], *other[key]])] for key in one.keys() & other.keys() if key == "asks"}
    return {**one, **other, **both}


def _merged(*proposals):
    out = {}
    for proposal in proposals:
        for name, more in proposal.items():
            out[name] = _joined(out.get(name, {}), more)
    return out


# --- the means, each {grade_id: metadata}, empty if it does not fit ---------------------------------------------------


def _changes(source, test, message):
    return {test: {"changes": True}}


def _asks(source, test, message):
    """The names that the test reads and an answer above changes, such as a list that it sorts or a column it adds."""
    above, out = [], {}
    for cell in source.cells:
        if kind_of(cell) == TEST and cell.metadata.nbgrader.grade_id == test:
            break
        above.append(cell)
    ours = {name for each in above if kind_of(each) != ANSWER for name in bound(each.source)}
    theirs = {name for each in above if kind_of(each) == ANSWER for name in bound(each.source)}
    answers = [each for each in above if kind_of(each) == ANSWER]
    for name in reads(cell.source):
        if name in theirs or hasattr(builtins, name):
            continue
        used = [each for each in answers if name in reads(each.source)] if name in ours else answers
        if used:
            out.setdefault(used[-1].metadata.nbgrader.grade_id, {"asks": []})["asks"].append(name)
    return out


def _sandboxed(source, test, message):
    line = " ".join(message.split())
    return {test: {"run": SANDBOXED, "reason": f"split: {line}"[:REASON]}}


# --- what is said -----------------------------------------------------------------------------------------------------


def _costs(metadata, tests):
    for name, more in metadata.items():
        if more.get("changes"):
            yield f"{name}: the test does not notice if an answer changes what it is given."
        if more.get("asks"):
            yield f"{name}: {', '.join(more['asks'])} is the student's, also for tests that mean what was given."
        if more.get("run") == SANDBOXED:
            worth = tests[name].worth
            yield f"{name}: its mark (of {worth:g}) can be forged, for it runs inside the student's process."


def _autotests(source):
    for cell in source.cells:
        if kind_of(cell) == TEST and any(mark in cell.source for mark in AUTOTEST):
            name = cell.metadata.nbgrader.grade_id
            yield f"{name} is to be written by nbgrader ({AUTOTEST[0]}); write its assertions yourself."


def _ways(source):
    out = {SPLIT: 0.0, SANDBOXED: 0.0}
    for cell in source.cells:
        if kind_of(cell) == TEST:
            out[cell.metadata.get("nbreferee", {}).get("run", SPLIT)] += float(cell.metadata.nbgrader.points)
    return out


def _renamed(config):
    """The marks that nbgrader_config.py calls otherwise, with which hidden tests would be shown."""
    for (section, key), word in DELIMITERS.items():
        said = (config or {}).get(section, {}).get(key)
        if isinstance(said, str) and word not in said:
            yield f"nbgrader_config.py says {section}.{key} = {said!r}; write ### {word} in the notebooks instead."


def _settings(course, names):
    """(key, value) of what nbreferee.toml should say: the course's own stubs, what is imported once for everybody."""
    said = (course.config or {}).get("ClearSolutions", {})
    for key in ("code_stub", "text_stub"):
        stub = said.get(key)
        stub = stub.get("python") if isinstance(stub, dict) else stub
        if isinstance(stub, str) and stub != getattr(course.settings, key):
            yield key, stub
    preload = dict.fromkeys(course.settings.preload)
    for path in (path for name in names for path in course.notebooks(name).values()):
        preload |= dict.fromkeys(_packages(read_source(path), path.parent))
    if len(preload) > len(course.settings.preload):
        yield "preload", [*preload]


def _packages(source, beside):
    """The installed packages that the cells of a notebook import, such as pandas; not what lies beside it."""
    for module in (module for cell in source.cells if cell.cell_type == "code" for module in _imported(cell.source)):
        top = module.partition(".")[0]
        ours = (beside / f"{top}.py").exists() or (beside / top).exists()
        if top not in sys.stdlib_module_names and not ours and find_spec(top) is not None:
            yield top


def _imported(text):
    try:
        nodes = list(ast.walk(ast.parse(plain(text))))
    except UNREADABLE:
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


# --- files ------------------------------------------------------------------------------------------------------------


def _texts(path, metadata):
    """A notebook's text before and after, laid out alike, so that they differ in what is added only."""
    tree = json.loads(path.read_text("utf-8"))
    before = _laid_out(tree)
    for cell in tree["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if name in metadata:
            cell["metadata"]["nbreferee"] = _joined(cell["metadata"].get("nbreferee", {}), metadata[name])
            cell["metadata"] = dict(sorted(cell["metadata"].items()))
    return before, _laid_out(tree)


def _laid_out(tree):
    """As Jupyter writes it."""
    return json.dumps(tree, ensure_ascii=False, indent=1) + "\n"


def _diff(before, after, name):
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="")
    return "\n".join(lines)


def migrate(course: CourseFolder, names: list, pools, *, write: bool = False, say=print) -> int:
    """Propose what the sources of a course should say, as a diff, and write it if that is wanted.

    Parameters
    ----------
    course : where.
    names : of assignments.
    pools : ``pools(name)`` gives an assignment's pool (a context manager), see `nbreferee.workers.pool`.
    write : into the sources and nbreferee.toml; otherwise nothing is written.
    say : takes one text after the other.

    Returns
    -------
    0 if every reference earns all once that is written, 1 if something is left for a person.

    Raises
    ------
    BatchError : a source cannot be read or written.
    """
    left = list(_renamed(course.config))
    for sentence in left:
        say(sentence)
    toml = course.root / "nbreferee.toml"
    before = toml.read_text("utf-8") if toml.exists() else ""
    more = {key: value for key, value in _settings(course, names) if key not in tomllib.loads(before)}
    if more:  # on top, before the first table
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in more.items()]
        _offer(toml, toml.name, before, "".join(lines) + before, write, say)
    for name in names:
        with pools(name) as pool:
            for path in course.notebooks(name).values():
                proposal = propose(read_source(path), course.settings, pool.run)
                where = Path(course.folder("source").name, name, path.name)
                if proposal.metadata:
                    _offer(path, where, *_texts(path, proposal.metadata), write, say)
                for sentence in (*proposal.costs, *proposal.left):
                    say(f"{name}: {sentence}")
                left += proposal.left
                split, inside = proposal.points[SPLIT], proposal.points[SANDBOXED]
                verdict = "the reference earns all" if not proposal.left else "the reference does not earn all yet"
                say(f"{name}: {path.stem}: {verdict} ({split:g} points split, {inside:g} points sandboxed)")
    return int(bool(left))


def _offer(path, name, before, after, write, say):
    say(_diff(before, after, name))
    if write:
        with writing(path):
            path.write_text(after, "utf-8")
