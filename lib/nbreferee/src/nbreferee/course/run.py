"""A whole assignment: read what was submitted, grade what is new, write files and the gradebook, report.

One process reads and writes; grading runs in a pool. A result is stored first, then made public: the autograded
notebook, the feedback page, the gradebook's rows. Each of these steps can be repeated, so a run that was killed at any
moment is finished by the next one, and nothing is graded twice.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial

from ..intake.notebook import Refused
from ..workers.message import MessageError, read_reply, write_request
from ..workers.pool import GraderFailed, Local, PoolError
from .entries import GradebookError
from .files import TICK_S, BatchError, in_words, only_one, writing
from .folder import CourseFolder
from .publication import Publication
from .rows import Row, needs_eye
from .store import Store, StoreError
from .submission import Inbox
from .template import exercise_of, read_source

__all__ = [
    "BatchError",
    "CourseFolder",
    "Row",
    "Stopped",
    "exercise_of",
    "grade_assignment",
    "needs_eye",
    "read_source",
    "writing",
]

AHEAD = 2  # submissions that wait for a free grading process, for each that runs
FATAL = (BatchError, StoreError, GradebookError, PoolError)


class Stopped(KeyboardInterrupt):
    """Ctrl-C: what was finished is kept; the text says how to go on. ``rows`` are those that were finished."""

    def __init__(self, text, rows=()):
        super().__init__(text)
        self.rows = list(rows)


def grade_assignment(
    course: CourseFolder,
    name: str,
    *,
    pool=None,
    workers: int = 2,
    force: bool = False,
    progress: Callable = lambda done, total, row: None,
    rules=None,
    title: str = "",
) -> list[Row]:
    """Grade what lies in ``submitted/<student>/<name>/``.

    Parameters
    ----------
    course : where.
    name : the assignment.
    pool : `nbreferee.workers.pool.Local` or `nbreferee.workers.cluster.Cluster`, which stays open, with zygotes of
        `CourseFolder.policy`; None: one on this machine.
    workers : how many submissions at a time.
    force : run all again, also what is unchanged.
    progress : called as ``progress(done, total, row)`` when a row is complete.
    rules : deadlines, see `nbreferee.course.late`; None: no penalties.
    title : heads the feedback page; the assignment's name if empty.

    Returns
    -------
    Row for each notebook of each student, by student.

    Raises
    ------
    BatchError : files cannot be written, the source makes no sense, or another run is under way.
    StoreError, GradebookError : results or marks cannot be written. All results so far are kept.
    PoolError : no grading process can be started.
    Stopped : Ctrl-C. All finished results are kept.
    """
    with only_one(course.state), contextlib.ExitStack() as stack:
        writer = course.writer(name)
        stack.callback(writer.close)
        store = stack.enter_context(Store(course.state / "results.db"))
        inbox = Inbox(course, name, rules, title or name)
        if pool is None:
            pool = stack.enter_context(_local(course, name, workers))
        return Round(inbox, store, Publication(inbox, store, writer, force), pool, force, progress).run()


def _local(course, name, workers):
    from ..walls.supervisor import Zygote

    return Local(partial(Zygote, preload=course.settings.preload, policy=course.policy(name)), workers)


class Round:
    """The way of all submissions of an assignment: read, sent to the pool, landed, made public, reported."""

    def __init__(self, inbox, store, public, pool, force, progress):
        self.inbox, self.store, self.public, self.pool = inbox, store, public, pool
        self.force, self.progress = force, progress
        self.flying, self.rows, self.total = {}, [], 0
        self.waited = []  # submissions that lost something because they waited; they run once more, each alone

    def run(self):
        founds, seen = self.inbox.founds(), set()
        self.total = len(founds)
        try:
            for found in founds:
                self.take(self.inbox.open(found), seen)
                self.reap(most=AHEAD * self.pool.workers + self.pool.workers)
            self.land_all()
            for item in self.waited:
                self.send(item, known=() if self.force else self.known(item))
                self.land_all()
            self.flush()
            self.land_all()  # pages that show what a person decided
        except KeyboardInterrupt:
            self.save()
            text = (
                f"stopped: {len(self.rows)} of {self.total} submissions of {self.inbox.name} are finished and kept; "
                "give the command again to go on"
            )
            raise Stopped(text, self.rows) from None
        except FATAL:
            self.save()
            raise
        return sorted(self.rows, key=lambda row: (row.student, row.notebook))

    def save(self):
        """Before the end comes early: keep what has been finished meanwhile."""
        with contextlib.suppress(*FATAL):
            for future in [future for future in self.flying if future.done()]:
                self.land(future)
            self.flush()
        for future in self.flying:
            future.cancel()

    def take(self, item, seen):
        """Read one submission, and hand it to the pool if it is new."""
        who = item.found.student, item.found.name
        if item.found.student and who in seen:
            item.say("ambiguous", [f"{item.found.student} occurs twice in this run; the first one counts."])
            return self.done(item)
        seen.add(who)
        try:
            self.inbox.read(item)
        except Refused as refusal:
            return self.refuse(item, refusal)
        except Exception as error:  # whatever a stranger's file does to a parser, the others go on
            return self.broken(item, f"The grader failed, no mark was given: {in_words(error)}.")
        reply = None if self.force else self.store.get(item.key)
        if reply is not None and _fits(reply.result, item):
            item.row.cached = True
            return self.publish(item, reply)
        result = None if self.force else self.store.ran(item.key, item.found.student, self.inbox.name)
        item.row.cached = result is not None and _fits(result, item)  # then it is only rendered anew
        known = () if self.force or item.row.cached else self.known(item)
        self.send(item, result=result if item.row.cached else None, known=known)

    def known(self, item):
        """Verdicts of an earlier run that depend on nothing that has changed; see `nbreferee.judge.parts`."""
        return tuple(self.store.verdicts(item.parts, item.found.student, self.inbox.name).values())

    def send(self, item, *, page=False, **more):
        """Hand a submission to the pool, or its result, of which notebook and page are rendered, or the page alone."""
        try:
            message = write_request(self.inbox.request(item, **more))
        except MessageError as error:
            if page:
                return self.unrendered(item, error)
            cure = "move long data out of its cells, delete what is not needed, save and submit again"
            return self.refuse(item, Refused("too-large", f"{item.found.name}.ipynb is too large; {cure}."))
        self.flying[self.pool.submit(message, item.job.limits.far_s)] = (item, page)

    def reap(self, most):
        """Take what has been graded, and wait while more than so many are under way."""
        while True:
            timeout = TICK_S if len(self.flying) > most else 0
            done, _ = wait(self.flying, timeout=timeout, return_when=FIRST_COMPLETED)
            for future in done:
                self.land(future)
            self.flush_if_due()
            if len(self.flying) <= most:
                return

    def land_all(self):
        while self.flying:
            self.reap(most=len(self.flying) - 1)

    def land(self, future):
        item, page = self.flying.pop(future)
        try:
            reply = read_reply(future.result(timeout=0), item.job)
        except (GraderFailed, MessageError) as error:
            if page:
                return self.unrendered(item, error)
            return self.broken(item, f"The grader failed, no mark was given: {error}.")
        if page:
            return self.public.put_page(item, reply.feedback)
        for test in reply.result.tests:
            if test.state == "broken":
                why = f"The test {test.name} is at fault, no mark was given: {in_words(test.message)}"
                return self.broken(item, why)
        if not reply.result.waited:
            self.store.put(item.key, item.found.student, self.inbox.name, reply, item.parts)
        elif not item.again:
            item.again = True
            return self.waited.append(item)
        self.publish(item, reply)

    def publish(self, item, reply):
        self.public.graded(item, reply)
        self.flush_if_due()

    def refuse(self, item, refusal):
        item.say(refusal.state, [str(refusal)])
        if not item.found.student:
            return self.done(item)
        self.public.refused(item, refusal)
        self.flush_if_due()

    def broken(self, item, reason):
        item.say("broken", [reason])
        self.public.hold(item)
        self.done(item)

    @staticmethod
    def unrendered(item, error):
        item.row.reason = f"{item.row.reason} The page does not show the marks by hand: {error}.".strip()

    def flush_if_due(self):
        if self.public.writer.due:
            self.flush()

    def flush(self):
        """Make public what has gathered, and let the pool render the pages that show what a person decided."""
        items, stale = self.public.flush()
        for item, extra in stale:
            self.send(item, page=True, extra=extra, result=item.reply.result)
        for item in items:
            item.reply = None  # a class of a thousand is not kept in memory
            self.done(item)

    def done(self, item):
        self.rows.append(item.row)
        self.progress(len(self.rows), self.total, item.row)


def _fits(result, item):
    """Whether a result that was kept is about the tests as they are, each worth what it is worth."""
    return {test.name: test.worth for test in result.tests} == item.job.points
