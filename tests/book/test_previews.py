"""What a link leads to is shown beside it: to a mouse, a keyboard and a finger, from a server and from a disk."""

import doctest
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.book.test_pages import HTML, PAGES, name, parsed, soup

pytestmark = pytest.mark.book
SCALING = HTML / "chapters/02_foundations/scaling.html"
PREVIEWS = HTML / "_static/previews"
OF_THE_BOOK = [path for path in PAGES if "_modules" not in path.parts]
LARGEST = 5300  # bytes of the script that every page loads


@pytest.fixture
def previews(extension):
    return extension("previews")


def test_examples(previews):
    done = doctest.testmod(previews)
    assert done.attempted >= 5 and done.failed == 0


def test_an_element_that_is_not_closed_is_an_error(previews):
    with pytest.raises(ValueError, match="not closed"):
        previews.element("<div><div></div>", 0)


def test_both_programs_show_the_same_kinds(previews):
    kinds = re.compile(r"\(\?:(equation\|[a-z|]+)\)")
    assert kinds.search(previews.SHOWN)[1] == kinds.search(previews.PROGRAM.read_text())[1]


def test_the_script_of_every_page_is_small(previews):
    assert previews.PROGRAM.stat().st_size < LARGEST


def written():
    """{page: {anchor: HTML}}, as the scripts give it."""
    found = {}
    for file in PREVIEWS.rglob("*.js"):
        page, text = re.fullmatch(r'Previews\["(.*?)"\]=(.*);\n', file.read_text(encoding="utf-8"), re.S).groups()
        assert file == PREVIEWS / f"{page}.js"
        found[page] = json.loads(text)
    return found


def test_every_link_of_these_kinds_has_a_preview(previews):
    """Of equations, statements, terms and references, from all pages; and each preview is asked for by a link."""
    texts = {name(path).removesuffix(".html"): path.read_text(encoding="utf-8") for path in OF_THE_BOOK}
    wanted = set().union(*(previews.links(page, text) for page, text in texts.items()))
    there = {(page, anchor) for page, found in written().items() for anchor in found}
    assert len(there) > 1000
    assert sorted(there ^ wanted) == [], "a heading's label begins with sec-, a statement's with its kind"


def test_a_preview_has_no_ids_and_no_way_to_itself():
    texts = [text for found in written().values() for text in found.values()]
    assert not any(re.search(r'<[^>]* id="|headerlink', text) for text in texts)
    assert all(text.count("<div") == text.count("</div>") for text in texts)


def test_no_page_loads_a_preview_before_it_is_asked_for():
    for path in OF_THE_BOOK:
        text = path.read_text(encoding="utf-8")
        assert "_static/previews/" not in text, path
        assert len(re.findall(r'<script[^>]* src="[^"]*_static/previews\.js', text)) == ("_static/book.js" in text), (
            path
        )


@pytest.fixture
def opened(tab):
    """opened(path, **options): a page of the disk, a reader's; an error of a script fails."""

    def open_page(path, **options):
        page = tab(**{"viewport": {"width": 1280, "height": 900}, **options})
        page.set_default_timeout(20_000)
        page.goto(path.as_uri(), wait_until="load")
        return page

    return open_page


def link_to(page, target):
    """The first link of the text whose address ends so, on the screen."""
    link = page.locator(f'article a.internal[href$="{target}"]:visible').first
    link.scroll_into_view_if_needed()
    return link


def shown(page):
    box = page.locator(".preview")
    box.wait_for(state="visible", timeout=10_000)
    return box


HIDDEN = {"cell", "dropdown", "sd-tab-content"}  # classes of what may not be on the screen


def on_the_screen(node):
    """Whether nothing around it can be folded away or hidden."""
    while (node := node.parent) is not None:
        if node.tag in ("details", "figcaption") or HIDDEN & set((node.attributes.get("class") or "").split()):
            return False
    return True


def of_kind(pattern, same):
    """A page of the course with a link whose address fits, on the same page or on another; and the address."""
    for path in PAGES:
        if re.match(r"chapters/0\d_", name(path)):
            for link in parsed(path).css("article p > a.internal[href], article p > span > a.internal[href]"):
                before, _, anchor = link.attributes["href"].partition("#")
                if re.match(pattern, anchor) and (not before) == same and on_the_screen(link):
                    return path, link.attributes["href"]
    raise AssertionError(f"no link to {pattern}")


KINDS = {  # what a link leads to: its anchor, whether on the same page, what is shown
    "an equation on the same page": (r"equation-", True, ".math mjx-container"),
    "an equation on another page": (r"equation-", False, ".math mjx-container"),
    "a theorem on another page": (r"thm-", False, ".theorem .caption-number"),
    "a definition on another page": (r"def-", False, ".definition .caption-number"),
    "a term": (r"term-", False, "p > strong"),
    "a reference": (r"id\d+$", False, ".citation .label"),
}


