"""Requests and replies come back as they were, and an answer to anything else is refused."""

import pytest

from nbreferee.intake.answers import Answers, Own
from nbreferee.judge.results import Result
from nbreferee.rpc.codec import encode
from nbreferee.workers.message import MessageError, Reply, Request, read_reply, read_request, write_reply, write_request
from tests.nbreferee import toyset
from tests.nbreferee.toycourse import job, reply


def test_messages_come_back_as_they_were():
    own = (Own("y", "a", True), Own("z", None, kind="markdown"))
    template, photos = toyset.notebook(), {"picture-1.png": {"image/png": "AAAA"}}
    answers = Answers({"a": "x\ud800", "b": None}, own, ("b",), ("n",), photos)
    request = Request(
        job(),
        template,
        answers,
        "Set",
        {"t": {"score": 1.5}},
        reply().result,
        "stub",
        "text",
        known=reply().result.tests,
    )
    assert read_request(write_request(request)) == request
    assert read_request(write_request(Request(job()))) == Request(job())
    assert read_reply(write_reply(reply()), job()) == reply()
    bad = Reply(reply().result, "\ud800", "\udfff")
    assert read_reply(write_reply(bad), job()).notebook == "\\ud800"


def told(**parts):
    """An answer with some parts exchanged."""
    return encode({"result": reply().result.to_json(), "notebook": "", "feedback": "", "failed": None} | parts)


def test_an_answer_of_these_parts_is_read():
    assert read_reply(told(), job()).result == reply().result


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"R1",
        b"rubbish",
        write_request(Request(job())),
        write_reply(reply(worth=3.0)),
        write_reply(reply(name="u")),
        write_reply(Reply(Result(()), "", "")),
        write_reply(reply()).replace(b'"points": 2.0', b'"points": 2.1'),
        write_reply(reply()).replace(b'"points": 2.0', b'"points": -.1'),
        write_reply(reply()).replace(b'"points": 2.0', b'"points": NaN'),
        write_reply(reply()) + b"\0",
        told(more=""),
        told(notebook=1.0),
        told(notebook=None),
        told(result="[]"),
        told(result=reply().result.to_json().replace('"points": 2.0', '"points": true')),
        told(result=reply().result.to_json().replace('"cells": []', '"cells": [1]')),
    ],
)
def test_an_answer_to_anything_else_is_refused(message):
    with pytest.raises(MessageError) as said:
        read_reply(message, job())
    assert "\n" not in str(said.value)
