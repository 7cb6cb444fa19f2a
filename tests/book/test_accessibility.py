"""The built book for those who hear it or move through it by keyboard: every page, in both themes.

What can be read off a page's text is asked of its text. For the rest, axe looks at each page in a browser
(test_every_page.py); here are the faults that it has to see, and what only some pages are asked.
"""

import doctest
import io
import os
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from tests.book.axe import UNREACHED, Known, at_rest, axe, colours, darken, settled, with_axe
from tests.book.test_pages import HTML, PAGES, ROOT, name, soup

pytestmark = pytest.mark.book
READ = [path for path in PAGES if path != HTML / "index.html"]  # which only leads on to the title page
SCALING = HTML / "chapters/02_foundations/scaling.html"


class Reader(HTMLParser):
    """What a page has of the faults that the theme and its companions leave everywhere; a page takes milliseconds."""

    VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())

    def __init__(self, html):
        super().__init__()
        self.ids, self.titles, self.said, self.open, self.head = Counter(), 0, [], [], None
        self.feed(html)
        self.said += [f"the id {one} stands there {count} times" for one, count in self.ids.items() if count > 1]
        self.said += [] if self.titles == 1 else [f"{self.titles} titles"]

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        self.ids.update([has["id"]] if "id" in has else [])
        self.titles += tag == "h1"
        if self.open and self.open[-1][1] == "list" and has.get("role", "listitem") != "listitem":
            self.said.append(f"a list holds {has['role']}")
        if tag == "th":
            self.head = ""
        elif self.head is not None:
            self.head += has.get("alt") or ""
        if tag not in self.VOID:
            self.open.append((tag, has.get("role")))

    def handle_data(self, text):
        if self.head is not None:
            self.head += text.strip()

    def handle_endtag(self, tag):
        if tag == "th":
            self.said += [] if self.head else ["an empty head"]
            self.head = None
        while tag in {one for one, _ in self.open} and self.open.pop()[0] != tag:
            pass  # what was not closed by itself


def faults(html):
    return Reader(html).said


@pytest.mark.parametrize("path", READ, ids=name)
def test_text_of_page(path):
    """One title, each id once, no empty head of a table, and no role where it may not stand."""
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("<p id='a'></p><p id='a'></p>", "the id a stands there 2 times"),
        ("<table><tr><th><p></p></th><th>b</th></tr></table>", "an empty head"),
        ("<div role='list'><p role='doc-biblioentry'>x</p></div>", "a list holds doc-biblioentry"),
        ("<h1>Again</h1>", "2 titles"),
    ],
)
def test_a_planted_fault_of_the_text_is_seen(fault, said):
    whole = "<h1>Title</h1><table><tr><td></td><th>b</th></tr></table><div role='list'><p role='listitem'>x</p></div>"
    assert faults(whole) == []
    assert faults(whole + fault) == [said]


def test_examples_of_the_repairs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    import accessible

    done = doctest.testmod(accessible)
    assert done.attempted >= 4 and done.failed == 0


def test_old_pages_of_source_code_are_written_again(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    import accessible

    old, look, new = (tmp_path / one for one in ("_modules/a/old.html", "book.css", "_modules/new.html"))
    for age, path in enumerate((old, look, new)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000 + age, 1000 + age))
    accessible.forget_old_sources(tmp_path, [look])
    assert not old.exists() and look.exists() and new.exists()


def shown(browser, path, scheme="light", width=1280):
    """A page of the disk, its mathematics set, its colours at rest."""
    viewport = {"width": width, "height": 900}
    context = browser.new_context(color_scheme=scheme, viewport=viewport, reduced_motion="reduce")
    page = with_axe(context).new_page()
    page.set_default_timeout(120_000)
    page.goto(path.as_uri(), wait_until="load")
    settled(page)
    at_rest(page)
    return page


@pytest.mark.needs("browser")
def test_axe_sees_a_planted_fault(browser):
    page = shown(browser, SCALING)
    page.evaluate("() => document.querySelector('article img').removeAttribute('alt')")
    found = [said.split(":")[0] for said in axe(page)]
    assert found == ["image-alt", "link-name"]  # the picture is a link to itself in full size
    page.context.close()
    page = shown(browser, SCALING)
    assert axe(page) == []
    darken(page)
    assert colours(page) == []
    page.add_style_tag(content="html[data-theme=dark] article h2 { color: #444 !important; }")
    assert [said.split(":")[0] for said in colours(page)] == ["color-contrast"]
    page.context.close()


