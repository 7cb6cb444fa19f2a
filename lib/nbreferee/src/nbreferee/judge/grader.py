"""Run the instructor's tests against a student's answers that live in another process.

The student's process runs given cells, answers and own cells. The tests run here, in the namespace of
`nbreferee.judge.trusted`: names that they use are either the instructor's (given cells, earlier tests) or the
student's (what the answers are asked for), and the student's functions are proxies. If the student's process is
lost in one test, that test fails, a new process replays the cells, and the other tests go on.

Shown tests come first, all of them; then hidden ones; then sandboxed ones, each in a process of its own. So an answer
that remembers what a hidden test asked cannot tell it in the message of a shown one, and of an error in a hidden test
the student reads the kind and the line, not the text. If two cells bind one name, hidden tests run in a new process,
in which no cell below their place has run.

Last come the tests whose answers have cost a process, time or memory, and those that were lost in a process that other
tests had used before: each in a new process. So one answer's endless loop takes no time from another's tests, and what
one answer leaves behind, a thread or a full memory, takes no mark from another.
"""

import contextlib
import io
import math
import numbers
import signal
import time
from collections import Counter

import numpy as np

from ..rpc.plugins import torch_here
from ..rpc.raised import StudentError, StudentLost
from .clock import Account, Clock
from .job import ANSWER, GIVEN, SANDBOXED, TEST, UNREADABLE, Job, bound
from .parts import movable
from .reasons import NOT_PASSED, UNANSWERED, Reasons, said
from .results import Result, TestResult
from .student_side import LOST, StudentSide
from .trusted import Trusted, compiled

__all__ = ["grade"]

KEPT_CALLS = 3
AFTER_S = 1.0  # the instructor's code has so long after the student's time is over


class _TooSlow(BaseException):
    """The test itself ran on, in the instructor's code, after its time."""


def grade(
    job: Job, start, *, known=None, say=lambda step, within_s, spent_s: None, stuck=(), spent_s=0.0, folder=None
) -> Result:
    """Run all cells and tests of one submission.

    Parameters
    ----------
    job : the cells, and the limits.
    start : starts a student's process: ``start() -> Forked``, as `nbreferee.walls.supervisor` provides it.
    known : {name: `TestResult`} of an earlier run, of tests that are not judged again; see `nbreferee.judge.parts`.
    say : told, as ``say(step, within_s, spent_s)``, which step begins on the trusted side, how much processor time it
        may use, and how much the submission has used so far; -1: it is done. Who listens may end this process if it
        uses more: an alarm does not interrupt C code, such as the singular values of a large matrix that an answer has
        returned.
    stuck : the steps in which that has happened to a process before this one.
    spent_s : seconds of the submission's processor time that are gone.
    folder : the `nbreferee.rpc.files.Shared` in which files are kept alike on both sides; None: none is.

    Returns
    -------
    Result. Whatever the student's code does, every test has a state.

    Raises
    ------
    GraderError : a student's process cannot be had; nobody is to blame but the grader.
    """
    run = _Run(job, start, known or {}, say, frozenset(stuck), spent_s, folder)
    try:
        return run.all()
    finally:
        run.side.lose()


