"""The curve at a bandwidth, its bias and its variance, by the library's weights."""

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import kernel_regression as kr

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


def by_the_library(figure, h, lines):
    keys, queries, values = (figure.data(name) for name in ("keys", "queries", "values"))
    weigh = kr.line_weights if lines else kr.gaussian_weights
    P = weigh(queries[:, None], keys[:, None], h)
    f = dict(zip([*keys, *queries], [*figure.data("at_keys"), *figure.data("truth")], strict=True))
    known = np.vectorize(f.get, otypes=[float])
    bias, variance = kr.bias_and_variance(P, queries[:, None], keys[:, None], known, float(figure.data("noise")))
    return P @ values, (bias**2).mean(), variance.mean()


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("h", [0.01, 0.03, 0.09, 0.2, 0.5])
def test_the_curve_and_its_errors_are_the_librarys(open_figure, h, lines):
    figure = open_figure("kernel-width")
    figure.turn(bandwidth=h, lines=lines)
    h = figure.knob("bandwidth") if abs(figure.knob("bandwidth") / h - 1) < 0.03 else None
    curve, bias, variance = by_the_library(figure, h, lines)
    np.testing.assert_allclose(figure.shown("curve"), curve, atol=1e-8)
    for name, want in (("bias", bias), ("variance", variance), ("risk", bias + variance)):
        np.testing.assert_allclose(figure.shown(name), want, rtol=1e-6, err_msg=name)
    keys, values = figure.data("keys")[:, None], figure.data("values")
    P = (kr.line_weights if lines else kr.gaussian_weights)(keys, keys, h)
    inside = np.sqrt(((values - P @ values) ** 2).mean())
    np.testing.assert_allclose(figure.shown("inside"), inside, rtol=1e-6)
    left_out = (values - P @ values) / (1 - np.diag(P))
    if not lines:
        np.testing.assert_allclose(left_out[:, None], an.leave_one_out(P, values[:, None])[0], rtol=1e-6)
    left_out = np.sqrt((left_out**2).mean())
    np.testing.assert_allclose(figure.shown("left_out"), left_out, rtol=1e-5)
    for words in (f"squared bias is {bias:.4f} and the variance {variance:.4f}", f"together {bias + variance:.4f}"):
        assert words in figure.said()
    assert f"misses the points by {inside:.3f}" in figure.said() and f"missed by {left_out:.3f}" in figure.said()


@pytest.mark.parametrize("lines", [False, True])
def test_the_best_bandwidth_is_the_best_of_all_that_are_drawn(open_figure, lines):
    figure = open_figure("kernel-width")
    figure.turn(lines=lines)
    widths = figure.shown("widths")
    assert (len(widths), widths[0], widths[-1]) == (61, pytest.approx(0.01), pytest.approx(0.5))
    risks = [sum(by_the_library(figure, h, lines)[1:]) for h in widths]
    np.testing.assert_allclose(figure.shown("risks"), risks, rtol=1e-6)
    best = widths[np.argmin(risks)]
    assert figure.shown("best") == best and f"least near {best:.2f}" in figure.said()


def test_the_curve_is_drawn_where_it_is_and_lines_win_at_the_edge(open_figure):
    figure = open_figure("kernel-width")
    values, queries = figure.data("values"), figure.data("queries")
    low, high = values.min() - 0.3, values.max() + 0.3
    d = figure.root.locator("svg .fitted").get_attribute("d")
    drawn = np.array([[float(x) for x in part.split()] for part in d[1:].split("L")])
    np.testing.assert_allclose((drawn[:, 0] - 8) / 332 * 1.04 - 0.02, queries, atol=1e-4)
    np.testing.assert_allclose(low + (262 - drawn[:, 1]) / 228 * (high - low), figure.shown("curve"), atol=1e-3 * high)
    edge = abs(figure.shown("curve")[0] - figure.data("truth")[0])
    figure.turn(lines=True)
    assert abs(figure.shown("curve")[0] - figure.data("truth")[0]) < edge - 0.1
    assert figure.root.locator("svg .fitted.blue").count() == 1
