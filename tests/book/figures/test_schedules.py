"""The shapes of the learning rate, at each warm-up, length and peak."""

import numpy as np
import pytest

from attnmath.schedules import warmup, warmup_stable_decay
from attnmath.torch.training import rise_and_cosine

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


def library(kind, s, w, T, peak, fall):
    """The rate of step s: factor and width only set the root's peak, and a fall that never comes leaves a constant."""
    return (
        warmup(s, d=512, warmup=w, factor=peak * (512 * w) ** 0.5),
        rise_and_cosine(s, peak, w, T),
        warmup_stable_decay(s, peak, w, round(fall * T), T),
        warmup_stable_decay(s, peak, w, 1, 10 * T),
    )[kind]


def test_every_shape_is_the_library_s(open_figure):
    figure = open_figure("schedules")
    fall = figure.data("fall")
    for w, T, peak in ((0, 10_000, 2e-4), (250, 37_000, 5e-4), (8000, 10_000, 1e-3)):
        figure.turn(warmup=w, total=T, peak=peak)
        assert figure.knob("warmup") == w and figure.knob("total") == T
        np.testing.assert_allclose(figure.knob("peak"), peak, rtol=1e-9)
        s = np.arange(1, T + 1)
        runs = [np.array([library(kind, t, max(w, 1), T, peak, fall) for t in s.tolist()]) for kind in range(4)]
        for kind, rates in enumerate(runs):
            figure.turn(kind=kind, other=(kind + 1) % 4)
            steps = figure.shown("steps")
            assert steps[0] == 1 and steps[-1] == T
            np.testing.assert_allclose(figure.shown("kind"), rates[steps - 1], rtol=1e-9, atol=1e-18)
            np.testing.assert_allclose(figure.shown("other"), runs[(kind + 1) % 4][steps - 1], rtol=1e-9, atol=1e-18)
            np.testing.assert_allclose(figure.shown("kind mean"), rates.mean() / peak, rtol=1e-9)
            np.testing.assert_allclose(figure.shown("kind last"), rates[-1], rtol=1e-9, atol=1e-18)
            below = s[(rates <= peak / 2 * (1 + 1e-9)) & (s > max(w, 1))]
            assert abs(figure.shown("kind half") - (below[0] if len(below) else 0)) <= 1  # rounding at exactly half
            assert f"{100 * rates.mean() / peak:.1f} %" in figure.said()


def test_the_first_transformer_has_half_its_peak_after_four_times_its_warm_up(open_figure):
    figure = open_figure("schedules")
    assert figure.shown("kind half") in (16_000, 16_001)
    np.testing.assert_allclose(figure.shown("kind last"), (512 * 1e5) ** -0.5, rtol=2e-3)
