"""What a browser asks for before a reader has done anything: its sum, packed as servers send it, has a bound.

Fonts that a style sheet names come on top: which of them a page asks for, only a browser knows.
"""

import functools
import gzip
import re
from urllib.parse import urldefrag, urlsplit

import pytest

from tests.book.test_pages import PAGES, name, parsed

pytestmark = pytest.mark.book
GOAL = 500_000  # bytes
COURSE = [path for path in PAGES if re.match(r"chapters/\d\d_\w+/", name(path))]
PACKED = (".woff", ".woff2", ".png", ".jpg", ".gz")  # no smaller when packed again


@functools.cache
def weight(file) -> int:
    data = file.read_bytes()
    return len(data) if file.suffix in PACKED else len(gzip.compress(data, 6))


def asked(path) -> set:
    """The page, its scripts and style sheets, what it loads ahead, and the pictures that do not wait for their turn."""
    page = parsed(path)
    scripts = [one.attributes["src"] for one in page.css("script[src]")]
    links = page.css("link[rel~=stylesheet], link[rel~=preload], link[rel~=modulepreload]")
    sheets = [one.attributes["href"] for one in links]
    pictures = [one.attributes["src"] for one in page.css("img[src]:not([loading=lazy])")]
    addresses = {urldefrag(urlsplit(one)._replace(query="").geturl()).url for one in scripts + sheets + pictures}
    assert not any(urlsplit(one).scheme in ("http", "https") for one in addresses), "nothing comes from another host"
    return {path} | {(path.parent / one).resolve() for one in addresses if not one.startswith("data:")}


def test_no_page_of_the_course_asks_for_more_than_half_a_megabyte():
    sums = {name(path): sum(map(weight, asked(path))) for path in COURSE}
    assert len(sums) > 80
    heavy = {page: total for page, total in sums.items() if total > GOAL}
    assert heavy == {}, max(sums.items(), key=lambda one: one[1])


def test_a_heavy_script_would_be_seen(tmp_path):
    from random import Random

    (tmp_path / "a.js").write_bytes(Random(0).randbytes(GOAL))
    (tmp_path / "a.html").write_text('<script src="a.js?v=1"></script><img loading="lazy" src="none.png">')
    assert sum(map(weight, asked(tmp_path / "a.html"))) > GOAL
