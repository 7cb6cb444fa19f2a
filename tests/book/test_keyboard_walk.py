"""A reader without a mouse walks from the top of a page with two interactive figures to its foot, Tab by Tab."""

import pytest

from tests.book.test_pages import HTML

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
PAGE = HTML / "chapters/02_foundations/general_attention.html"
MOST = 1500  # stops; a trap never ends
# What has the focus: null at the end of the page. Its order is compared with that of the stop before.
STOP = """() => {
    const one = document.activeElement, before = window.lastStop, box = one.getBoundingClientRect();
    if (!one || one === document.body) return null;
    const look = getComputedStyle(one.querySelector(':scope > .toctree-toggle') || one);
    const figure = one.closest('.interactive');
    const comes = !before || Boolean(before.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
    if (!one.closest('.preview')) window.lastStop = one; // a preview stands behind its link, and goes again
    return {
        comes, figure: figure && figure.dataset.kind, drawn: figure && Number(figure.dataset.drawn),
        what: one.getAttribute('type') || one.getAttribute('role') || one.tagName.toLowerCase(),
        name: (one.getAttribute('aria-label') || one.textContent || one.id || '').trim().slice(0, 60),
        foot: Boolean(one.closest('footer')), contents: Boolean(one.closest('.bd-sidebar-secondary')),
        seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        marked: (look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) > 0) || look.boxShadow !== 'none',
    };
}"""
TURNED = "([kind, n]) => Number(document.querySelector(`.interactive[data-kind='${kind}']`).dataset.drawn) > n"


def test_a_page_with_figures_is_walked_from_top_to_foot(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page, stops, turned = context.new_page(), [], []
    page.goto(PAGE.as_uri(), wait_until="load")
    page.wait_for_function("Object.keys(window.Interactive?.figures || {}).length === 2")
    address = page.url
    for _ in range(MOST):
        page.keyboard.press("Tab")
        if not stops:
            page.wait_for_timeout(500)  # the way past the side bar slides in
        stop = page.evaluate(STOP)
        if stop is None:
            break
        stops.append(stop)
        if stop["figure"] and stop["what"] in ("range", "slider", "select", "checkbox"):
            page.keyboard.press("Space" if stop["what"] == "checkbox" else "ArrowRight")
            page.wait_for_function(TURNED, arg=[stop["figure"], stop["drawn"]], timeout=5000)
            assert page.evaluate("document.activeElement === window.lastStop"), "a turned knob keeps the focus"
            turned.append((stop["figure"], stop["what"]))
    else:
        pytest.fail(f"no end after {MOST} stops; the last are {stops[-3:]}")
    assert page.url == address, "no page was turned"
    context.close()
    assert turned == [("hull", "range"), ("hull", "slider"), ("temperature", "range")]
    assert sum(stop["foot"] for stop in stops) >= 2 and stops[-1]["contents"], stops[-3:]
    wrong = [(stop["name"], key) for stop in stops for key in ("comes", "seen", "marked") if not stop[key]]
    assert wrong == []
