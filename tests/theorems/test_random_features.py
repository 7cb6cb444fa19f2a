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


def quotient(q, K, V):
    """For one query: the weights, the output, and the numbers X and Y of each direction of the grid."""
    P, O = an.attention_weights(q[None], K, scale=1.0)[0][0], an.attention(q[None], K, V, scale=1.0)[0][0]
    F, _ = an.random_features(np.vstack([q, K]), PLANE)
    g = F[1:] * F[0] * len(PLANE)  # what each direction says of each key, (keys, directions)
    Z = np.exp(K @ q).sum()
    return P, O, np.einsum("jw,jv->wv", g / Z, V - O), g.sum(0) / Z


def of_the_lemma(q, K, V):
    P, O = an.attention_weights(q[None], K, scale=1.0)[0][0], an.attention(q[None], K, V, scale=1.0)[0][0]
    U, Y = q + K, V - O
    return np.einsum("j,l,jl,jl->", P, P, np.exp(U @ U.T), Y @ Y.T)


@pytest.mark.claim("lem-performer-quotient", "pf:performer-quotient")
def test_the_error_of_the_quotient_by_quadrature(rng):
    """Numerator and denominator of the error have the means 0 and 1, the numerator the mean square of the lemma."""
    for keys in (2, 5):
        q, K, V = (0.4 * rng.standard_normal(shape) for shape in (2, (keys, 2), (keys, 3)))
        P, O, X, Y = quotient(q, K, V)
        compare(MASS @ X, np.zeros(3), name="mean of X", atol=1e-10)
        compare(MASS @ Y, 1.0, name="mean of Y", atol=1e-10)
        F = of_the_lemma(q, K, V)
        compare(MASS @ (X**2).sum(-1), F, name="F", atol=1e-9, rtol=1e-9)
        entries = P**2 * np.expm1(((q + K) ** 2).sum(-1)) * (V**2).sum(-1)  # as if the entries erred independently
        assert F < entries.sum(), "what the entries share cancels"
        t = 0.3 * rng.standard_normal(2)
        compare(quotient(q, K + t, V)[:2], (P, O), name="a shift changes no weight", atol=1e-12)
        assert abs(of_the_lemma(q, K + t, V) / F - 1) > 1e-3, "and it changes the error"
    compare(of_the_lemma(q, np.ones((4, 2)), rng.standard_normal((4, 3))), 0.0, name="equal keys", atol=1e-10)


@pytest.mark.slow
@pytest.mark.claim("lem-performer-quotient")
def test_the_squared_error_falls_like_the_lemma_says(rng):
    """The library's core with 400 independent directions, 1,500 times: r times the squared error is F."""
    q, K, V = (0.4 * rng.standard_normal(shape) for shape in ((1, 2), (5, 2), (5, 3)))
    exact, F, r = an.attention(q, K, V, scale=1.0)[0], of_the_lemma(q[0], K, V), 400
    draws = [an.draw_directions(r, 2, rng, orthogonal=False) for _ in range(1_500)]
    off = [an.performer_attention(q, K, V, directions=W, scale=1.0)[0] - exact for W in draws]
    squares = r * (np.array(off) ** 2).sum((-2, -1))
    assert abs(squares.mean() - F) < 5 * squares.std() / 1_500**0.5 + 0.02 * F
    assert 5 * squares.std() / 1_500**0.5 < 0.25 * F, "so that a factor would be seen"


@pytest.mark.claim("lem-two-keys-shift")
@pytest.mark.parametrize("copies", [1, 9])
def test_two_keys_want_their_middle(copies, rng):
    q, k1, k2 = 0.7 * rng.standard_normal((3, 2))
    v1, v2 = rng.standard_normal((2, 3))
    K, V = np.vstack([k1, *[k2] * copies]), np.vstack([v1, *[v2] * copies])
    P = an.attention_weights(q[None], K, scale=1.0)[0][0]
    best = -q - (k1 + k2) / 2
    at_best = of_the_lemma(q, K + best, V)
    for t in (np.zeros(2), best, *rng.standard_normal((4, 2)), best + 0.05 * rng.standard_normal(2)):
        a, b = q + k1 + t, q + k2 + t
        bracket = np.exp(a @ a) + np.exp(b @ b) - 2 * np.exp(a @ b)
        compare(
            of_the_lemma(q, K + t, V), (P[0] * P[1:].sum()) ** 2 * ((v1 - v2) ** 2).sum() * bracket, rtol=1e-9, atol=0.0
        )
        assert of_the_lemma(q, K + t, V) > at_best or (t == best).all()
    mean = -q - K.mean(0)  # where the keys are
    assert of_the_lemma(q, K + mean, V) > (1 + 1e-6) * at_best or copies == 1


@pytest.mark.claim("lem-two-keys-shift")
def test_nine_copies_pull_the_mean_to_their_side():
    K, V = np.array([[2.0]] + [[-2.0]] * 9), np.eye(2)[[0] + [1] * 9]
    before, after = (of_the_lemma(np.zeros(1), X, V) for X in (K, K - K.mean(0)))
    compare(after / before, (np.exp(12.96) + np.exp(0.16) - 2 * np.exp(-1.44)) / (2 * np.exp(4) - 2 * np.exp(-4)))
    assert after > 3_800 * before
