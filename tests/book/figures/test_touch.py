"""A finger on a phone: what it should hit is large enough, and each kind of control answers to it."""

import numpy as np
import pytest

from tests.book.figures.conftest import KINDS

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
LEAST = 24  # pixels, each way: what WCAG 2.2 asks of a target at its level AA
PHONE = {"width": 390, "has_touch": True, "is_mobile": True}
TARGETS = "input, select, button, [role=button], [role=slider]"
# Too small for a finger: by its box, or for a point that is dragged by what is hit around its middle.
SMALL = """(all, least) => all.filter((one) => one.getClientRects().length).filter((one) => {
    const box = one.getBoundingClientRect(), [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    if (!one.matches('.handle')) return box.width < least || box.height < least;
    one.scrollIntoView({ block: 'center' });
    const now = one.getBoundingClientRect(), middle = [now.left + now.width / 2, now.top + now.height / 2];
    const by = least / 2 - 0.5;
    return [[by, 0], [-by, 0], [0, by], [0, -by]].some(
        ([dx, dy]) => document.elementFromPoint(middle[0] + dx, middle[1] + dy) !== one);
}).map((one) => one.outerHTML.slice(0, 100))"""


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_finger_should_hit_is_large_enough(kind, open_figure):
    targets = open_figure(kind, **PHONE).root.locator(TARGETS)
    assert targets.count() and targets.evaluate_all(SMALL, LEAST) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_control_answers_to_a_tap(kind, open_figure):
    """A slider to a place on it, a box, a button, a square or word of the drawing; a list gets the focus."""
    figure = open_figure(kind, **PHONE)
    tapped = set()
    for control in figure.root.locator(TARGETS).all():
        what = control.get_attribute("type") or control.get_attribute("role") or control.evaluate("one => one.tagName")
        chosen = control.get_attribute("aria-pressed") == "true"
        if not control.is_visible() or control.is_disabled() or what in tapped or what in ("slider", "text") or chosen:
            continue
        if what == "SELECT":
            control.tap()
            assert control.evaluate("one => document.activeElement === one")
        elif what == "range":
            box, value = control.bounding_box(), float(control.input_value())
            least, most = (float(control.get_attribute(end)) for end in ("min", "max"))
            share = 0.25 if value > (least + most) / 2 else 0.75
            place = {"x": box["width"] * share, "y": box["height"] / 2}
            figure._after_drawing(lambda control=control, place=place: control.tap(position=place))
            got = (float(control.input_value()) - least) / (most - least)
            assert abs(got - share) < 0.15, (value, got)
        else:
            figure._after_drawing(control.tap)
        tapped.add(what)
    assert tapped


def test_a_point_is_dragged_by_a_finger_and_the_page_stays(open_figure):
    figure = open_figure("hull", **PHONE)
    page, point = figure.page, figure.root.locator(".handle")
    point.evaluate("one => one.scrollIntoView({ block: 'center' })")
    box, svg = point.bounding_box(), figure.root.locator("svg").bounding_box()
    finger, scrolled = page.context.new_cdp_session(page), page.evaluate("scrollY")

    def touch(kind, *places):
        points = [{"x": x, "y": y} for x, y in places]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    per_unit, (x, y) = svg["width"] / 640, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    touch("touchStart", (x + 8, y + 8))  # beside it: a finger is wider than the point
    goal = svg["x"] + 75 * per_unit, svg["y"] + 182 * per_unit
    figure._after_drawing(lambda: [touch("touchMove", (x, y + by)) for by in (5, 15)])
    figure._after_drawing(lambda: touch("touchMove", goal))
    np.testing.assert_allclose(figure.shown("query"), [-1.2, 0.0], atol=0.05)
    touch("touchEnd")
    assert page.evaluate("scrollY") == scrolled