@pytest.fixture(scope="module")
def known(browser):
    """What axe has been shown on another page, on which it finds nothing."""
    page, pieces = shown(browser, HTML / "chapters/02_foundations/general_attention.html"), Known()
    assert axe(page, pieces) == []
    page.context.close()
    return pieces


LAST = "() => { const all = document.querySelectorAll('%s'), one = all[all.length - 1]; %s }"


@pytest.mark.needs("browser")
@pytest.mark.parametrize(
    ("where", "fault", "rule"),
    [
        ("article p", "one.style.color = '#aaa'", "color-contrast"),
        ("article details p", "one.style.color = '#aaa'", "color-contrast"),
        ("article .highlight span.n", "one.className = 'none'; one.style.color = '#aaa'", "color-contrast"),
        ("article a.internal", "one.style.color = '#aaa'", "color-contrast"),
        ("article a.internal", "one.textContent = ''; one.removeAttribute('title')", "link-name"),
        ("article li", "one.setAttribute('role', 'nonsense')", "aria-roles"),
        ("article p", "one.setAttribute('aria-label', 'x'); one.setAttribute('aria-lable', 'x')", "aria-valid-attr"),
    ],
)
def test_axe_sees_a_fault_in_the_last_piece_of_its_kind(where, fault, rule, browser, known):
    """Of pieces built alike one is looked at, on all pages together; a piece with a fault is built otherwise."""
    page = shown(browser, SCALING)
    page.evaluate(LAST % (where, fault))
    pieces = Known(known)
    assert [said.split(":")[0] for said in axe(page, pieces)] == [rule]
    assert 10 < len(pieces.to_others - known.to_others) < len(known.to_others), "most were known"
    assert 10 < len(pieces.to_colours - known.to_colours) < len(known.to_colours), "most were known"
    page.context.close()


@pytest.mark.needs("browser")
def test_what_a_keyboard_does_not_reach_is_seen(browser):
    page = shown(browser, SCALING, width=390)
    assert page.evaluate(UNREACHED) == []
    # Of a formula: code gets its stop again as soon as the page looks again for what scrolls.
    page.evaluate("""() => [...document.querySelectorAll('article [data-sideways]')].find(e =>
        e.checkVisibility() && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto'
        ).setAttribute('tabindex', '-1')""")
    assert len(page.evaluate(UNREACHED)) == 1
    page.context.close()


def luminance(pixels):
    """Relative luminance of sRGB pixels, as the Web Content Accessibility Guidelines define it."""
    part = pixels[..., :3] / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)


def changed(before, after):
    """How many pixels of two pictures differ by a contrast of 3 : 1."""
    pair = np.sort([luminance(np.asarray(picture, dtype=float)) for picture in (before, after)], axis=0)
    return int(((pair[1] + 0.05) / (pair[0] + 0.05) >= 3).sum())


STOPS = """() => [...document.querySelectorAll('a[href], button, summary, input, label, [tabindex="0"]')].filter(e => {
    const box = e.getBoundingClientRect();
    return e.tabIndex >= 0 && e.checkVisibility({visibilityProperty: true, opacityProperty: true}) && box.width > 3 &&
        box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth;
})"""


def unmarked(page, among="*"):
    """What can have the focus on the first screen and does not show it, by less than half of its edge."""
    page.add_style_tag(
        content=".tooltip { display: none !important; } *, ::selection { caret-color: transparent !important; }"
    )
    page.keyboard.press("Tab")  # from here on the focus is that of a keyboard
    page.evaluate("() => document.activeElement.blur()")
    found, screen = [], Image.open(io.BytesIO(page.screenshot()))
    for stop in page.evaluate_handle(STOPS).get_properties().values():
        element = stop.as_element()
        if not element.evaluate("(e, among) => e.matches(among)", among):
            continue
        drawn = element.query_selector(":scope > .toctree-toggle") or element  # a summary without a height of its own
        box = drawn.bounding_box()
        left, top = max(int(box["x"]) - 7, 0), max(int(box["y"]) - 7, 0)
        wide, high = int(box["width"]) + 15, int(box["height"]) + 15
        element.evaluate("e => e.focus({preventScroll: true})")
        after = Image.open(io.BytesIO(page.screenshot(clip={"x": left, "y": top, "width": wide, "height": high})))
        if (
            changed(screen.crop((left, top, left + after.width, top + after.height)), after)
            < box["width"] + box["height"]
        ):
            found.append(element.evaluate("e => e.outerHTML.slice(0, 120)"))
    return found


