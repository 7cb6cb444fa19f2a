"""The page on random features: means and variances by quadrature, what right angles gain, what dividing out changes."""

import numpy as np
import pytest
from scipy.special import hyp1f1

import attnmath.numpy as an
from attnmath.check import check_vjp, compare

NODES, MASSES = np.polynomial.hermite_e.hermegauss(60)
MASSES = MASSES / MASSES.sum()
# A grid over two directions of the plane, with the mass of each point under the normal distribution.
PLANE = np.stack(np.meshgrid(NODES, NODES), -1).reshape(-1, 2)
MASS = np.outer(MASSES, MASSES).ravel()
PAIRS = [([0.3, -0.2], [0.5, 0.4]), ([0.7, 0.1], [-0.7, -0.1]), ([0.6, 0.5], [0.6, 0.5]), ([0.0, 0.0], [0.3, 0.8])]


def estimates(q, k, kind):
    """What each direction of the grid, alone, says of exp(q . k); by the library's features."""
    F, _ = an.random_features(np.array([q, k]), PLANE, kind=kind)
    products = F[0] * F[1] * len(PLANE)
    return products if kind == "positive" else products.reshape(2, -1).sum(0)


def gaps(q, k):
    q, k = np.array(q), np.array(k)
    return np.exp(q @ k), ((q + k) ** 2).sum(), ((q - k) ** 2).sum()


@pytest.mark.claim("thm-positive-features", "eq:positive-features")
@pytest.mark.parametrize("pair", PAIRS)
def test_positive_features_mean_and_variance(pair):
    kappa, plus, _ = gaps(*pair)
    g = estimates(*pair, "positive")
    assert g.min() > 0
    compare(MASS @ g, kappa, name="mean", atol=1e-12)
    compare(MASS @ (g - kappa) ** 2, kappa**2 * np.expm1(plus), name="variance", atol=1e-9)


@pytest.mark.claim("thm-trigonometric-features", "eq:trigonometric-features")
@pytest.mark.parametrize("pair", PAIRS)
def test_trigonometric_features_mean_and_variance(pair):
    kappa, _, minus = gaps(*pair)
    g = estimates(*pair, "trigonometric")
    compare(MASS @ g, kappa, name="mean", atol=1e-12)
    compare(MASS @ (g - kappa) ** 2, kappa**2 * (np.cosh(minus) - 1), name="variance", atol=1e-9)
    if minus > 1:
        assert g.min() < 0, "negative weights"


@pytest.mark.claim("lem-antithetic")
@pytest.mark.parametrize("pair", PAIRS)
def test_a_direction_and_its_opposite(pair):
    """The mean of both, against two independent directions."""
    kappa, plus, _ = gaps(*pair)
    F, _ = an.random_features(np.array(pair), np.concatenate([PLANE, -PLANE]))
    g = (F[0] * F[1]).reshape(2, -1).sum(0) * len(PLANE)
    variance = MASS @ (g - kappa) ** 2
    compare(variance, kappa**2 * (np.cosh(plus) - 1), name="variance", atol=1e-9)
    assert variance <= kappa**2 * np.expm1(plus) / 2 + 1e-12
    compare(kappa**2 * np.expm1(plus) / 2 - variance, kappa**2 * -np.expm1(-plus) / 2, name="gain", atol=1e-9)


def kummer(k, s):
    """The sum of c_j s^j / j!, c_j the product of (k + i) / (k + 2 i) over i < j."""
    total, term = 0.0, 1.0
    for j in range(200):
        total += term
        term *= (k + j) / (k + 2 * j) * s / (j + 1)
    return total


@pytest.mark.claim("thm-orthogonal-features", "pf:kummer")
@pytest.mark.parametrize("k", [2, 3, 8, 64])
@pytest.mark.parametrize("s", [0.01, 0.5, 2.0, 8.0, 30.0])
def test_the_series_and_the_bounds(k, s):
    """Kummer's function; and e^s minus it is at least the published bound, and that at least half its constant's."""
    M = kummer(k, s)
    compare(M, hyp1f1(k, k / 2, s / 2), rtol=1e-11)
    published = 2 / (k + 2) * np.expm1(s / 2) ** 2
    assert np.exp(s) - M >= published * (1 - 1e-8) - 1e-13
    assert published >= (np.expm1(s) - s) / (k + 2) * (1 - 1e-8) - 1e-13 > 0


