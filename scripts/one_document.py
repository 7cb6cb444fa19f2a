"""The built pages as chapters of one document, in the order of the table of contents, so that they make one book.

Nothing is computed again: formulas, numbers and outputs are those of the pages. Each page's ids get the page's name in
front, and links inside the book lead to them. A link to what is no page of the book, such as the library's source or a
notebook to download, leads to the book's address on the web.
"""

import html
import posixpath
import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path

NAVIGATION = re.compile(r'<nav class="bd-links[^>]*>(.*?)</nav>', re.S)
CAPTION = re.compile(r'<span class="caption-text">(.*?)</span>', re.S)
ENTRY = re.compile(r'<li class="toctree-l(\d)[^>]*>\s*<a [^>]*?href="([^"#]*)#?"[^>]*>(.*?)</a>', re.S)
EITHER = re.compile(f"{CAPTION.pattern}|{ENTRY.pattern}", re.S)
ARTICLE = re.compile(r'<article class="bd-article">(.*?)</article>', re.S)
STYLES = re.compile(r'<link [^>]*?href="([^"]+)"[^>]*?rel="stylesheet"|<link rel="stylesheet"[^>]*?href="([^"]+)"')
# What does nothing on paper: scripts, their stages and data, what is said to a reader without them, marks to click on.
LEFT_OUT = (
    r"<script\b.*?</script>",
    r"<noscript>.*?</noscript>",
    r'<div class="output text_html">\s*</div>',
    r'<a class="headerlink"[^>]*>.*?</a>',
    r'<section class="interactive".*?</section>',
    r'<details class="admonition hide.*?</details>',
    r'<div class="toctree-wrapper compound">\s*</div>',
)
TAG = re.compile(r"<[a-zA-Z](?:[^<>\"]|\"[^\"]*\")*>")
NAME = re.compile(r' (id|for|name|aria-labelledby|aria-describedby)="([^"]*)"')
LINK = re.compile(r' (href|src)="([^"]*)"')
REMOTE = re.compile(r"[a-z]+:")
OPENING = re.compile(r"<(/?)h([1-6])>")
LABELLED = re.compile(r'((?:<span id="[^"]*"></span>\s*)+)(<h[1-6]>)')
HEADING = re.compile(r'<h([1-6]) id="([^"]+)">(.*?)</h\1>', re.S)


@dataclass
class Page:
    """A page of the book: its address below the root of the pages, its depth from 1, its title as HTML, its part."""

    address: str
    depth: int
    title: str
    part: str

    @property
    def id(self) -> str:
        return self.address.removesuffix(".html").replace("/", "-")


def pages(root: Path, first: str = "intro.html") -> list[Page]:
    """The pages of the book in their order, as the side bar of the first one lists them."""
    found = [Page(first, 1, title(root, first), "")]
    part = ""
    for entry in EITHER.finditer(NAVIGATION.search(read(root, first))[1]):
        if entry[1] is not None:
            part = entry[1].strip()
        elif part:  # before the first part the side bar names the first page once more
            address = posixpath.normpath(posixpath.join(posixpath.dirname(first), entry[3]))
            found.append(Page(address, int(entry[2]), entry[4].strip(), part))
    return found


def chapters(book: list[Page]) -> list[list[Page]]:
    """The pages in groups, each of which begins with a page of the first depth."""
    found = []
    for page in book:
        if page.depth == 1:
            found.append([])
        found[-1].append(page)
    return found


def read(root: Path, address: str) -> str:
    return (root / address).read_text(encoding="utf-8")


def title(root: Path, address: str) -> str:
    return re.sub(r'<a class="headerlink".*?</a>', "", re.search(r"<h1>(.*?)</h1>", read(root, address), re.S)[1])


def plain(markup: str) -> str:
    """The text of a title.

    Examples
    --------
    >>> plain('3.1. Which word should change <em>it</em>?')
    '3.1. Which word should change it?'
    """
    return html.unescape(re.sub(r"<[^>]+>", "", markup))


def styles(root: Path, book: list[Page]) -> list[str]:
    """The style sheets that any page loads, once each, as addresses below the root."""
    found = {}
    for page in book:
        head = read(root, page.address).partition("</head>")[0]
        for one, other in STYLES.findall(head):
            found.setdefault(_from_root(page, (one or other).partition("?")[0]))
    return list(found)


def _from_root(page: Page, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page.address), link))


def body(text: str, page: Page, book: dict[str, Page], place: str, web: str) -> str:
    """What a page says, as a part of the book: ids of its own, links that lead on, headings at their depth."""
    text = ARTICLE.search(text)[1]
    for pattern in LEFT_OUT:
        text = re.sub(pattern, "", text, flags=re.S)
    text = TAG.sub(lambda tag: _placed(tag[0], page, book, place, web), text)
    text = LABELLED.sub(r"\2\1", text)  # else a page may end after a section's label, above its heading
    counted = count(1)

    def deeper(tag):
        level = f"h{min(6, int(tag[2]) + page.depth - 1)}"
        return f"</{level}>" if tag[1] else f'<{level} id="{page.id}.{next(counted)}">'

    return OPENING.sub(deeper, text)


def _placed(tag, page, book, place, web):
    if tag.startswith("<img"):
        tag = tag.replace(' loading="lazy"', "")
    tag = NAME.sub(lambda found: f' {found[1]}="{_named(found[2], page)}"', tag)

    def led(found):
        link = html.unescape(found[2])
        leads = _source(link, page, place) if found[1] == "src" else _target(link, page, book, web)
        return f' {found[1]}="{html.escape(leads)}"'

    return LINK.sub(led, tag)


def _named(ids, page):
    return " ".join(f"{page.id}..{one}" for one in ids.split())


def _source(link, page, place):
    """Where a picture lies, seen from the document: `place` leads from there to the root of the pages."""
    return link if REMOTE.match(link) else place + _from_root(page, link)


def _target(link, page, book, web):
    """Where a link leads: to a section of the document if it is a page of the book, else to the web."""
    if REMOTE.match(link):
        return link
    address, mark, fragment = link.partition("#")
    address = _from_root(page, address) if address else page.address
    if address not in book:
        return web + address + mark + fragment
    return f"#{_named(fragment, book[address])}" if fragment else f"#{book[address].id}"


def joined(root: Path, chapter: list[Page], book: list[Page], place: str, web: str) -> str:
    """The pages of a chapter, each a section with the id of the page; `place` leads to the root of the pages."""
    known = {page.address: page for page in book}
    sections = []
    for page in chapter:
        text = body(read(root, page.address), page, known, place, web)
        sections.append(f'<section class="page depth-{page.depth}" id="{page.id}">{text}</section>')
    return "\n".join(sections)


def headings(document: str) -> list[tuple[int, str, str]]:
    """Level, id and text of every heading.

    Examples
    --------
    >>> headings('<h2 id="masks.1">3.6. Who sees <em>whom</em>?</h2>')
    [(2, 'masks.1', '3.6. Who sees whom?')]
    """
    return [(int(level), name, " ".join(plain(text).split())) for level, name, text in HEADING.findall(document)]
