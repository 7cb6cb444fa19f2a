"""The appendix's table of all comparisons, read from the stored outputs of the pages that make them."""

import json
import re
from pathlib import Path

from generated import add_page
from wrong_answers import plain

PAGE = "chapters/appendix/comparisons"
DATA = re.compile(r'<script type="application/json" class="comparison-data">(.*?)</script>', re.S)
HEAD = "| Rival | Settings tried | Chosen | Mean of the test (least to most) |\n|---|---|---|---|"


def title(root: Path, page: str) -> str:
    """The heading of a page; a link in its place would leave its path in the list of contents."""
    cells = json.loads((root / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    return next(line[2:].strip() for line in "".join(cells[0]["source"]).split("\n") if line.startswith("# "))


def stored(root: Path) -> list[tuple[str, dict]]:
    """Each comparison of the book, with the page that makes it."""
    found = []
    for path in sorted((root / "chapters").glob("*/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                text = "".join(output.get("data", {}).get("text/html", ""))
                page = path.relative_to(root).with_suffix("").as_posix()
                found += [(page, json.loads(data)) for data in DATA.findall(text)]
    return found


def write(root) -> str:
    from attnmath.comparisons import read

    every = [(page, read(data)) for page, data in stored(root)]
    faults = sum(len(one.faults()) for _, one in every)
    lines = [
        f"**{len(every)} comparisons on {len({page for page, _ in every})} pages; {faults} departures from the rule, "
        "each of which its page speaks of.**"
    ]
    for page in dict.fromkeys(page for page, _ in every):
        lines += ["", f"## {title(root, page)}", "", f"On the page {{doc}}`/{page}`."]
        for one in (one for where, one in every if where == page):
            lines += [
                "",
                f"**{plain(capital(one.title))}.** {plain(capital(one.score))}; {one.better} is better. {claims(one)}",
            ]
            lines += ["", HEAD, *(f"| {' | '.join(map(plain, row))} |" for row in one.rows())]
            lines += [f"\n{{.red}}\n{plain(fault)}: “{one.said.get(fault, '')}”" for fault in one.faults()]
    return "\n".join(lines) + "\n"


def capital(text: str) -> str:
    """
    >>> capital("share of right answers")
    'Share of right answers'
    """
    return text[:1].upper() + text[1:]


def claims(one) -> str:
    words = {">": "is better than", "~": "is not told apart from"}
    said = [f"{a} {words[relation]} {b}" for a, relation, b in one.claims]
    return f"Claimed: {plain('; '.join(said))}." if said else "No claim is made."


def setup(app):
    add_page(app, PAGE, write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
