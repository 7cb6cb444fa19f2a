"""nbgrader and the grader read a cell's flags alike, so that formgrader knows an untouched answer."""

import itertools

import pytest
from nbformat import v4
from nbgrader import utils

from nbreferee.intake import flags

KINDS = list(itertools.product([False, True], repeat=4))


def cells():
    yield v4.new_code_cell("x = 1")
    for make, (grade, solution, locked, task) in itertools.product((v4.new_code_cell, v4.new_markdown_cell), KINDS):
        said = {"grade_id": "é_1", "grade": grade, "solution": solution, "locked": locked, "task": task}
        for points in (2, 0.5) if grade else (None,):
            yield make("x = 'é'\n", metadata={"nbgrader": said | ({"points": points} if grade else {})})
    yield v4.new_code_cell("", metadata={"nbgrader": {"grade_id": "b", "grade": True, "points": 1}})


@pytest.mark.parametrize("name", ["is_grade", "is_solution", "is_locked", "is_task"])
def test_flags_are_read_as_nbgrader_reads_them(name):
    ours, theirs = ([bool(getattr(module, name)(cell)) for cell in cells()] for module in (flags, utils))
    assert ours == theirs and {True, False} == set(ours)


def test_the_checksum_is_nbgraders():
    named = [cell for cell in cells() if cell.metadata]
    sums = [flags.checksum(cell) for cell in named]
    assert sums == [utils.compute_checksum(cell) for cell in named] and len(set(sums)) > 14
