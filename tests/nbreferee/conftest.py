"""Courses for the tests of whole assignments."""

import subprocess

import pytest

from nbreferee.course import submission
from tests.nbreferee import toyset
from tests.nbreferee.toycourse import folder


@pytest.fixture
def one_environment(monkeypatch):
    """The package's own files may change while these tests run, in a checkout where somebody works."""
    monkeypatch.setattr(submission, "fingerprint", lambda packages: "this machine")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A course whose assignment is in the gradebook; copied by tests, for making one takes nbgrader a second."""
    root = tmp_path_factory.mktemp("prepared")
    toyset.write(root)
    folder(root).prepare("toy")
    return root


@pytest.fixture
def root(prepared, one_environment, tmp_path):
    subprocess.run(["cp", "-r", f"{prepared}/.", str(tmp_path)], check=True)
    return tmp_path
