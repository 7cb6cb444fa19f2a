"""Marks as CSV, Markdown and on the terminal."""

import csv

from .runner import NOT_GRADED


def defuse(text):
    """A spreadsheet runs what begins with one of these as a formula."""
    text = " ".join(str(text).split())
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text


def number(value):
    return "" if value is None else f"{value:g}"


def write_csv(path, rows, points):
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["student", "set", "state", *map(defuse, points), "total", "max", "to_mark", "reason"])
        for row in rows:
            marks = [number(row.points.get(exercise)) for exercise in points]
            tail = [number(row.total), number(row.max), number(row.to_mark), defuse(row.reason)]
            out.writerow([defuse(row.student), row.set, row.state, *marks, *tail])


def summary(rows):
    counts = {}
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    parts = [f"{count} {state}" for state, count in sorted(counts.items(), key=lambda item: -item[1])]
    skipped = sum(row.skipped for row in rows)
    return (
        f"{len(rows)} submissions: " + ", ".join(parts) + (f" ({skipped} unchanged, not run again)" if skipped else "")
    )


def cell(text):
    return defuse(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def write_markdown(path, name, rows, points):
    lines = [f"# {name}", "", summary(rows) + ".", ""]
    lines += [
        f"| student | state | {' | '.join(points)} | total | to mark | reason |",
        "|" + "---|" * (len(points) + 5),
    ]
    for row in rows:
        marks = [number(row.points.get(exercise)) for exercise in points]
        total = f"{number(row.total)} of {number(row.max)}" if row.total is not None else "no mark"
        lines.append(
            "| "
            + " | ".join([cell(row.student), row.state, *marks, total, number(row.to_mark), cell(row.reason)])
            + " |"
        )
    path.write_text("\n".join(lines) + "\n", "utf-8")


def table(rows):
    """For the terminal: one line per submission, the odd ones with their reason."""
    width = max([len(defuse(row.student)) for row in rows] + [7])
    lines = [f"{'student':{width}}  {'state':15}  {'mark':>9}  {'to mark':>7}  reason"]
    for row in rows:
        mark = "no mark" if row.total is None else f"{number(row.total)}/{number(row.max)}"
        lines.append(
            f"{defuse(row.student):{width}}  {row.state:15}  {mark:>9}  {number(row.to_mark):>7}  {row.reason}".rstrip()
        )
    return "\n".join(lines)


def needs_eye(rows):
    return [row for row in rows if row.state in NOT_GRADED or row.total is None]
