"""Run the instructor's tests against a student's answers that live in another process.

The student's process runs given cells, answers and own cells. The tests run here: names that they use are either the
instructor's (given cells, earlier tests) or the student's (what the answers are asked for), and the student's functions
are proxies. If the student's process is lost in one test, that test fails, a new process replays the cells, and the
other tests go on.

Shown tests come first, all of them; then hidden ones; then sandboxed ones, each in a process of its own. So an answer
that remembers what a hidden test asked cannot tell it in the message of a shown one, and of an error in a hidden test
the student reads the kind and the line, not the text. If two cells bind one name, hidden tests run in a new process,
in which no cell below their place has run.

Last come the tests whose answers have cost a process, time or memory, and those that were lost in a process that other
tests had used before: each in a new process. So one answer's endless loop takes no time from another's tests, and what
one answer leaves behind, a thread or a full memory, takes no mark from another.
"""

import ast
import builtins
import contextlib
import io
import linecache
import math
import re
import signal
import symtable
import time
import traceback

from .job import ANSWER, GIVEN, OWN, SANDBOXED, TEST, Job, bound
from .remote import Meddled, Proxy, Student, StudentError, StudentLost
from .results import CellResult, Result, TestResult

__all__ = ["GraderError", "grade"]

KEPT_CALLS = 3
LOST = {"crashed": "your code ended the process", "timeout": "the time was over", "memory": "the memory was used up"}


class GraderError(RuntimeError):
    """The grader failed, not the student; no mark may come of it."""


class _TooSlow(BaseException):
    """The test itself ran on, in the instructor's code, after its time."""


def grade(job: Job, start) -> Result:
    """Run all cells and tests of one submission.

    Parameters
    ----------
    job : the cells, and the limits.
    start : starts a student's process: ``start() -> Line``, as `nbreferee.zygote` provides it.

    Returns
    -------
    Result. Whatever the student's code does, every test has a state.

    Raises
    ------
    GraderError : a student's process cannot be had; nobody is to blame but the grader.
    """
    run = _Run(job, start)
    try:
        return run.all()
    finally:
        run.lose()


