"""The student's side of a notebook: a process in which the cells run. If it is lost, they run again in a new one.

`nbreferee.judge.grader` decides which cell or test has its turn. Here stands how often a submission gets a new process,
what the cells said, and which of them are not run again because they cost a process.
"""

import time

from ..errors import NbrefereeError
from ..rpc.line import Until
from ..rpc.raised import StudentError, StudentLost
from ..rpc.student import Student
from .clock import Account, Clock
from .job import ANSWER, OWN, TEST
from .reasons import said
from .results import CellResult

__all__ = ["LOST", "GraderError", "StudentSide"]

GREETING_S = 60.0  # for the first word of a new process, however busy the machine is
LOST = {"crashed": "your code ended the process", "timeout": "the time was over", "memory": "the memory was used up"}


class GraderError(NbrefereeError, RuntimeError):
    """The grader failed, not the student; no mark may come of it."""


class StudentSide:
    """The processes of one submission, one after the other.

    Parameters
    ----------
    job : the cells, and the limits.
    start : starts a process: ``start() -> Forked``, as `nbreferee.walls.supervisor` provides it.
    account : counts what the submission uses.
    folder : the `nbreferee.rpc.files.Shared` in which files are kept alike on both sides; None: none is.

    Attributes
    ----------
    student : the `nbreferee.rpc.student.Student` of the present process, or None.
    number : of the present process, counted from 1.
    fresh : no test has asked the present process yet.
    done : so many steps have been run, and are run again in a new process.
    condemned : steps that cost a process; they are not run again.
    cells : {step: `CellResult`} of answers and own cells.
    first : the grader is in its first pass, from top to bottom; what a cell says later is not noted.
    """

    def __init__(self, job, start, account: Account, folder):
        self.job, self.start, self.account, self.folder, self.limits = job, start, account, folder, job.limits
        self.line = self.student = None
        self.number, self.fresh = 0, True
        self.done, self.condemned, self.losses = 0, set(), 0
        self.cells, self.first = {}, True

    def clock(self):
        """The time that a cell or a test has from now on."""
        return Clock(self.account)

    def lose(self):
        if self.line is not None:
            self.account.close()
            self.line.kill(0)  # the kernel takes its walls down while we go on
        self.line = self.student = None

    def lost(self, loss, veiled=False):
        """The process is gone; (state, sentence). What a process says by the way it ends is veiled in a hidden test."""
        if self.student is not None and self.student.lost is None:  # a process before it, of which something was left
            return loss.state, "what an answer returned earlier was used after its process had ended"
        how = self.line.ended(0.2) if self.line is not None and loss.state == "crashed" else None
        self.losses += self.line is not None
        self.lose()
        if how and how.startswith("memory"):
            return "memory", f"{LOST['memory']} ({how.removeprefix('memory: ')})"
        sentence = loss.reason or LOST.get(loss.state, "")
        return loss.state, f"{sentence} ({how})" if how and not veiled else sentence

    def spent(self):
        """(state, sentence) if this submission gets no further process."""
        if why := self.account.over():
            return "timeout", f"not run: {why}"
        if self.losses > self.limits.restarts:
            return "crashed", f"not run: the process had been lost {self.losses} times"
        return None

    def awake(self):
        """A student's process in which all cells so far have run; StudentLost if there is none to be had."""
        while self.student is None:
            if spent := self.spent():
                raise StudentLost(*spent)
            began = time.monotonic()
            self.line = self.start()
            self.account.open(self.line, began)
            self.student = Student(self.line.channel, output_limit=self.limits.output, folder=self.folder)
            self.student.classes = frozenset(name for step in self.job.steps for name in step.classes)
            self.fresh, self.number = True, self.number + 1
            self.greet()
            for index in range(self.done):
                self.run_cell(index)
                if self.student is None:
                    break
        return self.student

    def greet(self):
        """See that the new process answers. No student's code has run in it, so if it does not the fault is ours."""
        self.student.clock = Until(time.monotonic() + GREETING_S)
        try:
            self.student.names(())
        except StudentLost as loss:
            how = self.line.ended(1)
            raise GraderError(f"a student's process was lost before it ran anything: {how or loss.reason}") from None

    def go_to(self, index):
        """Let the process that there is run the cells up to this one; a new one will do so anyway."""
        if self.student is not None:
            for each in range(self.done, index):
                if self.student is not None:
                    self.run_cell(each)
        self.done = index

    def on_student(self, index):
        """Run a cell there for the first time."""
        self.attempt(index)
        self.done = index + 1

    def attempt(self, index):
        try:
            self.awake()
        except StudentLost as loss:
            self.note(index, "skipped", loss.reason)
        else:
            self.run_cell(index)

    def note(self, index, state, error="", trace="", output=""):
        """Remember how a cell ran; not what it says later on, in a process that hidden tests have asked."""
        step = self.job.steps[index]
        if step.kind in (ANSWER, OWN) and (self.first or index not in self.cells):
            self.cells[index] = CellResult(step.name, step.kind, state, error, trace, output)

    def run_cell(self, index):
        step = self.job.steps[index]
        if step.kind == TEST or index in self.condemned or not step.source.strip():
            return
        self.student.clock = self.clock()
        fresh = self.fresh
        try:
            ran = self.student.cell(step.source, step.name or step.kind)
            state, why, trace, output = "failed" if ran.error else "ran", ran.error or "", ran.trace or "", ran.output
        except StudentError as error:
            state, why, trace, output = "failed", f"{error.ename}: {error}", error.trace, ""
        except StudentLost as loss:
            (state, why), trace, output = self.lost(loss), "", ""
        except BaseException as error:  # out of a function of a test, which the cell has kept and called
            state, why, trace, output = "failed", said(error), "", ""
        settled = fresh or state == "ran" or why.startswith("NotImplementedError") or self.spent()
        if not settled:  # a test has been in this process before, whose fault it may be
            self.lose()
            self.once_more(index)
            return
        if self.student is None:
            self.condemned.add(index)
        self.note(index, state, why, trace, output[: self.limits.output])

    def once_more(self, index):
        """Run a cell again, from the beginning, in a new process."""
        before, self.done = self.done, index
        self.attempt(index)
        self.done = before
