"""What holds for every test of the library."""

import pytest
from jaxtyping import config

from attnmath.check import read_only


@pytest.fixture(autouse=True, scope="session")
def results_are_read_only():
    """A component that writes into what another one returned, or a test that does, is found here."""
    with read_only():
        yield


@pytest.fixture
def as_users_call():
    """Without the shape checks that the tests switch on, which would speak first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
