"""The instructors' tables of wrong answers, from _build/wrong-answers.json, which tests/course/battery.py writes.

Each problem set has a page of its own: one page of all would be twenty thousand elements large.
"""

import json
import re

from generated import add_page
from virtual_pages import add_pages

PAGE = "chapters/instructors/wrong_answers"
HEAD = "| Wrong answer | What is wrong with it | Points | What its first failed test says |\n|---|---|---:|---|"


def tried(root) -> dict[str, list[dict]]:
    """The rows of each problem set; none before the batteries have run."""
    path = root / "_build" / "wrong-answers.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {name: [row for row in rows if row["set"] == name] for name in dict.fromkeys(row["set"] for row in rows)}


def title(name) -> str:
    """
    >>> title("set3")
    'Problem set 3'
    """
    return re.sub(r"^set(\d+)$", r"Problem set \1", name)


def told(rows) -> str:
    return f"{sum(row['caught'] for row in rows)} of {len(rows)} wrong answers lose points"


def write(root) -> str:
    """The list of the sets."""
    sets = tried(root)
    if not sets:
        return "They have not been tried yet: `make test` tries them, and the next build shows what it found."
    lines = [f"**{told([row for rows in sets.values() for row in rows])}.**", ""]
    return "\n".join(
        lines + [f"- {{doc}}`{title(name)} </{PAGE}/{name}>`: {told(rows)}" for name, rows in sets.items()]
    )


def pages(root) -> dict[str, str]:
    """The pages of the sets."""
    return {f"{PAGE}/{name}": page(name, rows) for name, rows in tried(root).items()}


def page(name, rows) -> str:
    lines = [f"# {title(name)}: wrong answers", "", f"**{told(rows)}.**"]
    for exercise in dict.fromkeys(row["exercise"] for row in rows):
        mine = [row for row in rows if row["exercise"] == exercise]
        lines += ["", f"## `{exercise}`", "", f"{mine[0]['of']:g} points.", "", HEAD, *map(line, mine)]
    return "\n".join(lines) + "\n"


def line(row) -> str:
    lost = f"{row['points']:g}" if row["caught"] else f"**{row['points']:g}, not caught**"
    said = row["message"].split("\n")[0].removeprefix("AssertionError: ")
    return f"| `{row['name']}` | {row['description'].replace('|', chr(92) + '|')} | {lost} | {plain(said)} |"


def plain(text) -> str:
    """A message as it was said: nothing in it is markup."""
    return "".join("\\" + c if c in r"\`*_{}[]()<>#+-.!|$~^@:" else c for c in text) if text else ""


def setup(app):
    add_page(app, PAGE, write)
    add_pages(app, PAGE, pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
