"""Tests and the tools that a machine may lack: walls, browsers, PostgreSQL, as `scripts/tools.py` finds them.

A test that cannot do without one says so: `pytest.mark.needs("walls")`. Where the tool is missing, those of one file
are replaced by one that is skipped and says why, so that a report shows one line and not sixty. Where the variable
REQUIRE names the tool, as in the continuous integration, the whole run fails instead, in one sentence.

A test that takes a fixture which starts such a tool has to say so; a run in which one does not begins with its name.

From all other tests the tools are hidden, so that what passes where there is everything passes on the bare machine too;
`pytest.mark.uses("walls")` is for those that are better run with a tool, and can do without it.
"""

import functools
import os

import pytest

import tools

lacks = functools.cache(tools.lacks)
STARTED = {"browser": "browser", "firefox": "firefox"}  # a fixture: the tool that it starts


def asked(item, *marks):
    return {name for kind in marks for mark in item.iter_markers(kind) for name in mark.args}


def unsaid(item):
    """The tools that the fixtures of a test start, and that it does not say it needs."""
    return {STARTED[name] for name in getattr(item, "fixturenames", ()) if name in STARTED} - asked(item, "needs")


def refusal(required):
    """Why a run that requires these tools cannot begin here; empty if it can."""
    for name in filter(None, required.split(",")):
        if name not in tools.TOOLS:
            return f"REQUIRE names {name!r}; it knows {', '.join(tools.TOOLS)}"
        if reason := tools.lacks(name):
            return f"REQUIRE names {name}, and {reason}"
    return ""


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return  # of pytest-xdist; the process that started it has looked
    if sentence := refusal(os.environ.get("REQUIRE", "")):
        raise pytest.UsageError(sentence)


class Missing(pytest.Item):
    """Stands for the tests of one file that are not run."""

    def __init__(self, *, reason, **more):
        super().__init__(**more)
        self.reason = reason

    def runtest(self):
        pytest.skip(self.reason)

    def reportinfo(self):
        return self.path, None, self.name


@pytest.hookimpl(trylast=True)  # after -k and -m have chosen
def pytest_collection_modifyitems(items):
    absent, kept = {}, []
    for item in items:
        if unknown := asked(item, "needs", "uses") - set(tools.TOOLS):
            raise pytest.UsageError(f"{item.nodeid} needs {', '.join(unknown)}; there are {', '.join(tools.TOOLS)}")
        if forgotten := unsaid(item):
            raise pytest.UsageError(f"{item.nodeid} starts {', '.join(forgotten)}; mark it pytest.mark.needs(…)")
        missing = next((name for name in sorted(asked(item, "needs")) if lacks(name)), None)
        if missing is None:
            kept.append(item)
        else:
            absent.setdefault((item.path, missing), []).append(item)
    for (path, name), group in absent.items():
        reason = f"{path.name}, {len(group)} of its tests: {lacks(name)}"
        kept.append(Missing.from_parent(group[0].getparent(pytest.Module), name=f"needs-{name}", reason=reason))
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    hidden = {variable for name, variable in tools.TOOLS.items() if name not in asked(item, "needs", "uses")}
    before = {variable: os.environ.get(variable) for variable in hidden}
    os.environ.update(dict.fromkeys(hidden, ""))
    try:
        return (yield)
    finally:
        for variable, value in before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
