"""The built book: nothing from another host, no dead link, each page opened in a browser with its mathematics set."""

import functools
import re
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from selectolax.lexbor import LexborHTMLParser as Parsed

pytestmark = pytest.mark.book
ROOT = Path(__file__).parents[2]
HTML = ROOT / "_build" / "html"
PAGES = sorted(path for path in HTML.rglob("*.html") if "_static" not in path.parts)
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
# <link> relations that name a page without loading it
NAMES_ONLY = {"canonical", "next", "prev", "search", "index", "author", "license", "bookmark"}


def name(path):
    return str(path.relative_to(HTML))


@functools.cache
def soup(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@functools.lru_cache(16)  # one page after another is asked about
def parsed(path):
    """The page for questions that go to all pages: in milliseconds, where `soup` takes up to a second."""
    return Parsed(path.read_text(encoding="utf-8"))


@functools.cache
def anchors(path):
    named = parsed(path).css("[id], [name]")
    return {node.attributes[key] for node in named for key in ("id", "name") if key in node.attributes}


def is_remote(url):
    return bool(re.match(r"(?:[a-z]+:)?//", url.strip(), re.I))


def remote_resources(page):
    """What a page would fetch from another host."""
    found = []
    for tag, attribute in LOADS.items():
        for node in page.css(tag):
            has = node.attributes
            if tag == "link" and NAMES_ONLY & set((has.get("rel") or "").split()):
                continue
            found += [url for url in (has.get(attribute), has.get("srcset")) if url and is_remote(url)]
    inline = "\n".join(node.text() for node in page.css("style, script"))
    return found + re.findall(r"(?:@import\s+|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)", inline)


def dead_links(path, page):
    """Links inside the book that lead nowhere."""
    dead = []
    for address in [node.attributes["href"] or "" for node in page.css("a[href]")]:
        link = urlsplit(address)
        if link.scheme or link.netloc:
            continue
        target = path if not link.path else (path.parent / unquote(link.path)).resolve()
        if not target.exists():
            dead.append(address)
        elif link.fragment and target.suffix == ".html" and unquote(link.fragment) not in anchors(target) | {"top"}:
            dead.append(address)
    return dead


def dollars(page):
    """Sentences in which mathematics was left as it was written, code not counted."""
    found = []
    for node in page.css("article p, article li"):
        if "$$" in node.text():
            for code in node.css("code, pre, script"):
                code.decompose()
            found += [node.text()[:200]] if "$$" in node.text() else []
    return found


def test_the_book_is_built():
    assert HTML.joinpath("index.html").exists(), "run `make book` first"
    assert len(PAGES) > 20


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_page_is_whole(path):
    """Nothing remote, no dead link, no mathematics left as dollars, no image without a description, no idle script."""
    page = parsed(path)
    assert remote_resources(page) == []
    if path.name != "404.html":  # it is served from any address, so its links are absolute
        assert dead_links(path, page) == []
    pictures = page.css("article img")
    assert [one.html for one in pictures if not one.attributes.get("alt")] == []
    assert [one.html for one in pictures[1:] if one.attributes.get("loading") != "lazy"] == []
    shapeless = [one.html for one in pictures if not {"width", "height"} <= one.attributes.keys()]
    assert shapeless == [], "the page moves when the picture comes"
    assert heavy_scripts(page) == []
    assert bool(page.css("script[src*=searchdata]")) == (path.name == "search.html")
    assert dollars(Parsed(page.html)) == []


def test_style_sheets_load_nothing_remote():
    for path in HTML.rglob("*.css"):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert re.findall(r"(?:@import\s+|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)", text) == [], path


@pytest.mark.parametrize(
    "fault",
    [
        '<script src="https://cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="//example.org/x.css">',
        '<img alt="x" src="http://example.org/x.png">',
        "<style>@import url(https://example.org/font.css)</style>",
    ],
)
def test_a_planted_remote_resource_is_seen(fault):
    assert remote_resources(Parsed("<p></p>")) == []
    assert len(remote_resources(Parsed(fault))) == 1


def test_planted_dollars_are_seen():
    assert dollars(Parsed("<article><p>for <code>$$</code> see</p><pre>$$</pre></article>")) == []
    assert dollars(Parsed("<article><ul><li><b>so</b> $$x$$ <code>y</code></li></ul></article>")) == ["so $$x$$ "]


def test_a_planted_dead_link_is_seen():
    index = HTML / "index.html"
    faults = Parsed('<a href="no-such-page.html">x</a><a href="#no-such-anchor">y</a>')
    assert dead_links(index, faults) == ["no-such-page.html", "#no-such-anchor"]


# What the theme would load on every page, and no page uses: 0.8 MB, compressed.
HEAVY = ("fontawesome.js", "searchindex.js", "searchtools.js", "language_data.js", "thebe.")


def heavy_scripts(page):
    """The scripts of a page that it does not use."""
    addresses = [node.attributes["src"] or "" for node in page.css("script[src]")]
    return [address for address in addresses if any(each in address for each in HEAVY)]


def test_a_planted_heavy_script_is_seen():
    page = Parsed('<script src="_static/scripts/fontawesome.js?digest=1"></script><script>1</script>')
    assert len(heavy_scripts(page)) == 1


# A picture comes when a reader comes near it; who judges pictures asks for all of them.
SETTLED = """() => Promise.all([...document.images].map(one => {
    one.loading = 'eager';
    return one.decode().catch(() => null);
}))"""


def opened(page, url):
    """Open a page, and wait for all its pictures."""
    page.goto(url, wait_until="load")
    page.evaluate(SETTLED)


@contextmanager
def hearing(page):
    """What the console complains of meanwhile, and what is asked of other hosts."""
    said, remote = [], []

    def complaint(message):
        said.extend([message.text] if message.type == "error" else [])

    def request(asked):
        remote.extend([asked.url] if urlsplit(asked.url).hostname not in ("127.0.0.1", None) else [])

    heard = {"console": complaint, "pageerror": lambda error: said.append(str(error)), "request": request}
    for event, hear in heard.items():
        page.on(event, hear)
    try:
        yield said, remote
    finally:
        for event, hear in heard.items():
            page.remove_listener(event, hear)


def test_the_front_door_leads_to_the_title_page():
    redirect = soup(HTML / "index.html").find("meta", attrs={"http-equiv": re.compile("refresh", re.I)})
    assert redirect["content"].endswith("intro.html")


OVERLAPPING = """() => [...document.querySelectorAll('article div.math')].filter(box => {
    const formula = box.querySelector('mjx-container > mjx-math'), number = box.querySelector('.eqno');
    if (!formula || !number) return false;
    const [a, b] = [formula, number].map(e => e.getBoundingClientRect());
    return a.right > b.left && Math.abs(a.top + a.height / 2 - b.top - b.height / 2) < 40;
}).map(box => box.id)"""

STRETCHED = """() => [...document.querySelectorAll('article img')].filter(one => one.naturalWidth && one.height &&
    Math.abs(one.width / one.height * one.naturalHeight / one.naturalWidth - 1) > 0.03).map(one => one.src)"""


CHAPTERS = [path for path in PAGES if (ROOT / name(path)).with_suffix(".ipynb").exists()]


@pytest.mark.parametrize("path", CHAPTERS, ids=name)
def test_only_what_can_wait_is_closed(path):
    """One fold, under its heading, told by what stands in it; what a reader tries and remembers is outside."""
    page = parsed(path)
    (fold,) = page.css("details.deeper")
    before = fold.prev
    while not re.fullmatch("h[1-6]", before.tag):
        before = before.prev
    assert before.text().startswith("Going deeper")
    assert len(fold.css_first("summary").text()) > 3 and "open" not in fold.attributes
    folded = [each.text() for each in page.css("details h2")]
    for title in ("Try it", "In five lines"):
        assert [each.text().startswith(title) for each in page.css("h2")].count(True) == 1
        assert not any(each.startswith(title) for each in folded)


@pytest.mark.needs("browser")
def test_a_link_opens_the_fold_that_it_leads_into(browser, address):
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    opened(page, address + "chapters/04_multi_head/grouped_query.html")
    inside = page.locator("details.deeper section").first.get_attribute("id")
    is_open = "() => document.querySelector('details.deeper').open"
    assert not page.evaluate(is_open)
    page.locator(f"#pst-page-toc-nav a[href='#{inside}'], .page-toc a[href='#{inside}']").first.click()
    page.wait_for_function(is_open, timeout=5000)
    page.context.close()
    # Chromium opens it by itself. What the script does for others, and for the printer, is asked without a jump.
    for event in (
        f"history.replaceState(null, '', '#{inside}'); dispatchEvent(new Event('hashchange'))",
        "dispatchEvent(new Event('beforeprint'))",
    ):
        page = browser.new_page()
        opened(page, address + "chapters/04_multi_head/grouped_query.html")
        page.evaluate(event)
        assert page.evaluate(is_open) and page.locator(f"#{inside}").is_visible()
        page.close()


@pytest.mark.needs("browser")
def test_a_formula_that_runs_into_its_number_is_seen(browser, address):
    """A page on which one formula has been made too wide, and before that none."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    opened(page, address + "chapters/02_foundations/scaling.html")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.evaluate(OVERLAPPING) == []
    page.add_style_tag(content="article div.math mjx-container > mjx-math { min-width: 60rem; display: inline-block; }")
    assert page.evaluate(OVERLAPPING) != []
    page.close()


@pytest.mark.needs("browser")
def test_a_picture_that_is_pulled_out_of_shape_is_seen(browser, address):
    """A page whose pictures have been given one height, and before that none."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    opened(page, address + "chapters/02_foundations/scaling.html")
    assert page.evaluate(STRETCHED) == []
    page.add_style_tag(content="article img { height: 700px !important; }")
    assert page.evaluate(STRETCHED) != []
    page.close()


@pytest.mark.needs("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(scheme, browser, address):
    """axe finds nothing on the page with the most to find."""
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    opened(page, address + "chapters/02_foundations/scaling.html")
    found = Axe().run(page).response["violations"]
    context.close()
    assert [(v["id"], v["nodes"][0]["html"][:120]) for v in found] == []


ICONS = """() => [...document.querySelectorAll('[class*="fa-"]')]
    .map(icon => getComputedStyle(icon, '::before').content)
    .filter(content => content === 'none' || content === 'normal')"""


@pytest.mark.needs("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_icons_come_from_the_small_fonts(scheme, browser, address):
    """Every icon has a character, and the small fonts have them all: else the page would ask for a whole font."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    fonts = []
    page.on("request", lambda request: fonts.append(request.url) if "webfonts" in request.url else None)
    opened(page, address + "chapters/02_foundations/scaling.html")
    page.evaluate("() => document.fonts.ready")
    without = page.evaluate(ICONS)
    few = list(fonts)
    page.add_style_tag(
        content=".fa-sun::before, .fa-list::before { content: '\\f72e' !important; }"
    )  # no page shows it
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.evaluate("() => document.fonts.ready")
    context.close()
    assert without == []
    assert few and all(url.endswith(".used.woff") for url in few)
    assert len(fonts) > len(few), "a whole font would not be seen"


@pytest.mark.needs("browser")
def test_the_browser_check_sees_a_fault(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<script>console.error('planted'); no_such_function()</script>", encoding="utf-8")
    page = browser.new_page()
    with hearing(page) as (said, _):
        opened(page, bad.as_uri())
    page.close()
    assert "planted" in said and len(said) == 2
