"""The page on longer positions: which stretches meet no new angle, how far NTK reaches, what a slower wave costs."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath.check import compare

lengths = st.integers(4, 200)
factors = st.floats(1.0, 16.0)
bases = st.floats(2.0, 1e5)


def new_angle(own, other, trained, far):
    """By how much the angles of another frequency, met up to a distance, leave those that were met in training."""
    met = (other * np.linspace(0, far, 5_001)) % (2 * np.pi)
    arc = own * trained  # the angles of training: from 0 to here, round and round
    return 0.0 if arc >= 2 * np.pi else np.minimum(np.maximum(met - arc, 0), 2 * np.pi - met).max()


@pytest.mark.claim("thm-no-new-angle")
@given(own=st.floats(1e-4, 3.0), stretch=st.floats(0.5, 20.0), trained=lengths, factor=factors)
def test_no_new_angle_exactly_where_the_stretch_is_enough_or_the_wave_went_round(own, stretch, trained, factor):
    assume(abs(stretch / factor - 1) > 1e-2 and abs(own * trained / (2 * np.pi) - 1) > 1e-2)
    inside = stretch >= factor or own * trained >= 2 * np.pi
    beyond = new_angle(own, own / stretch, trained, factor * trained)
    assert beyond < 1e-9 if inside else beyond > 0


@pytest.mark.claim("thm-no-new-angle")
@given(own_turns=st.floats(0.3, 1.3), ratio=st.floats(0.85, 1.15), trained=lengths, factor=st.floats(2.0, 16.0))
def test_no_new_angle_near_the_two_thresholds(own_turns, ratio, trained, factor):
    """A stretch within 15 % of the factor, and waves near one turn: a wrong exponent or constant would be seen."""
    assume(abs(ratio - 1) > 1e-2 and abs(own_turns - 1) > 1e-2)
    own = 2 * np.pi * own_turns / trained
    beyond = new_angle(own, own / (ratio * factor), trained, factor * trained)
    assert beyond < 1e-9 if ratio >= 1 or own_turns >= 1 else beyond > 0


def test_the_witness_is_no_constant():
    assert new_angle(0.1, 0.1, 32, 128) > 1.5 and new_angle(0.1, 0.025, 32, 128) < 1e-9


@pytest.mark.claim("prop-ntk-base", "eq:ntk-frequencies", "eq:rotary-frequencies")
@given(pairs=st.integers(2, 64), base=bases, factor=factors)
def test_ntk_is_another_base(pairs, base, factor):
    k = 2 * pairs
    own = an.rotary_frequencies(k, base=base)
    got = an.ntk_frequencies(own, factor)
    compare(got, an.rotary_frequencies(k, base=base * factor ** (k / (k - 2))), atol=0.0, rtol=1e-9)
    stretch = own / got
    compare(stretch[[0, -1]], [1.0, factor], rtol=1e-9)
    compare(stretch[1:] / stretch[:-1], np.full(pairs - 1, factor ** (1 / (pairs - 1))), rtol=1e-9)


@pytest.mark.slow
@settings(max_examples=40)
@pytest.mark.claim("prop-reach", "eq:interpolated-frequencies", "eq:yarn-frequencies")
@given(pairs=st.integers(2, 16), base=bases, factor=st.floats(1.5, 16.0), trained=lengths)
def test_how_far_each_map_meets_no_new_angle(pairs, base, factor, trained):
    own = an.rotary_frequencies(2 * pairs, base=base)
    turns = own * trained / (2 * np.pi)
    assume(turns[-1] < 0.9 and abs(turns - 1).min() > 1e-2)
    first = int(np.argmax(turns < 1))  # the first pair that did not get round
    assume(first >= 1)

    def worst(frequencies, far):
        return max(new_angle(a, b, trained, far) for a, b in zip(own, frequencies, strict=True))

    fast = max(2.0, turns[0] / 2)
    for name, frequencies in (
        ("interpolation", an.interpolated_frequencies(own, factor)),
        ("YaRN", an.yarn_frequencies(own, factor, trained, fast=fast)),
        ("YaRN of the code", an.yarn_frequencies(own, factor, trained, fast=fast, ramp="index")),
    ):
        assert worst(frequencies, factor * trained) < 1e-9, name
        assert worst(frequencies, 1.2 * factor * trained) > 0, name
    reach = trained * factor ** (first / (pairs - 1))
    ntk = an.ntk_frequencies(own, factor)
    assert worst(ntk, reach * (1 - 1e-9)) < 1e-6 and worst(ntk, 1.1 * reach) > 0
    more = an.ntk_frequencies(own, factor ** ((pairs - 1) / first))
    assert worst(more, factor * trained * (1 - 1e-9)) < 1e-6


@pytest.mark.slow
@settings(max_examples=40)
@pytest.mark.claim("lem-score-step")
@given(seed=st.integers(0, 2**32 - 1), distance=st.integers(0, 500), base=bases)
def test_a_score_changes_little_from_one_distance_to_the_next(seed, distance, base):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, 1, 8))
    if seed % 3 == 0:
        y = x  # where the first step is steep
    own = an.rotary_frequencies(8, base=base)
    r = np.hypot(*x.reshape(4, 2).T) * np.hypot(*y.reshape(4, 2).T)
    for frequencies in (own, own / 4):

        def score(d, frequencies=frequencies):
            return (an.rotary(x, frequencies=frequencies, start=d)[0] @ y.T).item()

        step = abs(score(distance + 1) - score(distance))
        assert step <= (2 * r * np.sin(frequencies / 2)).sum() + 1e-12 <= (r * frequencies).sum() + 2e-12


@pytest.mark.claim("lem-score-step")
def test_the_bound_is_attained():
    """One pair whose angles lie evenly around a quarter turn."""
    omega = 0.3
    x, y = np.array([[1.0, 0.0]]), np.array([[np.cos(np.pi / 2 + omega / 2), np.sin(np.pi / 2 + omega / 2)]])
    scores = [(an.rotary(x, frequencies=np.array([omega]), start=d)[0] @ y.T).item() for d in (0, 1)]
    compare(abs(scores[1] - scores[0]), 2 * np.sin(omega / 2))


@pytest.mark.claim("eq:yarn-temperature", "eq:dynamic-factor")
def test_the_temperature_and_the_dynamic_factor():
    compare(an.yarn_temperature(np.e**3), 1.3)
    compare([an.dynamic_factor(n, 32) for n in (1, 32, 33, 64)], [1, 1, 33 / 32, 2])