@pytest.mark.needs("browser")
@pytest.mark.parametrize("kind", KINDS)
def test_a_mouse_shows(kind, opened):
    """What stands there, with its formulas set, from a file; and when the mouse has gone, nothing."""
    pattern, same, part = KINDS[kind]
    path, href = of_kind(pattern, same)
    page = opened(path)
    link = link_to(page, href)
    link.hover()
    box = shown(page)
    assert box.locator(part).count() >= 1
    anchor = unquote(href.partition("#")[2])
    target = (path.parent / unquote(href.partition("#")[0])).resolve() if not same else path
    original = soup(target).find(id=anchor)
    words = original.find_next("dd") if original.name == "dt" else original
    letters = re.sub(r"[^a-z]", "", re.sub(r"\s+", "", words.get_text()).lower())
    assert letters[:60] in re.sub(r"[^a-z]", "", box.evaluate("e => e.textContent").lower())
    heights = box.locator("mjx-container").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert all(height > 5 for height in heights)
    box.hover()  # the mouse may go there
    page.wait_for_timeout(500)
    assert box.is_visible()
    page.mouse.move(2, 450)
    box.wait_for(state="detached", timeout=5000)


@pytest.mark.needs("browser")
def test_links_within_a_preview_lead_where_they_lead_at_home(opened):
    path, href = of_kind(r"term-", False)
    page = opened(path)
    link_to(page, href).hover()
    links = shown(page).locator("a").evaluate_all("all => all.map(e => e.href)")
    glossary = (path.parent / href.partition("#")[0]).resolve().as_uri()
    assert links[-1] == f"{glossary}#{href.partition('#')[2]}"
    assert all(link.startswith("file://") and Path(unquote(link[7:].split("#")[0])).exists() for link in links)


@pytest.mark.needs("browser")
def test_a_keyboard_shows_goes_in_and_escapes(opened):
    path, href = of_kind(r"thm-", False)
    page = opened(path)
    link = link_to(page, href)
    page.keyboard.press("Tab")
    link.focus()
    box = shown(page)
    page.keyboard.press("Escape")
    assert box.count() == 0 and link.evaluate("e => e === document.activeElement")
    page.wait_for_timeout(400)
    assert box.count() == 0
    link.evaluate("e => { e.blur(); e.focus(); }")
    shown(page)
    for _ in range(20):  # the links of the theorem come first
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.preview-go') !== null"):
            break
    assert page.evaluate("document.activeElement.textContent") == "Go there"
    page.keyboard.press("Escape")
    assert box.count() == 0 and link.evaluate("e => e === document.activeElement")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    shown(page)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{href.lstrip('.')}", timeout=10_000)


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.needs("browser")
@pytest.mark.parametrize("kind", KINDS)
def test_a_finger_shows_first_and_goes_then(kind, opened):
    """On a phone nothing is cut off and the page becomes no wider; a tap elsewhere closes, the link within leads on."""
    pattern, same, part = KINDS[kind]
    path, href = of_kind(pattern, same)
    page = opened(path, **PHONE)
    before = page.url
    link = link_to(page, href)
    link.tap()
    box = shown(page)
    assert page.url == before and box.locator(part).count() >= 1
    edges = box.evaluate("e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; }")
    screen = page.evaluate("[document.documentElement.clientWidth, innerHeight]")
    assert min(edges) >= 0 and edges[2] <= screen[0] and edges[3] <= screen[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= screen[0] + 1
    page.evaluate("document.querySelector('article h1').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    box.wait_for(state="detached", timeout=5000)
    link.tap()
    go = shown(page).locator(".preview-go a")
    go.scroll_into_view_if_needed()
    assert go.bounding_box()["height"] >= 24
    go.tap()
    page.wait_for_url(f"**{href.lstrip('.')}", timeout=10_000)


@pytest.mark.needs("browser")
def test_nothing_moves_when_a_preview_comes(opened):
    path, href = of_kind(r"thm-", False)
    page = opened(path)
    page.evaluate("document.fonts.ready")
    link = link_to(page, href)
    places = """() => {
        const top = (e) => e.getBoundingClientRect().top, article = document.querySelector("article");
        return [...article.querySelectorAll("*:not(.preview, .preview *)")].map(e => top(e) - top(article));
    }"""  # within the text: the mouse itself may scroll the page to its link
    before = page.evaluate(places)
    link.hover()
    shown(page)
    assert page.evaluate(places) == pytest.approx(before, abs=0.5) and len(before) > 500  # half a pixel


# Requests to a disk cannot be refused by a test; so it has the script ask for what is not there.
ELSEWHERE = """() => Object.defineProperty(HTMLScriptElement.prototype, 'src', {
    set(address) { this.setAttribute('src', String(address).replace('/previews/', '/absent/')); }})"""


@pytest.mark.needs("browser")
def test_what_is_not_there_is_no_obstacle(opened):
    """A link whose preview cannot be loaded is a link."""
    path, href = of_kind(r"thm-", False)
    page, asked = opened(path, **PHONE), []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(ELSEWHERE)
    link_to(page, href).tap()
    page.wait_for_url(f"**{href.lstrip('.')}", timeout=10_000)
    assert any("/absent/" in url for url in asked) and not any("/previews/" in url for url in asked)
    assert unquote(page.url).endswith(href.lstrip("."))


AXE = """async () => {
    const found = await axe.run({include: [['.preview']], exclude: [['mjx-math']]});
    return [found.violations.map(v => v.id), found.passes.length];
}"""


@pytest.mark.needs("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_preview(scheme, opened):
    from axe_playwright_python.base import AXE_FILE_PATH

    path, href = of_kind(r"thm-", False)
    page = opened(path, color_scheme=scheme)
    link_to(page, href).hover()
    ground = shown(page).evaluate("e => getComputedStyle(e).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", ground)[:3])) < 200 if scheme == "dark" else "255" in ground
    page.add_script_tag(path=AXE_FILE_PATH)
    found, passed = page.evaluate(AXE)
    assert found == [] and passed > 5
