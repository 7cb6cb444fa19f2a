"""Every error of the package has one base, so a caller catches one name."""

import importlib
import inspect
import pkgutil

import nbreferee
from nbreferee.errors import NbrefereeError

OF_A_TEST = "StudentError"  # what a test of the instructor's sees: an error of the answer's, not of the package


def _modules():
    for found in pkgutil.walk_packages(nbreferee.__path__, "nbreferee."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def test_every_error_has_the_one_base():
    errors = {
        kind
        for module in _modules()
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__.startswith("nbreferee.")
        if not kind.__name__.startswith("_")  # a module's own signals leave it never
    }
    assert len(errors) > 20
    without = [kind for kind in errors if not issubclass(kind, NbrefereeError)]
    assert not [kind for kind in without if all(base.__name__ != OF_A_TEST for base in kind.__mro__)]
