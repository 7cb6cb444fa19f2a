"""Previews: an equation, a statement, a term or a reference is shown beside the link that leads to it.

A browser may not fetch a page from a disk, but it may load a script. So for each page the build writes one script,
`_static/previews/<page>.js`, with the HTML of all that other links lead to. previews.js loads it when a reader first
asks for something of that page, so no page becomes heavier by it than by previews.js itself. Formulas have been set by
then, and one style sheet serves all pages (mathematics.py), so a preview needs nothing else.

The package sphinx-tippy does the same and was tried. It loads 46 kB of other scripts on every page, writes the previews
of all links of a page into a script that this page loads at once, sets formulas by MathJax in the browser, and does not
answer to touch with a way to follow the link.

What stands in a preview is cut out of the finished pages: Sphinx has the number of an equation and the words of a
reference only there, and a page that was not written again by this build has them too.
"""

import json
import os
import re
from pathlib import Path
from shutil import copyfile, rmtree

PROGRAM = Path(__file__).with_suffix(".js")
FOLDER = "previews"  # in _static
# Anchors of what is shown; the same as in previews.js. Numbers are those that docutils gives to references.
SHOWN = r"(?:(?:equation|term|def|thm|prop|cor|lem|ex|rem|alg|exr)-[^\"]+|id\d+)"
LINK = re.compile(rf'<a class="reference internal"[^>]*? href="([^"#]*)#({SHOWN})"')
NAME = re.compile(r"<(\w+)")
LEFT_OUT = re.compile(r'<a class="headerlink".*?</a>|(?<=[\w"]) id="[^"]*"', re.S)


def element(html: str, start: int) -> str:
    """The element whose tag begins at `start`.

    Examples
    --------
    >>> element('<p><div class="a"><div>1</div> 2</div> 3</p>', 3)
    '<div class="a"><div>1</div> 2</div>'
    """
    depth, name = 0, NAME.match(html, start)[1]
    for tag in re.compile(rf"<(/?){name}\b[^>]*>").finditer(html, start):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return html[start : tag.end()]
    raise ValueError(f"an element is not closed: {html[start : start + 80]}")


def inner(element: str) -> str:
    return element[element.index(">") + 1 : element.rindex("<")]


def preview(html: str, anchor: str) -> str | None:
    """What is shown of the element with this id; None if it is of no kind that is shown.

    Examples
    --------
    >>> preview('<dl><dt id="term-head">head</dt><dd><p>One of several.</p></dd></dl>', "term-head")
    '<p><strong>head</strong></p><p>One of several.</p>'
    >>> preview('<div class="math" id="equation-eq-a"><a class="headerlink" href="#">#</a>x</div>', "equation-eq-a")
    '<div class="math">x</div>'
    >>> preview('<div class="note" id="id7">no reference</div>', "id7")
    """
    found = re.search(rf'<(?:div|dt)\b[^>]*? id="{re.escape(anchor)}"[^>]*>', html)
    if found is None or (anchor.startswith("id") and 'class="citation"' not in found[0]):
        return None
    text = element(html, found.start())
    if anchor.startswith("term-"):
        definition = element(html, html.index("<dd>", found.end()))
        text = f"<p><strong>{inner(text)}</strong></p>{inner(definition)}"
    return LEFT_OUT.sub("", text).strip()


def links(page: str, html: str) -> set[tuple[str, str]]:
    """The pages and anchors to which the links of a page lead that are shown.

    Examples
    --------
    >>> links("a/b", '<a class="reference internal" href="../c.html#thm-x">1</a><a href="#thm-y">2</a>')
    {('c', 'thm-x')}
    """
    folder = os.path.dirname(page)
    return {
        (os.path.normpath(os.path.join(folder, path.removesuffix(".html"))) if path else page, anchor)
        for path, anchor in LINK.findall(html)
    }


def gather(pages: dict[str, str]) -> dict[str, dict[str, str]]:
    """{page: {anchor: its preview}}, of all that a link on some page leads to."""
    found = {}
    for page, anchor in sorted(set().union(*(links(page, html) for page, html in pages.items()))):
        text = page in pages and preview(pages[page], anchor)
        if text:
            found.setdefault(page, {})[anchor] = text
    return found


def _offer(app):
    """Before the pages are written: then their links to it carry its checksum, and no browser keeps an old one."""
    if app.builder.format == "html":
        static = Path(app.outdir) / "_static"
        static.mkdir(parents=True, exist_ok=True)
        copyfile(PROGRAM, static / PROGRAM.name)


def _write(app, error):
    if error or app.builder.format != "html":
        return
    html, folder = Path(app.outdir), Path(app.outdir) / "_static" / FOLDER
    there = {page: html / f"{page}.html" for page in sorted(app.env.found_docs)}
    pages = {page: path.read_text(encoding="utf-8") for page, path in there.items() if path.exists()}
    rmtree(folder, ignore_errors=True)
    for page, found in gather(pages).items():
        file = folder / f"{page}.js"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        file.write_text(f"Previews[{json.dumps(page)}]={text};\n", encoding="utf-8")


def setup(app):
    app.add_js_file(PROGRAM.name, loading_method="defer")
    app.connect("builder-inited", _offer)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