class _Run:
    def __init__(self, job, start, known, say, stuck, spent_s, folder):
        self.job, self.limits, self.say, self.stuck = job, job.limits, say, stuck
        self.began, self.account = time.monotonic(), Account(job.limits, spent_s)
        self.side = StudentSide(job, start, self.account, folder)
        self.trusted = Trusted(job.steps)
        self.verdicts = dict(known)
        self.movable = movable(job.steps)
        self.kept = {}  # movable test: what it finds at its place on the trusted side
        self.costs, self.waiting = Counter(), []  # what answers have cost; tests that wait for a process of their own
        self.seen = 0  # the number of the student's process that given cells were last run with
        self.halted = {}  # given cell that stopped: (whether by the student's fault, the error)
        self.reasons = Reasons(job, self.trusted, self.side.cells, self.halted)

    def all(self):
        """Shown tests from top to bottom; then hidden, sandboxed, and costly ones; then those that wait for one."""
        steps = self.job.steps
        known = {index for index, step in enumerate(steps) if step.kind == TEST and step.name in self.verdicts}
        hidden = [index for index in self.movable if steps[index].hidden and index not in known]
        inside = [i for i, step in enumerate(steps) if step.kind == TEST and step.run == SANDBOXED and i not in known]
        for index in range(len(steps)):
            self.first_pass(index, later=index in known or index in hidden or index in inside)
        self.side.first = False
        self.judge_hidden(hidden)
        waiting = self.judge_sandboxed(inside)
        while self.waiting:
            index = min(self.waiting, key=self.cost)
            self.waiting.remove(index)
            self.judge_alone(index)
        for index in waiting:
            self.judge_inside(index)
        tests = tuple(self.verdicts[step.name] for step in steps if step.kind == TEST)
        cells = tuple(self.side.cells[i] for i in sorted(self.side.cells))
        return Result(tests, cells, time.monotonic() - self.began, self.account.waited)

    def first_pass(self, index, later):
        """Run a cell, or judge a test that has its turn now."""
        step = self.job.steps[index]
        if index in self.movable:
            self.kept[index] = self.trusted.snapshot(), self.seen
        if step.kind != TEST:
            self.side.on_student(index)
            self.trusted.imports(step.imports)
            self.trusted.asked |= dict.fromkeys(step.asks, step.name)
            if step.kind == GIVEN:
                self.given(index)
        elif not later:
            self.judge_or_wait(index)
            if step.hidden:  # which could not be put off; what the cells below print is the student's to read
                self.side.lose()

    def judge_hidden(self, hidden):
        """Judge hidden tests after all shown ones; in their places, if what stands below may have rebound a name."""
        in_place = hidden and _rebinds(self.job.steps)
        if in_place:
            self.side.lose()
        for index in hidden:
            self.back_to(index)
            if in_place:
                self.side.go_to(index)
            self.judge_or_wait(index)

    def judge_sandboxed(self, inside):
        """Judge sandboxed tests but for those that need one that waits; these come back."""
        later, undecided = [], {self.job.steps[index].name for index in self.waiting}
        for index in inside:
            step = self.job.steps[index]
            if undecided & set(step.needs):
                later.append(index)
                undecided.add(step.name)
            else:
                self.judge_inside(index)
        return later

    def back_to(self, index):
        """Have on the trusted side what there was at a test's place."""
        snapshot, self.seen = self.kept[index]
        self.trusted.restore(snapshot)

    def answers(self, index):
        """The answers that a test asks."""
        _, asked = self.kept[index][0] if index in self.kept else (None, self.trusted.asked)
        return {asked[name] for name in self.trusted.reached(self.job.steps[index]) if name in asked}

    def cost(self, index):
        """What the answers of a test have cost, for the order: first those that have cost least."""
        answers = self.answers(index)
        return sum(self.costs[name] for name in answers), len(answers), index

    def judge_or_wait(self, index):
        """Judge a test beside others, or let it wait for a process of its own, after all others.

        It waits if its answers have cost a process before, or time or memory ran out: so nothing is taken from other
        answers. And it is judged again if it is lost in a process that another test has used, whose fault it may be.
        """
        step, answers = self.job.steps[index], self.answers(index)
        if index in self.movable and any(self.costs[name] for name in answers):
            self.waiting.append(index)
            return
        spoilt = self.side.student is not None and not self.side.fresh
        self.verdicts[step.name] = verdict = self.judge(index)
        if verdict.state in LOST:
            self.costs.update(answers)
            if spoilt and index in self.movable:
                self.waiting.append(index)

    def judge_alone(self, index):
        """Judge a test in a new process, in which nothing but the cells above it has run."""
        step = self.job.steps[index]
        if step.name in self.verdicts and self.side.spent():
            return
        self.side.lose()
        self.back_to(index)
        self.side.done = index
        self.verdicts[step.name] = verdict = self.judge(index)
        if verdict.state in LOST:
            self.costs.update(self.answers(index))

    def given(self, index):
        """Run a given cell here too; what it binds is the instructor's from then on."""
        step, student = self.job.steps[index], None
        self.halted.pop(index, None)
        try:
            code, _ = compiled(step)
            if self.trusted.wanted(step):
                student = self.ready(index)
                self.borrow(step)
            else:
                self.trusted.lend(step, {})
            with _quiet(), self.limited(index), self.trusted.as_main():
                exec(code, self.trusted.names)
        except StudentLost as loss:
            self.side.lost(loss)
            self.side.condemned.add(index)
            self.halted[index] = True, loss.reason
        except (Exception, _TooSlow, SystemExit) as error:
            self.halted[index] = student is not None, said(error)
        finally:
            self.trusted.settle()

    def ready(self, index):
        """A student's process. If it is a new one, given cells that ask answers run again: they hold what was there."""
        while True:
            student = self.side.awake()
            if self.seen == self.side.number:
                return student
            self.seen = self.side.number
            for each in range(index):
                step = self.job.steps[each]
                if step.kind == GIVEN and each not in self.side.condemned and self.trusted.wanted(step):
                    self.given(each)

    def borrow(self, step, **how):
        """Lend a cell of the instructor's what it needs of the student's."""
        self.side.student.clock = self.side.clock()
        self.trusted.lend(step, self.side.student.values(self.trusted.wanted(step)), **how)

    @contextlib.contextmanager
    def limited(self, index):
        """Interrupt the instructor's code when its time is over, a little after the student's answers.

        Who listens is told by when that has been done. If an earlier process did not come out of the step, it is over.
        """
        if index in self.stuck:
            raise _TooSlow
        clock = Clock(self.account, AFTER_S)

        def look(number, frame):
            if (left := clock.left()) <= 0:
                raise _TooSlow
            signal.setitimer(signal.ITIMER_REAL, left)

        before = signal.signal(signal.SIGALRM, look)
        self.say(index, clock.cpu_s + AFTER_S, self.account.at_most().cpu_s)
        signal.setitimer(signal.ITIMER_REAL, clock.left())
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.say(-1, 0.0, 0.0)
            signal.signal(signal.SIGALRM, before)

    def judge(self, index):
        """The verdict of a split test."""
        step = self.job.steps[index]
        began, printed = time.monotonic(), io.StringIO()
        state, points, message, mistake, trace = "passed", step.points, "", "", ""
        try:
            code, last = compiled(step)
        except UNREADABLE as error:
            return TestResult(step.name, "broken", 0.0, step.points, f"the test cannot be read: {error}")
        student = None
        try:
            student = self.ready(index)
            student.forget()
            student.output = ""
            self.borrow(step, copies=step.changes)
            self.side.fresh = False
            student.calls.clear()
            student.may_change, student.echo, student.after = step.changes, True, self.rereading()
            student.clock = self.side.clock()
            names = self.trusted.names
            with _quiet(printed), self.limited(index), self.trusted.as_main():
                exec(code, names)
                value = eval(last, names) if last is not None else None
            if student.lost:  # and the test has caught that
                raise StudentLost(*student.lost)
            if student.refused:  # and the test took the refusal for an answer
                raise TypeError(student.refused)
            points = _partial(value, step.points)
        except StudentLost as loss:
            calls, output = self.asked_so_far()
            state, message = self.side.lost(loss, veiled=step.hidden)
            return self.verdict(step, state, 0.0, began, message, calls=calls, output=output)
        except _TooSlow:
            state, points, message = (
                "timeout",
                0.0,
                f"the test was not done after {self.limits.cell_s:g} s of processor time",
            )
        except BaseException as error:
            state, message, mistake, trace = self.reasons.of(error, step, self.answers(index))
            points = 0.0
        finally:
            self.trusted.settle()
            if student is not None:
                student.retire()
        if state in ("failed", "invalid") and self.untouched(index):
            return self.verdict(step, "unanswered", 0.0, began, UNANSWERED)
        calls, output = self.asked_so_far()
        output = output if step.hidden else printed.getvalue()
        return self.verdict(step, state, points, began, message, mistake, trace, calls, output)

    def untouched(self, index):
        """Whether the answer that a test is about, the last one above it that it asks, is as it was handed out."""
        names = self.answers(index)
        about = [step for step in self.job.steps[:index] if step.kind == ANSWER and step.name in names]
        return bool(about) and about[-1].untouched

    def rereading(self):
        """What is done after each question: a student's function may have bound a global name anew."""
        student, names = self.side.student, self.trusted.plainly_lent()
        return (lambda: self.trusted.refresh(student.values(names))) if names else None

    def asked_so_far(self):
        if self.side.student is None:
            return (), ""
        return tuple(self.side.student.calls[-KEPT_CALLS:]), self.side.student.output

    def verdict(self, step, state, points, began, message="", mistake="", trace="", calls=(), output=""):
        return TestResult(
            step.name,
            state,
            float(points),
            step.points,
            message[:2000],
            mistake[:500],
            trace[:4000],
            tuple(calls),
            output[: self.limits.output],
            step.run == SANDBOXED,
            time.monotonic() - began,
        )

    def judge_inside(self, index):
        """Judge a sandboxed test: in a new process of the student's, once those that it needs have passed."""
        step, began = self.job.steps[index], time.monotonic()
        verdict = self.inside(index, step, began)
        if verdict.state in ("failed", "withheld") and self.untouched(index):
            verdict = self.verdict(step, "unanswered", 0.0, began, UNANSWERED)
        self.verdicts[step.name] = verdict

    def inside(self, index, step, began):
        """The verdict of a sandboxed test."""
        failing = [name for name in step.needs if not _full(self.verdicts.get(name))]
        if failing:
            return self.verdict(step, "withheld", 0.0, began, f"first, {', '.join(failing)} must pass")
        self.side.lose()
        self.side.done = index
        try:
            student = self.side.awake()
            student.output = ""
            student.clock = self.side.clock()
            ran = student.test(step.source, step.name)
        except StudentLost as loss:
            state, message = self.side.lost(loss, veiled=step.hidden)
            return self.verdict(step, state, 0.0, began, message)
        except StudentError as error:  # the agent that runs the test was tampered with
            return self.verdict(step, "failed", 0.0, began, said(error) if not step.hidden else NOT_PASSED)
        if not ran.error:
            return self.verdict(step, "passed", step.points, began, output=ran.output)
        if ran.ename == "NotImplementedError":
            return self.verdict(step, "unanswered", 0.0, began, UNANSWERED)
        message = self.reasons.told(ran, step)
        output = "" if step.hidden else ran.output
        return self.verdict(step, "failed", 0.0, began, message, output=output)


def _rebinds(steps):
    """Whether two cells of the student's process bind one name, other than by an import."""
    seen = set()
    for step in steps:
        names = set() if step.kind == TEST else set(bound(step.source, imports=False))
        if names & seen:
            return True
        seen |= names
    return False


@contextlib.contextmanager
def _quiet(out=None):
    out = out or io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        yield


def _full(verdict):
    return verdict is not None and verdict.state == "passed" and verdict.points >= verdict.worth


def _partial(value, worth):
    """The points for what a test's last line says: a number is partial credit, as in nbgrader; anything else is all."""
    if isinstance(value, np.ndarray | np.generic) or (torch_here() and isinstance(value, torch_here().Tensor)):
        if math.prod(value.shape) != 1:
            return worth
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Number):
        return worth
    if not isinstance(value, numbers.Real) or math.isnan(value):
        raise ValueError(f"the test's last line is {value}, which is no number of points")
    return min(max(float(value), 0.0), worth)
