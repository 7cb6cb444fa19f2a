"""The page on scores from a distance: what is equal, what spreads like heat, how fast, and what is no Gaussian."""

from itertools import pairwise
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.linalg import expm
from scipy.special import ive

import attnmath.numpy as an
from attnmath.check import check_vjp, compare
from attnmath.heat import dirichlet_energy, graph_heat, walk_spectrum, without_density

seeds = st.integers(0, 2**32 - 1)


def gaussian(X, sigma):
    return np.exp(an.metric_score(X, X, sigma)[0])


def mean_and_norm(x, share):
    return x @ share, np.sqrt(share @ (x - x @ share) ** 2)


@pytest.mark.slow
@pytest.mark.claim("prop-metric-dot", "eq:metric-score", "eq:metric-attention")
@settings(max_examples=8)
@given(seeds, st.floats(0.5, 3.0))
def test_distances_are_a_dot_product_with_a_bias(seed, sigma):
    """Differences written out; equal lengths of keys make it dot-product attention, other lengths do not."""
    rng = np.random.default_rng(seed)
    Q, K, V = rng.standard_normal((4, 3)), rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    S = -((Q[:, None] - K) ** 2).sum(-1) / (2 * sigma**2)
    want = np.exp(S) / np.exp(S).sum(-1, keepdims=True) @ V
    bias = -(K**2).sum(-1)[None] / (2 * sigma**2)
    compare(an.metric_attention(Q, K, V, sigma)[0], want, atol=1e-11)
    compare(an.attention(Q, K, V, scale=sigma**-2, bias=bias)[0], want, atol=1e-11)
    one = 2 * K / np.linalg.norm(K, axis=-1, keepdims=True)
    compare(an.metric_attention(Q, one, V, sigma)[0], an.attention(Q, one, V, scale=sigma**-2)[0], atol=1e-11)
    one[0] *= 1.3
    P, M = (
        f(Q, one, np.eye(6))
        for f in (lambda *a: an.attention(*a, scale=sigma**-2)[0], lambda *a: an.metric_attention(*a, sigma)[0])
    )
    assert abs(P - M).max() > 1e-4, "one key that is longer takes part in another way"


@pytest.mark.claim("eq:metric-score-vjp", "eq:metric-attention-vjp")
def test_gradients_by_finite_differences(rng):
    Q, K, V, width = (rng.standard_normal(s) for s in ((2, 4, 3), (2, 6, 3), (2, 6, 5), 2))
    check_vjp(an.metric_score, Q, K, 0.5 + width**2, rng=rng)
    check_vjp(an.metric_attention, Q, K, V, 0.5 + width**2, rng=rng)


def graph(rng, n, loops=True):
    """A random connected graph, with loops or without."""
    A = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
    A = A + A.T + (abs(np.subtract.outer(range(n), range(n))) == 1)
    return A if loops else A * (1 - np.eye(n))


@pytest.mark.claim("thm-walk-spectrum", "eq:walk-spectrum", "eq:dirichlet-energy", "lem-euler-step")
@settings(max_examples=25)
@given(seeds, st.booleans())
def test_spectrum_rate_and_energy(seed, loops):
    """NumPy's eigenvalues of the unsymmetric P; powers of P on values; the energy as a sum over pairs."""
    rng = np.random.default_rng(seed)
    A = graph(rng, 6, loops)
    P = A / A.sum(-1, keepdims=True)
    eigenvalues = np.linalg.eigvals(P)
    assert abs(eigenvalues.imag).max() < 1e-9 and -1 - 1e-9 < eigenvalues.real.min()
    values, _, share = walk_spectrum(A)
    compare(np.sort(eigenvalues.real), values[::-1], atol=1e-9)
    compare(values[0], 1.0, atol=1e-12)
    rate, x = abs(values[1:]).max(), rng.standard_normal(6)

    def energy(x):
        return (A * (x[:, None] - x) ** 2).sum() / 2

    (mean, distance), y = mean_and_norm(x, share), x
    for t in range(1, 12):
        before, y = y, P @ y
        compare(y, before - (np.eye(6) - P) @ before, atol=1e-12)
        compare(y @ share, mean, atol=1e-12)
        assert np.sqrt(share @ (y - mean) ** 2) <= rate**t * distance * (1 + 1e-9)
        assert energy(y) <= rate**2 * energy(before) * (1 + 1e-9)
        compare(dirichlet_energy(A, y), energy(y), atol=1e-9)


