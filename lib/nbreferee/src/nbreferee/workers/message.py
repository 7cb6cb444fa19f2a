"""What the supervisor asks of a grading process and what that answers, as bytes.

A grading process has run a stranger's code at arm's length. Its answer is read strictly all the same: the tests must be
those that were asked, each worth what it was worth, each with points that it can give.
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import nbformat

from ..errors import NbrefereeError
from ..intake.answers import CODE_STUB, TEXT_STUB, Answers
from ..judge.job import Job
from ..judge.results import Result, ResultError
from ..rpc.codec import Bounds, CodecError, decode, encode

__all__ = [
    "MessageError",
    "Note",
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
NOTE, NOTE_MARK, MOST_S = struct.Struct("!8siddd"), b"judging:", 1e6


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The parts of a request as they are sent."""

    job: str
    template: str | None
    answers: Answers | None
    title: str
    extra: dict
    result: str | None
    code_stub: str
    text_stub: str
    stuck: tuple[int, ...]
    spent_s: float
    known: str


class _Told(msgspec.Struct, forbid_unknown_fields=True):
    """The parts of an answer as they are sent: all but the last, or the last alone."""

    result: str | None
    notebook: str | None
    feedback: str | None
    failed: str | None


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
    spent_s : seconds that earlier grading processes have taken of the job's processor time.
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
    asked = _Asked(
        request.job.to_json(),
        template if template is None or isinstance(template, str) else nbformat.writes(template),
        request.answers,
        request.title,
        request.extra,
        None if request.result is None else request.result.to_json(),
        request.code_stub,
        request.text_stub,
        request.stuck,
        float(request.spent_s),
        Result(tuple(request.known)).to_json(),
    )
    return _encode(asked)


def once_more(message: bytes, stuck: int, spent_s: float) -> bytes:
    """The same request for another grading process, after one that did not come out of a step."""
    asked = _decode(message, _Asked)
    return _encode(msgspec.structs.replace(asked, stuck=(*asked.stuck, stuck), spent_s=spent_s))


def read_request(message: bytes) -> Request:
    """Read what a supervisor sent.

    Raises
    ------
    MessageError : it is something else, as from another version of nbreferee.
    """
    asked = _decode(message, _Asked)
    try:
        return Request(
            Job.from_json(asked.job),
            None if asked.template is None else nbformat.v4.reads(asked.template),
            asked.answers,
            asked.title,
            asked.extra,
            None if asked.result is None else Result.from_json(asked.result),
            asked.code_stub,
            asked.text_stub,
            asked.stuck,
            asked.spent_s,
            Result.from_json(asked.known).tests,
        )
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise MessageError(f"no request of this version of nbreferee: {one_line(error)}") from None


def write_reply(reply: Reply) -> bytes:
    """Make the answer.

    Raises
    ------
    MessageError : the answer is too large to be sent.
    """
    return _encode(_Told(reply.result.to_json(), reply.notebook, reply.feedback, None))


def write_failure(error: BaseException) -> bytes:
    """Make the answer of a grading process that has none: why, in one line."""
    return _encode(_Told(None, None, None, one_line(f"{type(error).__name__}: {error}")))


class Note(NamedTuple):
    """What a grading process says before its answer.

    Parameters
    ----------
    step : which step of the job begins on the trusted side; -1: none.
    within_s : seconds of processor time after which the next word is due.
    spent_s : those that the submission has used so far.
    own_s : those that the grading process has used so far.
    """

    step: int
    within_s: float
    spent_s: float
    own_s: float


def write_note(step: int, within_s: float, spent_s: float = 0.0, own_s: float = 0.0) -> bytes:
    """Make a word that is sent before the answer; see `Note`."""
    return NOTE.pack(NOTE_MARK, step, within_s, spent_s, own_s)


def read_note(message: bytes) -> Note | None:
    """The `Note` if this is such a word, and not the answer."""
    if len(message) != NOTE.size or not message.startswith(NOTE_MARK):
        return None
    _, step, *seconds = NOTE.unpack(message)
    return Note(step, *(min(max(each, 0.0), MOST_S) for each in seconds))


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
    told = _decode(message, _Told)
    if told.failed is not None:
        raise MessageError(one_line(_plain(told.failed)))
    if None in (told.result, told.notebook, told.feedback):
        raise MessageError("no answer: a part of it is missing")
    try:
        result = Result.from_json(_plain(told.result))
    except ResultError as error:
        raise MessageError(one_line(error)) from None
    worth = {test.name: test.worth for test in result.tests}
    if worth != job.points:
        raise MessageError("the answer is about other tests than those of the job, or about other points")
    return Reply(result, _plain(told.notebook), _plain(told.feedback))


def _encode(parts):
    try:
        return encode(msgspec.to_builtins(parts), bounds=BOUNDS)
    except CodecError as error:
        raise MessageError(one_line(error)) from None


def _decode(message, kind):
    try:
        return msgspec.convert(decode(message, bounds=BOUNDS), kind)
    except (CodecError, msgspec.ValidationError) as error:
        raise MessageError(f"no message: {one_line(error)}") from None


def _plain(text):
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(error: BaseException | str) -> str:
    """An error as one line of at most 300 characters; its kind if it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__
