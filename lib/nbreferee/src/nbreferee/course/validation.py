"""What the Validate button says: for each failed test its exercise, its name and its message.

Left alone, nbgrader shows the whole source of every failed test and the whole traceback, the message last; and a test
that passed with a warning counts as failed, though it costs nothing here. It has no setting for either.
"""

import copy
import re
import textwrap

from nbformat.v4 import new_output
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from nbgrader.validator import Validator

__all__ = ["plain_error", "shorten"]

ANSI = re.compile(r"\x1b\[[0-9;]*m")
WIDTH = Validator.width.default_value - 10  # it indents by four
everything_failed = Validator._get_failed_cells


def failure(ename, evalue):
    return new_output("error", ename=ename, evalue=evalue, traceback=[f"{ename}: {evalue}"])


class PlainVerdict(NbGraderPreprocessor):
    """A test cell passes or fails: it earns all its points unless it raised an error or did not run.

    Left alone, nbgrader gives 0 for a warning on stderr, and takes the first displayed number for the points.
    """

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" or not is_grade(cell) or is_solution(cell):
            return cell, resources
        errors = [output for output in cell.outputs if output.output_type == "error"]
        if cell.source.strip() and cell.execution_count is None and not errors:
            errors = [failure("NotRun", "this test did not run")]
        others = []
        for output in cell.outputs:
            if output.output_type == "stream":
                output.name = "stdout"
            elif output.output_type == "execute_result":
                output = new_output("display_data", data=output.data, metadata=output.metadata)
            if output.output_type != "error":
                others.append(output)
        cell.outputs = errors + others
        return cell, resources


def titles(nb):
    """Each cell, with the heading of the exercise in which it stands."""
    title = ""
    for cell in nb.cells:
        if cell.cell_type == "markdown" and not cell.metadata.get("student") and not is_solution(cell):
            heading = re.match(r"##\s+(.+)", cell.source)
            title = heading[1].strip() if heading else title
        yield cell, title


def tests_of(nb):
    """The execution counts of the tests."""
    return {c.get("execution_count") for c in nb.cells if c.cell_type == "code" and is_grade(c)} - {None}


def of_student(frame, tests):
    """Is this part of a traceback about a line in one of the student's own cells?"""
    found = re.match(r"\s*Cell In\[(\d+)\]", ANSI.sub("", frame))
    return bool(found) and int(found.group(1)) not in tests


def plain_error(output, tests):
    """Keep of a traceback the student's own lines and the message, in lines that `nbgrader validate` does not cut."""
    frames = [ANSI.sub("", frame) for frame in output.traceback if of_student(frame, tests)]
    lines = f"{output.ename}: {output.evalue}".splitlines()
    output.traceback = [*frames, "\n".join(textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in lines)]


def brief(cell, title, tests):
    cell = copy.deepcopy(cell)
    cell.source = f"{title}\n{cell.metadata.nbgrader.grade_id}"
    if cell.cell_type == "code":
        errors = [output for output in cell.outputs if output.output_type == "error"]
        for output in errors:
            plain_error(output, tests)
            if output.ename == "NotImplementedError":
                output.traceback = ["not answered"]
        cell.outputs = errors or [new_output("error", traceback=["this test did not run"])]
    return cell


def failed_cells(self, nb):
    nb, _ = PlainVerdict(parent=self).preprocess(nb, {})
    failed = {id(cell) for cell in everything_failed(self, nb)}
    tests = tests_of(nb)
    return [brief(cell, title, tests) for cell, title in titles(nb) if id(cell) in failed]


def shorten() -> None:
    """Call it in ``nbgrader_config.py``; the Validate button and ``nbgrader validate`` then give the short answer."""
    Validator._get_failed_cells = failed_cells
