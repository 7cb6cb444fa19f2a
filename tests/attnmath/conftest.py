"""What holds for every test of the library."""

import pytest

from attnmath.check import read_only


@pytest.fixture(autouse=True, scope="session")
def results_are_read_only():
    """A component that writes into what another one returned, or a test that does, is found here."""
    with read_only():
        yield
