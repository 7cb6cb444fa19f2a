"""The schedule that rises, stays and falls; the Transformer's own is tested with the optimisers."""

import numpy as np
import pytest

from attnmath.check import compare
from attnmath.schedules import warmup_stable_decay


@pytest.mark.claim("eq:warmup-stable-decay")
def test_it_rises_stays_and_falls_as_drawn_through_four_points():
    steps = np.arange(1, 31)
    got = [warmup_stable_decay(int(s), 0.3, 5, 10, 30) for s in steps]
    compare(got, np.interp(steps, [0, 5, 20, 30], [0, 0.3, 0.3, 0]), atol=1e-15)
    assert warmup_stable_decay(31, 0.3, 5, 10, 30) == 0.0, "behind the end"


def test_until_the_fall_the_end_does_not_matter():
    for s in range(1, 21):
        assert warmup_stable_decay(s, 0.3, 5, 10, 30) == warmup_stable_decay(s, 0.3, 5, 10, 99)
    assert warmup_stable_decay(21, 0.3, 5, 10, 30) < warmup_stable_decay(21, 0.3, 5, 10, 99)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, 1.0, 2, 2, 9), r"step is 0; it must be at least 1: steps are counted from 1"),
        ((1, 1.0, 0, 2, 9), r"warmup is 0; it must be at least 1"),
        ((1, 1.0, 2, 0, 9), r"decay is 0; it must be at least 1"),
        ((1, 0.0, 2, 2, 9), r"rate is 0\.0; it must be > 0"),
        ((1, 1.0, 5, 5, 9), r"warmup and decay are 5 and 5; together they may be at most total, 9"),
    ],
)
def test_what_is_refused(args, message):
    with pytest.raises(ValueError, match=message):
        warmup_stable_decay(*args)
