"""The page on sparse weights: free energy, the form of the weights, zeros, Jacobians, limits, what only softmax does.

The rivals of the weights are drawn at random and searched by SciPy; the weights come from the library.
"""

import numpy as np
import pytest
from scipy.optimize import minimize

import attnmath.numpy as an
from attnmath.check import compare

ALPHAS = (1.2, 1.5, 2.0, 3.0)


def weights(s, alpha):
    """The library's weights, through the algorithm that it takes for this alpha."""
    rule = {1.0: an.softmax, 1.5: an.entmax15, 2.0: an.sparsemax}.get(alpha)
    return (rule(s) if rule else an.entmax_bisect(s, alpha))[0]


def entropy(p, alpha):
    """Written out here, not the library's."""
    if alpha == 1:
        return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
    return (p - p**alpha).sum(-1) / (alpha * (alpha - 1))


def rivals(rng, p, count=400):
    """Distributions everywhere, at the corners, and close to p."""
    m = len(p)
    anywhere = np.concatenate([rng.dirichlet(np.full(m, c), count) for c in (0.2, 1.0)] + [np.eye(m)])
    found = np.concatenate([anywhere] + [p + c * (anywhere - p) for c in (1e-1, 1e-3)])
    return found[np.abs(found - p).max(-1) > 1e-6]


@pytest.mark.claim("thm-free-energy", "pf:free-energy")
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_excess_free_energy_is_the_divergence(temperature, rng):
    energies = 2 * rng.standard_normal(6)
    best, _ = an.softmax(-energies, temperature)
    log_z = np.log(np.exp(-energies / temperature).sum())
    for p in rivals(rng, best):
        divergence = (p * np.log(np.where(p > 0, p / best, 1))).sum()
        free = p @ energies - temperature * entropy(p, 1.0)
        compare(free, -temperature * log_z + temperature * divergence, atol=1e-11)
        assert divergence > 1e-9
    compare(best @ energies - temperature * an.tsallis_entropy(best[None], 1.0)[0][0], -temperature * log_z, atol=1e-12)


@pytest.mark.claim("thm-free-energy")
def test_attention_minimises_free_energy_at_the_root_of_the_width(rng):
    """By a search that knows nothing of exponentials."""
    q, K = 2 * rng.standard_normal(9), rng.standard_normal((4, 9))
    P, _ = an.attention_weights(q[None], K)

    def free(x):
        p = np.abs(x) / np.abs(x).sum()
        return -p @ (K @ q) - 9**0.5 * entropy(p, 1.0)

    found = minimize(free, np.ones(4), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000})
    compare(np.abs(found.x) / np.abs(found.x).sum(), P[0], atol=1e-5)


@pytest.mark.claim("thm-entmax", "eq:entmax", "eq:tsallis-entropy")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_no_distribution_does_better(alpha, rng):
    for _ in range(5):
        s = 1.5 * rng.standard_normal(6)
        p = weights(s, alpha)
        assert p.min() == 0 or alpha < 1.5
        best = p @ s + entropy(p, alpha)
        others = rivals(rng, p)
        assert (others @ s + entropy(others, alpha) < best).all()
        on = p > 0
        tau = (alpha - 1) * s[on] - p[on] ** (alpha - 1)
        compare(tau, np.full(on.sum(), tau[0]), name="one threshold for all", atol=1e-10)
        assert ((alpha - 1) * s[~on] <= tau[0]).all()


@pytest.mark.claim("thm-entmax", "eq:sparsemax")
def test_sparsemax_is_the_projection(rng):
    """SciPy minimises the distance; the projection does not come from a threshold there."""
    for m in (2, 5, 9):
        s = 1.2 * rng.standard_normal(m)
        found = minimize(
            lambda p, s=s: ((p - s) ** 2).sum() / 2,
            np.full(m, 1 / m),
            jac=lambda p, s=s: p - s,
            bounds=[(0, None)] * m,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-15},
        )
        compare(weights(s, 2.0), found.x, atol=1e-7)