@pytest.mark.claim("thm-walk-spectrum")
def test_the_rate_is_attained_and_bipartite_graphs_never_rest():
    """Along the second eigenvector the bound is an equality; without loops an edge swaps its ends for ever."""
    A = gaussian(np.array([[0.0], [1.0], [2.5]]), 1.0)
    values, U, _ = walk_spectrum(A)
    y = A / A.sum(-1, keepdims=True) @ U[:, 1]
    compare(y, values[1] * U[:, 1], atol=1e-12)
    compare(dirichlet_energy(A, y), values[1] ** 2 * dirichlet_energy(A, U[:, 1]), atol=1e-12)
    values, _, _ = walk_spectrum(np.array([[0.0, 1.0], [1.0, 0.0]]))
    compare(values, [1.0, -1.0], atol=1e-12)


@pytest.mark.claim("thm-walk-spectrum")
@settings(max_examples=20)
@given(seeds, st.floats(0.1, 5.0))
def test_a_gaussian_kernel_has_no_negative_eigenvalue(seed, sigma):
    X = np.random.default_rng(seed).standard_normal((9, 2))
    A = gaussian(X, sigma)
    assert np.linalg.eigvalsh(A).min() > -1e-12 * len(A)
    values, _, _ = walk_spectrum(A)
    assert -1e-12 < values.min() and values.max() < 1 + 1e-12


@pytest.mark.claim("lem-power-kernel")
@pytest.mark.parametrize("power", [0.5, 1.0, 1.7, 2.0])
def test_powers_up_to_two_are_positive(power):
    X = np.random.default_rng(2).uniform(-2, 2, 30)
    for c in (0.01, 0.1, 1.0, 10.0):
        assert np.linalg.eigvalsh(np.exp(-c * abs(X[:, None] - X) ** power)).min() > -1e-11


@pytest.mark.claim("lem-power-kernel")
@pytest.mark.parametrize("power", [2.1, 3.0, 4.0, 8.0])
def test_three_points_refute_each_power_beyond_two(power):
    x, c = np.arange(3.0), 1e-3 if power < 4 else 0.05
    A = np.exp(-c * abs(x[:, None] - x) ** power)
    w, a = np.array([1.0, -2.0, 1.0]), np.exp(-c)
    compare(w @ A @ w, 6 - 8 * a + 2 * a ** (2**power), atol=1e-12)
    assert w @ A @ w < -1e-5 and np.linalg.eigvalsh(A).min() < 0
    values, _, _ = walk_spectrum(A)
    assert values.min() < 0, "a mode of the weights that changes its sign at each step"


@pytest.mark.claim("lem-step-against-heat", "eq:graph-heat")
def test_one_step_against_one_unit_of_time(rng):
    """In the stationary norm the gap is the largest of e^(l-1) - l, and at most 1/e without negative eigenvalues."""
    for A, most in (
        (gaussian(rng.standard_normal((8, 2)), 0.8), np.exp(-1)),
        (graph(rng, 8, loops=False), np.exp(-2) + 1),
        (np.ones((8, 8)), np.exp(-1)),
    ):
        P = A / A.sum(-1, keepdims=True)
        values, _, share = walk_spectrum(A)
        H = expm(-(np.eye(8) - P))
        compare(graph_heat(A, 1.0), H, atol=1e-12)
        root = np.sqrt(share)
        gap = np.linalg.norm(root[:, None] * (P - H) / root, 2)
        compare(gap, (np.exp(values - 1) - values).max(), atol=1e-12)
        assert 0.1 < gap <= most + 1e-15
    compare(gap, np.exp(-1), name="reached by tokens that are all in one place", atol=1e-12)


