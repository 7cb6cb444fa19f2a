"""One submission on its way through a round: how it is read, what a result says about it, what its row shows."""

import os
from dataclasses import dataclass, field, replace

from ..intake import gate
from ..intake.answers import Answers, answers
from ..intake.notebook import Refused
from ..judge.job import Job, plan
from ..judge.parts import Parts, parts_of
from ..walls.sandbox import files_beside
from ..workers.fingerprint import contents, fingerprint
from ..workers.message import Reply, Request
from . import late
from .files import BatchError, in_words
from .rows import Row
from .store import key_of
from .template import Template, exercise_of

__all__ = ["Inbox", "Submission"]

LOST = ("crashed", "timeout", "memory")


@dataclass
class Submission:
    """One notebook of one student.

    Parameters
    ----------
    found : where it lies.
    template : of which notebook it is.
    row : what is reported of it.
    answers, job, key : what is run, and under which key its result is kept.
    parts : what each verdict depends on.
    texts : {grade_id: digest of the text that its mark is about}.
    timestamp : what nbgrader has for it: timestamp.txt, or nothing.
    moment : when it came, for the deadline: the time of the file if need be.
    by_file : the sentence that says so, if the moment is the time of the file.
    doubt : a sentence about its time, if somebody should see it; it is no part of what is kept under the key.
    reply, refusal : what came out.
    page : digest of what the page on the disk shows besides the result.
    again : it has lost something because it waited, and runs once more.
    """

    found: gate.Found
    template: Template
    row: Row
    answers: Answers | None = None
    job: Job | None = None
    key: str = ""
    parts: Parts | None = None
    texts: dict = field(default_factory=dict)
    timestamp: object = None
    moment: object = None
    by_file: str = ""
    doubt: str = ""
    reply: Reply | None = None
    refusal: Refused | None = None
    page: str = ""
    again: bool = False

    def say(self, state: str, notes) -> None:
        """Enter a state and sentences, each once; the first is the row's reason."""
        self.row.state, self.row.notes = state, tuple(dict.fromkeys(notes))
        more = len(self.row.notes) - 1
        rest = f" ({more} more note{'s' * (more > 1)})" if more > 0 else ""
        self.row.reason = " ".join(self.row.notes[:1]) + rest

    def judged(self, reply: Reply) -> None:
        """Enter what a result says."""
        self.reply, result, row = reply, reply.result, self.row
        row.seconds = result.seconds
        row.sandboxed = sum(test.points for test in result.tests if test.sandboxed)
        row.messages = {test.name: test.message for test in result.tests if test.message}
        left = self.template.unanswered(self.answers)
        nothing = bool(left) and len(left) == len(self.template.solutions)
        notes = [*_stopped(result, left), *self.answers.notes]
        if self.doubt:
            notes.append(self.doubt)
        if left:
            notes.append("Nothing was answered." if nothing else f"Not answered: {', '.join(left)}.")
        if result.waited:
            why = "Time ran out twice while it waited, the second time alone on the machine; see what it waits for."
            return self.say("timeout", [why, *notes])
        self.say("unanswered" if nothing else "graded", notes)

    def marked(self, written) -> None:
        """Enter the marks as the gradebook has them now."""
        row = self.row
        row.cells, row.waits, row.penalty = written.scores, written.waiting, written.penalty
        row.marks = dict.fromkeys(self.template.points)
        for name, score in written.scores.items():
            if name not in written.waiting:
                exercise = exercise_of(name)
                row.marks[exercise] = (row.marks.get(exercise) or 0.0) + score
        row.total = sum(mark for mark in row.marks.values() if mark is not None) - written.penalty
        if written.penalty:
            row.by_file = bool(self.by_file)
            late = [written.sentence, *([self.by_file] if self.by_file else [])]
            self.say(row.state, [*late, *row.notes])  # first what the mark itself does not tell


def _stopped(result, left):
    """Sentences about cells and tests that did not come to their end."""
    for cell in result.cells:
        where = cell.name or "a cell of the student's own"
        if cell.state in LOST:
            yield f"{where}: {in_words(cell.error) or cell.state}."
        elif cell.state == "failed" and cell.name not in left:
            yield f"{where} stopped with {in_words(cell.error)}"[:160] + "."
    for test in result.tests:
        if test.state in (*LOST, "invalid"):
            yield f"{test.name}: {test.state}, {in_words(test.message)}"[:200].rstrip(".") + "."


