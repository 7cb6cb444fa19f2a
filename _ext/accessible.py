"""Repairs of the finished pages for those who hear them or move through them by keyboard, without a script.

The theme and the packages that write statements, exercises, tables and references leave the same few faults on every
page. Sphinx tells nobody when a page has been put together, so the repairs stand around its templates' `render`.
"""

import re
from pathlib import Path

EMPTY_HEAD = re.compile(r'<th class="(head[^"]*)"><p></p></th>')
PRINT_TITLE = re.compile(r'(<div id="jb-print-docs-body" class="onlyprint">\s*)<h1>(.*?)</h1>', re.S)
# What is shown and not markup: nothing in a script, a style or a comment has an id.
PASSIVE = re.compile(r"(<(script|style)\b.*?</\2>|<!--.*?-->)", re.S)
ID = re.compile(r'(<[a-zA-Z](?:[^<>"]|"[^"]*")*?)\s+id="([^"]*)"')


def repaired(html: str) -> str:
    return each_id_once(one_title(corners(roles(html))))


def one_title(html: str) -> str:
    """The title that only the printer shows is no heading: the page has its own.

    Examples
    --------
    >>> one_title('<div id="jb-print-docs-body" class="onlyprint"> <h1>Masks</h1></div><h1>3.6. Masks</h1>')
    '<div id="jb-print-docs-body" class="onlyprint"> <p class="print-title">Masks</p></div><h1>3.6. Masks</h1>'
    """
    return PRINT_TITLE.sub(r'\1<p class="print-title">\2</p>', html, count=1)


def corners(html: str) -> str:
    """A head of a table that says nothing is an empty cell: the corner above a column of names, mostly.

    Examples
    --------
    >>> corners('<th class="head text-center"><p></p></th><th class="head"><p>rows</p></th>')
    '<td class="head text-center"></td><th class="head"><p>rows</p></th>'
    """
    return EMPTY_HEAD.sub(r'<td class="\1"></td>', html)


def roles(html: str) -> str:
    """An entry in a list of references is an item of a list: docutils gives it a role that no list may hold.

    Examples
    --------
    >>> roles('<div role="list" class="citation-list"><div class="citation" id="id1" role="doc-biblioentry">')
    '<div role="list" class="citation-list"><div class="citation" id="id1" role="listitem">'
    """
    return html.replace('role="doc-biblioentry"', 'role="listitem"')


def each_id_once(html: str) -> str:
    """The first who bears an id keeps it, as links lead there: all proofs are called `proof`, for one.

    Examples
    --------
    >>> each_id_once('<div id="proof">1</div><div class="a" id="proof">2</div><script>\\'<i id="proof">\\'</script>')
    '<div id="proof">1</div><div class="a">2</div><script>\\'<i id="proof">\\'</script>'
    """
    seen = set()

    def keep(found):
        again = found[2] in seen
        seen.add(found[2])
        return found[1] if again else found[0]

    parts = PASSIVE.split(html)  # three at a time: markup, what is passive, the name of its tag
    return "".join(ID.sub(keep, part) if i % 3 == 0 else part for i, part in enumerate(parts) if i % 3 != 2)


def _repair(app):
    if app.builder.format == "html":
        render = app.builder.templates.render
        app.builder.templates.render = lambda name, context: repaired(render(name, context))


def forget_old_sources(html: Path, looks: list[Path]) -> None:
    """Remove the pages of source code that are older than what all pages look like.

    The extension that writes them looks at the age of the source alone, and would leave them as they were.
    """
    newest = max(path.stat().st_mtime for path in looks)
    for page in (html / "_modules").rglob("*.html"):
        if page.stat().st_mtime < newest:
            page.unlink()


def _forget(app):
    root = Path(app.srcdir)
    forget_old_sources(Path(app.outdir), [*(root / "_ext").glob("*.py"), *(root / "_static").glob("*.*")])


def setup(app):
    app.connect("builder-inited", _repair)
    app.connect("builder-inited", _forget)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
