"""What each verdict depends on, so that after a change of one test only what depends on it is judged again.

A test whose names no later cell needs is judged in whatever place and process suits, see `nbreferee.judge.grader`: its
verdict depends on the cells that are run, on the names that it reaches, and on itself. A sandboxed test depends also
on the tests that it needs. Every other test is one of the cells that are run: if it changes, all is judged again.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

from .job import GIVEN, SANDBOXED, TEST, Job, bound
from .trusted import Trusted, reads

__all__ = ["KEPT", "LOSSES", "Parts", "movable", "parts_of"]

LOSSES = ("crashed", "timeout", "memory")  # of a cell: what fails for want of it may pass another time
KEPT = ("passed", "failed", "unanswered", "invalid")  # what may be kept: no verdict that hangs on time or on a process


@dataclass(frozen=True)
class Parts:
    """Digests of a job.

    Parameters
    ----------
    frame : of all that every verdict depends on: environment, limits, and the cells that are run.
    tests : {name: digest} of the tests that depend on the frame and on themselves.
    """

    frame: str
    tests: dict


def movable(steps) -> list:
    """The split tests, in order, whose names no later cell needs: they can be judged in another place."""
    found, needed = [], set()
    for index in reversed(range(len(steps))):
        step = steps[index]
        if step.kind == TEST and step.run != SANDBOXED and not needed & set(bound(step.source)):
            found.insert(0, index)
        if step.kind == GIVEN or (step.kind == TEST and step.run != SANDBOXED):
            needed |= set(reads(step.source))
    return found


def parts_of(job: Job, environment: str) -> Parts:
    """The digests of a job in an environment; see `nbreferee.workers.fingerprint`."""
    free = {*movable(job.steps), *(i for i, step in enumerate(job.steps) if step.run == SANDBOXED)}
    frame, tests, trusted = [], {}, Trusted(job.steps)
    for index, step in enumerate(job.steps):
        if index in free:  # its place is the number of cells above it
            needed = [tests.get(name, "") for name in step.needs]
            tests[step.name] = _digest(len(frame), asdict(step), trusted.reached(step), needed)
        else:
            frame.append(asdict(step))
    return Parts(_digest(environment, asdict(job.limits), job.packages, frame), tests)


def _digest(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
