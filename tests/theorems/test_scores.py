"""The statements about scores and their scaling in Chapter 2, each by a test that a false statement would not pass."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import attnmath.numpy as an
from attnmath.count import bytes_held

WHOLE = st.integers(-4, 4).map(float)  # whole numbers: sums and products of them are exact
seeds = st.integers(0, 2**32 - 1)


def whole(*shape):
    return arrays(np.float64, shape, elements=WHOLE)


def fixed(test):
    return settings(max_examples=60, deadline=None, derandomize=True)(test)


# ---- additive


def ceiling(norm1, m):
    """What no weight of an additive score exceeds."""
    return 1 / (1 + (m - 1) * np.exp(-2 * norm1))


@pytest.mark.claim("lem-additive-bounded")
@fixed
@given(seeds, st.floats(-3, 3), st.integers(2, 9))
def test_additive_scores_are_bounded_and_so_are_their_weights(seed, exponent, m):
    rng = np.random.default_rng(seed)
    Q, K, Wq, Wk = (10**exponent * rng.standard_normal(s) for s in ((3, 2), (m, 4), (2, 5), (4, 5)))
    w = rng.standard_normal(5)
    S, _ = an.additive_score(Q, K, Wq, Wk, w)
    P, _ = an.softmax(S)
    norm1 = np.abs(w).sum()
    assert np.abs(S).max() <= norm1 * (1 + 1e-12)
    assert P.max() <= ceiling(norm1, m) * (1 + 1e-9)


@pytest.mark.claim("lem-additive-bounded")
def test_the_bound_of_additive_weights_is_approached():
    K = np.vstack([[[1.0]], -np.ones((8, 1))])
    S, _ = an.additive_score(np.zeros((1, 1)), 30 * K, np.ones((1, 1)), np.ones((1, 1)), np.array([1.5]))
    assert an.softmax(S)[0].max() == pytest.approx(ceiling(1.5, 9), rel=1e-12)


@pytest.mark.claim("lem-score-parity")
@fixed
@given(seeds)
def test_additive_scores_are_odd_and_bilinear_scores_even(seed):
    rng = np.random.default_rng(seed)
    Q, K, Wq, Wk, w = (rng.standard_normal(s) for s in ((3, 2), (5, 4), (2, 7), (4, 7), (7,)))
    np.testing.assert_allclose(
        an.additive_score(-Q, -K, Wq, Wk, w)[0], -an.additive_score(Q, K, Wq, Wk, w)[0], atol=1e-12
    )
    W = rng.standard_normal((2, 4))
    np.testing.assert_array_equal(an.multiplicative_score(-Q, -K, W)[0], an.multiplicative_score(Q, K, W)[0])


@pytest.mark.claim("lem-score-parity")
@fixed
@given(seeds, st.floats(0.1, 10))
def test_an_additive_score_is_at_chance_on_an_odd_task(seed, size):
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((3, 4))
    K = np.vstack([half, np.zeros((1, 4)), -half])  # the keys come in pairs, the middle one is its own partner
    q = rng.standard_normal((1, 2))
    Wq, Wk, w = (size * rng.standard_normal(s) for s in ((2, 7), (4, 7), (7,)))
    logP, _ = an.log_softmax(an.additive_score(np.vstack([q, -q]), K, Wq, Wk, w)[0])
    partner = [4, 5, 6, 3, 0, 1, 2]
    for target in range(7):
        loss = -(logP[0, target] + logP[1, partner[target]]) / 2
        assert loss >= np.log(7) - 1e-9
    W = np.zeros((2, 4))
    W[0, 0] = 50 / (q[0, 0] * half[0, 0])  # a bilinear score does better wherever one key stands out
    logP, _ = an.log_softmax(an.multiplicative_score(np.vstack([q, -q]), K, W)[0])
    best = int(logP[0].argmax())
    assert -(logP[0, best] + logP[1, partner[best]]) / 2 < np.log(7)


@pytest.mark.claim("lem-one-unit")
@fixed
@given(seeds)
def test_one_additive_unit_ranks_the_keys_alike_for_every_query(seed):
    rng = np.random.default_rng(seed)
    Q, K, Wq, Wk, w = (rng.standard_normal(s) for s in ((6, 2), (5, 3), (2, 1), (3, 1), (1,)))
    order = np.argsort(an.additive_score(Q, K, Wq, Wk, w)[0], -1)
    assert (order == order[0]).all()


@pytest.mark.claim("lem-one-unit", "lem-bilinear-hull")
def test_two_additive_units_prefer_the_middle_key():
    S, _ = an.additive_score(
        np.ones((1, 1)), np.array([[-1.0], [0.0], [1.0]]), np.ones((1, 2)), np.array([[1.0, -1.0]]), np.ones(2)
    )
    np.testing.assert_allclose(S, [[np.tanh(2), 2 * np.tanh(1), np.tanh(2)]], atol=1e-12)
    assert S.argmax() == 1


# ---- bilinear


@pytest.mark.claim("lem-bilinear-hull")
@fixed
@given(whole(3, 2), whole(4, 5), whole(2, 5), st.lists(st.integers(0, 4), min_size=4, max_size=4).filter(any))
def test_a_key_in_the_hull_of_others_never_scores_above_them_all(Q, K, W, parts):
    inside = np.array([parts], float) @ K  # sum(parts) times a convex combination: compare without dividing
    S, _ = an.multiplicative_score(Q, np.vstack([K, inside]), W)
    used = np.array(parts) > 0
    assert (S[:, 4] <= sum(parts) * S[:, :4][:, used].max(-1)).all()


@pytest.mark.claim("lem-bilinear-rank")
@fixed
@given(seeds, st.integers(0, 3))
def test_a_bilinear_score_is_a_dot_product_of_the_width_of_its_rank(seed, r):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((5, r)) @ rng.standard_normal((r, 3))
    Q, K = rng.standard_normal((7, 5)), rng.standard_normal((11, 3))
    U, sigma, Vt = np.linalg.svd(W, full_matrices=False)
    S, _ = an.multiplicative_score(Q, K, W)
    np.testing.assert_allclose(an.dot_score(Q @ (U[:, :r] * sigma[:r]), K @ Vt[:r].T)[0], S, atol=1e-9)
    assert np.linalg.matrix_rank(S, tol=1e-8) == r  # width r is also needed


@pytest.mark.claim("lem-bilinear-rank")
def test_the_dot_product_is_the_bilinear_score_of_the_identity():
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((5, 3)), rng.standard_normal((7, 3))
    np.testing.assert_array_equal(an.multiplicative_score(Q, K, np.eye(3))[0], an.dot_score(Q, K)[0])


@pytest.mark.claim("pf:score-flops")
def test_multiplicative_is_cheaper_wherever_a_is_at_least_k_and_dearer_for_small_a():
    def difference(n, m, q, k, a):
        return 2 * a * (n * q + m * k) + 4 * n * m * a - (2 * n * q * k + 2 * n * m * k)

    for n, m, q, k, a in product((1, 2, 7, 100), (1, 2, 7, 100), (1, 3, 8), (1, 3, 8), (1, 2, 3, 4, 8, 20)):
        assert difference(n, m, q, k, a) == 2 * n * q * (a - k) + 2 * m * k * (a - n) + 4 * n * m * a
        if a >= k:
            assert difference(n, m, q, k, a) > 0
    assert difference(10**4, 10**4, 64, 64, 31) < 0 < difference(10**4, 10**4, 64, 64, 33)


@pytest.mark.claim("sec-score-cost")
def test_only_the_additive_score_holds_an_array_for_every_pair():
    n, m, k, a = 53, 59, 3, 5
    Q, K, Wq, Wk, W = (np.ones(s) for s in ((n, k), (m, k), (k, a), (k, a), (k, k)))
    inputs = 8 * (n * k + m * k)
    assert bytes_held(an.dot_score(Q, K)[1]) == bytes_held(an.scaled_dot_score(Q, K)[1]) == inputs
    assert bytes_held(an.multiplicative_score(Q, K, W)[1]) == inputs + 8 * (k * k + n * k)
    assert bytes_held(an.additive_score(Q, K, Wq, Wk, np.ones(a))[1]) == inputs + 8 * (n * m * a + 2 * k * a + a)


# ---- variance, exactly: every vector of a finite distribution, every pair


def vectors(values, weights, d):
    """All vectors with independent entries of this distribution, and their probabilities."""
    X = np.array(list(product(values, repeat=d)), float)
    return X, np.prod(list(product(weights, repeat=d)), -1)


def moments(score, Xq, pq, Xk, pk):
    S, _ = score(Xq, Xk)
    mean = pq @ S @ pk
    return mean, pq @ (S - mean) ** 2 @ pk


TWO = ((2.0, -0.5), (0.2, 0.8))  # mean 0, variance 1, skewed
THREE = ((-2.0, 0.0, 2.0), (0.125, 0.75, 0.125))


@pytest.mark.claim("thm-dot-variance")
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_variance_of_the_dot_product_of_coin_tosses_is_d_in_whole_numbers(d):
    X = np.array(list(product((-1.0, 1.0), repeat=d)))
    S, _ = an.dot_score(X, X)
    assert S.sum() == 0
    assert (S * S).sum() == d * S.size


@pytest.mark.claim("thm-dot-variance", "cor-scaled-variance")
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_variance_of_the_dot_product_needs_no_particular_distribution(d):
    Xq, pq = vectors(*TWO, d)
    Xk, pk = vectors(*THREE, d)
    np.testing.assert_allclose(moments(an.dot_score, Xq, pq, Xk, pk), (0, d), atol=1e-12)
    np.testing.assert_allclose(moments(an.scaled_dot_score, Xq, pq, Xk, pk), (0, 1), atol=1e-12)


@pytest.mark.claim("cor-scaled-variance")
def test_the_spread_of_scaled_scores_does_not_grow_with_the_width():
    rng = np.random.default_rng(5)
    for d in (1, 16, 256, 1024):
        S, _ = an.scaled_dot_score(rng.standard_normal((200, d)), rng.standard_normal((200, d)))
        assert S.std() == pytest.approx(1, abs=0.15)


@pytest.mark.claim("lem-dot-second-moments")
@fixed
@given(whole(8, 3), whole(4, 3))
def test_variance_by_second_moments_for_any_two_distributions(Xq, Xk):
    S, _ = an.dot_score(Xq, Xk)  # each pair once: q and k independent, entries as dependent as they happen to be
    Mq, Mk = Xq.T @ Xq / 8, Xk.T @ Xk / 4
    mean = Xq.mean(0) @ Xk.mean(0)
    assert S.mean() == mean
    assert (S * S).mean() == np.trace(Mq @ Mk)  # powers of two: exact
    assert S.var() == pytest.approx(np.trace(Mq @ Mk) - mean**2, abs=1e-9)


@pytest.mark.claim("lem-dot-second-moments")
@fixed
@given(whole(5, 3))
def test_white_queries_make_the_variance_the_mean_square_length_of_any_keys(Xk):
    Xq, pq = vectors(*TWO, 3)
    mean, variance = moments(an.dot_score, Xq, pq, Xk, np.full(5, 0.2))
    assert mean == pytest.approx(0, abs=1e-10)
    assert variance == pytest.approx((Xk**2).sum(-1).mean(), abs=1e-9)


@pytest.mark.claim("pf:equicorrelated", "lem-dot-second-moments")
@pytest.mark.parametrize("rho", [0.0, 0.25, 0.5, 1.0])
def test_correlated_entries_give_d_plus_d_d_minus_1_rho_squared(rho):
    d = 4
    X = np.array(list(product((-1.0, 1.0), repeat=d)))
    p = np.full(len(X), (1 - rho) / len(X))
    p[[0, -1]] += rho / 2  # with probability rho all entries are one toss
    np.testing.assert_allclose(X.T @ (p[:, None] * X), (1 - rho) * np.eye(d) + rho, atol=1e-12)
    np.testing.assert_allclose(moments(an.dot_score, X, p, X, p), (0, d + d * (d - 1) * rho**2), atol=1e-12)


@pytest.mark.claim("thm-dot-variance")
def test_without_independence_of_query_and_key_the_theorem_is_false():
    coins = np.array(list(product((-1.0, 1.0), repeat=4)))
    score = np.diagonal(an.dot_score(coins, coins)[0])  # k = q
    assert (score == 4).all()  # mean d, variance 0
    X, p = vectors(*THREE, 4)
    score = np.diagonal(an.dot_score(X, X)[0])
    assert p @ score == pytest.approx(4) and p @ (score - 4) ** 2 == pytest.approx(4 * (4 - 1))  # E[x^4] = 4


# ---- saturation


@pytest.mark.claim("lem-softmax-jacobian-norm")
@fixed
@given(seeds, st.floats(-2, 2), st.integers(2, 9))
def test_the_largest_weight_bounds_the_jacobian_from_both_sides(seed, exponent, m):
    S = 10**exponent * np.random.default_rng(seed).standard_normal(m)
    P, vjp = an.softmax(S)
    J = np.stack([vjp(row) for row in np.eye(m)])
    norm, top = np.linalg.norm(J, 2), P.max() * (1 - P.max())
    assert top * (1 - 1e-9) - 1e-15 <= norm <= 2 * top * (1 + 1e-9) + 1e-15
    assert norm <= 0.5 + 1e-12
    lead = np.diff(np.sort(S)[-2:])[0]
    assert norm <= 2 * (m - 1) * np.exp(-lead) + 1e-15


@pytest.mark.claim("lem-softmax-jacobian-norm")
def test_two_keys_attain_the_upper_bound():
    P, vjp = an.softmax(np.array([0.3, -1.1]))
    J = np.stack([vjp(row) for row in np.eye(2)])
    assert np.linalg.norm(J, 2) == pytest.approx(2 * P[0] * P[1], rel=1e-12)
    P, vjp = an.softmax(np.zeros(200))  # and many equal keys the lower one, in the limit
    J = np.stack([vjp(row) for row in np.eye(200)])
    assert np.linalg.norm(J, 2) < 1.01 * P.max() * (1 - P.max())


@pytest.mark.claim("errata-saturated-gradient")
def test_the_gradient_of_the_maximum_vanishes_with_the_others():
    for lead in (5.0, 10.0, 20.0):
        _, vjp = an.softmax(np.array([lead, 0.0, 0.0, 0.0]))
        J = np.stack([vjp(row) for row in np.eye(4)])
        assert J[0, 0] == pytest.approx(-J[0, 1:].sum(), rel=1e-6)
        assert np.abs(J).max() <= 3 * np.exp(-lead) * (1 + 1e-6)
    _, vjp = an.softmax(np.array([20, 0, 0], np.float32))
    dS = vjp(np.array([1, -1, 0.5], np.float32))
    assert dS[0] == 0 and (dS[1:] != 0).all()


@pytest.mark.claim("lem-scale-reparametrisation")
def test_the_scale_is_a_choice_of_initial_weights_and_learning_rate():
    rng = np.random.default_rng(7)
    d, rate = 16, 3.0
    c = d**-0.5
    W0 = rng.standard_normal((d, d))
    data = [(rng.standard_normal((4, 5, d)), rng.standard_normal((4, 5, 3))) for _ in range(12)]

    def losses(score, W, rate):
        found = []
        for K, V in data:
            X = K[:, :1]
            O, vjp = an.general_attention(X @ W, K, V, score)
            found.append(((O - V[:, :1]) ** 2).mean())
            W = W - rate * X[:, 0].T @ vjp(2 * (O - V[:, :1]) / O.size)[0][:, 0]
        return np.array(found)

    with_scale = losses(an.scaled_dot_score, W0, rate)
    np.testing.assert_allclose(losses(an.dot_score, c * W0, c**2 * rate), with_scale, rtol=1e-8)
    assert np.abs(losses(an.dot_score, c * W0, rate) - with_scale).max() > 1e-3  # the rate matters
