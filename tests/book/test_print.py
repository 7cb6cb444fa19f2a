"""Two pages on paper: nothing is cut off at the right edge, answers are open, and figures with knobs are still ones."""

import pytest

from tests.book.test_pages import HTML

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
PAPER = {"width": 680, "height": 1000}  # 18 cm, A4 within margins, in CSS pixels
# What sticks out of the paper, or is wider than a box that cuts it off.
CUT = """() => [...document.querySelectorAll('article *')].filter((one) => {
    const box = one.getBoundingClientRect(), formula = one.closest('mjx-container');
    if (box.width < 2 || box.height < 2 || one.closest('svg, span.math') || (formula && formula !== one)) return false;
    const look = getComputedStyle(one), boxed = look.overflowX !== 'visible' && look.display !== 'inline';
    return box.right > innerWidth + 1 || (boxed && one.scrollWidth > one.clientWidth + 2);
}).map((one) => one.outerHTML.slice(0, 120))"""
FOLDS = "details.sd-dropdown, details.deeper, .admonition.toggle"
# Folds of whose content nothing is seen.
CLOSED = """(folds) => folds.filter((fold) => {
    const parts = [...fold.querySelectorAll('p:not(.admonition-title), li, mjx-container')];
    const seen = (one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
        one.getBoundingClientRect().height > 4;
    return parts.length && !parts.some(seen);
}).map((fold) => fold.textContent.trim().slice(0, 60))"""


@pytest.mark.parametrize("page", ["02_foundations/general_attention", "06_training/mixed_precision"])
def test_a_printed_page_is_whole(browser, page):
    tab = browser.new_page(viewport=PAPER)
    tab.goto((HTML / f"chapters/{page}.html").as_uri(), wait_until="load")
    folds = tab.locator("details.sd-dropdown:not([open]), .admonition.toggle").count()
    assert folds > 5 and tab.locator(FOLDS).evaluate_all(CLOSED) != [], "on the screen they are closed"
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator(FOLDS).evaluate_all(CLOSED) == []
    assert tab.evaluate(CUT) == []
    assert tab.locator(".interactive").count() and not tab.locator(".interactive").first.is_visible()
    tab.add_style_tag(content="article p { width: 60rem; max-width: none; }")
    assert tab.evaluate(CUT) != [], "what sticks out would be seen"
    tab.close()
