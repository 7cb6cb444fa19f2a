"""Marks of one run for people: a table on the terminal, a CSV file, a Markdown page."""

from pathlib import Path

from ..pages.tables import defused, number, write
from .run import Row, needs_eye

__all__ = ["summary", "table", "write_csv", "write_markdown"]


def _exercises(rows):
    return list(dict.fromkeys(exercise for row in rows for exercise in row.marks))


def summary(rows: list[Row]) -> str:
    """How many submissions ended in which state, in one line."""
    states = [row.state for row in rows]
    parts = [f"{states.count(state)} {state}" for state in sorted(set(states), key=lambda s: (-states.count(s), s))]
    cached = sum(row.cached for row in rows)
    unchanged = f" ({cached} unchanged, not run again)" if cached else ""
    return f"{len(rows)} submissions: {', '.join(parts) or 'none'}{unchanged}"


def _total(row):
    return "no mark" if row.total is None else f"{number(row.total)}/{number(row.max)}"


def table(rows: list[Row], *, only_odd: int = 60) -> str:
    """A line for each submission; of a class of more than ``only_odd``, of those alone that say something."""
    listed = rows if len(rows) <= only_odd else [row for row in rows if row.state != "graded" or row.reason]
    width = max([len(defused(row.student)) for row in listed] + [7])
    states = max([len(row.state) for row in listed] + [5])
    lines = [f"{'student':{width}}  {'state':{states}}  {'mark':>9}  {'to mark':>7}  reason"]
    for row in listed:
        waits = number(row.to_mark) if row.to_mark else ""
        line = f"{defused(row.student):{width}}  {row.state:{states}}  {_total(row):>9}  {waits:>7}  {row.reason}"
        lines.append(line.rstrip()[:200])
    if len(listed) < len(rows):
        lines.append(f"… and {len(rows) - len(listed)} graded without remark")
    return "\n".join(lines)


def write_csv(path: Path, rows: list[Row]) -> None:
    """A row for each submission: state, points of each exercise, what waits for a person, the reason.

    Points that wait for a person are empty. ``sandboxed`` are the points that rest on tests which ran in the student's
    own process.
    """
    exercises = _exercises(rows)
    tail = ["total", "max", "late penalty", "to mark", "sandboxed", "reason"]
    out = [["student", "assignment", "notebook", "state", *exercises, *tail]]
    for row in rows:
        marks = [row.marks.get(exercise) for exercise in exercises]
        last = [row.total, row.max, row.penalty, row.to_mark, row.sandboxed, " ".join(row.notes) or row.reason]
        out.append([row.student, row.assignment, row.notebook, row.state, *marks, *last])
    write(path, out)


def write_markdown(path: Path, name: str, rows: list[Row]) -> None:
    """The same as a page, those that need an eye first."""
    exercises, odd = _exercises(rows), needs_eye(rows)
    lines = [f"# {name}", "", f"{summary(rows)}.", ""]
    lines += ["| " + " | ".join(["student", "state", *exercises, "mark", "to mark", "reason"]) + " |"]
    lines += ["|" + "---|" * (len(exercises) + 5)]
    for row in [*odd, *(row for row in rows if row not in odd)]:
        cells = [row.student, row.state, *(number(row.marks.get(e)) for e in exercises)]
        cells += [_total(row), number(row.to_mark or None), row.reason]
        lines.append("| " + " | ".join(_plain(cell) for cell in cells) + " |")
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _plain(text):
    for character in "\\|<`*_[":
        text = defused(text) if character == "\\" else text
        text = text.replace(character, f"\\{character}" if character != "<" else "&lt;")
    return text