class _Run:
    def __init__(self, job, start):
        self.job, self.start, self.limits = job, start, job.limits
        self.began = time.monotonic()
        self.end = self.began + job.limits.total_s
        self.trusted = {"__name__": "__main__", "__builtins__": builtins}
        self.asked = {}  # names that tests take from the student, and the answer that is asked for them
        self.line = self.student = None
        self.done = 0  # so many steps have been run on the student's side, and are replayed in a new process
        self.condemned = set()  # steps that cost a process are not run again
        self.fresh = True  # no test has asked this process yet
        self.cells, self.verdicts, self.losses = {}, {}, 0
        self.movable = _movable(job.steps)
        self.kept = {}  # movable test: what it finds at its place on the trusted side
        self.suspects, self.waiting = set(), []  # answers that cost a process; tests that wait for one of their own

    def all(self):
        steps = self.job.steps
        hidden = [index for index in self.movable if steps[index].hidden]
        inside = [index for index, step in enumerate(steps) if step.kind == TEST and step.run == SANDBOXED]
        for index, step in enumerate(steps):
            if index in self.movable:
                self.kept[index] = dict(self.trusted), dict(self.asked)
            if step.kind != TEST:
                self.on_student(index)
                self.asked |= dict.fromkeys(step.asks, step.name)
                if step.kind == GIVEN:
                    self.given(step)
            elif index not in hidden and index not in inside:
                self.judge_or_wait(index)
        in_place = hidden and _rebinds(steps)
        if in_place:
            self.lose()
        for index in hidden:
            self.trusted, self.asked = self.kept[index]
            if in_place:
                self.go_to(index)
            self.judge_or_wait(index)
        open_ = {steps[index].name for index in self.waiting}
        later = [index for index in inside if open_ & set(steps[index].needs)]
        for index in sorted(set(inside) - set(later)):
            self.judge_inside(index)
        for index in self.waiting:
            self.judge_alone(index)
        for index in later:
            self.judge_inside(index)
        tests = tuple(self.verdicts[step.name] for step in steps if step.kind == TEST)
        return Result(tests, tuple(self.cells[i] for i in sorted(self.cells)), time.monotonic() - self.began)

    def judge_or_wait(self, index):
        """Judge a test beside others, or let it wait for a process of its own, after all others.

        It waits if its answers have cost a process before, or time or memory ran out: so nothing is taken from other
        answers. And it is judged again if it is lost in a process that another test has used, whose fault it may be.
        """
        step = self.job.steps[index]
        answers = {self.asked[name] for name in _globals_or_none(step.source) if name in self.asked}
        if index in self.movable and answers & self.suspects:
            self.waiting.append(index)
            return
        spoilt = self.student is not None and not self.fresh
        self.verdicts[step.name] = verdict = self.judge(step)
        if verdict.state in LOST:
            self.suspects |= answers
            if spoilt and index in self.movable:
                self.waiting.append(index)

    def judge_alone(self, index):
        """Judge a test in a new process, in which nothing but the cells above it has run."""
        step = self.job.steps[index]
        if step.name in self.verdicts and self.spent():
            return
        self.lose()
        self.trusted, self.asked = self.kept[index]
        self.done = index
        self.verdicts[step.name] = self.judge(step)

    # --- the student's process ---

    def deadline(self):
        return min(time.monotonic() + self.limits.cell_s, self.end)

    def lose(self):
        if self.line is not None:
            self.line.kill(0)  # the kernel takes its walls down while we go on
        self.line = self.student = None

    def lost(self, loss):
        """The process is gone; (state, sentence)."""
        how = self.line.ended(0.2) if self.line is not None and loss.state == "crashed" else None
        self.losses += self.line is not None
        self.lose()
        if how and how.startswith("memory"):
            return "memory", f"{LOST['memory']} ({how.removeprefix('memory: ')})"
        sentence = loss.reason or LOST.get(loss.state, "")
        return loss.state, f"{sentence} ({how})" if how else sentence

    def spent(self):
        """(state, sentence) if this submission gets no further process."""
        if time.monotonic() >= self.end:
            return "timeout", f"not run: the submission had used its {self.limits.total_s:g} seconds"
        if self.losses > self.limits.restarts:
            return "crashed", f"not run: the process had been lost {self.losses} times"
        return None

    def awake(self):
        """A student's process in which all cells so far have run; StudentLost if there is none to be had."""
        while self.student is None:
            if spent := self.spent():
                raise StudentLost(*spent)
            self.line = self.start()
            self.student = Student(self.line.channel, output_limit=self.limits.output)
            self.fresh = True
            self.greet()
            for index in range(self.done):
                self.run_cell(index)
                if self.student is None:
                    break
        return self.student

    def greet(self):
        """See that the new process answers. No student's code has run in it, so if it does not the fault is ours."""
        self.student.deadline = self.deadline()
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
        step = self.job.steps[index]
        if step.kind in (ANSWER, OWN):
            self.cells[index] = CellResult(step.name, step.kind, state, error, trace, output)

    def run_cell(self, index):
        step = self.job.steps[index]
        if step.kind == TEST or index in self.condemned or not step.source.strip():
            return
        self.student.deadline = self.deadline()
        fresh = self.fresh
        try:
            ran = self.student.cell(step.source, step.name or step.kind)
            state, why, trace, output = "failed" if ran.error else "ran", ran.error or "", ran.trace or "", ran.output
        except StudentError as error:
            state, why, trace, output = "failed", f"{error.ename}: {error}", error.trace, ""
        except StudentLost as loss:
            (state, why), trace, output = self.lost(loss), "", ""
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

    # --- the trusted side ---

    def given(self, step):
        """Run a given cell here too; what it binds is the instructor's from then on."""
        try:
            code, _ = self.compiled(step)
            space = self.namespace(step)
        except (SyntaxError, StudentError, StudentLost) as error:
            if isinstance(error, StudentLost):
                self.lost(error)
            return  # a magic, or something that needs what the student has not got: tests that use it will say so
        try:
            with _quiet(), self.limited():
                exec(code, space)
        except StudentLost as loss:
            self.lost(loss)
        except (Exception, _TooSlow, SystemExit):
            pass  # the names that it would have bound are missing, and the tests that need them are broken
        self.keep(step, space)

    def keep(self, step, space):
        for name in bound(step.source):
            if name in space and not isinstance(space[name], Proxy):  # which would outlive its process
                self.trusted[name] = space[name]
                self.asked.pop(name, None)

    def compiled(self, step):
        """(code, code of the last expression or None) of a cell of the instructor's."""
        lines = ("pass" if line.lstrip().startswith(("%", "!")) else line for line in step.source.split("\n"))
        text, name = "\n".join(lines), f"<{step.name or step.kind}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        tree = ast.parse(text, name)
        last = None
        if step.kind == TEST and tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
            last = compile(ast.Expression(tree.body.pop().value), name, "eval")
        return compile(tree, name, "exec"), last

    def namespace(self, step):
        """The globals of a cell of the instructor's: the trusted names, and those that are the student's."""
        space, wanted = dict(self.trusted), []
        for name in _globals(step.source):
            if name in self.asked:
                space.pop(name, None)
                wanted.append(name)
            elif name not in space and not hasattr(builtins, name):
                wanted.append(name)
        if wanted:
            student = self.awake()
            student.deadline = self.deadline()
            there = student.names(wanted)
            space |= {name: student.value(name) for name in wanted if name in there}
        return space

    @contextlib.contextmanager
    def limited(self):
        """Interrupt the instructor's code when the time of the test is over, a little after the student's answers."""

        def stop(number, frame):
            raise _TooSlow

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(0.1, self.deadline() - time.monotonic() + 1))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def judge(self, step):
        """The verdict of a split test."""
        began, printed = time.monotonic(), io.StringIO()
        state, points, message, mistake, trace = "passed", step.points, "", "", ""
        try:
            code, last = self.compiled(step)
        except (SyntaxError, ValueError) as error:
            return TestResult(step.name, "broken", 0.0, step.points, f"the test cannot be read: {error}")
        space = {}
        try:
            self.awake()
            self.student.calls.clear()
            self.student.output = ""
            space = self.namespace(step)
            self.fresh = False
            self.student.calls.clear()
            self.student.may_change = step.changes
            self.student.deadline = self.deadline()
            with _quiet(printed), self.limited():
                exec(code, space)
                value = eval(last, space) if last is not None else None
            points = _partial(value, step.points)
        except StudentLost as loss:
            calls, output = self.asked_so_far()
            state, message = self.lost(loss)
            return self.verdict(step, state, 0.0, began, message, calls=calls, output=output)
        except _TooSlow:
            state, points, message = "timeout", 0.0, f"the test was not done after {self.limits.cell_s:g} seconds"
        except BaseException as error:
            state, message, mistake, trace = self.explain(error, step, space)
            points = 0.0
        finally:
            self.keep(step, space)
        calls, output = self.asked_so_far()
        if not step.hidden:
            output += printed.getvalue()
        return self.verdict(step, state, points, began, message, mistake, trace, calls, output)

    def asked_so_far(self):
        if self.student is None:
            return (), ""
        return tuple(self.student.calls[-KEPT_CALLS:]), self.student.output

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

    def explain(self, error, step, space):
        """(state, message, known mistake, the student's lines) for what a test raised."""
        text = str(error).strip()
        if isinstance(error, Meddled):
            return "failed", text, "", ""
        if isinstance(error, StudentError):
            if error.ename == "NotImplementedError":
                return "unanswered", "nothing was written into the answer yet", "", ""
            state = "memory" if isinstance(error, MemoryError) else "failed"
            if step.hidden:
                kind = error.ename if hasattr(builtins, error.ename) else "an error of its own"
                return state, f"your code raised {kind}", "", self.own_lines(error.trace)
            return state, f"your code raised {error.ename}{': ' + text if text else ''}", "", error.trace
        if isinstance(error, AssertionError):
            mistake = getattr(error, "mistake", "")
            if not text:
                text = _assertion(error, step) or "the test did not pass"
            return "failed", text, mistake if isinstance(mistake, str) else "", ""
        if isinstance(error, NameError) and not isinstance(error, UnboundLocalError) and error.name not in space:
            return *self.missing(error.name, text), "", ""
        if isinstance(error, ImportError | SyntaxError):
            return "broken", f"the test stopped with {type(error).__name__}: {text}", "", ""
        if isinstance(error, MemoryError):
            return "invalid", "what the answer returned needs more memory than a test may take", "", ""
        return "invalid", f"the test cannot use what the answer returned ({type(error).__name__}: {text})", "", ""

    def own_lines(self, trace):
        """Of a trace that a stranger's process tells, the lines that stand in the submission."""
        mine = [step.source for step in self.job.steps if step.kind in (ANSWER, OWN)]
        mine = {line.strip() for source in mine for line in source.split("\n")}
        found = (re.fullmatch(r"[→ ] *\d+  (.*)", line) for line in trace.split("\n"))
        return "\n".join(line.string for line in found if line and line[1].strip() in mine)

    def missing(self, name, text):
        """(state, message) for a name that nobody has defined."""
        answer = self.asked.get(name)
        if answer is None and name in {n for step in self.job.steps if step.kind == GIVEN for n in bound(step.source)}:
            return "broken", f"the test needs {name}, and the given cell that defines it failed on the trusted side"
        cells = [cell for cell in self.cells.values() if cell.state not in ("ran", "skipped")]
        cell = next((cell for cell in cells if cell.name == answer), None) or (cells[0] if cells else None)
        why = f": {cell.name or 'a cell of your own'} stopped with {cell.error}" if cell else "; do not rename it"
        return "failed", f"{name or text} is not defined{why}"

    def judge_inside(self, index):
        """Judge a sandboxed test: in a new process of the student's, once those that it needs have passed."""
        step = self.job.steps[index]
        self.verdicts[step.name] = self.inside(index, step, time.monotonic())

    def inside(self, index, step, began):
        """The verdict of a sandboxed test."""
        failing = [name for name in step.needs if name not in self.verdicts or self.verdicts[name].state != "passed"]
        if failing:
            return self.verdict(step, "withheld", 0.0, began, f"first, {', '.join(failing)} must pass")
        self.lose()
        self.done = index
        try:
            student = self.awake()
            student.output = ""
            student.deadline = self.deadline()
            ran = student.test(step.source, step.name)
        except StudentLost as loss:
            state, message = self.lost(loss)
            return self.verdict(step, state, 0.0, began, message)
        if not ran.error:
            return self.verdict(step, "passed", step.points, began, output=ran.output)
        message = ran.error
        if ran.ename == "AssertionError" or not hasattr(builtins, ran.ename or ""):  # a failed assertion, by any name
            message = message.removeprefix(ran.ename or "").lstrip(": ")
        if ran.ename == "NotImplementedError":
            return self.verdict(step, "unanswered", 0.0, began, "nothing was written into the answer yet")
        if step.hidden and not any(form.fullmatch(message) for form in _messages(step.source)):
            # Whoever shares the process with a hidden test could put what it read there into a message.
            message = "the test did not pass"
        output = "" if step.hidden else ran.output
        return self.verdict(step, "failed", 0.0, began, message, output=output)


