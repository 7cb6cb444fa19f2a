"""`make pdf`: print the whole book to _build/the-mathematics-of-attention.pdf.

The built pages are joined to chapters (one_document.py), a browser prints one after the other, each with the page
number that follows, and pypdf joins what was printed, adds the outline and makes links inside the book lead to their
pages. All chapters in one print would need more than 5 GB of memory. The page numbers in the table of contents are
known at the end, so it is printed first without them, to see how many pages it takes, and again when all is done.
A figure is printed as the vectors that its notebook left beside the pixels (vector_figures.py), where there are any.

On paper stand the answers and what the pages fold under "Going deeper", every tab, and the code that teaches. What is
left out: figures with knobs, and the folded code that draws, loads or checks. Both are on the web, and the title page
says so.
"""

import argparse
import hashlib
import html
import os
import re
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import matplotlib
import yaml
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Fit, FloatObject, NameObject, NullObject, TextStringObject

import one_document
import tools
from fingerprint import ROOT
from one_document import Page, plain

BUILD = ROOT / "_build"
PDF = BUILD / "the-mathematics-of-attention.pdf"
STYLES = (ROOT / "_static" / "print.css", ROOT / "scripts" / "pdf_book.css")
INSIDE = "https://inside.invalid/#"
WIDTH = 627  # of a line, in the browser's pixels: A4 less the margins that pdf_book.css sets
FONTS = {
    "STIXGeneral": ("Text", "normal", 400),
    "STIXGeneralItalic": ("Text", "italic", 400),
    "STIXGeneralBol": ("Text", "normal", 700),
    "STIXGeneralBolIta": ("Text", "italic", 700),
    "DejaVuSansMono": ("Code", "normal", 400),
    "DejaVuSansMono-Oblique": ("Code", "italic", 400),
    "DejaVuSansMono-Bold": ("Code", "normal", 700),
    "DejaVuSansMono-BoldOblique": ("Code", "italic", 700),
}  # of matplotlib: family, style, weight

# What is wider than the line is made smaller until it fits: a formula or a table to half its size at most, code to
# three quarters, and longer lines of code are broken. What is lower than a third of a page is not split between two.
# Nor is a paragraph of five lines, which print.css forbids too: a browser splits it sooner than end a page earlier.
# All boxes are measured before any is changed, so that the browser lays out the pages twice and not once for each box.
FIT = """() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const size = (box) => parseFloat(getComputedStyle(box).fontSize);
    const longest = (box) => Math.max(...box.textContent.split("\\n").map((line) => line.trimEnd().length));
    const wide = [
        ...all("mjx-container[display='true']").map((box) =>
            [box, box.clientWidth, Math.max(box.scrollWidth, box.firstElementChild.scrollWidth), .5]),
        ...all("table").map((box) => [box, box.parentElement.clientWidth, box.scrollWidth, .5]),
        ...all("pre").map((box) => [box, box.clientWidth, (longest(box) + 3) * .602 * size(box), .75]),
    ].filter(([box, room, need]) => room > 0 && need > room + 1).map(([box, room, need, least]) =>
        [box, size(box) * Math.max(least, .98 * room / need)]);
    const low = all("pre, div.admonition, div.proof, table, blockquote, dl > dd, details.sd-dropdown").filter(
        (box) => box.offsetHeight < 300).concat(all("p").filter((box) => box.offsetHeight < 100));
    wide.forEach(([box, small]) => box.style.setProperty("font-size", `${small}px`, "important"));
    low.forEach((box) => { box.style.breakInside = "avoid"; });
}"""


class NotPrinted(Exception):
    """Why there is no PDF, and the cure."""


def faces() -> str:
    """The fonts as rules of a style sheet."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    rule = '@font-face {{ font-family: {}; font-style: {}; font-weight: {}; src: url("{}"); }}'
    return "\n".join(rule.format(*kind, (folder / f"{name}.ttf").as_uri()) for name, kind in FONTS.items())


def numbered(title: str, start: int) -> str:
    """The chapter's title above its pages but the first, and their numbers from `start`: rules of a style sheet."""
    said = title.replace("\\", r"\\").replace('"', r"\"")
    return (
        f"html {{ counter-reset: page {start - 1}; }}\n"
        f'@page {{ @top-center {{ content: "{said}"; font: italic 9pt Text, serif; }} }}\n'
        "@page :first { @top-center { content: none; } }"
    )