def circle_heat(theta, t):
    """By the Fourier series, not by images."""
    k = np.arange(1, 200)
    return (1 + 2 * (np.exp(-(k**2) * t) * np.cos(np.multiply.outer(theta, k))).sum(-1)) / (2 * np.pi)


@pytest.mark.claim("prop-circle-heat")
def test_heat_on_a_circle_is_a_gaussian_only_nearby():
    for t in (0.05, 0.2, 1.0):
        for theta in (0.0, 1.0, 2.5, np.pi):
            images = np.exp(-((theta + 2 * np.pi * np.arange(-30, 31)) ** 2) / (4 * t)).sum() / np.sqrt(4 * np.pi * t)
            compare(circle_heat(theta, t), images, atol=1e-12)

    def ratio(theta, t):
        return circle_heat(theta, t) * np.sqrt(4 * np.pi * t) * np.exp(theta**2 / (4 * t))

    assert abs(ratio(1.0, 0.05) - 1) < 1e-12 and abs(ratio(2.0, 0.1) - 1) < 2e-3
    for t in (0.25, 0.35, 0.5):
        compare(ratio(np.pi, t), 2.0, atol=1e-7 if t < 0.3 else 1e-4 if t < 0.4 else 1e-3)
    for t in (4.0, 16.0):
        assert ratio(np.pi, t) > np.sqrt(4 * np.pi * t) / (2 * np.pi)
    for t in (0.05, 0.3, 2.0):
        n = 40
        kernel = circle_heat(2 * np.pi * np.subtract.outer(np.arange(n), np.arange(n)) / n, t)
        assert np.linalg.eigvalsh(kernel).min() > -1e-12, "the heat kernel itself is positive"


@pytest.mark.claim("prop-circle-heat")
def test_the_gaussian_of_the_arc_is_not_positive():
    """Four points of a circle: 1 - 2 a + a^4 is negative from a = 0.5437 to 1."""
    for a, sign in ((0.4, 1), (0.54, 1), (0.55, -1), (0.9, -1), (0.99, -1)):
        arcs = np.minimum(D := abs(np.subtract.outer(range(4), range(4))), 4 - D)
        eigenvalues = np.linalg.eigvalsh(a ** (arcs**2.0))
        assert np.sign(eigenvalues.min()) == sign
        assert abs(eigenvalues - (1 - 2 * a + a**4)).min() < 1e-12


@pytest.mark.claim("prop-graph-short-times")
def test_heat_on_a_graph_at_short_times_counts_shortest_paths(rng):
    """A grid, where comb(i + j, i) shortest paths lead to the corner (i, j)."""
    side = 4
    at = [(i, j) for i in range(side) for j in range(side)]
    A = np.array([[float(abs(i - k) + abs(j - l) == 1) for k, l in at] for i, j in at])
    P = A / A.sum(-1, keepdims=True)
    for i, j in ((0, 1), (1, 1), (2, 1), (2, 2)):
        d, b = i + j, at.index((i, j))
        walks = np.linalg.matrix_power(P, d)[0, b]
        assert np.linalg.matrix_power(A, d)[0, b] == comb(d, i)
        for t in (1e-2, 1e-3):
            H = expm(-t * (np.eye(len(A)) - P))
            compare(H[0, b], walks * t**d / factorial(d), atol=0.0, rtol=5 * t)
            assert abs(np.log(graph_heat(A, t)[0, b]) / np.log(t) - d) < 6 / abs(np.log(t)) or d > 3


