"""The corpus: every submission says what it does, why, and what it is worth."""

import importlib
from dataclasses import dataclass, field

from ..assignment import FULL, sheet

FORGED, ACCIDENT, BROKEN = "forged verdict", "honest accident", "broken file"
RESOURCE, SECRET, ESCAPE, KILLER = "resource", "secret", "escape", "batch killer"
CLASSES = (FORGED, ACCIDENT, BROKEN, RESOURCE, SECRET, ESCAPE, KILLER)
MODULES = ("accidents", "forged", "broken", "resources", "secrets", "escapes", "killers")


@dataclass(frozen=True)
class Submission:
    """One student.

    Parameters
    ----------
    name : for the table.
    kind : one of CLASSES.
    what : one sentence on what it does and why.
    just : {test: points} that the work is worth; None: it cannot be put down to any student.
    make : fills a sheet.
    student : the id, if it is not the name.
    state : how the submission must end: graded, or why it was refused.
    tests : states of tests, where they tell something; several if a race decides.
    note : words that must stand in what is said about the submission.
    limit : {test: why} where the design does not claim to withstand; such a mark may be higher than just.
    """

    name: str
    kind: str
    what: str
    just: dict | None
    make: object
    student: str
    state: str = "graded"
    tests: dict = field(default_factory=dict)
    note: str = ""
    limit: dict = field(default_factory=dict)

    def sheet(self):
        made = sheet()
        self.make(made)
        return made


_all = {}


def submission(kind, just=FULL, *, student=None, **more):
    """Enter a function into the corpus: its name is the student, its docstring the sentence."""

    def enter(make):
        name = make.__name__.replace("_", "-")
        if name in _all:
            raise ValueError(f"two submissions are called {name}; rename one")
        what = " ".join(make.__doc__.split())
        _all[name] = Submission(name, kind, what, just, make, name if student is None else student, **more)
        return make

    return enter


def corpus():
    """All submissions, in the order of their classes."""
    for module in MODULES:
        importlib.import_module(f"{__name__}.{module}")
    return sorted(_all.values(), key=lambda one: CLASSES.index(one.kind))
