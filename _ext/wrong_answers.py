"""The instructors' table of wrong answers, from _build/wrong-answers.json, which tests/course/battery.py writes."""

import json
import re

from generated import add_page

HEAD = "| Wrong answer | What is wrong with it | Points | What its first failed test says |\n|---|---|---:|---|"


def write(root) -> str:
    path = root / "_build" / "wrong-answers.json"
    if not path.exists():
        return "They have not been tried yet: `make test` tries them, and the next build shows what it found."
    rows = json.loads(path.read_text(encoding="utf-8"))
    caught = sum(row["caught"] for row in rows)
    lines = [f"**{caught} of {len(rows)} wrong answers lose points.**"]
    for name in dict.fromkeys(row["set"] for row in rows):
        lines += ["", "## " + re.sub(r"^set(\d+)$", r"Problem set \1", name)]
        for exercise in dict.fromkeys(row["exercise"] for row in rows if row["set"] == name):
            mine = [row for row in rows if (row["set"], row["exercise"]) == (name, exercise)]
            lines += ["", f"### `{exercise}`", "", f"{mine[0]['of']:g} points.", "", HEAD]
            lines += [line(row) for row in mine]
    return "\n".join(lines) + "\n"


def line(row) -> str:
    lost = f"{row['points']:g}" if row["caught"] else f"**{row['points']:g}, not caught**"
    said = row["message"].split("\n")[0].removeprefix("AssertionError: ")
    return f"| `{row['name']}` | {row['description'].replace('|', chr(92) + '|')} | {lost} | {plain(said)} |"


def plain(text) -> str:
    """A message as it was said: nothing in it is markup."""
    return "".join("\\" + c if c in r"\`*_{}[]()<>#+-.!|$~^@:" else c for c in text) if text else ""


def setup(app):
    add_page(app, "chapters/instructors/wrong_answers", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
