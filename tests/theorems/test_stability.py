"""The results of the page on infinite depth and width: random layers, rank, depth over width, shaped attention."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, polygamma
from scipy.stats import chi2, kstest

import attnmath.numpy as an
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=10, deadline=None)


def T(X):
    return np.swapaxes(X, -1, -2)


def gram(X):
    return X @ T(X) / X.shape[-1]


# what a random layer sees


@pytest.mark.claim("lem-random-layer")
@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (0.6, 0.8), (1.0, 0.5)])
def test_mean_and_variance_of_the_next_covariance(a, b, rng):
    n, d, draws = 3, 5, 100_000
    X, A = rng.standard_normal((n, d)), rng.standard_normal((n, n))  # any matrix, not only weights
    C = gram(X)
    M = A @ C @ A.T
    Z = A @ X @ (rng.standard_normal((draws, d, d)) / d**0.5)
    compare(np.cov(Z[:, :, 0].T), M, name="a column's covariance", atol=0.03 * np.abs(M).max())
    both = np.cov(Z[:, :, 0].T, Z[:, :, 1].T)[:n, n:]
    compare(both, 0 * M, name="two columns", atol=0.03 * np.abs(M).max())
    new = gram(a * X + b * Z)
    compare(new.mean(0), a**2 * C + b**2 * M, name="mean", atol=0.02 * np.abs(M).max())
    size, own = np.diag(M), np.diag(C)
    variance = b**4 * (np.outer(size, size) + M**2)
    variance += a**2 * b**2 * (np.outer(own, size) + np.outer(size, own) + 2 * C * M)
    compare(new.var(0), variance / d, name="variance", atol=0.0, rtol=0.04)


@pytest.mark.slow
@pytest.mark.claim("lem-random-layer")
@pytest.mark.parametrize(("d", "k"), [(4, 1), (4, 3), (32, 3), (4, 256)])
def test_scores_keep_their_covariance_at_every_width(d, k, rng):
    n, draws = 3, 30_000
    X = rng.standard_normal((n, d))
    C = gram(X)
    S = []
    for _ in range(0, draws, 2000):
        Wq, Wk = rng.standard_normal((2, 2000, d, k)) / d**0.5
        S.append(an.scaled_dot_score(X @ Wq, X @ Wk)[0])
    S = np.concatenate(S)
    flat = S.reshape(draws, -1)
    scale = np.abs(C).max() ** 2
    compare(flat.mean(0), np.zeros(n * n), name="mean", atol=0.04 * scale)
    compare(flat.T @ flat / draws, np.kron(C, C), name="covariance", atol=0.08 * scale)
    excess = (S[:, 0, 0] ** 4).mean() / (S[:, 0, 0] ** 2).mean() ** 2 - 3
    assert abs(excess) < 0.25 if k == 256 else excess > 1, "normal for wide heads only"
    if k == 256:
        assert kstest(S[:, 0, 1] / math.sqrt(C[0, 0] * C[1, 1]), "norm").statistic < 0.015


@pytest.mark.claim("lem-random-layer")
@few
@given(seeds)
def test_the_next_covariance_depends_on_lengths_and_angles_only(seed):
    rng = np.random.default_rng(seed)
    n, d, k = 3, 6, 4
    X, W = rng.standard_normal((n, d)), rng.standard_normal((d, d))
    Wq, Wk = rng.standard_normal((2, d, k))
    R, _ = np.linalg.qr(rng.standard_normal((d, d)))

    def step(X, W, Wq, Wk):
        A, _ = an.attention_weights(X @ Wq, X @ Wk)
        return 0.6 * X + 0.8 * A @ X @ W

    turned = step(X @ R, R.T @ W @ R, R.T @ Wq, R.T @ Wk)
    compare(turned, step(X, W, Wq, Wk) @ R, name="X' turned", atol=1e-9)
    compare(gram(turned), gram(step(X, W, Wq, Wk)), name="C'", atol=1e-9)


# why tokens grow alike


@pytest.mark.claim("lem-alike")
@few
@given(seeds, st.integers(2, 6), st.floats(0.2, 1.5), st.floats(0.2, 1.5))
def test_even_weights_feed_only_what_is_shared(seed, n, a, b):
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n, 7)), rng.standard_normal((7, 7))
    branch, _ = an.attention(0 * X, X, X @ W)
    Y = a * X + b * branch
    compare(Y - Y[:1], a * (X - X[:1]), name="differences, exactly", atol=1e-9)
    C, U = gram(X), np.full((n, n), 1 / n)
    new = a**2 * C + b**2 * U @ C @ U
    half = [(np.diag(G)[:, None] + np.diag(G)) / 2 - G for G in (C, new)]
    compare(new.mean(), (a**2 + b**2) * C.mean(), name="s")
    compare(half[1], a**2 * half[0], name="Delta", atol=1e-10)


@pytest.mark.claim("lem-alike")
@pytest.mark.parametrize("n", [2, 5, 40])
@pytest.mark.parametrize("cos", [-0.02, 0.0, 0.3, 0.9])
def test_rates_of_post_norm_pre_norm_and_small_branches(n, cos):
    U, start, L = np.full((n, n), 1 / n), (1 - cos) * np.eye(n) + cos, 50
    s0 = start.mean()
    r0 = (1 - cos) / s0

    def cosine(r):
        return 1 - r / (1 + (1 - 1 / n) * r)

    compare(cosine(r0), cos, name="the cosine at the start", atol=1e-12)
    post, pre, small, c = start, start, start, 1.7
    for l in range(1, L + 1):
        post = post + U @ post @ U
        post = post / post[0, 0]
        compare(post[0, 1], cosine(2.0**-l * r0), name="post-norm", atol=1e-9)
        pre = pre + U @ pre @ U / pre[0, 0]
        r = (pre[0, 0] - pre[0, 1]) / pre.mean()
        assert r0 / (1 + l / s0) * (1 - 1e-9) <= r <= r0 / (1 + l) * (1 + 1e-9)
        small = small + c / L * U @ small @ U
    r = (small[0, 0] - small[0, 1]) / small.mean()
    compare(r, r0 * (1 + c / L) ** -L, name="small branches", rtol=1e-9)
    assert r >= r0 * math.exp(-c)


# depth over width


def squared_lengths(L, d, a, b, draws, rng):
    x = np.zeros((draws, d))
    x[:, 0] = 1.0
    for _ in range(L):
        W = rng.standard_normal((draws, d, d)) / d**0.5
        x = a * x + b * np.einsum("ti,tij->tj", x, W)
    return (x * x).sum(-1)


@pytest.mark.slow
@pytest.mark.claim("lem-depth-over-width")
@pytest.mark.parametrize("b", [1.0, 0.8, 0.3])
def test_moments_of_the_squared_length(b, rng):
    L, d, draws = 3, 12, 60_000
    q = squared_lengths(L, d, (1 - b * b) ** 0.5, b, draws, rng)
    step = 2 * b * b * (2 - b * b) / d
    second = (1 + step) ** L
    assert abs(q.mean() - 1) < 5 * ((second - 1) / draws) ** 0.5
    assert abs((q.var()) / (second - 1) - 1) < 0.06


@pytest.mark.claim("lem-depth-over-width")
def test_a_product_of_normal_matrices_has_chi_squared_ratios(rng):
    L, d, draws = 3, 8, 20_000
    q = squared_lengths(L, d, 0.0, 1.0, draws, rng)
    assert kstest(d * squared_lengths(1, d, 0.0, 1.0, draws, rng), chi2(d).cdf).statistic < 0.015
    mean, variance = L * (digamma(d / 2) - np.log(d / 2)), L * polygamma(1, d / 2)
    assert abs(np.log(q).mean() - mean) < 5 * (variance / draws) ** 0.5
    assert abs(np.log(q).var() / variance - 1) < 0.06


@pytest.mark.claim("lem-depth-over-width")
@given(st.integers(1, 10_000))
def test_bounds_of_the_logarithm(d):
    mean, variance = digamma(d / 2) - np.log(d / 2), polygamma(1, d / 2)
    assert -2 / d < mean < -1 / d
    assert 2 / d < variance < 2 / d + 4 / d**2
    assert 3 * variance**2 + polygamma(3, d / 2) < 1000 / d**2, "the fourth central moment"


@pytest.mark.claim("lem-depth-over-width")
@pytest.mark.parametrize("t", [0.5, 2.0])
def test_the_limit_is_log_normal(t, rng):
    d = 200
    log_q = np.log(rng.chisquare(d, (10_000, int(t * d))) / d).sum(-1)
    assert kstest((log_q + t) / math.sqrt(2 * t), "norm").statistic < 0.02


@pytest.mark.claim("lem-depth-over-width")
@given(st.integers(1, 10_000), st.integers(1, 1000), st.floats(0.01, 1))
def test_small_branches_add_a_variance_that_depth_does_not_change(L, d, c):
    b2 = min(c, L) / L
    assert (1 + 2 * b2 * (2 - b2) / d) ** L - 1 <= math.expm1(4 * c / d) * (1 + 1e-9)


# shaped attention


def random_scores(C, k, draws, rng):
    R = np.linalg.cholesky(C)
    Q, K = (R @ rng.standard_normal((draws, len(C), k)) for _ in range(2))
    return Q, K, an.scaled_dot_score(Q, K)[0]


@pytest.mark.claim("lem-shaped-drift", "eq:shaped-attention")
@few
@given(seeds, st.integers(1, 6), st.floats(0.3, 5), st.floats(-2, 2))
def test_rows_of_shaped_attention_sum_to_one_and_even_scores_give_the_identity(seed, n, tau, g):
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((2, n, 3))
    options = {"temperature": tau, "strength": g}
    A, _ = an.shaped_attention(Q, K, np.eye(n), **options)
    compare(A.sum(-1), np.ones(n), name="row sums", atol=1e-10)
    Q[0] = 0
    A, _ = an.shaped_attention(Q, K, np.eye(n), **options)
    compare(A[0], np.eye(n)[0], name="a row of equal scores", atol=1e-12)
    causal = an.causal_mask(n)
    A, _ = an.shaped_attention(0 * Q, K, np.eye(n), causal, **options)
    compare(A, np.eye(n), name="under a mask", atol=1e-12)


def drifts(S, C, g, tau):
    """E[A] - I and E[A C A^T] - C, for scores S and -S with equal probability: no noise of first order."""
    S = np.concatenate([S, -S])
    n = S.shape[-1]
    A = np.eye(n) + g * (an.softmax(S, tau)[0] - 1 / n)
    return A.mean(0) - np.eye(n), (A @ C @ T(A)).mean(0) - C


def bounds(S, C, g, tau):
    rho, c = (np.ptp(S, -1) ** 2).mean(0).max(), np.abs(C).max()
    return g * rho / (2 * tau**2), c * rho * (g + g * g / 4) / tau**2


@pytest.mark.claim("lem-shaped-drift")
@few
@given(seeds, st.integers(2, 5), st.floats(0.1, 50), st.floats(0.3, 20))
def test_the_drift_of_shaped_attention_is_bounded(seed, n, g, tau):
    rng = np.random.default_rng(seed)
    B, S = rng.standard_normal((n, 3)), rng.standard_normal((5, n, n))
    first, second = drifts(S, gram(B), g, tau)
    most, most_second = bounds(S, gram(B), g, tau)
    assert np.abs(first).sum(-1).max() <= most * (1 + 1e-9) + 1e-12
    assert np.abs(second).max() <= most_second * (1 + 1e-9) + 1e-12


@pytest.mark.claim("lem-shaped-drift")
@pytest.mark.parametrize("g", [1.0, 4.0, 40.0])
def test_the_bounds_of_the_drift_are_nearly_attained(g):
    v = np.array([1.0, 1.0, -1.0, -1.0])
    C, tau = np.outer(v, v), 100.0
    _, second = drifts(C[None], C, g, tau)
    share = np.abs(second).max() / bounds(C[None], C, g, tau)[1]
    assert abs(share - g / 4 / (1 + g / 4)) < 1e-3, "nearly all of the bound for a large strength"
    S = np.zeros((1, 5, 5))
    S[..., 0] = 1.0  # one key leads in every row
    first, _ = drifts(S, np.eye(5), g, tau)
    assert abs(np.abs(first).sum(-1).max() / bounds(S, np.eye(5), g, tau)[0] - 0.192) < 1e-3


@pytest.mark.claim("lem-shaped-drift")
@pytest.mark.parametrize("g", [1.0, 3.0])
@pytest.mark.parametrize("alike", [True, False])
def test_the_drift_to_second_order(g, alike, rng):
    n, tau, draws = 4, 16.0, 50_000
    C = 0.8 * np.eye(n) + 0.2 if alike else gram(rng.standard_normal((n, 6)))
    *_, S = random_scores(C, 16, draws, rng)
    H = np.eye(n) - 1 / n
    G = H @ C @ H
    D = np.outer(np.diag(C), np.diag(G) - np.trace(G) / n) / (2 * n)
    want = g * (D @ C + C @ D.T) + g**2 * C * np.trace(G @ C) / n**2
    _, got = drifts(S, C, g, tau)
    compare(got * tau**2, want, name="second order", atol=0.03 * np.abs(want).max())


@pytest.mark.slow
@pytest.mark.claim("lem-shaped-drift")
def test_the_drift_falls_by_four_when_the_temperature_doubles_and_that_of_softmax_stays(rng):
    n, draws = 4, 40_000
    C = 0.8 * np.eye(n) + 0.2
    Q, K, _ = random_scores(C, 16, draws, rng)
    Q, K = np.concatenate([Q, -Q]), np.concatenate([K, K])  # the symmetry, exactly: the first order cancels
    shaped, ordinary = [], []
    for tau in (4.0, 8.0, 16.0):
        A, _ = an.shaped_attention(Q, K, np.eye(n), temperature=tau)
        P, _ = an.attention_weights(Q / tau, K)
        shaped.append(np.abs((A @ C @ T(A)).mean(0) - C).max())
        ordinary.append(np.abs((P @ C @ T(P)).mean(0) - C).max())
    assert 3.5 < shaped[0] / shaped[1] < 4.5 and 3.5 < shaped[1] / shaped[2] < 4.5
    U = np.full((n, n), 1 / n)
    assert abs(ordinary[-1] - np.abs(U @ C @ U - C).max()) < 0.01


@pytest.mark.claim("lem-shaped-drift")
@few
@given(seeds, st.integers(2, 7), st.floats(0.5, 20))
def test_the_pointwise_bounds_of_the_proof(seed, m, tau):
    z = np.random.default_rng(seed).standard_normal(m) * 3
    width = np.ptp(z)
    P, _ = an.softmax(z, tau)
    assert np.abs(P - 1 / m).sum() <= width / (2 * tau) * (1 + 1e-12)
    linear = (z - z.mean()) / (m * tau)
    assert np.abs(P - 1 / m - linear).sum() <= width**2 / (2 * tau**2) * (1 + 1e-12)


# normalised queries and keys


@pytest.mark.claim("lem-query-key-norm")
@few
@given(seeds, st.integers(1, 9), st.integers(2, 6), st.floats(0.01, 100))
def test_normalised_queries_and_keys_bound_scores_and_weights(seed, k, m, scale):
    rng = np.random.default_rng(seed)
    X, Wq, Wk = rng.standard_normal((m, 8)), scale * rng.standard_normal((8, k)), rng.standard_normal((8, k))
    gain, other = rng.standard_normal((2, k))

    def scores(Wq):
        q, key = an.rms_norm(X @ Wq, gain, 1e-14)[0], an.rms_norm(X @ Wk, other, 1e-14)[0]
        return an.scaled_dot_score(q, key)[0]

    S, B = scores(Wq), k**0.5 * np.abs(gain * other).max()
    P, _ = an.softmax(S)
    assert np.abs(S).max() <= B * (1 + 1e-9)
    slack = 1e-9
    assert P.min() >= 1 / (1 + (m - 1) * math.exp(2 * B)) - slack
    assert P.max() <= 1 / (1 + (m - 1) * math.exp(-2 * B)) + slack
    compare(scores(7 * Wq), S, name="a positive factor changes nothing", atol=1e-6)


@pytest.mark.claim("lem-query-key-norm")
@pytest.mark.parametrize("k", [1, 4, 16])
def test_the_bounds_on_scores_and_weights_are_attained(k):
    one, m = np.ones((1, k)), 5
    q, _ = an.rms_norm(3 * one, np.ones(k), 1e-14)
    for first in (1, -1):
        keys, _ = an.rms_norm(np.concatenate([first * one, np.repeat(-first * one, m - 1, 0)]), np.ones(k), 1e-14)
        S, _ = an.scaled_dot_score(q, keys)
        compare(S[0, 0], first * k**0.5, name="the score", atol=1e-9)
        weight = 1 / (1 + (m - 1) * math.exp(-first * 2 * k**0.5))
        compare(an.softmax(S)[0][0, 0], weight, name="the weight", rtol=1e-6)


@pytest.mark.claim("lem-query-key-norm")
@few
@given(seeds, st.floats(0.01, 3))
def test_gradient_descent_does_not_shorten_the_query_weights(seed, rate):
    rng = np.random.default_rng(seed)
    X, W, K, V, dO = (rng.standard_normal(s) for s in ((5, 6), (6, 4), (5, 4), (5, 3), (5, 3)))
    q, norm_vjp = an.rms_norm(X @ W, np.ones(4), 1e-14)
    _, vjp = an.attention(q, K, V)
    G = X.T @ norm_vjp(vjp(dO)[0])[0]
    compare((G * W).sum(), 0.0, name="orthogonal", atol=1e-8 * (1 + np.linalg.norm(G)))
    assert np.linalg.norm(W - rate * G) >= np.linalg.norm(W) * (1 - 1e-9)
