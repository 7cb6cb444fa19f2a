"""What a grading process does: it is forked by the zygote, answers one request, and ends."""

import os
import resource

from nbformat import v4

from .autograded import autograded
from .feedback import feedback
from .grader import grade
from .message import Reply, Request, read_request, write_reply
from .wire import Channel

__all__ = ["answer", "main"]

WAIT_S = 30.0
MEMORY = 4 << 30  # beyond what is mapped already: what a student's values may make the tests build


def main(channel: Channel, start) -> None:
    """Read a request, grade, render, reply.

    Parameters
    ----------
    channel : to the supervisor.
    start : starts a student's process; see `nbreferee.grader.grade`.
    """
    _limit_memory()
    request = read_request(channel.receive(WAIT_S))
    channel.send(write_reply(answer(request, start)), WAIT_S)


def answer(request: Request, start) -> Reply:
    """Grade what is asked for, unless the request brings its result, and render it if it brings a template."""
    result = request.result or grade(request.job, start)
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
