"""The noise scale: its estimate against gradients of a known distribution, and what is refused."""

import numpy as np
import pytest

from attnmath.batch_noise import noise_scale, progress_share
from attnmath.check import compare


def test_the_estimate_finds_a_known_scale(rng):
    G, spreads = rng.standard_normal(40), rng.uniform(0.5, 3, 40)
    rows = G + spreads * rng.standard_normal((1000, 64, 40))
    small, big = rows[:, :4].mean(1), rows.mean(1)
    found = noise_scale(4, 64, (small**2).sum(-1), (big**2).sum(-1))
    compare(found.signal, G @ G, atol=0.04 * (G @ G))
    compare(found.noise, (spreads**2).sum(), atol=0.04 * (spreads**2).sum())
    assert found.scale == found.noise / found.signal


def test_squares_are_averaged_before_anything_is_divided():
    for squares in (([2.0, 10.0], 4.0), (6.0, [3.0, 5.0])):
        compare(noise_scale(1, 3, *squares), (3.0, 3.0, 1.0), atol=1e-12)


def test_a_signal_that_is_not_seen_gives_no_number_that_looks_like_one():
    assert noise_scale(1, 2, 9.0, 3.0).scale == np.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noise_scale(4, 4, 1.0, 1.0), r"small and big are 4 and 4; they must fulfil 1 <= small < big"),
        (lambda: noise_scale(0, 4, 1.0, 1.0), r"small and big are 0 and 4"),
        (lambda: noise_scale(1, 4, [], 1.0), r"there is no squared length"),
        (lambda: progress_share(0, 3.0), r"a batch has no example; its size must be > 0"),
        (lambda: progress_share([2, -1], 3.0), r"a batch has no example"),
        (lambda: progress_share(3, -1.0), r"scale is -1\.0; it must be >= 0"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
