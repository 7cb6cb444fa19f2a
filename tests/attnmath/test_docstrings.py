"""Every example in the library's docstrings prints what it promises, in both worlds."""

import pytest

import attnmath
from tests.docstrings import count, failures, files

FILES = files(attnmath)
SLOW = (
    "attnmath.torch.hf",
    "attnmath.cmudict",
    "attnmath.docs",
    "attnmath.torch.checkpoint",
    "attnmath.memory_tasks",
    "attnmath.side_by_side",
    "attnmath.side_by_side_study",
)  # they import what takes seconds


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in FILES])
def test_the_examples_of_a_module_hold(name):
    assert not (told := failures(name, FILES[name])), told


def test_no_example_is_lost():
    assert count(attnmath) >= 414


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        ("attnmath.numpy.softmax", "array([4.])", "array([5.])"),
        ("attnmath.numpy.normalisation", "array([-1.,  1.])", "array([-1.,  2.])"),  # of a decorated function
        ("attnmath.torch.linear", ">>> import torch\n", ">>> torch\n"),
    ],
)
def test_a_wrong_example_is_seen(module, right, wrong, tmp_path):
    source = FILES[module].read_text(encoding="utf-8")
    assert right in source
    copy = tmp_path / "copy.py"
    copy.write_text(source.replace(right, wrong, 1), encoding="utf-8")
    assert "Failed example" in failures(module, copy)


def test_a_module_that_cannot_be_imported_is_a_failure(tmp_path):
    with pytest.raises(ModuleNotFoundError, match=r"attnmath\.nonesuch"):
        failures("attnmath.nonesuch", tmp_path / "nonesuch.py")
