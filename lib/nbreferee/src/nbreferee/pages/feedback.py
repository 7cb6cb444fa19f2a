"""The feedback page: one file of HTML that tells a student what happened, test by test, and what to look at.

The page needs no network and no script. Everything of the student's is text: nothing of it becomes markup, and what
cannot be seen is spelled out. Of a hidden test it shows the name, the comment that was handed out, and the message.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import jinja2

from ..judge.results import ResultError
from .outline import outline_of, squeeze
from .text import capped, code, finite, points, visible, written
from .veil import answered, veiled_call

__all__ = ["feedback", "refused", "visible"]

SIZE = 300_000  # bytes of a page
REDACTED = "[line of a hidden test]"

ADVICE = {
    "crashed": "Python itself ended while your code ran: a very deep recursion, an exit, or a fault in compiled code. "
    "Restart the kernel, run all cells, and look for the call that ends it.",
    "timeout": "Your code was still running when the time was over. Look for a loop that does not end, or for Python "
    "loops that one array operation can replace.",
    "memory": "Your code asked for more memory than there is for one submission. Look for an array with far more "
    "entries than the arguments have.",
    "invalid": "What your code returned is no plain value, so no test can judge it. Return numbers, arrays, tensors, "
    "or tuples, lists and dicts of them.",
    "withheld": "This test counts only once another one passes. Mend that one first.",
    "broken": "This is not your fault: the test itself does not work. Your instructor has to look at it, and it "
    "takes nothing from you.",
}
LABEL = {"passed": "✓ passed", "failed": "✗ failed", "unanswered": "○ unanswered", "timeout": "! out of time"}
LABEL |= {"crashed": "! crashed", "memory": "! out of memory", "invalid": "✗ not judged", "withheld": "– withheld"}
LABEL |= {"broken": "? the test is broken"}
CELL_LABEL = {
    "failed": "This cell stopped with an error.",
    "crashed": "Python ended while this cell ran.",
    "timeout": "This cell was still running when its time was over.",
    "memory": "This cell used up the memory.",
    "skipped": "This cell was not run.",
}


@dataclass(frozen=True)
class _Caps:
    """Characters of what the student wrote or printed."""

    answer: int = 20_000
    written: int = 10_000
    output: int = 4_000
    message: int = 2_000
    short: int = 300  # one call, one note
    calls: int = 5


CAPS = (
    _Caps(),
    _Caps(5_000, 5_000, 1_000, 800, 150, 3),
    _Caps(1_000, 1_000, 200, 300, 80, 1),
    _Caps(0, 0, 0, 120, 0, 0),
)


_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    auto_reload=False,
)
_PAGE, _REFUSED = _PAGES.get_template("feedback.html.j2"), _PAGES.get_template("refused.html.j2")


def feedback(template, answers, result, *, title: str, extra: dict | None = None) -> str:
    """Make the page that a student receives.

    Parameters
    ----------
    template : the instructor's source notebook, hidden tests included.
    answers : what `nbreferee.intake.answers.answers` found in the submission.
    result : the verdict.
    title : heads the page, such as "Problem set 2".
    extra : what a person decided, all of it optional: ``{grade_id: {"score": 7.5, "comment": "…"}}``;
        ``"late_penalty"``, the points taken off, and ``"late_sentence"``, why; ``"notes"``, sentences that may change
        without a new verdict, such as those about the time of the submission. A score takes the place of a test's
        points; extra credit is part of it.

    Returns
    -------
    HTML of at most 300 kB, whatever the student printed, that needs no other file.

    Raises
    ------
    ResultError : the template has a test without a verdict; grade the submission again.

    Examples
    --------
    >>> from nbformat.v4 import new_code_cell, new_notebook
    >>> from nbreferee.intake.answers import Answers
    >>> from nbreferee.judge.results import Result, TestResult
    >>> test = new_code_cell("assert x == 1", metadata={"nbgrader": {"grade_id": "t", "grade": True, "points": 2}})
    >>> result = Result((TestResult("t", "failed", 0.0, 2.0, "x is 3; expected 1"),))
    >>> page = feedback(new_notebook(cells=[test]), Answers({}, (), (), ()), result, title="Set 1")
    >>> "0 of 2 points" in page, "x is 3; expected 1" in page
    (True, True)
    """
    outline = outline_of(template)
    for caps in CAPS:
        page = _Page(outline, answers, result, extra or {}, caps).render(title)
        if len(page.encode()) <= SIZE:
            break
    return page


def refused(title: str, reason: str) -> str:
    """The page for a submission that could not be graded at all.

    Parameters
    ----------
    title : heads the page.
    reason : the sentence of the `Refused` that was raised; it names the cure.

    Examples
    --------
    >>> "set1.ipynb is empty" in refused("Set 1", "set1.ipynb is empty; submit it again.")
    True
    """
    return _REFUSED.render(title=visible(capped(title, 200)), reason=visible(capped(reason, 2000)))


class _Page:
    """What the page's template is filled with, for one student and one set of caps."""

    def __init__(self, outline, answers, result, extra, caps):
        self.outline, self.answers, self.result, self.extra, self.caps = outline, answers, result, extra, caps
        self.tests, self.runs = result.by_test, {}
        more = self.extra.get("notes")
        self.notes = (*answers.notes, *(str(note) for note in (more if isinstance(more, list | tuple) else ())))
        for ran in result.cells:
            self.runs.setdefault((ran.kind, ran.name), []).append(ran)
        said = squeeze(" ".join(visible(text[:10_000]) for text in self.said()))
        self.secrets = tuple(secret for secret in outline.secrets if secret in said)  # as a rule none

    def said(self):
        """All that was not typed by the student as an answer."""
        for test in self.result.tests:
            yield from (test.message, test.mistake, test.trace, test.output)
            for call in test.calls[-self.caps.calls :]:
                yield from (call.what, call.came)
        for ran in self.result.cells:
            yield from (ran.name, ran.error, ran.trace, ran.output)
        yield from self.notes
        for said in self.extra.values():
            yield str(said.get("comment") if isinstance(said, dict) else said)

    def render(self, title):
        exercises = [self.exercise(exercise) for exercise in self.outline.exercises]
        sentence, late = self.extra.get("late_sentence"), finite(self.extra.get("late_penalty")) or 0.0
        score = math.fsum(part["points"] for row in exercises for part in row["parts"])
        worth = math.fsum(part["worth"] for row in exercises for part in row["parts"])
        waiting = math.fsum(part["worth"] for row in exercises for part in row["parts"] if part["waits"])
        return _PAGE.render(
            title=visible(capped(title, 200)),
            score=points(max(score - late, 0) if late > 0 else score),
            worth=points(worth - waiting),
            whole=points(worth),
            waiting=points(waiting) if waiting else "",
            before=points(score),
            late=points(late) if late > 0 else "",
            why_late=self.clean(sentence, 500) if isinstance(sentence, str) else "",
            notes=[self.clean(note, max(self.caps.short, 200)) for note in self.notes[:30]],
            more_notes=max(len(self.notes) - 30, 0),
            exercises=exercises,
            stray=self.stray(),
        )

    def clean(self, text, limit):
        """Text for the page: no line of a hidden test, nothing unseen, not too long."""
        text = visible(text[: 2 * limit + 1000])  # first, or a colour within a hidden line would save it
        if self.secrets and self.leaks(text):
            text = "\n".join(REDACTED if self.leaks(line) else line for line in text.split("\n"))
            text = REDACTED if self.leaks(text) else text  # one that runs over a line's end
        return capped(text, limit)

    def leaks(self, text):
        text = squeeze(text)
        return any(secret in text for secret in self.secrets)

    def exercise(self, exercise):
        parts = [self.part(part, self.solved(exercise)) for part in exercise.parts]
        score, worth = (math.fsum(part[key] for part in parts) for key in ("points", "worth"))
        tests = [part for part in parts if part["kind"] == "test"]
        passed = sum(part["state"] == "passed" for part in tests)
        words = [f"{passed} of {len(tests)} tests passed"] if tests else []
        if any(part["waits"] for part in parts):
            words.append("waits for a person's mark")
        elif any(part["kind"] in ("written", "task", "code") for part in parts):
            words.append("marked by a person")
        first = next((part for part in tests if part["state"] not in ("passed", "unanswered")), None)
        if any(part["state"] == "unanswered" for part in parts):
            words.append("unanswered in part" if score or first else "unanswered")
        return {
            "number": exercise.number,
            "title": exercise.title,
            "points": points(score),
            "worth": points(worth),
            "words": ", ".join(words),
            "first": first and {"number": first["number"], "text": capped(first["mistake"] or first["message"], 110)},
            "parts": parts,
        }

    def solved(self, exercise):
        """Whether all tests passed: then its answers are answers, though they may look like what was handed out."""
        verdicts = [self.tests.get(part.name) for part in exercise.parts if part.kind == "test"]
        return bool(verdicts) and all(test and test.worth == test.points > 0 for test in verdicts)

    def part(self, part, solved):
        person = self.extra.get(part.name)
        person = person if isinstance(person, dict) else {}
        score, comment = finite(person.get("score")), person.get("comment")
        row = {
            "kind": part.kind,
            "number": part.number,
            "label": part.label,
            "name": part.name,
            "worth": part.worth,
            "points": score or 0.0,
            "waits": False,
            "state": "",
            "hand": score is not None,
            "comment": self.clean(comment, 4000) if isinstance(comment, str) else "",
        }
        row |= self.test(part, score) if part.kind == "test" else self.answer(part, score, solved)
        return row | {"earned": points(row["points"]), "possible": points(part.worth)}

    def answer(self, part, score, solved):
        text = self.answers.cells.get(part.name)
        left = part.name in self.answers.unanswered and not (solved and part.kind == "answer")
        empty = text is None or left or not text.strip()
        waits = bool(part.worth) and score is None and not (empty and part.kind != "task")
        limit = self.caps.written if part.kind == "written" else self.caps.answer
        html = "" if empty or part.kind == "task" else visible(text[:limit]) if limit else ""
        if part.kind == "written":
            html = written(html) if html else ""
        else:
            html = code(html)
        return {
            "state": "unanswered" if empty and part.kind != "task" else "",
            "missing": text is None,
            "waits": waits,
            "shown": html,
            "cut": 0 if empty or part.kind == "task" else max(len(text) - limit, 0),
            "before": [self.own(own) for own in self.answers.own if own.place == part.name and own.before][-3:],
            "ran": self.cell(self.runs.get(("answer", part.name), [None])[-1]),
        }

    def own(self, own):
        return code(visible(own.source[: self.caps.output])) if self.caps.output else ""

    def cell(self, ran):
        """What a cell of the student's did, if there is something to say."""
        if ran is None or (ran.state in ("ran", "skipped") and not ran.output):
            return None
        return {
            "words": CELL_LABEL.get(ran.state, ""),
            "error": self.clean(ran.error, self.caps.message),
            "trace": self.clean(ran.trace, self.caps.output),
            "output": self.clean(ran.output, self.caps.output),
        }

    def stray(self):
        """The student's own cells that did not run to their end: often the cause of what follows."""
        faults = [ran for ran in self.result.cells if ran.kind == "own" and ran.state not in ("ran", "skipped")]
        return [self.cell(ran) | {"place": self.clean(ran.name, 80)} for ran in faults[:5]]

    def test(self, part, score):
        test = self.tests.get(part.name)
        if test is None:
            raise ResultError(f"{part.name} has no verdict; grade the submission again")
        caps, passed = self.caps, test.state == "passed"
        row = {
            "state": test.state,
            "badge": "◐ passed in part" if passed and test.points < test.worth else LABEL[test.state],
            "points": test.points if score is None else score,
            "machine": points(test.points),
            "hidden": part.hidden,
            "about": part.comment,
            "sandboxed": test.sandboxed,
            "advice": ADVICE.get(test.state, ""),
            "message": "",
            "mistake": "",
            "calls": [],
            "trace": "",
            "output": "",
            "withheld": False,
        }
        if passed:
            return row
        if test.state == "unanswered":
            return row | {"message": self.clean(test.message, 200)}
        row |= {
            "message": self.clean(test.message, caps.message),
            "mistake": self.clean(test.mistake, caps.message),
            "trace": self.clean(test.trace, caps.output),
            "output": "" if part.hidden else self.clean(test.output, caps.output),
            "withheld": part.hidden and bool(test.output),
        }
        if row["mistake"] and row["mistake"] in row["message"]:
            row["mistake"], row["message"] = row["message"], ""
        for call in test.calls[-caps.calls :] if caps.calls else ():
            what, came = call.what, call.came
            if part.hidden:
                what, came = veiled_call(what), answered(came, what)
            what, came = self.clean(what, caps.short), self.clean(came, caps.short)
            row["calls"].append({"what": what, "came": came})
        return row
