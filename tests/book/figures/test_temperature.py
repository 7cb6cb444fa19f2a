"""The bars of softmax at a temperature."""

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


def test_the_bars_are_softmax_at_the_temperature(open_figure):
    figure = open_figure("temperature")
    scores = figure.data("scores")
    for tau in (0.05, 0.3, 1.0, 7.0, 20.0):
        figure.turn(temperature=tau)
        want = an.softmax(scores / figure.knob("temperature"))[0]
        assert abs(figure.knob("temperature") / tau - 1) < 0.02
        np.testing.assert_allclose(figure.shown("weights"), want, atol=1e-12)
        entropy = -(want[want > 0] * np.log(want[want > 0])).sum()
        np.testing.assert_allclose(figure.shown("entropy"), entropy, atol=1e-12)
    assert f"{want.max():.3f}" in figure.said()
