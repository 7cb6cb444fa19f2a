"""The title page, the page for missing addresses, the bibliography, and the line that shows how far one has read."""

import io
import re
from contextlib import redirect_stdout

import pytest

from tests.book.test_pages import HTML, PAGES, ROOT, name, soup

INTRO = (ROOT / "intro.md").read_text(encoding="utf-8")
SCALING = HTML / "chapters/02_foundations/scaling.html"
KEY = "mathematics-of-attention-read"


def test_the_ten_minutes_run_and_print_what_is_said():
    code = re.search(r"```python\n(.*?)```", INTRO, re.S)[1]
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().split("\n")[:-1] == re.findall(r"print\(.*\)  # (.*)", code)


def test_every_chapter_and_every_interactive_figure_is_named():
    chapters = sorted(path.parent.name for path in (ROOT / "chapters").glob("0*_*/index.*"))
    assert re.findall(r"^:link: /chapters/(\w+)/index$", INTRO, re.M) == chapters and len(chapters) == 9
    pages = [path.relative_to(ROOT).with_suffix("").as_posix() for path in (ROOT / "chapters").rglob("*.ipynb")]
    figures = [
        page for page in pages for _ in re.findall(r"```{interactive}", (ROOT / f"{page}.ipynb").read_text("utf-8"))
    ]
    table = INTRO[INTRO.index("## Figures that answer") : INTRO.index("(sec-small-gpt)=")]
    assert sorted(re.findall(r"</(chapters/\S+?)>`", table)) == sorted(figures)
    for way in ("explorer", "problems/index", "instructors/guide"):
        assert f"/chapters/{way}>" in INTRO


@pytest.mark.book
def test_the_pictures_come_late_and_the_first_does_not():
    """Each has alternative text, and leads to its page; together they are no heavier than a page of the course."""
    figures = soup(HTML / "intro.html").select("article figure")
    pictures = [figure.img for figure in figures]
    assert len(pictures) == 4 and all(len(picture["alt"]) > 40 for picture in pictures)
    assert [picture.get("loading") for picture in pictures] == [None] + 3 * ["lazy"]
    assert all(figure.select_one("figcaption a[href^=chapters]") for figure in figures)
    assert sum((HTML / picture["src"]).stat().st_size for picture in pictures) < 600_000


@pytest.mark.book
def test_the_pdf_and_the_zip_are_linked_where_the_workflow_puts_them():
    import pdf_book
    import zip_book

    workflow = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    url = re.search(r"^  url: (https://github.com/\S+)$", (ROOT / "_config.yml").read_text(encoding="utf-8"), re.M)[1]
    linked = {link["href"] for link in soup(HTML / "intro.html").select("article a[href*='/releases/']")}
    assert linked == {f"{url}/releases/latest/download/{file.name}" for file in (pdf_book.PDF, zip_book.ZIP)}
    for make, file in (("make pdf", pdf_book.PDF), ("make zip", zip_book.ZIP)):
        assert f"- run: {make}\n" in workflow and f"_build/{file.name}" in workflow.partition("gh release upload")[2]


def dois():
    return re.findall(r"^\s*doi\s*=\s*\{(.*)\},?$", (ROOT / "references.bib").read_text("utf-8"), re.M | re.I)


def test_a_doi_has_the_form_of_one():
    assert len(dois()) >= 94 and len(set(dois())) == len(dois())
    assert [doi for doi in dois() if not re.fullmatch(r"10\.\d{4,9}/\S+", doi)] == []


@pytest.mark.book
def test_the_bibliography_links_each_doi():
    page = soup(HTML / "chapters/appendix/references.html")
    linked = {link["href"] for link in page.select(".citation a.external")}
    assert [doi for doi in dois() if f"https://doi.org/{doi}" not in linked] == []


@pytest.mark.book
def test_the_page_for_missing_addresses_leads_home_and_searches():
    page, home = soup(HTML / "404.html"), "https://mathematics-of-attention.github.io/book/"
    assert page.select_one("main a")["href"] == home
    assert page.form["action"] == f"{home}search.html" and page.select_one("form input[name=q]")
    assert page.select_one(f"label[for={page.form.input['id']}]") and not page.select("script[src], link[href^='.']")


