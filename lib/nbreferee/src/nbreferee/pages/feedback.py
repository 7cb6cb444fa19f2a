"""The feedback page: one file of HTML that tells a student what happened, test by test, and what to look at.

The page needs no network and no script. Everything of the student's is text: nothing of it becomes markup, and what
cannot be seen is spelled out. Of a hidden test it shows the name, the comment that was handed out, and the message.
"""

import builtins
import html
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup
from mdit_py_plugins.dollarmath import dollarmath_plugin

from ..judge.results import ResultError

__all__ = ["feedback", "refused", "veiled", "visible"]

SIZE = 300_000  # bytes of a page
HIDDEN = re.compile(r"BEGIN HIDDEN TESTS|END HIDDEN TESTS")
REDACTED = "[line of a hidden test]"
POINTS = re.compile(r"\s*[(\[]\d+(?:\.\d+)? (?:points?|marks?|pts?)[)\]]\s*$", re.I)

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


# text ---------------------------------------------------------------------------------------------------------------

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)?)")
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    r"""Text in which nothing is hidden: control, bidirectional and zero-width characters become their escapes.

    Colours of a terminal are dropped; line breaks and tabs stay.

    Examples
    --------
    >>> print(visible("a\u202eb\x00 \ud800 \x1b[31mred\x1b[0m"))
    a\u202eb\x00 \ud800 red
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    if not UNSEEN.search(text):
        return text
    return UNSEEN.sub(_escape, ANSI.sub("", text.replace("\r\n", "\n")))


def _escape(match):
    return match[0].encode("unicode_escape").decode()


def _capped(text, limit):
    return text if len(text) <= limit else text[:limit] + " […]"


def _number(value):
    """A finite number, or None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _points(value):
    return f"{round(value, 2):.10g}"


CODE = re.compile(
    r'''(?P<c>\#[^\n]*)
    |(?P<s>\b(?:[rRbBfFuU]|[rR][bBfF]|[bBfF][rR])?(?:
        """(?:[^\\"]|\\.|"(?!""))*+(?:"""|\Z)|\'\'\'(?:[^\\']|\\.|'(?!''))*+(?:\'\'\'|\Z)
        |"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?)
      |(?:"""(?:[^\\"]|\\.|"(?!""))*+(?:"""|\Z)|\'\'\'(?:[^\\']|\\.|'(?!''))*+(?:\'\'\'|\Z)
        |"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?))
    |(?P<d>(?<=def\s)\w+|(?<=class\s)\w+|(?<![\w.)\]])@\w[\w.]*)
    |\b(?:(?P<k>False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from
        |global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)
      |(?P<m>\d[\w.]*))\b
    |[^\W\d]\w*''',
    re.VERBOSE | re.DOTALL,
)


def _code(source):
    """Python with colours.

    One regular expression in place of Pygments, whose Python lexer takes 40 ms for the answers of one set: as long as
    all the rest of grading it. It never fails, whatever the text.
    """
    out, at = [], 0
    for match in CODE.finditer(source):
        kind = match.lastgroup
        if kind:
            out.append(html.escape(source[at : match.start()]))
            out.append(f'<span class="{kind}">{html.escape(match[0])}</span>')
            at = match.end()
    out.append(html.escape(source[at:]))
    return Markup("".join(out))


# written answers ----------------------------------------------------------------------------------------------------


def _markdown():
    """Markdown without HTML, pictures and headings of its own; a formula stays the source that it is."""
    md = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable(["html_block"])
    dollarmath_plugin(md, allow_labels=False, double_inline=True)
    renderer = md.renderer

    def formula(self, tokens, index, options, env):
        return f'<code class="math">{html.escape(tokens[index].content.strip())}</code>'

    def display(self, tokens, index, options, env):
        return f'<pre class="math">{html.escape(tokens[index].content.strip())}</pre>\n'

    def picture(self, tokens, index, options, env):
        return f"[picture: {html.escape(tokens[index].content or 'without a description')}]"

    md.add_render_rule("math_inline", formula)
    md.add_render_rule("math_inline_double", formula)
    md.add_render_rule("math_block", display)
    md.add_render_rule("image", picture)
    md.add_render_rule("heading_open", lambda self, *rest: '<p class="heading">')
    md.add_render_rule("heading_close", lambda self, *rest: "</p>\n")
    md.add_render_rule("hr", lambda self, *rest: "<hr>\n")
    md.validateLink = lambda url: bool(re.match(r"(?i)(https?://|mailto:)", url))

    def link(self, tokens, index, options, env):
        tokens[index].attrSet("rel", "nofollow noopener noreferrer")
        return renderer.renderToken(tokens, index, options, env)

    md.add_render_rule("link_open", link)
    return md