@pytest.mark.claim("thm-exact-zero", "eq:support")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_weight_is_zero_where_the_leads_say_so(alpha, rng):
    """The sum is written out here, key by key; weights near the border are left to the test below."""
    counts = np.zeros(2, int)
    for _ in range(200):
        s = rng.standard_normal(7) * rng.choice([0.3, 1.0, 2.0])
        p = weights(s, alpha)
        for j in range(7):
            pushed = sum(max((alpha - 1) * (s[i] - s[j]), 0.0) ** (1 / (alpha - 1)) for i in range(7))
            if abs(pushed - 1) > 1e-9:
                assert (p[j] == 0) == (pushed > 1)
                counts[int(pushed > 1)] += 1
    assert counts.min() > 50


@pytest.mark.claim("thm-exact-zero")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_lead_that_is_enough_and_the_lead_that_is_too_small(alpha, rng):
    lead = 1 / (alpha - 1)
    slack = 1e-12 if alpha < 2.5 else 1e-6
    for many in (0, 4):  # other keys do not help the one that trails
        s = np.array([lead * (1 + 1e-9), 0.0] + [-0.1] * many)
        assert weights(s, alpha)[1] == 0
    two = np.array([lead * 0.9, 0.0])
    assert weights(two, alpha)[1] > slack, "with two keys the lead is necessary"
    for m in (2, 5, 11):
        small = (m - 1) ** (1 - alpha) / (alpha - 1)
        s = np.append(0.0, np.full(m - 1, small * 0.98))
        assert weights(s, alpha)[0] > 0
        s[1:] = small * 1.02  # all m - 1 others at the border: it is sharp
        assert weights(s, alpha)[0] == 0
    assert an.softmax(np.array([700.0, 0.0]))[0][1] > 0


@pytest.mark.claim("thm-fenchel-young", "eq:fenchel-young")
@pytest.mark.parametrize("alpha", [1.0, *ALPHAS])
def test_conjugate_weights_and_loss(alpha, rng):
    def conjugate(s):
        p = weights(s, alpha)
        return p @ s + entropy(p, alpha)

    for _ in range(10):
        s, other, direction = rng.standard_normal((3, 5))
        p = weights(s, alpha)
        step = 1e-5
        slope = (conjugate(s + step * direction) - conjugate(s - step * direction)) / (2 * step)
        compare(slope, direction @ p, name="gradient", atol=2e-6)
        assert conjugate((s + other) / 2) < (conjugate(s) + conjugate(other)) / 2 + 1e-15
        compare(weights(s + 3.7, alpha), p, name="shift", atol=1e-9)
        assert (s - other) @ (p - weights(other, alpha)) > 0
        order = rng.permutation(5)
        compare(weights(s[order], alpha), p[order], name="permutation", atol=1e-12)
        assert (np.diff(p[s.argsort()]) >= 0).all()
        for y in (rng.dirichlet(np.ones(5)), np.eye(5)[s.argmin()]):
            L, vjp = an.fenchel_young_loss(s[None], y[None], alpha)
            compare(L[0], conjugate(s) - entropy(y, alpha) - s @ y, name="definition", atol=1e-12)
            assert L[0] > 1e-6
            compare(vjp(np.array([2.0]))[0], 2 * (p - y), name="its gradient", atol=1e-12)
        compare(an.fenchel_young_loss(s[None], p[None], alpha)[0], [0.0], name="at its own weights", atol=1e-12)


@pytest.mark.claim("prop-bisection", "eq:entmax-bisection")
@pytest.mark.parametrize("alpha", [1.1, 1.3, 1.5, 2.0, 3.0])
def test_the_error_of_halving(alpha, rng):
    """Halved here by the page's rule; the library's halvings agree, after the division."""
    s = (0.7 if alpha < 2 else 0.1) * rng.standard_normal(9)
    m, z, beta = 9, (alpha - 1) * s, 1 / (alpha - 1)
    exact = weights(s, alpha)
    tau, width = z.max() - 1, 1 - m ** (1 - alpha)
    for t in range(1, 13):
        width /= 2
        tau += width * (np.maximum(z - tau - width, 0) ** beta).sum().__ge__(1)
        P = np.maximum(z - tau, 0) ** beta
        wrong = np.abs(P - exact).sum()
        assert (P >= exact - 1e-12).all()
        compare(wrong, P.sum() - 1, name="the excess is the error", atol=1e-11)
        assert wrong <= (m * beta * width if alpha <= 2 else m * width**beta)
        if alpha not in (1.5, 2.0):
            compare(an.entmax_bisect(s, alpha, halvings=t)[0], P / P.sum(), name="the library", atol=1e-12)
        assert np.abs(P / P.sum() - exact).sum() <= 2 * wrong + 1e-12
    assert wrong > 1e-7, "twelve halvings are not exact"


