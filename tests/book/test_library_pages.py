"""The pages of the library and of the grader, one for each module or room, and no page too large to open quickly."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.book.test_pages import HTML, PAGES, ROOT, anchors, name, parsed

LARGEST = 10_000  # nodes
STORED = 5_000_000  # bytes
LISTS = {path.stem: path for path in (HTML / "chapters/appendix/api.html", HTML / "chapters/appendix/grader_api.html")}


@pytest.fixture
def api(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    import api

    return api


def nodes(html):
    """The elements of a page, each formula counted as one."""
    return len(re.findall(r"<[a-zA-Z]", re.sub(r"<mjx-container\b.*?</mjx-container>", "<f>", html, flags=re.S)))


@pytest.mark.book
def test_no_stored_page_holds_the_whole_book():
    """13 MB in each page of the library made a build twice as long."""
    sizes = {path.name: path.stat().st_size for path in (ROOT / "_build" / ".doctrees").rglob("*.doctree")}
    assert len(sizes) > 200 and {name: size for name, size in sizes.items() if size > STORED} == {}


@pytest.mark.book
@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_page_is_too_large(path):
    assert nodes(path.read_text(encoding="utf-8")) <= LARGEST


@pytest.mark.book
def test_every_public_function_has_its_place_on_a_page_and_a_link_from_the_list(api):
    twins, alone = api.modules(ROOT)
    functions = [one for module in twins + alone for found in module.public.values() for one in found]
    assert len(functions) > 500
    places = {one: path for path in sorted((HTML / "chapters/appendix/api").glob("*.html")) for one in anchors(path)}
    assert [one for one in functions if one not in places] == []
    linked = {
        link.attributes["href"].rpartition("#")[2].rpartition(".")[2]
        for link in parsed(LISTS["api"]).css("article a[href*='#']")
    }
    assert {one.rpartition(".")[2] for one in functions} <= linked


@pytest.mark.book
@pytest.mark.parametrize("page", LISTS)
def test_the_list_leads_to_each_page_and_each_page_leads_back(page):
    files = sorted((HTML / "chapters/appendix" / page).glob("*.html"))
    links = {link.attributes.get("href") for link in parsed(LISTS[page]).css("article a.internal")}
    assert len(files) >= 8 and {f"{page}/{path.name}" for path in files} <= links
    for path in files:
        assert parsed(path).css(f".prev-next-footer a[href], article a[href='../{page}.html']")
        assert not [link.html for link in parsed(path).css("a[href*='_build']")]


@pytest.mark.book
def test_the_places_of_old_links_are_still_there():
    """The library's modules once stood below headings of one page, and the grader's of another."""
    assert {"softmax", "multi-head", "attnmath-bpe", "attnmath-wiring"} <= anchors(LISTS["api"])
    assert {"judge", "nbreferee-judge-grader", "nbreferee-walls-sandbox"} <= anchors(LISTS["grader_api"])


@pytest.mark.slow
def test_a_new_module_gets_its_page_without_an_edit(api, tmp_path):
    for part in ("lib/attnmath", "chapters/appendix"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.npz", "data"))
    for file in ("_toc.yml", "concordance.yml"):
        shutil.copy(ROOT / file, tmp_path / file)
    before = api.pages(tmp_path)
    new = '"""A module that is new."""\n\n\ndef never_seen(x):\n    """Return x."""\n    return x\n'
    (tmp_path / "lib/attnmath/brand_new.py").write_text(new, encoding="utf-8")
    after = api.pages(tmp_path)
    assert after.keys() - before.keys() == {"chapters/appendix/api/attnmath.brand_new"}
    assert "attnmath.brand_new.never_seen" in after["chapters/appendix/api/attnmath.brand_new"]
    listed = api.write(tmp_path)
    assert '<span id="attnmath-brand-new">' in listed and "A module that is new." in listed
    assert "brand-new" not in re.sub("attnmath-brand-new", "", listed)


def test_pages_are_laid_once_and_taken_away_with_their_module(monkeypatch, tmp_path):
    """What has not changed is not touched, for Sphinx would read it again."""
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    import virtual_pages

    texts = {"one/a": "# A\n", "one/b": "# B\n"}
    app = SimpleNamespace(
        srcdir=str(tmp_path),
        project=virtual_pages.Project(str(tmp_path), [".md"]),
        virtual_pages=[("parent", lambda root: dict(texts))],
    )
    virtual_pages._lay(app)
    laid = [tmp_path / virtual_pages.FOLDER / f"{name}.md" for name in texts]
    times = [path.stat().st_mtime_ns for path in laid]
    assert app.project.discover(["_build"]) == {"one/a", "one/b"}
    assert Path(app.project.doc2path("one/a", True)) == laid[0]
    assert app.virtual_neighbours["one/a"] == ("parent", None, "one/b")
    texts.pop("one/b")
    virtual_pages._lay(app)
    assert laid[0].stat().st_mtime_ns == times[0] and not laid[1].exists()
    assert app.project.discover(["_build"]) == {"one/a"}