MARKDOWN = _markdown()


@lru_cache(maxsize=4)
def _written(text):
    lines = text.split("\n")
    wide = max(line.count("|") for line in lines) + 1
    try:
        with MARKDOWN.reset_rules():
            if wide * len(lines) > 5_000:  # a short row is filled up to the width of the head: a few kB make millions
                MARKDOWN.disable("table")
            return Markup(MARKDOWN.render(text))
    except Exception:  # a stranger's text must not cost a page: as it was typed, then
        return Markup(f"<pre>{html.escape(text)}</pre>")


# what is hidden -----------------------------------------------------------------------------------------------------

SHAPE = re.compile(
    r"(?P<text>(?:\w{1,40} ?= ?)?(?:an? )?(?:np\.|torch\.|numpy\.)?"
    r"(?P<type>(?:(?:bool|u?int|b?float|complex)\d*)? ?(?:ndarray|array|[tT]ensor)|(?:bool|u?int|b?float|complex)\d*)?"
    r",? ?(?:of )?(?:shape ?=? ?)?(?:\((?:\d+,(?: ?\d+,)*(?: ?\d+)?)?\)|\[\d+(?:, ?\d+)*\])"
    r"(?:,? ?(?:dtype ?= ?)?(?:torch\.)?(?P<dtype>(?:bool|u?int|b?float|complex)\d*))?)(?:: .*)?",
    re.DOTALL,
)
CALLED = re.compile(
    r"([A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}|\(…\)|\[\d{1,3}\]){0,6})\((.*)\)$",
    re.DOTALL,
)


def veiled(text: str) -> str:
    """A call of a hidden test, or what came back, without values: names and shapes stay, the rest becomes an ellipsis.

    Parameters
    ----------
    text : such as a `Call` has.

    Examples
    --------
    >>> veiled("attend(array (2, 3) float64: [[1, 2, 3], [4, 5, 6]], 0.25, mask=None)")
    'attend(array (2, 3) float64, …, mask=…)'
    >>> veiled("array([[0.5, 0.5]])")
    'array(…)'
    >>> veiled("ValueError: the key is 42")
    'ValueError'
    >>> veiled("TheKeyIs42Error")
    'an error'
    >>> veiled("7")
    '…'
    """
    text = text.strip()
    raised = re.match(r"[A-Za-z_]\w{0,60}(?:Error|Exception|Warning|Exit|Interrupt|Iteration)\b(?=:|$)", text)
    if raised:  # a name that the answer has made up could say anything
        return raised[0] if hasattr(builtins, raised[0]) or raised[0] == "LinAlgError" else "an error"
    if shape := _shape(text):
        return shape
    if len(text) > 2 and text[0] + text[-1] in ("()", "[]"):  # several values came back
        parts = [_shape(part.strip()) or "…" for part in _split(text[1:-1][:1000])]
        return f"{text[0]}{', '.join(parts[:12])}{text[-1]}" if any(part != "…" for part in parts) else "…"
    called = CALLED.match(text)
    if not called:
        return "…"
    if called[1] in ("array", "tensor", "ndarray", "Tensor") or len(text) > 1000:
        return f"{called[1]}(…)"
    parts = [_argument(part.strip()) for part in _split(called[2])]
    return f"{called[1]}({', '.join(parts[:12]) + (', …' if len(parts) > 12 else '')})"


def _shape(text):
    """Type and shape, if the text begins with them. ``(2, 3)`` and ``tensor(5)`` are values."""
    found = SHAPE.fullmatch(text)
    named = found and (found["type"] or found["dtype"] or "shape" in found["text"])
    return found["text"] if named and len(found["text"]) < 200 else ""


def _argument(text):
    keyword = re.match(r"[A-Za-z_]\w{0,40} ?= ?", text)
    return _shape(text) or (f"{keyword[0]}…" if keyword else "…" if text else "")


