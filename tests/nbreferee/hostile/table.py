"""The corpus as a table: what each submission does, what plain nbgrader makes of it, and what `nbreferee` does.

``python -m tests.nbreferee.hostile.table --plain`` records plain nbgrader's outcomes (an hour); without the option the
recorded outcomes and those of the last test run are joined to ``_build/hostile.json`` and printed as Markdown.
"""

import argparse
import json
import re
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .assignment import FULL
from .submissions import CLASSES, corpus

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "chapters" / "instructors" / "hostile.json"
BUILD = ROOT / "_build" / "hostile.json"


def record_plain(names=(), workers=1, keep=None, done=lambda name, row: None):
    """Run plain nbgrader over the corpus; ``done`` is told each row."""
    from . import plain

    if why := plain.lacks():
        raise SystemExit(f"plain nbgrader can only be tried behind a wall: {why}")
    lock = threading.Lock()
    chosen = [one for one in corpus() if not names or one.name in names]
    with tempfile.TemporaryDirectory(prefix="plain-course-") as folder, ThreadPoolExecutor(workers) as pool:
        course = plain.template(Path(folder))

        def work(one):
            row, found = plain.record(one, course)
            print(f"{one.name}: {row['points']} {'; '.join(row['words']) or 'as it should be'}", flush=True)
            if keep:
                (Path(keep) / f"{one.name}.json").write_text(json.dumps(found, indent=1))
            with lock:
                done(one.name, row)

        list(pool.map(work, chosen))


def rows(plain, ours):
    """One dict for each submission: who, what, just, and both outcomes."""
    out = []
    for one in corpus():
        there, here = plain.get(one.name), ours.get(one.name)
        just = None if one.just is None else sum(one.just.values())
        out.append({"name": one.name, "class": one.kind, "what": one.what, "just": just, "plain": there, "ours": here})
    return out


def _said(row):
    if not row:
        return "not tried"
    points = "" if row["points"] is None else f"{row['points']:g}"
    return ": ".join(filter(None, (points, "; ".join(row["words"])))) or "–"


TROUBLE = {
    "disturb another submission or the batch": "next student|earlier|tests in|batch|grading|gradebook",
    "read what is secret": "read:",
    "leave processes or files behind": ".*left ",
}


def summary(table):
    """How many submissions did what, as Markdown; a row that was not tried counts nowhere."""

    def count(judge, grader):
        said = ((row["just"], row[grader]) for row in table if row[grader])
        return sum(bool(judge(just, one["points"], one["words"])) for just, one in said)

    def more(just, points, words):
        return any(word.startswith("mark forged") for word in words) or (just is not None and (points or 0) > just)

    def less(just, points, words):
        return just is not None and (points is None or points < just)

    judges = {"get more points than they deserve": more, "get fewer, or no mark at all": less}
    for what, form in TROUBLE.items():
        judges[what] = lambda just, points, words, form=form: any(re.match(form, word) for word in words)
    lines = [f"| of {len(table)} submissions | plain nbgrader | nbreferee |", "|---|---|---|"]
    for what, judge in judges.items():
        lines.append(f"| {what} | {count(judge, 'plain')} | {count(judge, 'ours')} |")
    return "\n".join([*lines, ""])


def markdown(table, cell=lambda text: text.replace("|", "\\|")):
    """The table as Markdown, a part for each class; ``cell`` makes a text safe to stand in it."""
    lines = [summary(table)]
    for kind in CLASSES:
        lines += [
            f"## {kind[0].upper()}{kind[1:]}",
            "",
            "| submission | just | plain nbgrader | nbreferee |",
            "|---|---|---|---|",
        ]
        for row in (row for row in table if row["class"] == kind):
            just = "–" if row["just"] is None else f"{row['just']:g}"
            cells = [
                cell(text.replace("\n", " ")) for text in (row["what"], just, _said(row["plain"]), _said(row["ours"]))
            ]
            cells[0] = f"**{row['name']}** {cells[0]}"
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def joined():
    """All rows: plain nbgrader's recorded outcomes, ours of the last test run (of the record if there was none)."""
    stored = load(RECORD)
    return rows(stored.get("plain", {}), load(BUILD).get("ours", {}) or stored.get("ours", {}))


def load(path):
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write(path, tree):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree, indent=1, ensure_ascii=True, sort_keys=True) + "\n", "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true", help="run plain nbgrader and record its outcomes")
    parser.add_argument("--ours", action="store_true", help="record the outcomes of the last test run as ours")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--keep", help="a folder for all that was found")
    parser.add_argument("--missing", action="store_true", help="only what has not been recorded yet")
    parser.add_argument("names", nargs="*", help="only these submissions")
    options = parser.parse_args()
    stored = load(RECORD)
    if options.plain:
        stored |= {"full": sum(FULL.values()), "plain": stored.get("plain", {})}

        names = options.names
        if options.missing:
            names = [one.name for one in corpus() if one.name not in stored["plain"]]

        def done(name, row):
            stored["plain"][name] = row
            write(RECORD, stored)

        record_plain(names, options.workers, options.keep, done)
    if options.ours:
        write(RECORD, stored | {"ours": load(BUILD)["ours"]})
    print(markdown(joined()))


if __name__ == "__main__":
    main()
