"""A toy book is printed whole: text in order, numbers, contents, outline, vectors, and links that stay in the file.

The book itself is not printed here, as that takes minutes.
"""

import hashlib
import re
import unicodedata

import pytest
from PIL import Image
from pypdf import PdfReader

import one_document
import pdf_book
import tools
from tests.house.test_one_document import WEB, toy

CONFIG = {"title": "Toy", "author": "Nobody", "copyright": "2026"}


SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><path d="M0 0h40v40z" fill="#f00"/></svg>'


def picture(root, name, color, vectors):
    """A picture of one colour among the pages, with vectors beside them or without."""
    path = root / "_images" / name
    Image.new("RGB", (40, 40), color).save(path)
    if vectors:
        (root.parent / "figures").mkdir(exist_ok=True)
        (root.parent / "figures" / f"{hashlib.sha256(path.read_bytes()).hexdigest()}.svg").write_text(SVG)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The toy book, with a picture in two of its chapters, and what was said while it was printed."""
    folder, said = tmp_path_factory.mktemp("book"), []
    root = toy(folder / "html")
    picture(root, "dot.png", "green", vectors=True)
    picture(root, "last.png", "blue", vectors=False)
    last = root / "words.html"
    last.write_text(last.read_text().replace("LAST</a>", 'LAST</a> <img alt="blue" src="_images/last.png" />'))
    pages = pdf_book.make(root, CONFIG, WEB, folder / "toy.pdf", said.append)
    assert [path.name for path in folder.iterdir() if path.name.startswith(("pdf-", "toy"))] == ["toy.pdf"]
    reader = PdfReader(folder / "toy.pdf")
    assert len(reader.pages) == pages
    return reader, said


def lines(page):
    return [line.strip() for line in page.extract_text().splitlines() if line.strip()]


def entries(reader, items=None, depth=1):
    """The outline: depth, title, number of the page from 1."""
    found = []
    for item in reader.outline if items is None else items:
        if isinstance(item, list):
            found += entries(reader, item, depth + 1)
        else:
            found.append((depth, item.title, reader.get_destination_page_number(item) + 1))
    return found


@pytest.mark.needs("browser")
def test_title_contents_and_chapters_follow_each_other(printed):
    reader, said = printed
    texts = [page.extract_text() for page in reader.pages]
    assert "Toy" in texts[0] and "Nobody" in texts[0] and WEB.removeprefix("https://").rstrip("/") in texts[0]
    assert "Contents" in texts[1] and "The course" in texts[1]
    order = ["Welcome.", "The first chapter.", "Nobody. ", "THREE", "DEEP", "x59", "Line 0.", "Line 89.", "LAST"]
    whole = unicodedata.normalize("NFKC", "\n".join(texts))  # fi may be one letter
    assert [whole.find(word) for word in order] == sorted(whole.find(word) for word in order)
    assert min(whole.find(word) for word in order) > 0
    assert len(said) == 5 and "some minutes" in said[0] and said[2].endswith("1. One")


@pytest.mark.needs("browser")
def test_each_page_bears_its_number_and_its_chapter(printed):
    reader, _ = printed
    for number, page in enumerate(reader.pages[1:], 2):
        assert str(number) in lines(page)
    first = {title: number for depth, title, number in entries(reader) if depth == 1}
    assert len(reader.pages) == first['Words & "signs"'] + 2, "the last chapter takes three pages"
    heads = [lines(page).count('Words & "signs"') for page in reader.pages[-3:]]
    assert heads == [1, 1, 1], "the title on the first page, and what stands above the others"
    assert "1" not in lines(reader.pages[0]), "the title page"


@pytest.mark.needs("browser")
def test_the_outline_has_every_heading_on_its_page(printed):
    reader, _ = printed
    found = entries(reader)
    assert [(depth, title) for depth, title, _ in found] == [
        (1, "Toy"),
        (1, "1. One"),
        (2, "1.1. Who sees whom?"),
        (3, "Causal"),
        (4, "A lemma"),
        (1, 'Words & "signs"'),
    ]
    for _, title, number in found:
        assert title in reader.pages[number - 1].extract_text()


@pytest.mark.needs("browser")
def test_the_table_of_contents_gives_the_pages_of_the_outline(printed):
    reader, _ = printed
    listed = reader.pages[1].extract_text()
    for depth, title, number in entries(reader):
        if depth < 3:
            assert re.search(rf"{re.escape(title)}\s*{number}\b", listed), title


@pytest.mark.needs("browser")
def test_links_stay_in_the_file_and_others_lead_to_the_web(printed):
    reader, _ = printed
    out, inside = [], []
    for number, page in enumerate(reader.pages, 1):
        for annotation in page.get("/Annots", ()):
            link = annotation.get_object()
            if "/Dest" in link:
                inside.append(
                    (number, next(n for n, one in enumerate(reader.pages, 1) if one == link["/Dest"][0].get_object()))
                )
            else:
                out.append(link["/A"]["/URI"])
    where = {title: number for _, title, number in entries(reader)}
    assert sorted(set(out)) == sorted({WEB, WEB + "_modules/x.html#f", "https://example.org/#here"})
    assert (where["Toy"], where["Causal"]) in inside and (where["Causal"], where["Toy"]) in inside
    assert (len(reader.pages), where["1. One"]) in inside
    listed = [where[title] for title in ("Toy", "1. One", "1.1. Who sees whom?", 'Words & "signs"')]
    assert [target for number, target in inside if number == 2] == listed
    assert (where["Causal"], where["1.1. Who sees whom?"]) in inside, "what is not on paper has its page"


@pytest.mark.needs("browser")
def test_a_long_line_of_code_is_whole(printed):
    reader, _ = printed
    code = "".join("".join(page.extract_text().split()) for page in reader.pages)
    assert "+".join(f"x{n}" for n in range(60)) in code
    width = float(reader.pages[3].mediabox.width)
    right = []
    reader.pages[3].extract_text(visitor_text=lambda text, cm, tm, font, size: right.append(tm[4] * cm[0] + cm[4]))
    assert max(right) < width - 50


@pytest.mark.needs("browser")
def test_a_figure_is_vectors_where_there_are_any(printed):
    reader, said = printed
    with_pixels = [number for number, page in enumerate(reader.pages, 1) if page.images]
    assert with_pixels == [len(reader.pages)], "that of the last chapter, which has no vectors"
    red = [n for n, page in enumerate(reader.pages, 1) if b"1 0 0 rg" in page.get_contents().get_data()]
    assert red == [number for _, title, number in entries(reader) if title == "1.1. Who sees whom?"]
    assert said[-1] == "1 of 2 pictures are vectors, the others pixels"


def test_a_picture_that_has_changed_has_no_vectors(tmp_path):
    root = toy(tmp_path / "html")
    picture(root, "dot.png", "green", vectors=True)
    text = f'<img alt="a" src="{root.as_uri()}/_images/dot.png" width="40" />'
    (vectors,) = (tmp_path / "figures").iterdir()
    expected = f'<img alt="a" src="{vectors.as_uri()}" width="40" />'
    assert pdf_book.as_vectors(text, root, tmp_path / "figures") == (expected, [True])
    picture(root, "dot.png", "blue", vectors=False)
    assert pdf_book.as_vectors(text, root, tmp_path / "figures") == (text, [False])


@pytest.mark.needs("browser")
def test_a_short_paragraph_is_not_split(tmp_path):
    """Below a heading and above a formula, wherever on its page it begins."""
    root, words = toy(tmp_path / "html"), " ".join(["words"] * 20)
    ends = [
        f'<div style="break-before: page; height: {height}px"></div><section><h3>A heading</h3>'
        f'<p>ALPHA {words} OMEGA</p><div class="math" style="height: 200px">y</div></section>'
        for height in range(800, 900, 10)
    ]
    source = tmp_path / "ends.html"
    source.write_text(pdf_book.document(root, one_document.pages(root), "Ends", "", "".join(ends)), encoding="utf-8")
    with pdf_book.browser() as printed:
        texts = [page.extract_text() for page in PdfReader(printed(source)).pages]
    assert sum("ALPHA" in text for text in texts) == len(ends)
    assert [text for text in texts if ("ALPHA" in text) != ("OMEGA" in text)] == []


def test_without_a_browser_one_sentence_names_the_cure(tmp_path):
    with pytest.raises(pdf_book.NotPrinted, match="there is no browser: install one") as told:
        pdf_book.make(toy(tmp_path), CONFIG, WEB, tmp_path / "toy.pdf")
    assert str(told.value) == tools.lacks("browser") and not (tmp_path / "toy.pdf").exists()


@pytest.mark.needs("browser")
def test_without_pages_one_sentence_names_the_cure(tmp_path):
    with pytest.raises(pdf_book.NotPrinted, match="run `make book` first"):
        pdf_book.make(tmp_path, CONFIG, WEB, tmp_path / "toy.pdf")


def test_a_link_to_nowhere_is_no_page():
    with pytest.raises(KeyError):
        pdf_book.place("nowhere..x", {"here": (0, 1.0)})
    assert pdf_book.place("here..gone", {"here": (3, 1.0)}) == (3, 1.0)
    assert one_document.plain("<b>a</b>") == "a"