class Inbox:
    """Finds and reads the submissions of an assignment, each as what is to be run and kept.

    Parameters
    ----------
    course : a `nbreferee.course.folder.CourseFolder`.
    name : the assignment.
    rules : deadlines, or None.
    title : heads the feedback page.
    """

    def __init__(self, course, name, rules, title):
        self.course, self.name, self.rules, self.title = course, name, rules, title
        self.templates = {book: Template(path) for book, path in course.notebooks(name).items()}
        self.wanted = {book for book, template in self.templates.items() if template.graded} or set(self.templates)
        settings = course.settings
        files = files_beside(course.policy(name).beside)
        self.given = {name for name, _ in files}
        here, read = fingerprint(tuple(settings.packages)), contents(settings.policy.readable, files)
        self.environment = f"{here} {settings.preload} {settings.policy} {read}"

    def founds(self) -> list:
        """What lies in submitted/, for each notebook that gives marks.

        Raises
        ------
        BatchError : the folder cannot be read.
        """
        folder, books = self.course.folder("submitted"), list(self.templates)
        if not folder.is_dir():
            return []
        try:
            founds = gate.collect(folder, self.name, names=books, given=self.given)
        except Refused as refusal:
            raise BatchError(str(refusal)) from None
        out = []
        for found in founds:  # a folder that is refused counts for all its notebooks
            whole = found.refusal is not None and found.student and len(books) > 1
            alone = whole and sum(other.student == found.student for other in founds) == 1
            out += [replace(found, name=book) for book in books] if alone else [found]
        return [found for found in out if found.name in self.wanted or not found.student]

    def open(self, found) -> Submission:
        """What was found, unread."""
        template = self.templates[found.name]
        row = Row(found.student, self.name, found.name, max=sum(template.graded.values()))
        return Submission(found, template, row)

    def read(self, item: Submission) -> None:
        """Take the answers out of a submission.

        Raises
        ------
        Refused : it cannot be read.
        """
        settings, template = self.course.settings, item.template
        admitted = gate.admit(item.found)
        stubs = {"code_stub": settings.code_stub, "text_stub": settings.text_stub}
        taken = answers(admitted.notebook, template.notebook, **stubs)
        notes = dict.fromkeys((*item.found.notes, *admitted.notes, *taken.notes))
        item.answers = replace(taken, notes=tuple(notes))
        item.job = plan(template.notebook, item.answers, settings.limits, settings.packages)
        item.key = key_of(item.job, template.text, item.answers, self.environment, self.heading(item))
        item.parts = parts_of(item.job, self.environment)
        item.texts = template.digests(item.answers, admitted.digest[:24])
        self._times(item)

    def _times(self, item):
        """The times in UTC. Formgrader takes a submission for ungraded if it finds another timestamp."""
        found = item.found
        folder = found.root.joinpath(*found.path.relative_to(found.root).parts[:2])
        item.timestamp = late.timestamp(folder)
        if self.rules is None:
            return
        due = self.rules.due(found.student, self.name)
        try:
            moment, source = late.submitted_at(folder, zone=self.rules.zone, due=due)
        except Refused:
            return
        item.moment = moment.replace(tzinfo=None)
        if not source.startswith(late.CLAIMED):
            item.by_file = source
        unread = item.timestamp is None and os.path.lexists(folder / "timestamp.txt")
        on_time = due is None or moment <= due
        item.doubt = source if unread or (on_time and late.doubtful(source)) else ""

    def request(self, item: Submission, **more) -> Request:
        """What a grading process is asked about a submission."""
        settings = self.course.settings
        stubs = {"code_stub": settings.code_stub, "text_stub": settings.text_stub}
        return Request(item.job, item.template.text, item.answers, self.heading(item), **stubs, **more)

    def heading(self, item: Submission) -> str:
        """What heads the feedback page; of several notebooks, which one."""
        return self.title if len(self.wanted) == 1 else f"{self.title}: {item.found.name}"
