"""Words on a circle: their paths by the library's flow and Euler's method, and the places at which they stand."""

from functools import partial

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import particles

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def library(figure, beta):
    """Times, the path and the number of places at each time."""
    angles, step = figure.data("angles"), float(figure.data("step"))
    X = np.stack([np.cos(angles), np.sin(angles)], -1)

    def flow(X):
        return an.sphere_attention_flow(X, beta=float(beta))[0]

    times, path = particles.integrate(flow, X, step, round(figure.data("last") / step), method=particles.euler)
    count = partial(particles.cluster_count, cosine=float(figure.data("cosine")))
    return times, path, np.array([count(X) for X in path])


@pytest.mark.parametrize("beta", [1.0, 8.0, 64.0])
def test_paths_and_places_are_the_librarys(open_figure, beta):
    figure = open_figure("clusters")
    assert (len(figure.data("angles")), figure.data("step"), figure.data("last")) == (32, 0.5, 1000)
    figure.turn(beta=beta)
    assert abs(figure.knob("beta") / beta - 1) < 1e-9
    times, path, counts = library(figure, figure.knob("beta"))
    np.testing.assert_array_equal(figure.shown("counts"), counts)
    for time in (0.0, 3.0, 20.0, 150.0, 1000.0):
        figure.turn(time=1 + time)
        k = min(round((figure.knob("time") - 1) / 0.5), 2000)
        assert abs(times[k] - time) <= 0.02 * (1 + time)
        np.testing.assert_allclose(figure.shown("points"), path[k], atol=1e-7)
        assert figure.root.locator("svg .token").count() == 32
        count = counts[k]
        assert figure.shown("places") == count
        number = NUMBERS[count - 1] if count <= len(NUMBERS) else str(count)
        words = f"{number} place{'s' if count > 1 else ''}"
        assert f"At time {times[k]:.1f} the 32 words stand at {words}." in figure.said()
        since = k - np.argmax(np.append(counts[k::-1] != count, True)) + 1
        until = k + np.argmax(np.append(counts[k:] != count, True)) - 1
        assert (figure.shown("since"), figure.shown("until")) == (times[since], times[until])
        if since < until:
            last = until == len(times) - 1
            assert (f"since time {times[since]:.1f}" if last else f"to time {times[until]:.1f}.") in figure.said()


def test_places_outlast_a_deep_model_if_beta_is_large(open_figure):
    figure = open_figure("clusters")
    ends = []
    for beta in (1.0, 8.0, 64.0):
        figure.turn(beta=beta, time=1001)
        ends.append(int(figure.shown("places")))
    assert ends[0] == 1 < ends[1] < ends[2]
