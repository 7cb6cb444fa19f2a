"""More features than directions: exact losses, how many directions fit, and what a penalty on the sum does."""

import math

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.optimize import minimize, nnls

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.superposition import (
    coherence,
    dropped_loss,
    opposite_border,
    opposite_loss,
    random_fit,
    sign_directions,
    soft_threshold,
    sparse_features,
    welch_bound,
)

PRESENT = pytest.mark.parametrize("p", [0.05, 0.3, 4 / 7, 0.8, 1.0])
CELLS = 20
GRID = (np.arange(CELLS) + 0.5) / CELLS


def expected(p, w, b, importance=1.0):
    """The loss of a model of two features, over a grid of midpoints with the mass of absence at 0."""
    x = np.concatenate([[0.0], GRID])
    mass = np.concatenate([[1 - p], np.full(CELLS, p / CELLS)])
    X = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    Y, _ = an.superposition(X, np.asarray(w, float).reshape(2, 1), np.asarray(b, float))
    return float(np.outer(mass, mass).reshape(-1) @ ((X - Y) ** 2 @ [1.0, importance]))


@pytest.mark.claim("prop-two-in-one", "eq:dropped-loss")
@PRESENT
@pytest.mark.parametrize("r", [1.0, 0.3])
def test_the_least_loss_without_a_direction_for_one_feature(p, r, rng):
    """No model with a zero is better, wherever SciPy looks, and one reaches it."""
    least = dropped_loss(p, r)
    compare(expected(p, [1, 0], [0, p / 2], r), least, name="reached", rtol=2e-3, atol=1e-4)
    for dropped in (0, 1):
        for _ in range(2):

            def loss(v, dropped=dropped):
                w = np.insert([v[0]], dropped, 0.0)
                return expected(p, w, v[1:], r)

            found = minimize(loss, rng.uniform(0, 1.2, 3), method="Nelder-Mead", options={"maxiter": 60}).fun
            assert found >= least - 3e-4  # the grid's variance is a little less


@pytest.mark.claim("prop-two-in-one", "eq:opposite-loss")
@PRESENT
@pytest.mark.parametrize("r", [1.0, 0.3])
def test_the_loss_of_opposite_directions(p, r, rng):
    """Against an integral by SciPy, and a simulation to five standard errors."""
    square = dblquad(lambda y, x: min(x, y) ** 2, 0, 1, 0, 1, epsabs=1e-5)[0]
    compare(opposite_loss(p, r), (1 + r) * p * p * square, atol=1e-5, rtol=1e-4)
    X = sparse_features(rng, (200_000, 2), p)
    Y, _ = an.superposition(X, np.array([[1.0], [-1.0]]), np.zeros(2))
    each = (X - Y) ** 2 @ [1.0, r]
    assert abs(each.mean() - opposite_loss(p, r)) < 5 * each.std() / len(each) ** 0.5


@pytest.mark.claim("prop-two-in-one", "eq:opposite-border")
@pytest.mark.parametrize("r", [1.0, 0.7, 0.3, 0.05])
def test_the_border_is_where_the_losses_meet(r):
    border = opposite_border(r)
    compare(opposite_loss(border, r), dropped_loss(border, r), atol=1e-14)
    for p in np.linspace(0.01, 1, 60):
        assert (opposite_loss(p, r) < dropped_loss(p, r)) == (p < border)
    assert opposite_border(1.0) == 4 / 7


@pytest.mark.claim("prop-two-in-one", "pf:tilted-model")
@pytest.mark.parametrize("p", [0.1, 4 / 7, 0.8, 0.95])
def test_with_scale_and_bias_opposite_directions_always_win(p, rng):
    """Without the cut the tilted model loses as much as a dropped feature; the cut is all of its advantage."""
    X = sparse_features(rng, (400_000, 2), p)
    W, b = np.array([[1.0], [-1.0]]) / 2**0.5, np.full(2, p / 2)
    Y, _ = an.superposition(X, W, b)
    uncut = X @ W @ W.T + b
    gain = ((X - uncut) ** 2 - (X - Y) ** 2).sum(-1)
    assert (gain >= -1e-12).all() and gain.mean() > 5 * gain.std() / len(gain) ** 0.5
    plain = ((X - uncut) ** 2).sum(-1)
    assert abs(plain.mean() - dropped_loss(p)) < 5 * plain.std() / len(plain) ** 0.5
    compare(expected(1.0, W, [0.5, 0.5]), dropped_loss(1.0), name="without absence a tie", atol=1e-4, rtol=3e-3)