def title_page(config: dict, web: str) -> str:
    return f"""<section class="title-page"><p class="name">{html.escape(config["title"])}</p>
<p class="author">{html.escape(config["author"])}</p>
<p class="author">{html.escape(str(config["copyright"]))}</p>
<div class="note"><p>This is the printed form of an executable book. Its pages on the web,
<a href="{web}">{web.removeprefix("https://").rstrip("/")}</a>, also have figures with knobs to turn, the code that
draws and checks, and every notebook to run.</p><p>Text: CC BY 4.0. Code: MIT.</p></div></section>"""


def contents(book: list[Page], numbers: dict[str, int]) -> str:
    """The table of contents, with as much room for numbers that are not known yet."""
    lines, part = ['<nav class="list-of-pages"><p class="head">Contents</p>'], ""
    for page in book:
        if page.part != part:
            part = page.part
            lines.append(f'<p class="part">{part}</p>')
        lines.append(
            f'<p class="entry depth-{page.depth}"><a href="#{page.id}">{page.title}</a>'
            f'<span class="dots"></span><span class="number">{numbers.get(page.id, "")}</span></p>'
        )
    return "\n".join(lines) + "</nav>"


def document(root: Path, book: list[Page], title: str, style: str, text: str) -> str:
    """A whole HTML document. Links inside the book lead to INSIDE, as their pages may be in another document.

    A browser writes down where on paper an id lies if a link of the same document leads to it. So one does, unseen, to
    each id that the book may link to.
    """
    sheets = [f"{root.as_uri()}/{sheet}" for sheet in one_document.styles(root, book)]
    links = "\n".join(f'<link rel="stylesheet" href="{sheet}">' for sheet in sheets + [one.as_uri() for one in STYLES])
    ids = "".join(f'<a href="#{name}"></a>' for name in dict.fromkeys(re.findall(r'<[^>]* id="([^"]+)"', text)))
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
{links}
<style>{faces()}
{style}</style></head>
<body><article class="bd-article whole-book">{text.replace('href="#', f'href="{INSIDE}')}</article>
<div hidden>{ids}</div></body></html>"""


def as_vectors(text: str, root: Path, figures: Path) -> tuple[str, list[bool]]:
    """The same text with vectors in place of pixels, and of each picture in pixels whether it had any.

    The vectors' name is the hash of the pixels, so a picture that has changed since is left as it is.
    """
    found = []

    def drawn(source):
        pixels = (root / unquote(html.unescape(source[1]))).read_bytes()
        vectors = figures / f"{hashlib.sha256(pixels).hexdigest()}.svg"
        found.append(vectors.exists())
        return f' src="{vectors.as_uri()}"' if found[-1] else source[0]

    return re.sub(rf' src="{re.escape(root.as_uri())}/([^"]+\.png)"', drawn, text), found


@contextmanager
def browser():
    """A function that prints an HTML file to a PDF file beside it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=tools.browser(), args=["--no-sandbox", "--disable-gpu"])

        def printed(source: Path) -> Path:
            target = source.with_suffix(".pdf")
            page = started.new_page(viewport={"width": WIDTH, "height": 900})
            page.set_default_timeout(0)
            page.emulate_media(media="print")
            page.goto(source.as_uri())
            page.evaluate("document.fonts.ready.then(() => true)")
            page.evaluate(FIT)
            page.pdf(path=target, prefer_css_page_size=True, print_background=True)
            page.close()
            return target

        yield printed
        started.close()


def places(reader: PdfReader, before: int) -> dict[str, tuple[int, float]]:
    """On which page of the book, from 0, and how high each id of a chapter lies that has so many pages before it."""
    found = {name.removeprefix("/"): place for name, place in reader.named_destinations.items()}
    return {
        name: (before + reader.get_destination_page_number(place), float(place["/Top"]))
        for name, place in found.items()
    }


