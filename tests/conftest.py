"""Every test session checks the shape strings of the library's signatures against the arrays that pass through them."""

import os
import sys

os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # nbgrader calls alembic
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

from functools import partial
from types import FunctionType
from unittest.mock import patch

import jaxtyping
from jaxtyping import _import_hook, config, install_import_hook

import lean  # noqa: F401  (reading a notebook then takes a second less, in every process that collects tests)

with_checks = jaxtyping.jaxtyped


def jaxtyped(**options):
    """What the hook puts on every function, a vjp each time that one is made: only where there is something to check.

    To make the checks of a function that says no shapes takes longer than most components do.
    """
    return lambda f: f if isinstance(f, FunctionType) and not f.__annotations__ else with_checks(f, **options)


jaxtyping.jaxtyped = jaxtyped


def exec_module(loader, module):
    """Find the compiled module under the hook's own name for it, but run it without.

    The hook's own way keeps that name while the module runs, and so compiles everything anew that it imports: Beartype,
    SciPy and most of PyTorch.
    """
    tagged = partial(_import_hook._optimized_cache_from_source, loader._typechecker.get_hash())
    with patch("importlib._bootstrap_external.cache_from_source", tagged):
        code = loader.get_code(module.__name__)
    exec(code, module.__dict__)


_import_hook._JaxtypingLoader.exec_module = exec_module
install_import_hook("attnmath", "beartype.beartype")

import numpy as np
import pytest
import torch
from hypothesis import settings

pytest_plugins = ["tests.needs"]

# The same examples in every run, however slow the machine: a failure is then a fault, and it comes again.
settings.register_profile("book", deadline=None, derandomize=True, database=None)
settings.load_profile("book")

# Tests run side by side, a process on each core and one more: threads would only make them wait for each other.
torch.set_num_threads(1)


@pytest.fixture
def rng():
    """A fresh generator with one seed, so that a test does not depend on which tests ran before it."""
    return np.random.default_rng(20170612)


@pytest.fixture
def as_users_call():
    """Without the shape checks that the tests switch on, which would speak first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
