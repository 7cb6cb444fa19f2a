"""A query over keys in the plane: the weights, and an output that never leaves the hull of the values."""

import numpy as np
import pytest
from scipy.optimize import linprog

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
# From places in the drawing to numbers: both panels are 300 wide and reach from -2.4 to 2.4.
KEYS, VALUES, TOP = 0, 339, 32


def to_numbers(x, y, left):
    return np.array([(x - left) / 300 * 4.8 - 2.4, 2.4 - (y - TOP) / 300 * 4.8])


def to_places(x, y):
    return [KEYS + (x + 2.4) / 4.8 * 300, TOP + (2.4 - y) / 4.8 * 300]


def least_weight(point, values):
    """The largest least weight with which the values average to the point; negative outside their hull."""
    m = len(values)
    averages = np.vstack([np.c_[values.T, np.zeros(2)], np.append(np.ones(m), 0)])
    least = np.c_[-np.eye(m), np.ones(m)]
    return -linprog(
        np.append(np.zeros(m), -1), A_ub=least, b_ub=np.zeros(m), A_eq=averages, b_eq=[*point, 1], bounds=(None, 1)
    ).fun


def drawn_output(figure):
    return to_numbers(*(float(figure.root.locator("svg .output").get_attribute(c)) for c in ("cx", "cy")), VALUES)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 10.0])
def test_the_weights_and_the_output_are_the_librarys(open_figure, scale):
    figure = open_figure("hull")
    keys, values = figure.data("keys"), figure.data("values")
    figure.turn(scale=scale)
    assert abs(figure.knob("scale") / scale - 1) < 0.02
    for query in ((0.0, 0.0), (1.2, 1.2), (-2.4, 2.4), (0.3, -2.0), (2.4, 0.0), (-1.0, -0.7)):
        figure.turn(query=to_places(*query))
        q = figure.shown("query").astype(float)
        np.testing.assert_allclose(q, query, atol=1e-9)
        output, _ = an.attention(q[None], keys, values, scale=figure.knob("scale"))
        weights, _ = an.attention_weights(q[None], keys, scale=figure.knob("scale"))
        np.testing.assert_allclose(figure.shown("weights"), weights[0], atol=1e-12)
        np.testing.assert_allclose(figure.shown("output"), output[0], atol=1e-12)
        np.testing.assert_allclose(drawn_output(figure), output[0], atol=1e-9)
        entries = figure.root.locator("svg .entry").all_text_contents()
        assert entries == [f"{j + 1}: {w:.2f}" for j, w in enumerate(figure.shown("weights"))]
        told, best = figure.said().replace("−", "-"), figure.shown("weights").argmax()
        assert f"key {best + 1} gets the most, {weights[0].max():.3f}" in told
        assert "The output (green) is ({:.2f}, {:.2f})".format(*figure.shown("output")) in told


def test_the_output_that_is_shown_lies_in_the_hull_and_key_six_never_leads(open_figure):
    figure = open_figure("hull")
    values = figure.data("values")
    rng = np.random.default_rng(0)
    assert least_weight([2.0, 2.0], values) < -0.05 < 0 < least_weight([0.0, 0.0], values)
    for query, scale in zip(rng.uniform(-2.4, 2.4, (40, 2)), rng.uniform(0.1, 10, 40), strict=True):
        figure.turn(scale=scale, query=to_places(*query))
        assert least_weight(figure.shown("output"), values) > -1e-9
        assert least_weight(drawn_output(figure), values) > -1e-9
        assert figure.shown("weights").argmax() != 5
    corners = figure.root.locator("svg .hull").get_attribute("points").split()
    drawn = [to_numbers(*map(float, corner.split(",")), VALUES) for corner in corners]
    np.testing.assert_allclose(drawn, values, atol=1e-9)
    for j in range(6):  # the outline is the hull: each value is a corner, in the order of the outline
        assert least_weight(values[j], np.delete(values, j, 0)) < -1e-3
        edge, next_edge = values[(j + 1) % 6] - values[j], values[(j + 2) % 6] - values[(j + 1) % 6]
        assert edge[0] * next_edge[1] - edge[1] * next_edge[0] < 0, "always the same turn"


def test_the_query_is_dragged_and_moved_by_keys_and_stays_among_the_keys(open_figure):
    figure = open_figure("hull")
    point = figure.root.locator(".handle")
    point.scroll_into_view_if_needed()
    box, svg = point.bounding_box(), figure.root.locator("svg").bounding_box()
    mouse, per_unit = figure.page.mouse, svg["width"] / 640
    mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    mouse.down()
    figure._after_drawing(lambda: mouse.move(svg["x"] + 75 * per_unit, svg["y"] + 182 * per_unit))
    np.testing.assert_allclose(figure.shown("query"), [-1.2, 0.0], atol=0.02)
    figure._after_drawing(lambda: mouse.move(svg["x"] + 600 * per_unit, svg["y"] + 182 * per_unit))
    mouse.up()
    np.testing.assert_allclose(figure.shown("query"), [2.4, 0.0], atol=0.02)
    point.focus()
    figure._after_drawing(lambda: figure.page.keyboard.press("ArrowLeft"))
    figure._after_drawing(lambda: figure.page.keyboard.press("ArrowUp"))
    np.testing.assert_allclose(figure.shown("query"), [2.4 - 0.096, 0.096], atol=0.02)
    assert point.get_attribute("aria-valuetext") == "2.30, 0.10"