def place(name: str, where: dict) -> tuple[int, float]:
    """Where an id lies; if it is not on paper, as in a figure with knobs, then where its page begins."""
    return where.get(name) or where[name.partition("..")[0]]


def link(writer: PdfWriter, where: dict) -> None:
    """Let the links inside the book lead to their pages."""
    pages = [page.indirect_reference for page in writer.pages]
    for page in writer.pages:
        for annotation in page.get("/Annots", ()):
            one = annotation.get_object()
            address = one.get("/A", {}).get("/URI", "")
            if address.startswith(INSIDE):
                number, top = place(unquote(address.removeprefix(INSIDE)), where)
                there = (pages[number], NameObject("/XYZ"), NullObject(), FloatObject(top), NullObject())
                del one["/A"]
                one[NameObject("/Dest")] = ArrayObject(there)


def outline(writer: PdfWriter, heads: list[tuple[int, str, str]], where: dict) -> None:
    above = {}
    for level, name, text in heads:
        number, top = place(name, where)
        above = {higher: one for higher, one in above.items() if higher < level}
        parent = above[max(above)] if above else None
        above[level] = writer.add_outline_item(
            title=text, page_number=number, parent=parent, fit=Fit.xyz(left=0, top=top), is_open=False
        )


def join(readers: list[PdfReader], heads: list[tuple[int, str, str]], where: dict, config: dict, target: Path) -> None:
    writer = PdfWriter()
    for reader in readers:
        for page in reader.pages:
            writer.add_page(page)
    link(writer, where)
    outline(writer, heads, where)
    writer.add_metadata({"/Title": config["title"], "/Author": config["author"]})
    writer.root_object[NameObject("/Lang")] = TextStringObject("en")
    writer.page_mode = "/UseOutlines"
    unfinished = target.with_suffix(".unfinished")
    writer.write(unfinished)
    os.replace(unfinished, target)


def make(root: Path, config: dict, web: str, target: Path, tell=print) -> int:
    """Print the built pages below `root` to `target`; return the number of pages."""
    if reason := tools.lacks("browser"):
        raise NotPrinted(reason)
    if not (root / "intro.html").exists():
        raise NotPrinted("there are no built pages: run `make book` first")
    book, heads, readers, where, vectors = one_document.pages(root), [], [], {}, []
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="pdf-") as folder, browser() as printed:

        def sheets(name, title, style, text):
            source = Path(folder) / f"{name}.html"
            source.write_text(document(root, book, title, style, text), encoding="utf-8")
            return PdfReader(printed(source))

        def front(name, numbers):
            return sheets(
                name,
                config["title"],
                "@page :first { @bottom-center { content: none; } }",
                title_page(config, web) + contents(book, numbers),
            )

        tell(f"Printing {len(book)} pages of the web as one book; this takes some minutes.")
        last = len(front("contents", {}).pages)
        for chapter in one_document.chapters(book):
            title = plain(chapter[0].title)
            tell(f"page {last + 1:4}  {title}")
            text = one_document.joined(root, chapter, book, f"{root.as_uri()}/", web)
            text, found = as_vectors(text, root, root.parent / "figures")
            vectors += found
            readers.append(sheets(chapter[0].id, title, numbered(title, last + 1), text))
            heads += one_document.headings(text)
            where |= places(readers[-1], last)
            last += len(readers[-1].pages)
        first = front("front", {page.id: where[page.id][0] + 1 for page in book})
        join([first, *readers], heads, where, config, target)
    tell(f"{sum(vectors)} of {len(vectors)} pictures are vectors, the others pixels")
    return last


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    owner, name = config["repository"]["url"].rstrip("/").split("/")[-2:]
    start = time.perf_counter()
    try:
        pages = make(
            BUILD / "html", config, f"https://{owner}.github.io/{name}/", PDF, lambda text: print(text, flush=True)
        )
    except NotPrinted as reason:
        print(f"The book was not printed: {reason}", file=sys.stderr)
        return 1
    size = PDF.stat().st_size / 1e6
    print(f"The book: {PDF}  ({pages} pages, {size:.0f} MB, {time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