@pytest.mark.claim("prop-graph-short-times")
def test_on_a_line_of_nodes_long_times_are_gaussian_and_short_ones_are_not():
    """e^-t I_d(t): the logarithm at distance 2 is 2 to 4 times that at distance 1."""
    n = 121
    A = (abs(np.subtract.outer(range(n), range(n))) == 1).astype(float)
    ratios = []
    for t in (1e-3, 1.0, 100.0):
        row = graph_heat(A, t)[n // 2, n // 2 :][:3]
        if t >= 1:
            compare(row, ive(np.arange(3), t), atol=1e-9)
        row = ive(np.arange(3), t)
        ratios.append(np.log(row[2] / row[0]) / np.log(row[1] / row[0]))
    assert 2 < ratios[0] < 2.2 < ratios[1] < 3.5 < 3.95 < ratios[2] < 4.05


@pytest.mark.claim("prop-circle-spectrum")
@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0])
def test_the_spectrum_of_a_circle_is_a_ratio_of_bessel_functions(sigma):
    theta = 2 * np.pi * np.arange(200) / 200
    X = np.stack([np.cos(theta), np.sin(theta)], -1)
    values, _, _ = walk_spectrum(gaussian(X, sigma))
    kappa, k = sigma**-2, np.array([0, 1, 1, 2, 2, 3, 3])
    compare(values[:7], ive(k, kappa) / ive(0, kappa), atol=1e-12)
    P, _ = an.attention(X, X, np.eye(200), scale=kappa)
    compare(P, an.metric_attention(X, X, np.eye(200), sigma)[0], atol=1e-12)
    for few in (5, 8):  # the sum over all integers that are k modulo the number of tokens
        X, m = np.stack([f(2 * np.pi * np.arange(few) / few) for f in (np.cos, np.sin)], -1), np.arange(-9, 10) * few
        values, _, _ = walk_spectrum(gaussian(X, sigma))
        want = [ive(abs(j + m), kappa).sum() / ive(abs(m), kappa).sum() for j in range(few)]
        compare(values, np.sort(want)[::-1], name="few tokens", atol=1e-12)
    errors = [abs(2 * s**-2 * (1 - ive(k, s**-2) / ive(0, s**-2)) - k**2).max() for s in (0.4, 0.2, 0.1, 0.05)]
    assert all(b < 0.3 * a for a, b in pairwise(errors)) and errors[-1] < 0.1


def averaged(g, x, sigma):
    """The mean of g under a normal number around x."""
    return quad(lambda u: g(x + sigma * u) * np.exp(-u * u / 2), -9, 9, epsabs=1e-13, epsrel=1e-12)[0] / np.sqrt(
        2 * np.pi
    )


def density(x):
    return (1 + 0.6 * np.cos(x)) / (2 * np.pi)


@pytest.mark.claim("thm-drift", "eq:without-density")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("x", [0.4, 2.0])
def test_the_limit_has_a_drift_that_the_exponent_removes(alpha, x):
    """By quadrature, for infinitely many points: the error falls with the square of the bandwidth."""
    slope, curvature = 2 * np.cos(2 * x), -4 * np.sin(2 * x)
    drift = -0.6 * np.sin(x) / (1 + 0.6 * np.cos(x))
    want = curvature / 2 + (1 - alpha) * slope * drift
    errors = []
    for sigma in (0.2, 0.1):
        smooth = lambda y, s=sigma: (1 + 0.6 * np.cos(y) * np.exp(-s * s / 2)) / (2 * np.pi)  # noqa: E731
        p = lambda y, q=smooth: density(y) * q(y) ** -alpha  # noqa: E731
        mean = averaged(lambda y: np.sin(2 * y) * p(y), x, sigma) / averaged(p, x, sigma)
        errors.append(abs((mean - np.sin(2 * x)) / sigma**2 - want))
    assert errors[1] < 0.3 * errors[0] and errors[1] < 0.05
    assert alpha == 1 or abs(want - curvature / 2) > 0.1, "the drift is no rounding"


