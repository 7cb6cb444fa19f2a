"""What is packed can be read where it is unpacked: all that a page loads is inside, nothing is asked of a server."""

import posixpath
import re
import zipfile
from pathlib import Path

import pytest

import zip_book
from tests.house.test_one_document import toy

HTML = Path(__file__).resolve().parents[2] / "_build" / "html"
LOADED = re.compile(r'<(?:script|img|link|source|iframe)\b[^>]*?\b(?:src|href)="([^"#?]+)')
NAMES_ONLY = re.compile(r'<link\b[^>]*?\brel="(?:canonical|next|prev|search|index)"[^>]*>')


def missing(archive):
    """What the pages load and the archive has not: a file that is not there, another host, the root of a disk."""
    there, found = set(archive.namelist()), []
    for name in there:
        if name.endswith(".html") and "/_static/" not in name:  # where the theme leaves templates
            text = NAMES_ONLY.sub("", archive.read(name).decode())
            for link in set(LOADED.findall(text)):
                inside = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
                if inside not in there and not link.startswith("data:"):
                    found.append((name, link))
    return found


@pytest.fixture
def packed(tmp_path):
    root = toy(tmp_path / "html")
    for name in ("colab/a.ipynb", ".buildinfo", "404.html"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")
    zip_book.pack(root, tmp_path / "toy.zip", "A toy")
    return tmp_path / "toy.zip"


def test_the_archive_has_the_pages_and_says_how_to_read_them(packed):
    with zipfile.ZipFile(packed) as archive:
        names = ["index.html", "intro.html", "one/index.html", "one/masks.html", "words.html"]
        more = ["README.txt", "_images/dot.png", "_static/toy.css"]
        assert sorted(archive.namelist()) == sorted(f"toy/{name}" for name in names + more)
        assert "open index.html in a browser" in archive.read("toy/README.txt").decode()
        assert missing(archive) == []
    assert [path.name for path in packed.parent.iterdir() if path.is_file()] == ["toy.zip"]


def test_the_same_pages_give_the_same_file(packed, tmp_path):
    (tmp_path / "html/words.html").touch()
    before = packed.read_bytes()
    zip_book.pack(tmp_path / "html", packed, "A toy")
    assert packed.read_bytes() == before
    with zipfile.ZipFile(packed) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize(
    "fault",
    [
        '<script src="/_static/x.js"></script>',
        '<img alt="x" src="gone.png">',
        '<link rel="stylesheet" href="https://cdn.example.org/x.css">',
        '<img src="//example.org/x.png">',
    ],
)
def test_a_page_that_loads_what_is_not_inside_is_seen(packed, fault):
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("toy/one/faulty.html", fault)
        assert len(missing(archive)) == 1


def test_without_pages_one_sentence_names_the_cure(tmp_path):
    with pytest.raises(zip_book.NotPacked, match="run `make book` first"):
        zip_book.pack(tmp_path, tmp_path / "toy.zip", "A toy")


@pytest.mark.book
@pytest.mark.slow
def test_the_book_is_whole(tmp_path):
    zip_book.pack(HTML, tmp_path / "book.zip", "The book")
    with zipfile.ZipFile(tmp_path / "book.zip") as archive:
        assert "book/index.html" in archive.namelist() and missing(archive) == []
