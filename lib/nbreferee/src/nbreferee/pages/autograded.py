"""The autograded notebook: what nbgrader's formgrader opens, built from a verdict without running anything.

Cells come from the instructor's notebook, answers from the student, outputs from the `Result`. nbgrader reads
points off outputs, so these are made such that its own `determine_grade` finds the points of the verdict.
"""

import copy
import html
import re

from nbformat import NotebookNode, from_dict

from ..intake.answers import CODE_STUB, TEXT_STUB
from ..intake.flags import checksum, is_grade, is_locked, is_solution, is_task
from ..judge.job import OWN, kind_of
from ..judge.results import LEFT_OUT, TEST_STATES, ResultError

__all__ = ["autograded", "tamed"]

OUTPUT = 100_000  # characters of printed text in one cell; results are capped long before
SCHEME = re.compile(r"(?i)(javascript|vbscript|data)((?:\\|\s)*:)")
PICTURE = re.compile(r"(?<!!)!++(?=\[)(?:\[[^][\n]*\]\(attachment:([^()\s]+)\))?")
NAMES = {"crashed": "ProcessCrashed", "timeout": "TimeLimit", "memory": "MemoryLimit", "failed": "Failed"}


def autograded(
    template: NotebookNode, answers, result, *, code_stub: str = CODE_STUB, text_stub: str = TEXT_STUB
) -> NotebookNode:
    """Make the notebook that nbgrader would have stored for one submission.

    Parameters
    ----------
    template : the instructor's source notebook, hidden tests included.
    answers : what `nbreferee.intake.answers.answers` found in the submission.
    result : the verdict, with a test for each test cell of the template.
    code_stub, text_stub : what the course puts in place of solutions, if it is not nbgrader's default.

    Returns
    -------
    A notebook in nbformat 4.5. HTML, remote pictures and scripts in a student's text are defused, because formgrader
    would run them in the instructor's browser.

    Raises
    ------
    ResultError : the template has a test without a verdict, or one of other worth; grade the submission again.
    """
    tests, runs = result.by_test, {}
    for ran in result.cells:
        runs.setdefault((ran.kind, ran.name), []).append(ran)
    cells, count = [], 0

    def number(cell, ran=True):
        nonlocal count
        count += bool(ran)
        cell.execution_count = count if ran else None
        return cell

    def own(place, before=False):
        for mine in answers.own:
            if (mine.place, mine.before) == (place, before):
                cell = from_dict({"cell_type": mine.kind, "metadata": {"nbreferee": {"own": True}}})
                cells.append(cell)
                if mine.kind == "markdown":
                    words(cell, mine.source)
                    continue
                ran = _next(runs, OWN, place or "")
                cell |= {"source": _plain(mine.source), "outputs": _outputs(ran)}
                number(cell, not ran or ran.state != "skipped")

    def words(cell, text):
        """Put a text of the student's into a cell, with the pictures to which it refers."""
        cell.source = tamed(text, answers.pictures)
        seen = set(PICTURE.findall(cell.source)) - {""}
        cell.pop("attachments", None)
        if seen:
            cell.attachments = from_dict({name: answers.pictures[name] for name in sorted(seen)})

    own(None)
    for given in template.cells:
        cell = copy.deepcopy(given)
        flags = cell.metadata.get("nbgrader", {})
        name = flags.get("grade_id")
        if name:
            own(name, before=True)
        if is_solution(cell):
            cell.source = _stub(given, code_stub if cell.cell_type == "code" else text_stub)
        if is_grade(cell) or is_solution(cell) or is_locked(cell) or is_task(cell):
            flags["checksum"], flags["cell_type"] = checksum(cell), cell.cell_type
        if is_solution(cell) and name not in answers.unanswered and answers.cells.get(name) is not None:
            if cell.cell_type == "code":
                cell.source = _plain(answers.cells[name])
            else:
                words(cell, answers.cells[name])
        elif is_solution(cell):
            cell.pop("attachments", None)
        kind = kind_of(given)
        if kind == "test":
            cell.outputs = _verdict(cell, tests.get(name), name)
            number(cell, tests[name].state != "withheld")
        elif cell.cell_type == "code":
            ran = _next(runs, kind, name)
            cell.outputs = _outputs(ran)
            number(cell, not ran or ran.state != "skipped")
        cells.append(cell)
        if name:
            own(name)
    _identify(cells)
    kept = {key: template.metadata[key] for key in ("kernelspec", "language_info") if key in template.metadata}
    return NotebookNode(cells=cells, metadata=copy.deepcopy(from_dict(kept)), nbformat=4, nbformat_minor=5)


