"""What a page says of a template, whoever the student: its exercises, their parts, and the lines that are hidden."""

import re
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["Outline", "outline_of", "squeeze"]

HIDDEN = re.compile(r"BEGIN HIDDEN TESTS|END HIDDEN TESTS")
POINTS = re.compile(r"\s*[(\[]\d+(?:\.\d+)? (?:points?|marks?|pts?)[)\]]\s*$", re.I)


def seen_and_hidden(source):
    """(lines of a test that are handed out, lines that are hidden)."""
    seen, hidden, inside = [], [], False
    for line in source.split("\n"):
        mark = HIDDEN.search(line)
        if mark:
            inside = mark[0].startswith("BEGIN")
        else:
            (hidden if inside else seen).append(line)
    return seen, hidden


def squeeze(line):
    return " ".join(line.split())


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
class Outline:
    exercises: list
    secrets: tuple


def outline_of(template):
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
        seen, hidden = seen_and_hidden(source)
        secrets |= {squeeze(line) for line in hidden}
        answer, grade, task = (flags.get(k) == "True" for k in ("solution", "grade", "task"))
        if not answer:
            released |= {squeeze(line) for line in seen}
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
    return Outline(exercises, tuple(s for s in secrets - released if len(s) >= 12))


def _label(part, name):
    if part.kind != "test":
        return {"written": "Written answer", "task": "Task"}.get(part.kind, "Your answer")
    words = [word for word in re.split(r"[-_.: ]+", name) if word.lower() not in ("test", "tests", "hidden", "shown")]
    kind = "Hidden test" if part.hidden else "Test"
    return f"{kind}: {' '.join(words)}" if words else kind