def _movable(steps):
    """The split tests, in order, whose names no later cell needs: they can be judged in another place."""
    movable, needed = [], set()
    for index in reversed(range(len(steps))):
        step = steps[index]
        if step.kind == TEST and step.run != SANDBOXED and not needed & set(bound(step.source)):
            movable.insert(0, index)
        if step.kind == GIVEN or (step.kind == TEST and step.run != SANDBOXED):
            needed |= set(_globals_or_none(step.source))
    return movable


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


def _globals(source):
    """The global names that a cell reads and does not bind itself, in the order in which they first stand."""
    lines = ("pass" if line.lstrip().startswith(("%", "!")) else line for line in source.split("\n"))
    text = "\n".join(lines)
    top = symtable.symtable(text, "cell", "exec")
    mine = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    read, scopes = set(), [top]
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        read |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (scope is top or s.is_global())}
    return [name for name in dict.fromkeys(re.findall(r"[^\W\d]\w*", text)) if name in read - mine]


def _globals_or_none(source):
    try:
        return _globals(source)
    except (SyntaxError, ValueError):
        return []


def _partial(value, worth):
    """The points for what a test's last line says: a number is partial credit, as in nbgrader; anything else is all."""
    if type(value) not in (int, float):
        return worth
    if math.isnan(value):
        raise ValueError("the test's last line is nan, which is no number of points")
    return min(max(float(value), 0.0), worth)


def _assertion(error, step):
    """The assertion that failed, where the student may see it."""
    if step.hidden:
        return ""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == f"<{step.name}>"]
    asserts = [node for node in ast.walk(ast.parse(step.source)) if isinstance(node, ast.Assert)] if lines else []
    here = [node for node in asserts if node.lineno <= lines[-1] <= node.end_lineno]
    return f"{ast.unparse(here[-1].test)} does not hold" if here else ""


def _messages(source):
    """Regular expressions of the messages that a test's own text can give: its strings, with numbers in the holes."""
    forms = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [
                re.escape(part.value) if isinstance(part, ast.Constant) else r"[-+0-9.,e() ]{0,40}"
                for part in node.values
            ]
            forms.append(re.compile("".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= 12:
            forms.append(re.compile(re.escape(node.value)))
    return forms