def _split(text):
    """The parts between the outer commas."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"""[][(){},]|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""", text, re.DOTALL):
        mark = match[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == "," and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def _seen(source):
    """(lines of a test that are handed out, lines that are hidden)."""
    seen, hidden, inside = [], [], False
    for line in source.split("\n"):
        mark = HIDDEN.search(line)
        if mark:
            inside = mark[0].startswith("BEGIN")
        else:
            (hidden if inside else seen).append(line)
    return seen, hidden


def _squeeze(line):
    return " ".join(line.split())


# what the page says of a template, whoever the student ---------------------------------------------------------------


@dataclass
class _Part:
    """A cell of an exercise."""

    kind: str  # answer, written, task, test
    name: str
    number: int
    worth: float = 0.0
    label: str = ""
    comment: str = ""
    hidden: bool = False


@dataclass
class _Exercise:
    title: str
    number: int
    parts: list = field(default_factory=list)


@dataclass
class _Outline:
    exercises: list
    secrets: tuple


def _outline(template):
    """Cached by the cells that matter: a batch renders the same template again and again."""
    key = tuple(
        (cell.cell_type, cell.source, tuple((k, str(flags.get(k))) for k in KEYS))
        for cell in template.cells
        for flags in [cell.get("metadata", {}).get("nbgrader", {})]
    )
    return _outlined(key)


KEYS = ("grade_id", "grade", "solution", "task", "points")


def _heading(source):
    """{level: title} of the first headings in a Markdown cell, code blocks apart."""
    found = {}
    for line in re.sub(r"(?ms)^(```|~~~).*?^\1", "", source).split("\n"):
        heading = re.match(r" {0,3}(#{1,6})\s+(.+?)\s*#*$", line)
        if heading:
            found.setdefault(len(heading[1]), heading[2])
    return found


@lru_cache(maxsize=16)
def _outlined(key):
    cells = [(kind, source, {k: v for k, v in flags if v != "None"}) for kind, source, flags in key]
    headings = [
        _heading(source) if kind == "markdown" and flags.get("solution") != "True" else {}
        for kind, source, flags in cells
    ]
    level = next((n for n in (2, 1, 3, 4, 5, 6) if any(n in found for found in headings)), 0)
    exercises, current, title, released, secrets, number = [], None, "", set(), set(), 0
    for (kind, source, flags), found in zip(cells, headings, strict=True):
        if level in found:
            title, current = POINTS.sub("", found[level]), None
        seen, hidden = _seen(source)
        secrets |= {_squeeze(line) for line in hidden}
        answer, grade, task = (flags.get(k) == "True" for k in ("solution", "grade", "task"))
        if not answer:
            released |= {_squeeze(line) for line in seen}
        if not (answer or grade or task):
            continue
        if current is None:
            current = _Exercise(title or flags["grade_id"], len(exercises) + 1)
            exercises.append(current)
        number += 1
        part = _Part("test", flags["grade_id"], number, float(flags["points"]) if grade or task else 0.0)
        if task or (answer and grade) or kind == "markdown":
            part.kind = "task" if task else "code" if kind == "code" else "written"
        elif answer:
            part.kind = "answer"
        else:
            part.hidden = bool(hidden)
            part.comment = "\n".join(line.strip().lstrip("# ") for line in seen if line.strip().startswith("#"))
            part.comment = part.comment if hidden else ""
        current.parts.append(part)
    for exercise in exercises:
        names = [part.name for part in exercise.parts]
        common = names[0].split("_")[0] + "_" if len(names) > 1 else ""
        common = common if all(name.startswith(common) for name in names) else ""
        for part in exercise.parts:
            part.label = _label(part, part.name.removeprefix(common))
    return _Outline(exercises, tuple(s for s in secrets - released if len(s) >= 12))


def _label(part, name):
    if part.kind != "test":
        return {"written": "Written answer", "task": "Task"}.get(part.kind, "Your answer")
    words = [word for word in re.split(r"[-_.: ]+", name) if word.lower() not in ("test", "tests", "hidden", "shown")]
    kind = "Hidden test" if part.hidden else "Test"
    return f"{kind}: {' '.join(words)}" if words else kind


# the page -----------------------------------------------------------------------------------------------------------

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
        ``"late_penalty"``, the points taken off, and ``"late_sentence"``, why. A score takes the place of a test's
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
    outline = _outline(template)
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
    return _REFUSED.render(title=visible(_capped(title, 200)), reason=visible(_capped(reason, 2000)))


class _Page:
    """What the page's template is filled with, for one student and one set of caps."""

    def __init__(self, outline, answers, result, extra, caps):
        self.outline, self.answers, self.result, self.extra, self.caps = outline, answers, result, extra, caps
        self.tests, self.runs = result.by_test, {}
        for ran in result.cells:
            self.runs.setdefault((ran.kind, ran.name), []).append(ran)
        said = _squeeze(" ".join(visible(text[:10_000]) for text in self.said()))
        self.secrets = tuple(secret for secret in outline.secrets if secret in said)  # as a rule none

    def said(self):
        """All that was not typed by the student as an answer."""
        for test in self.result.tests:
            yield from (test.message, test.mistake, test.trace, test.output)
            for call in test.calls[-self.caps.calls :]:
                yield from (call.what, call.came)
        for ran in self.result.cells:
            yield from (ran.name, ran.error, ran.trace, ran.output)
        yield from self.answers.notes
        for said in self.extra.values():
            yield str(said.get("comment") if isinstance(said, dict) else said)

    def render(self, title):
        exercises = [self.exercise(exercise) for exercise in self.outline.exercises]
        sentence, late = self.extra.get("late_sentence"), _number(self.extra.get("late_penalty")) or 0.0
        score = math.fsum(part["points"] for row in exercises for part in row["parts"])
        worth = math.fsum(part["worth"] for row in exercises for part in row["parts"])
        waiting = math.fsum(part["worth"] for row in exercises for part in row["parts"] if part["waits"])
        return _PAGE.render(
            title=visible(_capped(title, 200)),
            score=_points(max(score - late, 0) if late > 0 else score),
            worth=_points(worth - waiting),
            whole=_points(worth),
            waiting=_points(waiting) if waiting else "",
            before=_points(score),
            late=_points(late) if late > 0 else "",
            why_late=self.clean(sentence, 500) if isinstance(sentence, str) else "",
            notes=[self.clean(note, max(self.caps.short, 200)) for note in self.answers.notes[:30]],
            more_notes=max(len(self.answers.notes) - 30, 0),
            exercises=exercises,
            stray=self.stray(),
        )

    def clean(self, text, limit):
        """Text for the page: no line of a hidden test, nothing unseen, not too long."""
        text = visible(text[: 2 * limit + 1000])  # first, or a colour within a hidden line would save it
        if self.secrets and self.leaks(text):
            text = "\n".join(REDACTED if self.leaks(line) else line for line in text.split("\n"))
            text = REDACTED if self.leaks(text) else text  # one that runs over a line's end
        return _capped(text, limit)

    def leaks(self, text):
        text = _squeeze(text)
        return any(secret in text for secret in self.secrets)

    def exercise(self, exercise):
        parts = [self.part(part) for part in exercise.parts]
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
            "points": _points(score),
            "worth": _points(worth),
            "words": ", ".join(words),
            "first": first and {"number": first["number"], "text": _capped(first["mistake"] or first["message"], 110)},
            "parts": parts,
        }

    def part(self, part):
        person = self.extra.get(part.name)
        person = person if isinstance(person, dict) else {}
        score, comment = _number(person.get("score")), person.get("comment")
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
        row |= self.test(part, score) if part.kind == "test" else self.answer(part, score)
        return row | {"earned": _points(row["points"]), "possible": _points(part.worth)}

    def answer(self, part, score):
        text = self.answers.cells.get(part.name)
        empty = text is None or part.name in self.answers.unanswered or not text.strip()
        waits = bool(part.worth) and score is None and not (empty and part.kind != "task")
        limit = self.caps.written if part.kind == "written" else self.caps.answer
        shown = "" if empty or part.kind == "task" else visible(text[:limit]) if limit else ""
        if part.kind == "written":
            shown = _written(shown) if shown else ""
        else:
            shown = _code(shown)
        return {
            "state": "unanswered" if empty and part.kind != "task" else "",
            "missing": text is None,
            "waits": waits,
            "shown": shown,
            "cut": 0 if empty or part.kind == "task" else max(len(text) - limit, 0),
            "before": [self.own(own) for own in self.answers.own if own.place == part.name and own.before][-3:],
            "ran": self.cell(self.runs.get(("answer", part.name), [None])[-1]),
        }

    def own(self, own):
        return _code(visible(own.source[: self.caps.output])) if self.caps.output else ""

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
            "machine": _points(test.points),
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
            pair = (call.what, call.came)
            what, came = (self.clean(veiled(x) if part.hidden else x, caps.short) for x in pair)
            row["calls"].append({"what": what, "came": came})
        return row