@pytest.mark.needs("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_focus_is_seen(scheme, browser):
    """Wherever a keyboard leads on the first screen of a page, the toolbar included, one sees it."""
    page = shown(browser, SCALING, scheme)
    assert len(page.evaluate_handle(STOPS).get_properties()) > 20
    assert page.locator(".bd-header-article .btn:visible").count() >= 4
    assert unmarked(page) == []
    page.add_style_tag(content=".bd-header-article .btn:focus-visible { outline: none !important; }")
    buttons = unmarked(page, among=".bd-header-article *")
    assert len(buttons) >= 4 and all("btn" in button for button in buttons)
    page.context.close()


SIDEWAYS = """() => [...document.querySelectorAll('article *')].filter(e => e.checkVisibility() &&
    e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX) && e.clientWidth > 0)"""


@pytest.mark.needs("browser")
@pytest.mark.parametrize("page_name", ["02_foundations/scaling", "04_multi_head/multi_head", "appendix/gradients"])
def test_what_scrolls_sideways_is_reached(page_name, browser):
    """On a phone each wide formula, table and listing takes the focus, says what it is, and moves by an arrow."""
    page = shown(browser, HTML / f"chapters/{page_name}.html", width=390)
    page.wait_for_timeout(600)
    boxes = [one.as_element() for one in page.evaluate_handle(SIDEWAYS).get_properties().values()]
    assert boxes
    unreached = [one.evaluate("e => e.tabIndex < 0 && e.outerHTML.slice(0, 120)") for one in boxes]
    assert [one for one in unreached if one] == []
    formulas = page.locator("article [data-sideways][aria-label^='Wide formula'][role=group]")
    assert formulas.count() > 0
    formulas.locator("visible=true").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.activeElement.scrollLeft > 0", timeout=5000)
    page.set_viewport_size({"width": 2400, "height": 900})  # where nothing has to scroll, nothing stops a keyboard
    page.wait_for_timeout(600)
    assert (
        formulas.count() == 0
        and page.locator("article mjx-container[tabindex], article div.math[tabindex]").count() == 0
    )
    page.context.close()


@pytest.mark.needs("browser")
def test_code_of_a_chosen_tab_is_reached(browser):
    """Wide code that a tab has hidden gets its stop as soon as it is shown; no window has to change."""
    page = shown(browser, HTML / "chapters/appendix/api/lora.html")
    wide = "() => [...document.querySelectorAll('pre')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    before = page.evaluate(wide)
    for tab in page.locator(".sd-tab-set > label:visible").all():
        tab.click()
    page.wait_for_timeout(600)
    assert page.evaluate(wide) > before and page.evaluate(UNREACHED) == []
    page.context.close()


CONCORDANCE = HTML / "chapters/appendix/concordance.html"


def test_the_concordance_folds_its_tests_behind_their_number():
    folds = soup(CONCORDANCE).select("table.concordance td > details, table.concordance td > p > details")
    assert len(folds) > 100
    for fold in folds:
        number = len(fold.find_all("code"))
        assert number and fold.summary.get_text() == f"{number} test{'s' * (number > 1)}" and not fold.has_attr("open")


@pytest.mark.needs("browser")
def test_the_concordance_is_legible_on_a_phone(browser):
    """Rows are cards as wide as the screen; nothing is scrolled sideways for, and a fold opens to whole names."""
    page = shown(browser, CONCORDANCE, width=390)
    tables = "[...document.querySelectorAll('table.concordance')]"
    cut_off = f"{tables}.filter(e => e.scrollWidth > e.parentElement.clientWidth + 1).length"
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height < 44_000, f"{height} pixels"
    assert page.evaluate(cut_off) == 0
    assert (
        page.evaluate(f"Math.min(...{tables}.map(e => parseFloat(getComputedStyle(e.querySelector('td')).fontSize)))")
        >= 13
    )
    fold = page.locator("table.concordance details").first
    fold.locator("summary").press("Enter")
    assert fold.locator("code").first.is_visible() and page.evaluate(cut_off) == 0
    page.context.close()
