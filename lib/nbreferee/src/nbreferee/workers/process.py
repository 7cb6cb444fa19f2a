"""What a grading process does: it is forked by the zygote, answers one request, and ends."""

import os
import resource
import sys
import time
import traceback
from functools import partial

import nbformat
from nbformat import v4

from ..intake.answers import Answers
from ..judge.grader import grade
from ..judge.job import plan
from ..judge.results import CellResult, Result, TestResult
from ..judge.student_side import GraderError
from ..pages.autograded import autograded
from ..pages.feedback import feedback
from ..rpc.files import Shared
from ..rpc.framing import Channel
from ..walls.sandbox import SandboxError
from ..walls.supervisor import ZygoteError
from .message import Reply, Request, read_request, write_failure, write_note, write_reply, write_request

__all__ = ["answer", "main", "prepare"]

WAIT_S = 30.0
MEMORY = 4 << 30  # beyond what is mapped already: what a student's values may make the tests build
ELSEWHERE = (GraderError, SandboxError, ZygoteError, KeyboardInterrupt)  # not of this submission: it is tried once more


def prepare() -> None:
    """Do before the fork what every grading process needs: compile nbformat's schema and the templates of the page."""
    import numpy.testing  # noqa: F401  (tests use it)

    if torch := sys.modules.get("torch"):
        torch.testing.assert_close(torch.zeros(1), torch.zeros(1))  # its first call imports five hundred modules
    cell = v4.new_code_cell("x = 1", metadata={"nbgrader": {"grade_id": "x", "solution": True}})
    test = v4.new_code_cell("assert x", metadata={"nbgrader": {"grade_id": "t", "grade": True, "points": 1}})
    template = nbformat.reads(v4.writes(v4.new_notebook(cells=[v4.new_markdown_cell("*x*"), cell, test])), 4)
    answers = Answers({"x": "x = 1"}, (), (), ())
    result = Result((TestResult("t", "failed", 0.0, 1.0, "no"),), (CellResult("x", "answer", "ran"),))
    request = Request(plan(template, answers), template, answers, "x", result=result)
    write_reply(answer(read_request(write_request(request)), None))


def main(channel: Channel, start) -> None:
    """Read a request, grade, render, reply; where that cannot be done, say why.

    Parameters
    ----------
    channel : to the supervisor.
    start : starts a student's process; see `nbreferee.judge.grader.grade`.
    """
    _limit_memory()
    request = read_request(channel.receive(WAIT_S))
    try:
        say = partial(_tell, channel)
        message = write_reply(answer(request, start, say=say, folder=Shared(os.getcwd())))
    except ELSEWHERE:
        raise
    except BaseException as error:
        traceback.print_exc()
        message = write_failure(error)
    channel.send(message, WAIT_S)


def _tell(channel, step, within_s, spent_s):
    channel.send(write_note(step, within_s, spent_s, time.process_time()), WAIT_S)


def answer(request: Request, start, **how) -> Reply:
    """Grade what is asked for, unless the request brings its result, and render it if it brings a template.

    ``how`` goes to `nbreferee.judge.grader.grade`.
    """
    again = {"stuck": request.stuck, "spent_s": request.spent_s, "known": {test.name: test for test in request.known}}
    result = (request.result or grade(request.job, start, **again, **how)).capped()
    if request.template is None:
        return Reply(result)
    stubs = {"code_stub": request.code_stub, "text_stub": request.text_stub}
    notebook = autograded(request.template, request.answers, result, **stubs)
    page = feedback(request.template, request.answers, result, title=request.title, extra=request.extra)
    return Reply(result, v4.writes(notebook), page)


def _limit_memory():
    with open("/proc/self/statm", "rb") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = mapped + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
