"""What the supervisor asks of a grading process and what that answers, as bytes.

A grading process has run a stranger's code at arm's length. Its answer is read strictly all the same: the tests must be
those that were asked, each worth what it was worth, each with points that it can give.
"""

import struct
from dataclasses import dataclass, field, fields

import nbformat

from ..errors import NbrefereeError
from ..intake.answers import CODE_STUB, TEXT_STUB, Answers, Own
from ..judge.job import Job
from ..judge.results import Result, ResultError
from ..rpc.codec import Bounds, CodecError, decode, encode

__all__ = [
    "MessageError",
    "Reply",
    "Request",
    "once_more",
    "one_line",
    "read_note",
    "read_reply",
    "read_request",
    "write_failure",
    "write_note",
    "write_reply",
    "write_request",
]

BOUNDS = Bounds(depth=32, items=100_000)
NOTE, NOTE_MARK, MOST_S = struct.Struct("!8sid"), b"judging:", 1e6
PARTS = {
    "job": str,
    "template": str,
    "answers": dict,
    "title": str,
    "extra": dict,
    "result": str,
    "code_stub": str,
    "text_stub": str,
}
PARTS |= {"stuck": list, "spent_s": float, "known": str}
REPLY = {"result": str, "notebook": str, "feedback": str, "failed": str}


class MessageError(NbrefereeError, ValueError):
    """What was to be read is no such message; the text is one line."""


@dataclass(frozen=True)
class Request:
    """What a grading process is asked.

    Parameters
    ----------
    job : what is to be run.
    template : the instructor's notebook; None: nothing is rendered. Its JSON may be given, a notebook is read.
    answers : what the student contributed, for rendering.
    title : the heading of the feedback page.
    extra : what a person decided, and the penalty for lateness; see `nbreferee.pages.feedback.feedback`.
    result : the result of an earlier run; nothing is run then, only rendered.
    code_stub, text_stub : what the course puts in place of solutions.
    stuck : places of the job's steps that an earlier grading process did not come out of: their time is over.
    spent_s : seconds that earlier grading processes have taken of the job's time.
    known : verdicts of an earlier run, of tests that are not judged again; see `nbreferee.judge.parts`.
    """

    job: Job
    template: nbformat.NotebookNode | str | None = None
    answers: Answers | None = None
    title: str = ""
    extra: dict = field(default_factory=dict)
    result: Result | None = None
    code_stub: str = CODE_STUB
    text_stub: str = TEXT_STUB
    stuck: tuple = ()
    spent_s: float = 0.0
    known: tuple = ()


@dataclass(frozen=True)
class Reply:
    """What a grading process answers: a result, the autograded notebook (JSON) and the feedback page (HTML)."""

    result: Result
    notebook: str = ""
    feedback: str = ""


def write_request(request: Request) -> bytes:
    """Make the message.

    Raises
    ------
    MessageError : the job is too large to be sent.
    """
    template = request.template
    tree = {
        "job": request.job.to_json(),
        "template": template if template is None or isinstance(template, str) else nbformat.writes(template),
        "answers": None if request.answers is None else _answers_tree(request.answers),
        "title": request.title,
        "extra": request.extra,
        "result": None if request.result is None else request.result.to_json(),
        "code_stub": request.code_stub,
        "text_stub": request.text_stub,
        "stuck": list(request.stuck),
        "spent_s": float(request.spent_s),
        "known": Result(tuple(request.known)).to_json(),
    }
    return _encode(tree)


def once_more(message: bytes, stuck: int, spent_s: float) -> bytes:
    """The same request for another grading process, after one that did not come out of a step."""
    tree = _decode(message, PARTS)
    return _encode(tree | {"stuck": [*tree["stuck"], stuck], "spent_s": spent_s})


def read_request(message: bytes) -> Request:
    """Read what a supervisor sent.

    Raises
    ------
    MessageError : it is something else, as from another version of nbreferee.
    """
    tree = _decode(message, PARTS)
    try:
        return Request(
            Job.from_json(tree["job"]),
            None if tree["template"] is None else nbformat.v4.reads(tree["template"]),
            None if tree["answers"] is None else _answers(tree["answers"]),
            tree["title"],
            tree["extra"],
            None if tree["result"] is None else Result.from_json(tree["result"]),
            tree["code_stub"],
            tree["text_stub"],
            tuple(map(int, tree["stuck"])),
            tree["spent_s"],
            Result.from_json(tree["known"]).tests,
        )
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise MessageError(f"no request of this version of nbreferee: {one_line(error)}") from None


def write_reply(reply: Reply) -> bytes:
    """Make the answer.

    Raises
    ------
    MessageError : the answer is too large to be sent.
    """
    parts = {"result": reply.result.to_json(), "notebook": reply.notebook, "feedback": reply.feedback}
    return _encode(parts | {"failed": None})


def write_failure(error: BaseException) -> bytes:
    """Make the answer of a grading process that has none: why, in one line."""
    return _encode(dict.fromkeys(REPLY) | {"failed": one_line(f"{type(error).__name__}: {error}")})


def write_note(step: int, within_s: float) -> bytes:
    """Make a word that is sent before the answer: which step of the job begins, and when the next word is due."""
    return NOTE.pack(NOTE_MARK, step, within_s)


def read_note(message: bytes) -> tuple | None:
    """(step, seconds until the next word is due) if this is such a word, and not the answer."""
    if len(message) != NOTE.size or not message.startswith(NOTE_MARK):
        return None
    _, step, within_s = NOTE.unpack(message)
    return step, min(max(within_s, 0.0), MOST_S)


def read_reply(message: bytes, job: Job) -> Reply:
    """Read what a grading process answered to a job.

    Parameters
    ----------
    message : from anywhere.
    job : what was asked.

    Returns
    -------
    Reply, fit to be stored: no lone surrogates, points finite and between 0 and what each test is worth.

    Raises
    ------
    MessageError : it is no answer to that job, or says why there is none.
    """
    tree = _decode(message, REPLY)
    failed = tree.pop("failed")
    if failed is not None:
        raise MessageError(one_line(_plain(failed)))
    if None in tree.values():
        raise MessageError("no answer: a part of it is missing")
    try:
        result = Result.from_json(_plain(tree["result"]))
    except ResultError as error:
        raise MessageError(one_line(error)) from None
    worth = {test.name: test.worth for test in result.tests}
    if worth != job.points:
        raise MessageError("the answer is about other tests than those of the job, or about other points")
    return Reply(result, _plain(tree["notebook"]), _plain(tree["feedback"]))


def _answers_tree(answers):
    tree = {each.name: getattr(answers, each.name) for each in fields(Answers)}
    own = [[own.source, own.place, own.before, own.kind] for own in answers.own]
    return tree | {"cells": dict(answers.cells), "own": own}


def _answers(tree):
    return Answers(**tree | {"own": tuple(Own(*each) for each in tree["own"])})


def _encode(tree):
    try:
        return encode(tree, bounds=BOUNDS)
    except CodecError as error:
        raise MessageError(one_line(error)) from None


def _decode(message, types):
    try:
        tree = decode(message, bounds=BOUNDS)
    except CodecError as error:
        raise MessageError(f"no message: {one_line(error)}") from None
    if type(tree) is not dict or set(tree) != set(types):
        raise MessageError("no message: it has other parts than those agreed upon")
    for name, kind in types.items():
        if tree[name] is not None and type(tree[name]) is not kind:
            raise MessageError(f"no message: {name} is of type {type(tree[name]).__name__}")
    return tree


def _plain(text):
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(error: BaseException | str) -> str:
    """An error as one line of at most 300 characters; its kind if it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__
