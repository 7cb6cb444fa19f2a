"""What the Validate button says: for each failed test its exercise, its name and its message.

Left alone, nbgrader shows the whole source of every failed test and the whole traceback, the message last; and a test
that passed with a warning counts as failed, though it costs nothing here. It has no setting for either.
"""

import copy

from nbformat.v4 import new_output
from nbgrader.validator import Validator

from .course_root import grade_id
from .preprocessors import PlainVerdict, plain_error, tests_of, titles

everything_failed = Validator._get_failed_cells


def brief(cell, title, tests):
    cell = copy.deepcopy(cell)
    cell.source = f"{title}\n{grade_id(cell)}"
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


def shorten():
    Validator._get_failed_cells = failed_cells
