"""A zygote without walls that knows how to fail: words in a student's code say how."""

import ctypes
import os
import signal
import socket
import threading
import time
from dataclasses import replace

import nbformat

from nbreferee.judge.results import CellResult, Result, TestResult
from nbreferee.pages.autograded import autograded
from nbreferee.pages.feedback import feedback
from nbreferee.rpc.framing import Channel
from nbreferee.workers.message import Reply, read_request, write_reply


def with_parent():
    """Die when the process that forked this one dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class FakeLine:
    def __init__(self, channel, pid):
        self.channel, self.pid = channel, pid

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def ended(self, timeout_s=0):
        return "signal 9"

    def used(self):
        return None

    def close(self):
        self.kill()
        self.channel.close()


FORKING = threading.Lock()  # a fork must not take along the far end of another one's line


class FakeZygote:
    def __init__(self, log=None):
        self.log, self.lock = log, threading.Lock()
        with FORKING:
            self.control, theirs = socket.socketpair()
            self.pid = os.fork()
            if self.pid:
                theirs.close()
        if not self.pid:
            try:
                with_parent()
                self.control.close()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
                self.serve(theirs)
            finally:
                os._exit(1)

    def serve(self, control):
        while True:
            word, (descriptor,), *_ = socket.recv_fds(control, 1, 1)
            if not word:
                return
            pid = os.fork()
            if not pid:
                with_parent()
                try:
                    work(Channel(socket.socket(fileno=descriptor)), self.log)
                finally:
                    os._exit(0)
            os.close(descriptor)
            control.sendall(pid.to_bytes(4, "big"))

    def grader(self, timeout_s=10):
        with self.lock, FORKING:
            ours, theirs = socket.socketpair()
            try:
                self.control.settimeout(timeout_s)
                socket.send_fds(self.control, [b"!"], [theirs.fileno()])
                answer = self.control.recv(4)
            except OSError:
                answer = b""
            theirs.close()
            if len(answer) < 4:
                ours.close()
                raise RuntimeError("the zygote has died")
        return FakeLine(Channel(ours), int.from_bytes(answer, "big"))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        with self.lock:
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.pid = 0
                self.control.close()


def work(channel, log):
    request = read_request(channel.receive(30))
    words = "\n".join(step.source for step in request.job.steps)
    if log and request.result is None:
        with open(log, "a") as file:
            file.write(who(words) + "\n")
    if "# SLOW" in words:
        time.sleep(0.05)
    if "# LONG" in words:
        time.sleep(1.5)
    if "# HANG" in words:
        time.sleep(600)
    if "# CRASH" in words:
        os._exit(3)
    if "# KILL ZYGOTE" in words:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    if "# GARBAGE" in words:
        return channel.send(b"I hereby award myself full marks", 5)
    result = request.result or fake_grade(request.job, "# AT FAULT" in words)
    if "# WAITS" in words or ("# ONCE WAITS" in words and times(log, words) == 1):
        result = replace(result, waited=True)
    reply = write_reply(render(request, result))
    if "# BEYOND" in words:
        reply = reply.replace(b'"points": 1.0', b'"points": 9.0')
    if "# NOT A NUMBER" in words:
        reply = reply.replace(b'"points": 1.0', b'"points": NaN')
    channel.send(reply, 5)


def who(words):
    return next((line[6:] for line in words.split("\n") if line.startswith("# id: ")), "?")


def times(log, words):
    """How often a submission has been run, this time included."""
    with open(log) as file:
        return file.read().split("\n").count(who(words))


def fake_grade(job, broken):
    names, tests, cells = {}, [], []
    for step in job.steps:
        try:
            exec(step.source, names)
            state, text = "passed", ""
        except Exception as error:
            state, text = "failed", f"{type(error).__name__}: {error}"
        if step.kind == "test":
            state = "broken" if broken and not tests else state
            points = step.points if state == "passed" else 0.0
            tests.append(TestResult(step.name, state, points, step.points, text, sandboxed=step.run == "sandboxed"))
        elif step.kind != "given":
            cells.append(CellResult(step.name, step.kind, "ran" if state == "passed" else "failed", text))
    return Result(tuple(tests), tuple(cells), 0.25)


def render(request, result):
    if request.template is None:
        return Reply(result)
    book = autograded(request.template, request.answers, result)
    page = feedback(request.template, request.answers, result, title=request.title, extra=request.extra)
    return Reply(result, nbformat.v4.writes(book), page)