@pytest.mark.claim("prop-bisection")
@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
def test_equal_scores_come_near_the_bound_of_halving(alpha):
    """For alpha = 2 they reach it at every step; before the first step the others come to two thirds of it and more."""
    m, beta = 9, 1 / (alpha - 1)
    tau, w0 = m ** (1 - alpha), 1 - m ** (1 - alpha)  # below the largest score
    for t in range(8):
        width = w0 * 0.5**t
        excess = m * (tau + width) ** beta - 1  # all steps go right, so the threshold is a width too low
        bound = m * beta * width if alpha <= 2 else m * width**beta
        assert excess <= bound * (1 + 1e-12)
        if t:
            got = an.entmax_bisect(np.zeros(m), alpha, halvings=t)[0]
            compare(got, np.full(m, 1 / m), name="the weights after division", atol=1e-12)
        if alpha == 2:
            compare(excess, bound, name="reached", rtol=1e-12)
        elif t == 0:
            assert excess > 0.65 * bound


def jacobian(s, alpha, step=1e-6):
    return np.stack(
        [(weights(s + step * e, alpha) - weights(s - step * e, alpha)) / (2 * step) for e in np.eye(len(s))]
    )


@pytest.mark.claim("prop-entmax-jacobian", "eq:entmax-vjp", "eq:sparsemax-vjp")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_jacobian_lives_on_the_support(alpha, rng):
    s = np.array([1.1, 0.9, 0.57, -0.6, -2.0, -9.0])
    p = weights(s, alpha)
    on = p > 0
    assert 1 < on.sum() < 6
    sigma = np.zeros(6)
    sigma[on] = p[on] ** (2 - alpha)
    J = np.diag(sigma) - np.outer(sigma, sigma) / sigma.sum()
    compare(jacobian(s, alpha), J, name="finite differences", atol=1e-7)
    rule = {1.5: an.entmax15, 2.0: an.sparsemax}.get(alpha, lambda s: an.entmax_bisect(s, alpha))
    compare(np.stack([rule(s)[1](e) for e in np.eye(6)]), J, name="the vjp", atol=1e-10)
    values = np.linalg.eigvalsh(J)
    assert values.min() > -1e-12 and (values > 1e-9).sum() == on.sum() - 1


@pytest.mark.claim("prop-entmax-jacobian")
def test_below_two_the_jacobian_is_continuous_at_a_tie_with_the_threshold():
    for alpha, continuous in ((1.3, True), (1.5, True), (2.0, False)):
        at = np.array([1 / (alpha - 1), 0.0])  # the second key lies on the threshold
        before, after = (jacobian(at + np.array([c, 0.0]), alpha, 1e-8) for c in (-1e-5, 1e-5))
        assert (np.abs(before - after).max() < 0.02) == continuous


@pytest.mark.claim("prop-alpha-slope", "eq:entmax-alpha-vjp")
def test_the_slope_in_alpha(rng):
    s, step = np.array([1.1, 0.9, 0.57, -0.6, -2.0, -9.0]), 1e-5
    for alpha in (1.2, 1.5, 2.0, 2.6):
        p = weights(s, alpha)
        on = p > 0
        assert 1 < on.sum() < 6
        sigma, eta = np.zeros(6), np.zeros(6)
        sigma[on], eta[on] = p[on] ** (2 - alpha), p[on] * np.log(p[on])
        sigma /= sigma.sum()
        slope = (p - sigma) / (alpha - 1) ** 2 - (eta - sigma * eta.sum()) / (alpha - 1)
        up, down = (an.entmax_bisect(s, alpha + c)[0] for c in (step, -step))
        compare((up - down) / (2 * step), slope, name="finite difference", atol=1e-7)
        dP = rng.standard_normal(6)
        compare(an.entmax_bisect(s, np.array([alpha]))[1](dP)[1], [dP @ slope], name="the vjp", atol=1e-9)