def tamed(text: str, pictures=()) -> str:
    """A student's Markdown in which no HTML, no script address and no foreign picture is left; formulas stay formulas.

    Parameters
    ----------
    text : what the student wrote.
    pictures : names of attachments that exist. A reference to any other becomes a link, for formgrader stops at one
        that it cannot find.

    Examples
    --------
    >>> tamed("$a<b$ <script>alert(1)</script> [x](javascript:alert(1)) ![y](http://example.org/y.png)")
    '$a< b$ < script>alert(1)< /script> [x](javascript :alert(1)) [y](http://example.org/y.png)'
    """
    text = _plain(text)
    if SCHEME.search(_unescaped(SCHEME.sub("", text))):
        text = _unescaped(text)
    text = re.sub(r"<(?=[A-Za-z/!?])", "< ", text)
    return PICTURE.sub(lambda it: it[0] if it[1] in pictures else it[0].lstrip("!"), SCHEME.sub(r"\1 \2", text))


def _unescaped(text):
    """Entities as characters; the number of one with thousands of digits is no character and no number either."""
    return html.unescape(re.sub(r"&#(?=[0-9]{8}|[xX][0-9a-fA-F]{7})", "", text))


def _plain(text):
    """Text that any file takes: a lone surrogate becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _stub(cell, stub):
    """The source that students get, hidden tests apart: nbgrader's checksum is that of this."""
    lines, inside, found = [], False, False
    for line in cell.source.split("\n"):
        if "BEGIN SOLUTION" in line:
            inside = found = True
            lines += [line[: len(line) - len(line.lstrip())] + text for text in stub.split("\n")]
        elif "END SOLUTION" in line:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines) if found else stub


def _next(runs, kind, name):
    """How the next cell of this kind and name ran, or None if nothing is known."""
    waiting = runs.get((kind, name))
    return waiting.pop(0) if waiting else None


def _outputs(ran):
    if ran is None:
        return []
    outputs = _stream(ran.output)
    if ran.state not in ("ran", "skipped"):
        outputs.append(_error(ran.state, ran.error, ran.trace))
    return outputs


def _stream(text):
    text = _plain(text)
    if len(text) > OUTPUT:
        text = text[:OUTPUT] + LEFT_OUT
    return [NotebookNode(output_type="stream", name="stdout", text=text)] if text else []


def _error(state, message, trace):
    message, trace = _plain(message), _plain(trace)
    found = re.match(r"([A-Za-z_][A-Za-z0-9_.]{0,60}(?:Error|Exception|Warning|Exit|Interrupt)): ?", message)
    ename = found[1] if found else NAMES.get(state, state.capitalize())
    evalue = message[found.end() :] if found else message
    lines = trace.split("\n")[:200] if trace else []
    return NotebookNode(output_type="error", ename=ename, evalue=evalue, traceback=[*lines, message])


def _verdict(cell, test, name):
    """Outputs from which `nbgrader.utils.determine_grade` reads the points: it takes the first that says anything."""
    worth = float(cell.metadata.nbgrader["points"])
    if test is None or test.worth != worth:
        raise ResultError(f"the verdict on {name} is missing or of other worth; grade the submission again")
    outputs, passed = _stream(test.output), test.state == "passed"
    if test.points > 0 if not passed else test.points != worth:
        data = NotebookNode({"text/plain": repr(float(test.points))})
        partial = {"output_type": "execute_result", "data": data, "metadata": NotebookNode(), "execution_count": None}
        outputs.append(NotebookNode(partial))
    if not passed:
        message = test.message or TEST_STATES[test.state]
        if test.mistake and test.mistake not in message:
            message += f" (known mistake: {test.mistake})"
        outputs.append(_error(test.state, message, test.trace))
    return outputs


def _identify(cells):
    """Ids for the cells that have none; those of the template stay."""
    taken, n = set(), 0
    for cell in cells:
        if cell.metadata.get("nbreferee", {}).get("own") or not cell.get("id") or cell.id in taken:
            cell.id = None
        taken.add(cell.id)
    for cell in cells:
        while cell.id is None:
            n += 1
            cell.id = f"cell-{n}" if f"cell-{n}" not in taken else None
        if cell.cell_type == "code":
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = cell.execution_count
