"""Every example in the grader's docstrings prints what it promises."""

import pytest

import nbreferee
from tests.docstrings import count, failures, files

FILES = files(nbreferee)


@pytest.mark.parametrize("name", FILES)
def test_the_examples_of_a_module_hold(name):
    assert not (told := failures(name, FILES[name])), told


def test_no_example_is_lost():
    assert count(nbreferee) >= 68
