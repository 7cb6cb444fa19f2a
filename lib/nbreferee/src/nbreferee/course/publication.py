"""What is made public of a round: the autograded notebook, the feedback page, the gradebook's rows, a record of it.

Each step can be repeated, so what a killed run left half done is finished by the next one.
"""

import contextlib
import json
from functools import partial

import nbformat

from ..intake.notebook import Refused
from ..pages import feedback
from ..workers.message import Reply
from .entries import Entry
from .files import put, there, writing
from .store import ADOPTED, Published
from .submission import Submission
from .template import digest

__all__ = ["Publication"]


class Publication:
    """Makes results public, in bulk.

    Parameters
    ----------
    inbox : a `nbreferee.course.submission.Inbox`.
    store, writer : where results and marks are kept.
    force : write files anew that stand there.
    """

    def __init__(self, inbox, store, writer, force: bool):
        self.inbox, self.store, self.writer, self.force = inbox, store, writer, force
        self.name, self.course, self.rules = inbox.name, inbox.course, inbox.rules
        self.records = {book: store.published(self.name, book) for book in inbox.templates}
        self.entered, self.held = [], []

    def path(self, step: str, item: Submission):
        """Where a submission's notebook or page lies."""
        suffix = ".html" if step == "feedback" else ".ipynb"
        return self.course.folder(step) / item.found.student / self.name / f"{item.found.name}{suffix}"

    def before(self, item: Submission) -> Published:
        """What was last made public of this student, also by another grader."""
        records, student = self.records[item.found.name], item.found.student
        file = self.path("autograded", item)
        if student not in records and file.exists():
            texts = {}
            with contextlib.suppress(Exception):
                for cell in nbformat.read(file, 4).cells:
                    name = cell.metadata.get("nbgrader", {}).get("grade_id")
                    if name in item.template.graded and name in item.template.solutions:
                        texts[name] = digest(cell.source.strip())
            self._record(item, Published(ADOPTED, texts, "unknown"))
        return records.get(student) or Published("", {})

    def _record(self, item, record):
        self.store.publish(self.name, item.found.name, {item.found.student: record})
        self.records[item.found.name][item.found.student] = record

    def graded(self, item: Submission, reply: Reply) -> None:
        """Write notebook and page where they are new, and enter the marks."""
        before = self.before(item)
        anew = before.key != item.key or self.force
        notebook, page = self.path("autograded", item), self.path("feedback", item)
        if anew or not there(notebook):
            put(notebook, reply.notebook)
        if item.timestamp is not None:  # nbgrader lays it beside the notebook too
            put(notebook.with_name("timestamp.txt"), f"{item.timestamp.isoformat(sep=' ')} UTC")
        item.page = before.extra
        if anew or not there(page):
            put(page, reply.feedback)
            item.page = ""
        item.judged(reply)
        scores = item.template.scores(item.answers, reply.result)
        self._enter(item, self._entry(item, before, scores=scores, comments=item.template.comments(item.answers)))

    def refused(self, item: Submission, refusal: Refused) -> None:
        """Write the page that says why nothing could be read; all counts 0 where no person has given a mark."""
        item.refusal, before = refusal, self.before(item)
        item.key, item.texts = f"refused {digest(refusal.state + str(refusal))}", before.texts
        item.row.cached = before.key == item.key
        page, notebook = self.path("feedback", item), self.path("autograded", item)
        if before.key != item.key or not there(page):
            put(page, feedback.refused(self.inbox.heading(item), str(refusal)))
        with writing(notebook):
            notebook.unlink(missing_ok=True)
        self._enter(item, Entry(item.found.student, self.name, item.found.name, refused=True))

    def hold(self, item: Submission) -> None:
        """A mark of an earlier submission must not pass for the mark of this one, which could not be graded."""
        self.held.append(self._entry(item, self.before(item)))

    def _entry(self, item, before, **marks):
        same = frozenset(name for name, text in item.texts.items() if before.texts.get(name) == text)
        penalty = None
        if self.rules is not None:
            penalty = partial(self.rules.penalty, item.found.student, self.name, item.moment)
        marks |= {"timestamp": item.timestamp, "penalty": penalty, "texts": item.texts}
        return Entry(item.found.student, self.name, item.found.name, unchanged=same, **marks)

    def _enter(self, item, entry):
        self.writer.write(entry)
        self.entered.append(item)

    def flush(self) -> tuple[list, list]:
        """Write the gradebook, then the record of what is public.

        Returns
        -------
        submissions that are finished, and ``(submission, extra)`` of those whose page must be rendered with what a
        person decided.
        """
        self.writer.hold(self.held)
        self.held = []
        written = self.writer.flush()
        items, self.entered = self.entered, []
        stale, records = [], {}
        for item, entry in zip(items, written, strict=True):
            item.marked(entry)
            extra = {} if item.refusal else _extra(entry, item.doubt)
            shows = digest(json.dumps(extra, sort_keys=True)) if extra else ""
            records.setdefault(item.found.name, {})[item.found.student] = Published(item.key, item.texts, item.page)
            if item.refusal is None and item.page != shows:
                item.page = shows
                stale.append((item, extra))
        for book, mine in records.items():
            self.store.publish(self.name, book, mine)
            self.records[book] |= mine
        for item, extra in stale:
            if not extra:
                self.put_page(item, item.reply.feedback)
        return items, [(item, extra) for item, extra in stale if extra]

    def put_page(self, item: Submission, page: str) -> None:
        """Write a page again, and record what it shows."""
        put(self.path("feedback", item), page)
        self._record(item, Published(item.key, item.texts, item.page))


def _extra(written, doubt):
    """What the page shows besides the result: what a person decided, and the time, which may be corrected later.

    A mark that waits to be confirmed is not shown.
    """
    extra = {"notes": [doubt]} if doubt else {}
    for name in written.marks:
        if name not in written.waiting:
            extra.setdefault(name, {})["score"] = written.scores[name]
    for name, text in written.comments.items():
        extra.setdefault(name, {})["comment"] = text
    return extra | ({"late_penalty": written.penalty, "late_sentence": written.sentence} if written.penalty else {})
