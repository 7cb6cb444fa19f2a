"""The results of the page on scaling laws: where a budget is best spent, and what counting otherwise does to it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import huber

from attnmath import scaling_laws as sl
from attnmath.check import compare

laws = st.builds(
    sl.Law, st.floats(0.1, 3), st.floats(0.5, 500), st.floats(0.5, 2000), st.floats(0.1, 1), st.floats(0.1, 1)
)
budgets = st.floats(1e8, 1e24)


def spent(law, C):
    """The loss of a budget as a function of log N, without the constant, so that nothing is lost in rounding."""
    return lambda x: law.A * np.exp(-law.alpha * x) + law.B * np.exp(-law.beta * (np.log(C / 6) - x))


@pytest.mark.claim("thm-compute-optimum", "eq:compute-optimum", "eq:scaling-law")
@given(laws, budgets)
def test_no_other_division_of_the_budget_is_better(law, C):
    N, D = sl.optimum(law, C)
    assert 6 * N * D == pytest.approx(C, rel=1e-9)
    best = minimize_scalar(spent(law, C), bracket=(np.log(N) - 3, np.log(N) + 4), tol=1e-12)
    assert np.exp(best.x) == pytest.approx(N, rel=1e-4)
    for other in (0.5, 0.9, 1.2, 3.0):
        assert spent(law, C)(np.log(other * N)) > spent(law, C)(np.log(N))
    assert sl.loss(law, N, D) == pytest.approx(law.E + spent(law, C)(np.log(N)), rel=1e-12)


@pytest.mark.claim("thm-compute-optimum")
@given(laws, budgets, st.floats(1.5, 1e4), st.floats(0.5, 2))
def test_the_optimum_grows_as_powers_of_the_budget_and_ignores_the_constant(law, C, more, E):
    a = law.beta / (law.alpha + law.beta)
    (N, D), (N2, D2) = sl.optimum(law, C), sl.optimum(law, more * C)
    assert N2 / N == pytest.approx(more**a, rel=1e-9) and D2 / D == pytest.approx(more ** (1 - a), rel=1e-9)
    assert sl.optimum(law._replace(E=E), C) == (N, D)
    balance = law.alpha * law.A * N**-law.alpha, law.beta * law.B * D**-law.beta
    assert balance[0] == pytest.approx(balance[1], rel=1e-9)


@pytest.mark.claim("eq:least-loss", "thm-compute-optimum")
@given(laws, budgets, st.floats(2, 1e4))
def test_the_least_loss_is_a_power_law_above_the_constant(law, C, more):
    assert sl.least_loss(law, C) == pytest.approx(sl.loss(law, *sl.optimum(law, C)), rel=1e-9)
    left = [sl.least_loss(law._replace(E=0.0), x) for x in (C, more * C)]
    slope = law.alpha * law.beta / (law.alpha + law.beta)
    assert left[1] / left[0] == pytest.approx(more**-slope, rel=1e-9)


@pytest.mark.claim("prop-embedding-exponent")
@given(laws, st.floats(0.3, 1), st.floats(1, 100), st.floats(1e12, 1e20))
def test_counting_a_part_of_the_weights_raises_the_exponent(law, s, c, C):
    """N = c M^s weights of which M are counted: the best M for 6 M D = C, found by search at two budgets."""

    def best(C):
        def value(y):  # y = log M
            small = law.A * c**-law.alpha * np.exp(-law.alpha * s * y)
            return small + law.B * np.exp(-law.beta * (np.log(C / 6) - y))

        guess = np.log(C / 6) / 2
        return minimize_scalar(value, bracket=(guess - 20, guess + 20), tol=1e-12).x

    found = (best(100 * C) - best(C)) / np.log(100)
    assert found == pytest.approx(law.beta / (s * law.alpha + law.beta), abs=1e-3)
    assert found > law.beta / (law.alpha + law.beta) - 1e-3


@pytest.mark.claim("eq:isoflop-parabola")
@given(st.floats(1e3, 1e9), st.floats(0.01, 2), st.floats(1, 4), st.floats(1.5, 10))
def test_the_lowest_point_of_a_parabola_is_found(lowest, bend, least, ratio):
    N = lowest * ratio ** np.array([-1.5, -0.5, 0.7, 1.9, 3.0])
    found = sl.parabola(N, least + bend * np.log(N / lowest) ** 2)
    assert found[0] == pytest.approx(lowest, rel=1e-5) and found[1] == pytest.approx(least, rel=1e-8)


@pytest.mark.claim("lem-isoflop-bend")
@given(laws, st.floats(0.02, 0.5))
def test_near_the_optimum_every_law_is_a_parabola(law, reach):
    """Its bend, and on which side it is steeper."""
    N, _ = sl.optimum(law, 1e15)
    slope = law.alpha * law.A * N**-law.alpha
    x = reach / 10 * np.linspace(-1, 1, 7)
    found = np.polyfit(x, spent(law, 1e15)(np.log(N) + x) / slope, 2)[0]
    assert 2 * found == pytest.approx(law.alpha + law.beta, rel=0.02)
    if abs(law.alpha - law.beta) > 0.05:
        small, large = (spent(law, 1e15)(np.log(N) + way) for way in (-0.5, 0.5))
        assert (small > large) == (law.alpha > law.beta)


@pytest.mark.claim("eq:scaling-fit", "eq:scaling-fit-vjp")
def test_the_objective_and_its_gradient_are_those_of_autograd_and_of_scipy(rng):
    N, D = 10 ** rng.uniform(3, 9, (2, 11))
    theta = 0.2 * rng.standard_normal((3, 5)) + [0.0, 3.0, 3.0, 0.3, 0.3]
    losses, delta = sl.loss(sl.from_logs(theta[0]), N, D) * np.exp(rng.standard_normal(11)), 0.7
    value, gradient = sl.residuals_loss(theta, N, D, losses, delta)
    for i, row in enumerate(theta):
        t = torch.tensor(row, requires_grad=True)
        logN, logD = torch.tensor(np.log(N)), torch.tensor(np.log(D))
        L = t[0].exp() + t[1].exp() * torch.exp(-t[3] * logN) + t[2].exp() * torch.exp(-t[4] * logD)
        want = torch.nn.functional.huber_loss(L.log(), torch.tensor(np.log(losses)), reduction="sum", delta=delta)
        want.backward()
        compare(value[i], want.item(), name="value", atol=1e-12)
        compare(gradient[i], t.grad, name="gradient", atol=1e-11)
        R = np.log(L.detach().numpy() / losses)
        assert (abs(R) < delta).any() and (abs(R) > delta).any(), "both branches are tried"
        compare(value[i], huber(delta, R).sum(), name="scipy", atol=1e-12)
        step = rng.standard_normal(5)
        near = [sl.residuals_loss(row + h * step, N, D, losses, delta)[0] for h in (1e-6, -1e-6)]
        compare((near[0] - near[1]) / 2e-6, gradient[i] @ step, name="difference", atol=1e-6)