@pytest.mark.claim("prop-scale-limits")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_large_scores_choose_exactly_and_small_ones_not_at_all(alpha, rng):
    others = rng.uniform(-2, 0.5, 4)
    for c in (1, 2, 3):
        s = np.append(np.ones(c), others)
        delta = 1 - others.max()
        t = c ** (1 - alpha) / ((alpha - 1) * delta)
        for more in (1 + 1e-9, 3.0, 1e6):
            p = weights(t * more * s, alpha)
            compare(p[:c], np.full(c, 1 / c), name="shared", atol=1e-12)
            assert not p[c:].any()
        one_behind = np.append(np.ones(c), 1.0 - delta)
        assert weights(0.95 * t * one_behind, alpha)[-1] > 0, "the bound is sharp if one key trails"
        m, spread = len(s), s.max() - s.min()
        low = (m - 1) ** (1 - alpha) / ((alpha - 1) * spread)
        assert (weights(0.99 * low * s, alpha) > 0).all()
        compare(weights(1e-6 * low * s, alpha), np.full(m, 1 / m), name="flat", atol=1e-4)
        assert (an.softmax(t * s)[0] > 0).all()


def maximiser(h, s):
    """Of p s + sum h(p), for two keys, on a fine grid that ends at both corners."""
    p = np.linspace(0, 1, 200_001)
    with np.errstate(divide="ignore"):
        return p[(p * (s[0] - s[1]) + h(p) + h(1 - p)).argmax()]


@pytest.mark.claim("prop-slope-at-zero")
def test_the_slope_at_zero_decides():
    """Entropies that are no Tsallis entropy among them; the lead is as the slopes at 0 and 1 say."""
    for h, lead in (
        (lambda p: -(p**2) / 2, 1.0),
        (lambda p: -(p**4), 4.0),
        (lambda p: np.sin(2 * p), 2 - 2 * np.cos(2)),
        (lambda p: 2 * p - np.exp(p), np.e - 1),
    ):
        assert maximiser(h, (lead * 1.001, 0.0)) == 1
        assert maximiser(h, (lead * 0.97, 0.0)) < 1
    for h in (lambda p: -p * np.log(np.maximum(p, 1e-300)), lambda p: 4 * np.sqrt(p), np.log):
        assert 0.5 < maximiser(h, (5.0, 0.0)) < 1


@pytest.mark.claim("prop-slope-at-zero")
def test_energy_plus_entropy_has_its_least_value_at_a_corner(rng):
    energies = rng.standard_normal(4)
    inside = rng.dirichlet(np.ones(4), 2000)
    plus = inside @ energies + an.tsallis_entropy(inside, 1.0)[0]
    assert plus.min() > energies.min() + 1e-3


@pytest.mark.claim("prop-ratio-of-two")
def test_only_softmax_keeps_the_ratio_of_two_weights(rng):
    """The proof's chain: ratios are a function g of the difference with g(x) g(y) = g(x + y); other rules break it."""

    def ratio_moves(rule):
        s = np.array([0.3, 0.1, 0.0])
        ratios = [rule(np.append(s[:2], c)) for c in (-0.2, 0.0, 0.15)]
        return np.ptp([p[0] / p[1] for p in ratios])

    for b in (0.5, 1.0, -2.0):
        assert ratio_moves(lambda s, b=b: an.softmax(b * s)[0]) < 1e-12
    for alpha in ALPHAS:
        assert ratio_moves(lambda s, alpha=alpha: weights(s, alpha)) > 1e-3
    squares = lambda s: (s - s.min() + 1) ** 2 / ((s - s.min() + 1) ** 2).sum()  # noqa: E731
    assert ratio_moves(squares) > 1e-2
    x, y = rng.standard_normal(2)
    g = lambda d: np.divide(*an.softmax(np.array([d, 0.0, rng.standard_normal()]))[0][:2])  # noqa: E731
    compare(g(x) * g(y), g(x + y), atol=1e-12)
    compare(weights(np.array([1.0, 0.5, 0.4]), 2.0), [0.7, 0.2, 0.1], atol=1e-12)
