"""The built book: nothing from another host, no dead link, each page opened in a browser with its mathematics set."""

import functools
import http.server
import re
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

import tools

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


@functools.cache
def anchors(path):
    return {tag[key] for tag in soup(path).find_all(True) for key in ("id", "name") if tag.has_attr(key)}


def is_remote(url):
    return bool(re.match(r"(?:[a-z]+:)?//", url.strip(), re.I))


def remote_resources(page):
    """What a page would fetch from another host."""
    found = []
    for tag, attribute in LOADS.items():
        for node in page.find_all(tag):
            if tag == "link" and NAMES_ONLY & set(node.get("rel", [])):
                continue
            found += [url for url in (node.get(attribute), node.get("srcset")) if url and is_remote(url)]
    inline = "\n".join(node.get_text() for node in page.find_all(["style", "script"]))
    return found + re.findall(r"(?:@import\s+|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)", inline)


def dead_links(path, page):
    """Links inside the book that lead nowhere."""
    dead = []
    for node in page.find_all("a", href=True):
        link = urlsplit(node["href"])
        if link.scheme or link.netloc:
            continue
        target = path if not link.path else (path.parent / unquote(link.path)).resolve()
        if not target.exists():
            dead.append(node["href"])
        elif link.fragment and target.suffix == ".html" and unquote(link.fragment) not in anchors(target) | {"top"}:
            dead.append(node["href"])
    return dead


def test_the_book_is_built():
    assert HTML.joinpath("index.html").exists(), "run `make book` first"
    assert len(PAGES) > 20


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_page_is_whole(path):
    """Nothing remote, no dead link, no mathematics left as dollars, no image without a description."""
    page = soup(path)
    assert remote_resources(page) == []
    if path.name != "404.html":  # it is served from any address, so its links are absolute
        assert dead_links(path, page) == []
    assert [str(image) for image in page.select("article img") if not image.get("alt")] == []
    for node in page.select("article p, article li"):
        texts = node.find_all(string=True)
        own = "".join(text for text in texts if text.find_parent(["code", "pre", "script"]) is None)
        assert "$$" not in own, own[:200]


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
    assert remote_resources(BeautifulSoup("<p></p>", "html.parser")) == []
    assert len(remote_resources(BeautifulSoup(fault, "html.parser"))) == 1


def test_a_planted_dead_link_is_seen():
    index = HTML / "index.html"
    faults = BeautifulSoup('<a href="no-such-page.html">x</a><a href="#no-such-anchor">y</a>', "html.parser")
    assert dead_links(index, faults) == ["no-such-page.html", "#no-such-anchor"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=tools.browser(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(HTML)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


SETTLED = """async () => {
    if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
    return true;
}"""


def opened(page, url):
    """Open a page; what the console complains of and what is asked of other hosts, once the mathematics is set."""
    said, remote = [], []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request",
        lambda request: (
            remote.append(request.url) if urlsplit(request.url).hostname not in ("127.0.0.1", None) else None
        ),
    )
    page.goto(url, wait_until="load")
    page.evaluate(SETTLED)
    return said, remote


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


@pytest.mark.needs("browser")
@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "index.html" or path.parent != HTML], ids=name)
def test_page_in_a_browser(path, browser, address):
    """No console error, nothing asked of another host, every formula set, nothing wider than a phone, no picture pulled
    out of shape; and on a desk, no formula runs into its number."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    said, remote = opened(page, address + name(path))
    formulas = page.locator("article .math").count()
    unset = page.evaluate(
        "() => [...document.querySelectorAll('article .math')].filter(e => !e.querySelector('mjx-container')).length"
    )
    broken = page.locator("mjx-merror").all_inner_texts()
    wide = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
    stretched = page.evaluate(STRETCHED)
    page.set_viewport_size({"width": 1280, "height": 900})
    overlapping, stretched = page.evaluate(OVERLAPPING), stretched + page.evaluate(STRETCHED)
    context.close()
    assert said == [] and remote == [] and broken == []
    assert unset == 0, f"{unset} of {formulas} formulas are not set"
    assert wide <= 1, f"the page is {wide} px wider than a phone"
    assert overlapping == [], "a formula runs into its number"
    assert stretched == [], "a picture is pulled out of shape"


CHAPTERS = [path for path in PAGES if (ROOT / name(path)).with_suffix(".ipynb").exists()]


@pytest.mark.parametrize("path", CHAPTERS, ids=name)
def test_only_what_can_wait_is_closed(path):
    """One fold, under its heading, told by what stands in it; what a reader tries and remembers is outside."""
    (fold,) = soup(path).select("details.deeper")
    assert fold.find_previous_sibling(re.compile("h[1-6]")).get_text().startswith("Going deeper")
    assert len(fold.summary.get_text()) > 3 and not fold.has_attr("open")
    for title in ("Try it", "In five lines"):
        (heading,) = [each for each in soup(path).select("h2") if each.get_text().startswith(title)]
        assert heading.find_parent("details") is None


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


@pytest.mark.needs("browser")
def test_the_browser_check_sees_a_fault(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<script>console.error('planted'); no_such_function()</script>", encoding="utf-8")
    page = browser.new_page()
    said, _ = opened(page, bad.as_uri())
    page.close()
    assert "planted" in said and len(said) == 2
