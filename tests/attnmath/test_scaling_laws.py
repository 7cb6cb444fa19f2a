"""Scaling laws: fits recover what made the numbers, published numbers come out, and bad input is told in one line."""

import re

import numpy as np
import pytest

from attnmath import scaling_laws as sl
from attnmath.check import compare

TRUE = sl.Law(1.4, 60.0, 150.0, 0.4, 0.33)


def runs(law=TRUE, noise=0.0, seed=0):
    N, D = map(np.ravel, np.meshgrid(10 ** np.linspace(3.5, 6, 6), 10 ** np.linspace(4, 6.5, 6)))
    error = np.random.default_rng(seed).standard_normal(len(N))
    return N, D, sl.loss(law, N, D) * np.exp(noise * error)


@pytest.mark.parametrize("law", [TRUE, sl.HOFFMANN, sl.BESIROGLU, sl.Law(0.3, 5.0, 9000.0, 0.2, 0.7)])
def test_a_fit_finds_the_law_that_made_the_runs(law):
    N, D, losses = runs(law)
    found = sl.fit(N, D, losses)
    compare(np.array(found[3:]), np.array(law[3:]), name="exponents", atol=2e-3)
    compare(np.log(found[:3]), np.log(law[:3]), name="logarithms", atol=0.05)


def test_a_run_that_failed_moves_the_fit_less_than_with_squares():
    N, D, losses = runs(noise=2e-3)
    failed = losses * np.where(np.arange(len(N)) == 7, 1.5, 1.0)
    moved = [sl.fit(N, D, failed, delta=k).alpha - sl.fit(N, D, losses, delta=k).alpha for k in (1e-3, 10.0)]
    assert abs(moved[0]) < 1e-3 and abs(moved[1]) > 1e-2


def test_without_the_factor_the_search_stops_before_it_has_arrived():
    """What Besiroglu et al. found of the published fit: a value so small that the search thinks it is done."""
    N, D, losses = runs(noise=5e-3)
    good, bad = sl.fit(N, D, losses), sl.fit(N, D, losses, factor=1 / len(N))
    values = [sl.residuals_loss(sl.logs(law), N, D, losses)[0] for law in (good, bad)]
    assert values[1] > 1.02 * values[0]
    assert abs(bad.alpha - good.alpha) > 0.02


def test_more_beginnings_are_never_worse():
    N, D, losses = runs(noise=2e-2, seed=4)
    values = [sl.residuals_loss(sl.logs(sl.fit(N, D, losses, starts=k)), N, D, losses)[0] for k in (1, 4, 16)]
    assert values[0] >= values[1] >= values[2]


def test_published_constants_give_published_numbers():
    """Hoffmann et al.: about 67 billion weights for Gopher's budget of 5.76e23; Besiroglu et al.: a = 0.513."""
    N, D = sl.optimum(sl.HOFFMANN, 5.76e23)
    assert 30e9 < N < 45e9 and 2e12 < D < 3.5e12  # their third approach, which differs from the other two
    a = sl.BESIROGLU.beta / (sl.BESIROGLU.alpha + sl.BESIROGLU.beta)
    assert a == pytest.approx(0.513, abs=5e-4)
    N, D = sl.optimum(sl.BESIROGLU, 5.76e23)
    assert 18 < D / N < 35, "about 20 tokens a weight, as the other approaches say"


def test_the_bootstrap_draws_runs_and_its_spread_grows_with_the_noise():
    spread = []
    for noise in (1e-3, 1e-2):
        laws = sl.bootstrap(*runs(noise=noise), np.random.default_rng(1), times=20)
        spread.append(np.std([law.alpha for law in laws]))
        assert len(laws) == 20 and abs(np.median([law.alpha for law in laws]) - TRUE.alpha) < 40 * noise
    assert 0 < 3 * spread[0] < spread[1]
    again = sl.bootstrap(*runs(noise=1e-2), np.random.default_rng(1), times=20)
    assert again == laws


def test_parabolas_and_lines_ignore_the_order_of_runs(rng):
    N, y = 10 ** rng.uniform(3, 6, 7), rng.uniform(1, 2, 7)
    y += np.log10(N / 3e4) ** 2
    order = rng.permutation(7)
    compare(np.array(sl.parabola(N, y)), np.array(sl.parabola(N[order], y[order])), rtol=1e-9)
    compare(np.array(sl.power_law(N, y)), np.array(sl.power_law(N[order], y[order])), rtol=1e-9)


THREE, SIX = np.array([1e3, 1e4, 1e5]), np.arange(1.0, 7.0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sl.loss(TRUE, 0, 1e6), "N holds 0.0; all must be finite and > 0"),
        (lambda: sl.loss(TRUE, 1e6, np.array([1e6, np.nan])), "D holds nan; all must be finite and > 0"),
        (lambda: sl.loss(TRUE._replace(alpha=-0.1), 1e6, 1e6), "alpha is -0.1; it must be > 0"),
        (lambda: sl.optimum(TRUE, -1e9), "flops holds -1000000000.0; all must be finite and > 0"),
        (lambda: sl.optimum(TRUE._replace(B=0.0), 1e9), "B is 0.0; it must be > 0"),
        (lambda: sl.least_loss(TRUE, float("inf")), "flops holds inf"),
        (lambda: sl.parabola(THREE[:2], THREE[:2]), "there are 2 sizes; a parabola needs three"),
        (lambda: sl.parabola(THREE, np.array([1.0, 2.0, 1.0])), "no lowest point; take sizes on both sides"),
        (lambda: sl.parabola(THREE, SIX), "the shapes are {'N': (3,), 'losses': (6,)}; give one number for each run"),
        (lambda: sl.power_law(np.ones(3), THREE), "all x are equal"),
        (lambda: sl.fit(THREE, THREE, THREE), "there are 3 runs; five numbers need six at least"),
        (lambda: sl.fit(SIX, SIX, -SIX), "losses holds -1.0; all must be finite and > 0"),
        (lambda: sl.fit(SIX, SIX, SIX, delta=0.0), "delta is 0.0; it must be > 0"),
        (lambda: sl.bootstrap(SIX, SIX, SIX, np.random.default_rng(0), 0), "times is 0; it must be an integer >= 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        call()
    assert "\n" not in str(caught.value)
