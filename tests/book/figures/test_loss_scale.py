"""Gradients times a power of two, as NumPy's float16 keeps them."""

import json

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
KINDS = ("0", "subnormal", "normal", "infinite")


def kept_in_half(g, power):
    """The scaled gradients in float16; the library scales a loss, and with it each cotangent, by the same factor."""
    _, vjp = an.scale_loss(np.array(0.0), 2.0**power)
    with np.errstate(over="ignore", under="ignore"):
        return np.float16(vjp(np.array(1.0)) * g)


def counts(kept):
    size = abs(kept.astype(float))
    return [(size == 0).sum(), ((size > 0) & (size < 2**-14)).sum(), 0, np.isinf(size).sum()]


def test_every_gradient_is_rounded_as_numpy_rounds(open_figure):
    figure = open_figure("loss-scale")
    arrays = figure.data("arrays")
    assert list(arrays) == ["the attention weights", "the scores", "the two matrices"]
    for power in (0, 1, 7, 10, 15, 23, 30, 33, 34, 36, 42):
        figure.turn(power=power)
        assert figure.knob("power") == power
        assert_rounded(figure, arrays, power)


def assert_rounded(figure, arrays, power):
    for name, g in arrays.items():
        kept = kept_in_half(np.array(g), power)
        shown = figure.shown(f"{name} kept")
        np.testing.assert_array_equal(np.where(shown == -1, np.inf, shown), kept.astype(float))
        want = counts(kept)
        want[2] = len(g) - sum(want)
        np.testing.assert_array_equal(figure.shown(f"{name} counts"), want)
        sentence = next(part for part in figure.said().split(". ") if f"gradients of {name}," in part)
        for count, kind in zip(want, KINDS, strict=True):
            if kind != "normal" and count:
                how = f"{'all' if count == len(g) else count} {'is' if count == 1 else 'are'} {kind}"
                assert how in sentence
            elif kind != "normal":
                assert f"are {kind}" not in sentence and f"is {kind}" not in sentence


def test_ties_and_edges_are_rounded_as_numpy_rounds(open_figure):
    figure = open_figure("loss-scale")
    tiny, rng = 2.0**-24, np.random.default_rng(0)
    edges = [2.0**-25, np.nextafter(2.0**-25, 1), 1.5 * tiny, 2.5 * tiny, 2.0**-14 - 2.0**-25, 2.0**-14 - 2.0**-24]
    edges += [1 + 2.0**-11, 1 + 3 * 2.0**-11, 2 - 2.0**-12, 65504, 65519.99, 65520, 65536, 1.0, 2.0**-14]
    edges += (2 ** rng.uniform(-27, 17, 240)).tolist()
    put = f"() => {{ Interactive.figures['loss-scale'].data.arrays['the scores'] = {json.dumps(edges)}; }}"
    figure.page.evaluate(put)
    figure.turn(power=0)
    shown = figure.shown("the scores kept")
    kept = kept_in_half(np.array(edges), 0)
    np.testing.assert_array_equal(np.where(shown == -1, np.inf, shown), kept.astype(float))
    want = counts(kept)
    want[2] = len(kept) - sum(want)
    np.testing.assert_array_equal(figure.shown("the scores counts"), want)


def test_the_errors_are_those_of_the_page(open_figure):
    figure = open_figure("loss-scale")
    assert len(figure.data("errors")) == 43
    errors = []
    for power in range(43):
        figure.turn(power=power)
        errors.append(float(figure.shown("error")))
        assert ("the step would be left out" in figure.said()) == (errors[-1] == -1)
    good = [power for power, error in enumerate(errors) if 0 <= error < 1e-3]
    assert (min(good), max(good)) == (13, 33), "one window"
    assert all(errors[power] == -1 for power in range(34, 43))
    figure.turn(power=10)
    assert "the relative error 0.005." in figure.said(), "as the page's own experiment prints"