@pytest.mark.claim("thm-orthogonal-features", "eq:orthogonal-directions")
def test_pairs_of_right_angled_directions(rng):
    """60,000 directions in blocks of 3: the mean product of two estimates, against the series and independence."""
    q, k = np.array([0.5, 0.2, -0.1]), np.array([0.3, 0.3, 0.2])
    s, rest = ((q + k) ** 2).sum(), np.exp(-(q @ q + k @ k))
    W = an.draw_directions(60_000, 3, rng)
    F, _ = an.random_features(np.array([q, k]), W)
    g = (F[0] * F[1] * len(W)).reshape(-1, 3)
    products = (g[:, [0, 0, 1]] * g[:, [1, 2, 2]]).mean(-1)
    error = products.std() / len(products) ** 0.5
    assert abs(products.mean() - rest * kummer(3, s)) < 4 * error
    assert rest * np.exp(s) - products.mean() > 4 * error, "smaller than independent ones by far more than chance"
    compare(g.mean(), np.exp(q @ k), name="each is unbiased still", atol=0.02)


@pytest.mark.claim("thm-orthogonal-features")
def test_the_variance_of_a_block(rng):
    """Blocks of 4 directions of 4 components: measured and exact; independent ones for comparison."""
    q, k, r = np.array([0.5, 0.2, -0.1, 0.3]), np.array([0.3, 0.1, 0.2, 0.1]), 4
    kappa, plus, _ = gaps(q, k)
    rest = np.exp(-(q @ q + k @ k))
    independent = kappa**2 * np.expm1(plus) / r
    exact = independent - (1 - 1 / r) * rest * (np.exp(plus) - kummer(4, plus))
    for orthogonal, want in ((True, exact), (False, independent)):
        W = an.draw_directions(25_000 * r, 4, rng, orthogonal=orthogonal)
        F, _ = an.random_features(np.array([q, k]), W)
        squares = ((F[0] * F[1] * len(W)).reshape(-1, r).mean(-1) - kappa) ** 2
        error = squares.std() / len(squares) ** 0.5
        assert abs(squares.mean() - want) < 4 * error and error < 0.04 * want
    assert exact < 0.95 * independent


@pytest.mark.claim("rem-orthogonal-waves")
def test_right_angles_can_hurt_sines_and_cosines():
    """In four components and far apart the covariance of two waves is positive."""
    for s, sign in ((1.0, -1), (12.0, 1)):
        covariance = kummer(4, -s) - np.exp(-s)
        assert np.sign(covariance) == sign
    x = np.linspace(0.1, 8, 50)
    compare([kummer(4, -2 * t) for t in x], np.exp(-x) * (1 - x + x * x / 6), name="a polynomial", atol=1e-9)


@pytest.mark.claim("prop-divided-out", "eq:performer")
def test_dividing_out_changes_nothing(rng):
    """Where the formula can be computed as it stands, both agree; the denominators are at least 1."""
    Q, K, V = rng.standard_normal((5, 4)), rng.standard_normal((9, 4)), rng.standard_normal((9, 2))
    W = rng.standard_normal((7, 4))
    c = 4**-0.25
    F, FK = (an.random_features(c * X, W)[0] for X in (Q, K))
    want = (F @ FK.T @ V) / (F @ FK.T).sum(-1, keepdims=True)
    compare(an.performer_attention(Q, K, V, directions=W)[0], want, atol=1e-12)
    A, B = 50 * rng.standard_normal((5, 7)), 50 * rng.standard_normal((9, 7))
    top = B.max(0)
    E = np.exp(A + top - (A + top).max(-1, keepdims=True)) @ np.exp(B - top).T
    assert E.sum(-1).min() >= 1


@pytest.mark.claim("eq:positive-features-vjp", "eq:trigonometric-features-vjp", "eq:performer-vjp")
def test_gradients(rng):
    X, W = rng.standard_normal((3, 4)), rng.standard_normal((7, 4))
    for kind in ("positive", "trigonometric"):
        check_vjp(lambda X, kind=kind: an.random_features(X, W, kind=kind), X, rng=rng)
    args = [rng.standard_normal(s) for s in ((5, 4), (8, 4), (8, 2))]
    check_vjp(lambda *a: an.performer_attention(*a, directions=W, causal=True), *args, rng=rng)