@pytest.mark.claim("thm-directions-fit", "eq:welch")
@pytest.mark.parametrize(("n", "m"), [(3, 2), (5, 2), (7, 3), (12, 5), (4, 6)])
def test_no_directions_beat_welchs_bound(n, m, rng):
    """Random ones do not, and ones that go downhill on a high power of the cosines do not either."""
    assert all(coherence(rng.standard_normal((n, m))) >= welch_bound(n, m) - 1e-12 for _ in range(20))

    def crowded(v):
        U, back = an.unit_norm(v.reshape(n, m))
        C = U @ U.T - np.eye(n)
        return (C**8).sum(), back(16 * C**7 @ U).reshape(-1)

    best = minimize(crowded, rng.standard_normal(n * m), jac=True, options={"maxiter": 60}).x.reshape(n, m)
    assert welch_bound(n, m) - 1e-12 <= coherence(best)
    if (n, m) == (3, 2):
        compare(coherence(best), 0.5, name="three in a plane", atol=1e-3)


@pytest.mark.claim("thm-directions-fit", "eq:welch")
@pytest.mark.parametrize("m", [2, 3, 6])
def test_the_corners_of_a_simplex_reach_it(m):
    D = np.linalg.svd(np.eye(m + 1) - 1 / (m + 1))[0][:, :m]
    compare(coherence(D), welch_bound(m + 1, m), atol=1e-12)
    compare(welch_bound(m + 1, m), 1 / m, atol=1e-15)
    assert welch_bound(m, m) == 0


@pytest.mark.claim("thm-directions-fit", "eq:random-fit")
@pytest.mark.parametrize(("m", "eps"), [(96, 0.45), (150, 0.35), (60, 0.6)])
def test_so_many_random_directions_fit(m, eps, rng):
    """The share of draws with a large cosine is at most the union bound, and a pair's is at most Hoeffding's."""
    n = random_fit(m, eps)
    assert n > 10
    failed = np.mean([coherence(sign_directions(rng, n, m)) >= eps for _ in range(40)])
    assert failed < 0.9  # the theorem: below 1, so that some draw succeeds
    few = math.floor(math.sqrt(0.1) * math.exp(m * eps * eps / 4))
    if few >= 2:
        assert np.mean([coherence(sign_directions(rng, few, m)) >= eps for _ in range(40)]) <= 0.25
    pairs = np.abs((sign_directions(rng, 8_000, m) * sign_directions(rng, 1, m)).sum(-1))
    for e in (0.1, 0.2, eps):
        bound = 2 * math.exp(-m * e * e / 2)
        assert (pairs >= e - 1e-12).mean() <= bound + 5 * math.sqrt(min(bound, 1) / 8_000)


@pytest.mark.claim("prop-shrinkage", "eq:soft-threshold")
@pytest.mark.parametrize("amount", [0.1, 0.5])
def test_a_penalty_makes_every_code_smaller_by_the_same(amount, rng):
    """Against SciPy's bounded minimiser, for an orthonormal dictionary."""
    D = np.linalg.qr(rng.standard_normal((6, 6)))[0][:4]
    for _ in range(5):
        x = rng.standard_normal(6)

        def loss(z, x=x):
            left = z @ D - x
            return left @ left / 2 + amount * z.sum(), D @ left + amount

        found = minimize(loss, np.zeros(4), jac=True, bounds=[(0, None)] * 4, method="L-BFGS-B", tol=1e-14).x
        compare(soft_threshold(D @ x, amount), found, name="code", atol=1e-6)
    a = np.array([2.0, 1.0, 0.7, 0.0])
    compare(soft_threshold(D @ (a @ D), amount), np.maximum(a - amount, 0), name="features", atol=1e-12)
    compare(nnls(D.T, a @ D)[0], a, name="without a penalty they are exact", atol=1e-10)


@pytest.mark.claim("prop-shrinkage", "pf:scale-escape")
def test_without_unit_length_the_penalty_escapes(rng):
    X, E, a, D = (rng.standard_normal(s) for s in ((9, 5), (5, 7), (7,), (7, 5)))
    Z, _ = an.sparse_code(X, E, a)
    for s in (2.0, 100.0):
        small, _ = an.sparse_code(X, E / s, a / s)
        compare(small @ (s * D), Z @ D, name="reconstruction", atol=1e-11)
        compare(small.sum(), Z.sum() / s, name="penalty", rtol=1e-12)
    Y, _ = an.sparse_autoencoder(X, E / 2, a / 2, 2 * D, np.zeros(5))
    compare(Y, an.sparse_autoencoder(X, E, a, D, np.zeros(5))[0] / 2, name="with unit length it does not", atol=1e-12)


def test_the_moments_of_a_sparse_feature(rng):
    p = 0.3
    X = sparse_features(rng, (400_000,), p)
    compare(X.mean(), p / 2, atol=2e-3)
    compare(X.var(), p / 3 - p * p / 4, atol=2e-3)
    compare(p * quad(lambda u: u * u, 0, 1)[0] - (p / 2) ** 2, p / 3 - p * p / 4, atol=1e-12)
