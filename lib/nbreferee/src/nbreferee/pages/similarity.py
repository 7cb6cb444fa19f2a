"""Which submissions share code: a hint where to look, and never a verdict.

Answers are compared exercise by exercise. Each is cut into tokens, names that a student can choose become
one symbol, comments, docstrings, blanks and line ends go, and every run of `run` tokens becomes a fingerprint. What
the released notebook, the instructor's solution or other given texts contain is taken away, and so is what more than a
share of the class has in common. An index from fingerprints to students finds the pairs: no two answers are compared
that share nothing.

Nothing of the students' is run or imported. Of a text longer than `Thresholds.characters` only the beginning is
compared, which the page says.
"""

import builtins
import html
import keyword
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..intake.answers import CODE_STUB, TEXT_STUB
from ..intake.notebook import shown
from .tables import write

__all__ = ["OWN", "Pair", "Report", "Thresholds", "compare", "from_answers", "handed_out", "page", "table"]

OWN = "own cells"
FIXED = {*dir(builtins), *keyword.kwlist} - {"_"}  # names that a student does not choose
# Pygments takes 10 to 20 ms for an answer, which is minutes for a large class, and Python's own tokenizer stops at the
# first fault. Here every character is looked at once, and what is no Python becomes a token like any other.
TOKEN = re.compile(
    r"""
    (?P<skip>\#[^\n]*|[ \t\f\r]+|\\)
    |(?P<line>\n)
    |(?P<string>(?i:[rbuf]{0,2})(?:
        \"{3}(?s:.*?)(?:\"{3}|\Z) | '{3}(?s:.*?)(?:'{3}|\Z)
        | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'?))
    |(?P<number>\.?\d(?:[eE][+-]|[\w.])*)
    |(?P<name>\w+)
    |(?P<sign>[*/<>=!+@%&|^:-]{1,3}|.)
    """,
    re.VERBOSE,
)
CAUTION = (
    "This page is a hint where to look, not a verdict. Shared code has many causes: a source that was allowed, two who "
    "worked together with permission, a tutor's advice, or simply that there are few ways to write a short answer. And "
    "what was copied and rewritten well is not found here. Read both texts and talk with both students before you "
    "conclude anything; the share alone proves nothing."
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How to compare.

    Parameters
    ----------
    run : so many equal tokens in a row make a fingerprint.
    least : a pair is named only if it shares so many tokens.
    share : and this share of what can be compared in at least one of the two.
    common : what more than this share of those who answered has in common does not count.
    common_least : but what so many or fewer have in common always counts.
    characters : so much of a text is compared.
    """

    run: int = 10
    least: int = 30
    share: float = 0.5
    common: float = 0.1
    common_least: int = 5
    characters: int = 50_000

    def __post_init__(self):
        if not (self.run >= 1 and self.least >= 1 and 0 < self.share <= 1 and 0 < self.common <= 1):
            raise ValueError(f"{self} cannot be used; run and least are 1 or more, shares above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one exercise that share code.

    Parameters
    ----------
    exercise : its grade_id.
    first, second : the students, in alphabetical order.
    tokens : how many tokens of the first are in the second too; what is common to many is not counted.
    share_first, share_second : which part of what can be compared in each that is.
    """

    exercise: str
    first: str
    second: str
    tokens: int
    share_first: float
    share_second: float

    @property
    def share(self) -> float:
        return max(self.share_first, self.share_second)


@dataclass(frozen=True, slots=True)
class Report:
    """All pairs, strongest first, and sentences about what could not be compared.

    `texts` is {exercise: {student: text}}, `marks` is {Pair: (spans in the first text, spans in the second)}.
    """

    pairs: tuple
    notes: tuple
    texts: Mapping
    marks: Mapping


def from_answers(submissions: Mapping) -> dict:
    """Sort answers by exercise.

    Parameters
    ----------
    submissions : {student: Answers}, as `gate.answers` returns them.

    Returns
    -------
    {exercise: {student: text}}. Unanswered cells are left out; the student's own cells are one more exercise, `OWN`.
    """
    out = {}
    for student, answers in submissions.items():
        for name, text in answers.cells.items():
            if text and name not in answers.unanswered:
                out.setdefault(name, {})[student] = text
        own = "\n\n".join(cell.source for cell in answers.own_code)
        if own.strip():
            out.setdefault(OWN, {})[student] = own
    return out


def handed_out(template) -> list[str]:
    """What everyone was handed, and the instructor's solutions: texts for `compare` to take away.

    Parameters
    ----------
    template : the instructor's notebook, source version.
    """
    return [cell.source for cell in template.cells if cell.cell_type == "code"] + [CODE_STUB, TEXT_STUB]


def _tokens(text):
    """(symbols, start and end of each) of a piece of code, of which names, layout and comments do not count."""
    symbols, places, fresh = [], [], True
    for match in TOKEN.finditer(text):
        kind, symbol = match.lastgroup, match[0]
        if kind == "skip":
            continue
        if kind == "line":
            fresh = True
            continue
        if kind == "string":
            after = text[match.end() : match.end() + 200].lstrip(" \t")
            if fresh and (not after or after[0] in "\n#"):  # alone in its lines: a docstring, or no code at all
                continue
            symbol = "S"
            if symbols and symbols[-1] == "S":
                continue
        elif kind == "number":
            symbol = _figure(symbol)
        elif kind == "name" and symbol not in FIXED and not symbol.startswith("__"):
            # an attribute is not the student's to choose, unless it is one of self
            attribute = symbols and symbols[-1] == "." and symbols[-2:-1] != ["self"]
            symbol = symbol if attribute or symbol == "self" else "V"
        symbols.append(symbol)
        places.append(match.span())
        fresh = False
    return symbols, places


def _figure(value):
    try:
        return repr(float(value.replace("_", "")))
    except ValueError:
        return value


def _prints(symbols, run, memory):
    """The number of the run that begins at each token; `memory` numbers runs as they are met."""
    return [memory.setdefault(tuple(symbols[n : n + run]), len(memory)) for n in range(len(symbols) - run + 1)]


def _covered(starts, run, length):
    """Which tokens lie in a run that begins at one of the starts."""
    edges = np.zeros(length + 1, dtype=np.int64)
    np.add.at(edges, np.asarray(starts, dtype=np.int64), 1)
    np.add.at(edges, np.asarray(starts, dtype=np.int64) + run, -1)
    return np.cumsum(edges[:-1]) > 0


def compare(texts: Mapping, boilerplate=(), thresholds: Thresholds | None = None) -> Report:
    """Find the pairs of students whose answers share code.

    Parameters
    ----------
    texts : {exercise: {student: text}}.
    boilerplate : texts that everyone had; see `handed_out`.
    thresholds : how to compare.

    Returns
    -------
    Report.

    Examples
    --------
    >>> a = "total = 0\\nfor value in values:\\n    total += weight(value) ** 2\\nreturn total / len(values)"
    >>> b = "# mine\\ns = 0\\nfor v in xs:\\n    s += weight(v)**2\\nreturn s / len(xs)"
    >>> report = compare({"mean": {"ada": a, "bob": b}}, thresholds=Thresholds(least=20))
    >>> [(pair.first, pair.second, pair.share) for pair in report.pairs]
    [('ada', 'bob', 1.0)]
    """
    thresholds = thresholds or Thresholds()
    memory, pairs, notes, marks = {}, [], [], {}
    handed = set()
    for text in boilerplate:
        handed.update(_prints(_tokens(text)[0], thresholds.run, memory))
    for exercise in texts:
        found, more = _exercise(exercise, texts[exercise], handed, memory, thresholds)
        pairs += found
        marks.update(found)
        notes += more
    pairs.sort(key=lambda pair: (-pair.share, -pair.tokens, pair.exercise, pair.first, pair.second))
    return Report(tuple(pairs), tuple(notes), texts, marks)


def _exercise(exercise, texts, handed, memory, thresholds):
    """({Pair: marked spans}, sentences) of one exercise."""
    students, notes, run = sorted(texts), [], thresholds.run
    long = [student for student in students if len(texts[student]) > thresholds.characters]
    if long:
        names = ", ".join(map(shown, long[:5])) + (f" and {len(long) - 5} more" if len(long) > 5 else "")
        notes.append(f"{shown(exercise)}: only the first {thresholds.characters} characters were compared of {names}.")
    seen, prints, places, holders = {}, [], [], defaultdict(list)
    for number, student in enumerate(students):
        text = texts[student][: thresholds.characters]
        if text not in seen:  # equal texts are common: cut them once
            symbols, where = _tokens(text)
            seen[text] = _prints(symbols, run, memory), where
        mine, where = seen[text]
        prints.append(mine)
        places.append(where)
        for key in set(mine) - handed:
            holders[key].append(number)
    limit = max(thresholds.common_least, int(thresholds.common * len(students)))
    rare = {key: np.array(who) for key, who in holders.items() if len(who) <= limit}
    starts = [np.array([n for n, key in enumerate(mine) if key in rare], dtype=np.int64) for mine in prints]
    sizes = [int(_covered(at, run, len(where)).sum()) for at, where in zip(starts, places, strict=True)]
    small = sum(size < thresholds.least for size in sizes)
    if small:
        notes.append(
            f"{shown(exercise)}: {small} of {len(students)} answers hold fewer than {thresholds.least} tokens that are "
            "neither given nor common to many; too little to be compared."
        )
    shared = [
        _shared(mine, at, rare, run, len(where), len(students)) if size >= thresholds.least else {}
        for mine, at, where, size in zip(prints, starts, places, sizes, strict=True)
    ]
    out = {}
    for first, row in enumerate(shared):
        for second, count in row.items():
            other = shared[second].get(first, 0) if second > first else 0
            shares = count / sizes[first], other / max(1, sizes[second])
            if min(count, other) >= thresholds.least and max(shares) >= thresholds.share:
                names = students[first], students[second]
                pair = Pair(exercise, *names, min(count, other), *(round(share, 4) for share in shares))
                out[pair] = tuple(
                    _spans(prints[me], starts[me], {prints[them][n] for n in starts[them]}, run, places[me])
                    for me, them in ((first, second), (second, first))
                )
    return out, notes


def _shared(mine, at, rare, run, length, students):
    """{other: how many tokens of this answer lie in runs that the other has too}, of all others at once."""
    who = [rare[mine[n]] for n in at]
    start = np.repeat(at, [len(some) for some in who])
    others, row = np.unique(np.concatenate(who), return_inverse=True)
    shape = len(others), length + 1
    edges = np.bincount(row * shape[1] + start, minlength=shape[0] * shape[1])
    edges -= np.bincount(row * shape[1] + start + run, minlength=shape[0] * shape[1])
    counts = (np.cumsum(edges.reshape(shape), axis=1) > 0).sum(axis=1)
    return dict(zip(others.tolist(), counts.tolist(), strict=True))


def _spans(mine, at, theirs, run, places):
    """What of a text the other one shares, as (start, end) in characters, neighbours joined."""
    covered = _covered([n for n in at if mine[n] in theirs], run, len(places))
    out = []
    for n in np.flatnonzero(covered):
        if n and covered[n - 1]:
            out[-1] = (out[-1][0], places[n][1])
        else:
            out.append(places[n])
    return out


# --- what comes out --------------------------------------------------------------------------------------------------


def table(report: Report, path: Path | str, *, bom: bool = False) -> None:
    """Write the pairs as CSV.

    Parameters
    ----------
    report : from `compare`.
    path : of the file.
    bom : as in `export.write`.
    """
    rows = [["exercise", "first", "second", "share of first", "share of second", "shared tokens"]]
    rows += [[p.exercise, p.first, p.second, p.share_first, p.share_second, p.tokens] for p in report.pairs]
    write(path, rows, bom=bom)


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
.caution { border: 2px solid #b45309; border-radius: .5rem; padding: .75rem 1rem; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .25rem .75rem; border-bottom: 1px solid #8888; }
td.figure { text-align: right; font-variant-numeric: tabular-nums; }
.both { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); gap: 1rem; }
pre { overflow-x: auto; border: 1px solid #8888; border-radius: .25rem; padding: .5rem; unicode-bidi: isolate; }
mark { background: #fde68a; color: #111; }
"""


def page(report: Report, *, title: str = "Shared code", top: int = 50) -> str:
    """Make a page of the pairs, for reading offline.

    Parameters
    ----------
    report : from `compare`.
    title : of the page.
    top : how many pairs are shown side by side.

    Returns
    -------
    HTML without scripts and without anything loaded from elsewhere; all text of students is escaped, and characters
    that turn or hide text are shown by their numbers.
    """
    e = _escape
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    out = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{e(title)}</title><style>{STYLE}</style></head><body><main><h1>{e(title)}</h1>",
        f'<p class="caution" role="note"><strong>Caution.</strong> {e(CAUTION)}</p>',
    ]
    if report.notes:
        out += ["<h2>What was not compared</h2><ul>", *(f"<li>{e(note)}</li>" for note in report.notes), "</ul>"]
    out.append(f"<h2>Pairs</h2><p>{len(report.pairs)} pairs share more than the threshold.</p>")
    if report.pairs:
        out.append(
            '<table><thead><tr><th scope="col">Exercise</th><th scope="col">First</th><th scope="col">Second</th>'
            '<th scope="col">Share of first</th><th scope="col">Share of second</th>'
            '<th scope="col">Shared tokens</th></tr></thead><tbody>'
        )
        for number, pair in enumerate(report.pairs):
            name = e(pair.exercise)
            name = f'<a href="#pair-{number}">{name}</a>' if number < top else name
            out.append(
                f"<tr><td>{name}</td><td>{e(pair.first)}</td><td>{e(pair.second)}</td>"
                f'<td class="figure">{pair.share_first:.0%}</td><td class="figure">{pair.share_second:.0%}</td>'
                f'<td class="figure">{pair.tokens}</td></tr>'
            )
        out.append("</tbody></table>")
    if len(report.pairs) > top:
        out.append(f"<p>The first {top} pairs are shown side by side.</p>")
    for number, pair in enumerate(report.pairs[:top]):
        out.append(
            f'<section id="pair-{number}"><h2>{e(pair.exercise)}: {e(pair.first)} and {e(pair.second)}</h2>'
            '<div class="both">'
        )
        for student, spans in zip((pair.first, pair.second), report.marks[pair], strict=True):
            text = report.texts[pair.exercise][student]
            out.append(f'<div><h3>{e(student)}</h3><pre tabindex="0">{_marked(text, spans)}</pre></div>')
        out.append("</div></section>")
    return "\n".join([*out, "</main></body></html>"])


def _marked(text, spans):
    out, at = [], 0
    for start, end in spans:
        out += [_escape(text[at:start]), "<mark>", _escape(text[start:end]), "</mark>"]
        at = end
    return "".join([*out, _escape(text[at:])])


def _escape(text):
    """HTML of a text; controls, and what turns or hides text, as a number."""
    safe = (c if c.isprintable() or c in "\t\n" else f"\N{WHITE SQUARE}U+{ord(c):04X}" for c in text)
    return html.escape("".join(safe))