@pytest.fixture
def reader(browser):
    """reader(**options): a reader's window, whose clock can be turned; an error of this book's script fails."""
    contexts, errors = [], []

    def window(**options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(error.stack) if "reading.js" in error.stack else None)
        return page

    yield window
    for context in contexts:
        context.close()
    assert errors == []


PART = "() => document.querySelector('.reading-line').getBoundingClientRect().width / document.body.clientWidth"


@pytest.mark.book
@pytest.mark.needs("browser")
def test_the_line_grows_as_one_reads(reader):
    """From nothing to the whole width, without a transition where motion is unwelcome, and not in print."""
    page = reader(reduced_motion="reduce")
    page.goto(SCALING.as_uri())
    assert page.evaluate(PART) < 0.01
    bottom = page.evaluate("document.querySelector('article').getBoundingClientRect().bottom")
    page.evaluate("half => scrollTo(0, half)", (bottom - 900) / 2)
    page.wait_for_function(f"() => Math.abs(({PART})() - 0.5) < 0.02", timeout=5000)
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function(f"() => ({PART})() > 0.99", timeout=5000)
    line = page.locator(".reading-line")
    assert line.evaluate("e => getComputedStyle(e).transitionDuration") == "0s"
    assert line.evaluate("e => getComputedStyle(e).position") == "fixed"  # nothing moves to make room for it
    page.emulate_media(media="print")
    assert not line.is_visible()


def open_knowing(page, address, key, value):
    """Open a page that finds the value: under load Chromium now and then shows a file an empty store (2 of 120)."""
    for _ in range(20):
        page.goto(address)
        if page.evaluate("key => localStorage.getItem(key)", key) == value:
            return
        page.evaluate("([key, value]) => localStorage.setItem(key, value)", [key, value])
    raise AssertionError(f"{key} is not kept")


LIST = f"() => JSON.parse(localStorage.getItem('{KEY}') || '[]')"


@pytest.mark.book
@pytest.mark.needs("browser")
def test_a_page_is_read_when_its_end_has_been_seen_and_not_in_passing(reader):
    page = reader()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(SCALING.as_uri())
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    page.wait_for_timeout(500)
    assert page.evaluate(LIST) == [], "who leafs through has not read"
    page.wait_for_function(f"() => ({LIST})().length === 1", timeout=20_000)
    assert page.evaluate(LIST) == ["02_foundations/scaling"]
    stored = page.evaluate("key => localStorage.getItem(key)", KEY)
    open_knowing(page, (HTML / "intro.html").as_uri(), KEY, stored)
    assert page.locator(".bd-sidebar-primary a.is-read").count() == 1
    course = sum(bool(re.match(r"chapters/\d\d_\w+/(?!index)\w+\.html", name(path))) for path in PAGES)
    told = page.locator(".pages-read")
    assert told.inner_text().startswith(f"You have read 1 of the {course} pages")
    here = page.locator(".chapter-card .read-here")
    assert here.count() == 1 and here.inner_text() == "1 of 7 pages read"
    told.get_by_role("button").click()
    assert not told.is_visible() and page.evaluate(LIST) == [] and here.count() == 0
    assert all(url.startswith(("file:", "data:")) for url in asked), "nothing leaves the browser"


@pytest.mark.book
@pytest.mark.needs("browser")
def test_a_browser_that_keeps_nothing_reads_all_the_same(reader):
    page = reader()
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('no') }})")
    page.goto((HTML / "intro.html").as_uri())
    assert page.locator(".reading-line").count() == 1 and not page.locator(".pages-read").is_visible()


@pytest.mark.book
@pytest.mark.needs("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_for_missing_addresses_is_legible(scheme, reader):
    """axe finds nothing, a phone is wide enough, and a reader's own choice counts more than the system's."""
    from axe_playwright_python.sync_playwright import Axe

    page = reader(color_scheme=scheme, viewport={"width": 390, "height": 844})
    page.goto((HTML / "404.html").as_uri())
    assert [found["id"] for found in Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    before, other = page.evaluate(ground), {"light": "dark", "dark": "light"}[scheme]
    open_knowing(page, page.url, "mode", other)
    assert page.evaluate(ground) != before
