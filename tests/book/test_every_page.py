"""Every page is opened once in a browser: it is whole, fits a phone and a desk, and axe finds nothing on it."""

import pytest

from tests.book.axe import UNFOLD, UNREACHED, Known, at_rest, axe, colours, darken, settled, with_axe
from tests.book.test_pages import HTML, OVERLAPPING, PAGES, STRETCHED, hearing, name, opened

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
# One template writes the pages of source code, from code alone. The text of each is checked, and every tenth is opened.
# The index only leads on to the title page.
SOURCES = [path for path in PAGES if "_modules" in path.parts]
OPENED = sorted({*PAGES} - {*SOURCES} - {HTML / "index.html"} | {*SOURCES[::10]})
KNOWN = Known()  # what axe has been shown on an earlier page
# A page that has been made wider is laid out anew in the next frame.
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
UNSET = "() => [...document.querySelectorAll('article .math')].filter(e => !e.querySelector('mjx-container')).length"


PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def one_tab(browser):
    """One tab for all pages: to make a new one takes Chromium as long as a page does."""
    context = with_axe(browser.new_context(viewport=PHONE, reduced_motion="reduce"))
    context.set_default_timeout(120_000)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("path", OPENED, ids=name)
def test_page_in_a_browser(path, one_tab, address):
    """No console error, nothing asked of another host, every formula set.

    On a phone, nothing is wider than the screen, no picture is pulled out of shape, and a keyboard reaches all that
    scrolls. On a desk, with folds opened, no formula runs into its number, and axe finds nothing: by all rules in the
    light and by those for colours in the dark.
    """
    tab = one_tab
    tab.set_viewport_size(PHONE)
    with hearing(tab) as (said, remote):
        opened(tab, address + name(path))
        settled(tab)
        unset, broken = tab.evaluate(UNSET), tab.locator("mjx-merror").all_inner_texts()
        wide = tab.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        stretched, unreached = tab.evaluate(STRETCHED), tab.evaluate(UNREACHED)
        tab.set_viewport_size(DESK)
        tab.evaluate(UNFOLD)
        tab.evaluate(DRAWN)
        overlapping, stretched = tab.evaluate(OVERLAPPING), stretched + tab.evaluate(STRETCHED)
        at_rest(tab)
        found = axe(tab, KNOWN)
        darken(tab)
        found += colours(tab)
    assert said == [] and remote == [] and broken == []
    assert unset == 0, f"{unset} formulas are not set"
    assert wide <= 1, f"the page is {wide} px wider than a phone"
    assert overlapping == [], "a formula runs into its number"
    assert stretched == [], "a picture is pulled out of shape"
    assert unreached + found == []