@pytest.mark.claim("thm-drift", "eq:without-density")
def test_points_of_a_density_follow_the_limit():
    """1,000 points at the quantiles of the density, the library's scores and exponents."""
    grid = np.linspace(-np.pi, np.pi, 200_001)
    cdf = (grid + np.pi + 0.6 * np.sin(grid)) / (2 * np.pi)
    theta, sigma = np.interp((np.arange(1000) + 0.5) / 1000, cdf, grid), 0.12
    gap = abs(np.subtract.outer(theta, theta))
    S = -(np.minimum(gap, 2 * np.pi - gap) ** 2) / (2 * sigma**2)
    f, drift = np.sin(theta), -0.6 * np.sin(theta) / (1 + 0.6 * np.cos(theta))
    for alpha in (0.0, 1.0):
        P = an.softmax(without_density(S, alpha))[0]
        want = -np.sin(theta) / 2 + (1 - alpha) * np.cos(theta) * drift
        compare((P @ f - f) / sigma**2, want, atol=0.03)
    assert abs(np.cos(theta) * drift).max() > 0.3


@pytest.mark.claim("lem-causal-spectrum")
@settings(max_examples=15)
@given(seeds)
def test_under_a_causal_mask_everything_flows_to_the_first_token(seed):
    rng = np.random.default_rng(seed)
    Q, K, x = rng.standard_normal((6, 3)), rng.standard_normal((6, 3)), rng.standard_normal(6)
    P, _ = an.attention_weights(Q, K, np.tril(np.ones((6, 6), bool)))
    compare(np.sort(np.linalg.eigvals(P).real), np.sort(np.diag(P)), atol=1e-4)
    assert np.diag(P)[0] == 1 and np.diag(P)[1:].max() < 1
    steps = int(60 / (1 - np.diag(P)[1:].max()))
    compare(np.linalg.matrix_power(P, steps) @ x, np.full(6, x[0]), atol=1e-9)


@pytest.mark.claim("lem-causal-spectrum")
def test_the_rate_under_a_causal_mask_and_its_polynomial():
    """Different diagonal entries give a pure power; equal ones may give a power times t, and at most t^(n-2)."""

    def left(P, t):
        return abs(np.linalg.matrix_power(P, t)[:, 1:]).max()  # the first column has what is left to 1

    different = np.array([[1, 0, 0, 0], [0.6, 0.4, 0, 0], [0.3, 0.2, 0.5, 0], [0.2, 0.4, 0.1, 0.3]])
    compare(left(different, 61) / left(different, 60), 0.5, name="rate", atol=1e-4)
    equal = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
    compare((np.linalg.matrix_power(equal, 40) @ [0, 1, 0])[2], 40 / 2 * 0.5**40, name="t times a power", rtol=1e-9)
    four = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.1, 0.3, 0.5]])
    growth = [left(four, t) * 2.0**t for t in (200, 400)]
    assert 3.6 < growth[1] / growth[0] < 4.1, "t squared for four tokens"


@pytest.mark.claim("prop-pseudo-metric")
@settings(max_examples=20)
@given(seeds)
def test_two_maps_give_no_pseudo_metric(seed):
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((7, 3)), rng.standard_normal((2, 3, 4))

    def distances(Q, K):
        return np.linalg.norm((X @ Q)[:, None] - X @ K, axis=-1)

    own = distances(W[0], W[0])
    compare(own, own.T, name="symmetric", atol=1e-12)
    compare(np.diag(own), np.zeros(7), name="zero from itself", atol=1e-12)
    assert (own[:, None] <= own[:, :, None] + own[None] + 1e-12).all() and own[~np.eye(7, dtype=bool)].min() > 0
    flat = W[0].copy()
    flat[2] = flat[0] + flat[1]  # rank 2 of 3: two tokens that differ by (1, 1, -1) have the distance 0
    assert np.linalg.norm(np.array([1.0, 1, -1]) @ flat) < 1e-12
    other = distances(*W)
    assert np.diag(other).min() > 1e-6 and abs(other - other.T).max() > 1e-6
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    for R, symmetric in ((-np.eye(4), True), (turn + turn.T - np.eye(4), None), (turn, False)):
        K = W[0] @ R
        gap = abs(distances(W[0], K) - distances(W[0], K).T).max()
        conditions = abs(W[0] @ W[0].T - K @ K.T).max() + abs(W[0] @ K.T - K @ W[0].T).max()
        assert (gap < 1e-9) == (conditions < 1e-9) and symmetric in (None, gap < 1e-9)
