"""The page on weighted averages: what bias and variance are, rates, edges, relations, features, valid weights."""

from functools import partial
from math import factorial

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import kernel_regression as kr
from attnmath.check import compare

WEIGHTS = {"box": kr.box_weights, "Gaussian": kr.gaussian_weights, "lines": kr.line_weights}


@pytest.mark.claim("prop-mean-displacement", "eq:bias-variance")
@pytest.mark.parametrize("name", WEIGHTS)
def test_bias_and_variance_are_those_of_simulated_answers(name, rng):
    """20 000 draws of the noise, at the edge and within, with weights of any sign."""
    K, Q = rng.random((15, 1)), np.array([[0.0], [0.4]])

    def f(x):
        return np.sin(5 * x) + x

    P = WEIGHTS[name](Q, K, 0.25)
    bias, variance = kr.bias_and_variance(P, Q, K, f, 0.5)
    answers = (f(K[:, 0]) + 0.5 * rng.standard_normal((20_000, 15))) @ P.T
    assert abs((answers.mean(0) - f(Q[:, 0]) - bias) / np.sqrt(variance / 20_000)).max() < 4
    compare(answers.var(0) / variance, np.ones(2), name="variance", atol=0.05)
    compare(((answers - f(Q[:, 0])) ** 2).mean(0) / (bias**2 + variance), np.ones(2), name="risk", atol=0.05)


@pytest.mark.claim("prop-mean-displacement")
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_bias_is_the_slope_times_the_mean_displacement(name, rng):
    """Up to half the curvature times the mean square; a parabola's rest is exactly that, with signs."""
    for _ in range(20):
        K, Q, h = rng.random((12, 1)), rng.random((1, 1)), rng.uniform(0.2, 0.8)
        P = WEIGHTS[name](Q, K, h)
        away = K[:, 0] - Q[0, 0]
        first, second = P[0] @ away, abs(P[0]) @ away**2
        bias, _ = kr.bias_and_variance(P, Q, K, lambda x: np.sin(3 * x), 1.0)
        rest = bias[0] - 3 * np.cos(3 * Q[0, 0]) * first
        assert abs(rest) <= 9 / 2 * second * (1 + 1e-9)
        parabola, _ = kr.bias_and_variance(P, Q, K, lambda x: 2 * x * x, 1.0)
        compare(parabola[0] - 4 * Q[0, 0] * first, 2 * P[0] @ away**2, name="a parabola's rest", atol=1e-9)
        kink, _ = kr.bias_and_variance(P, Q, K, lambda x, q=Q[0, 0]: 3 * abs(x - q), 1.0)
        assert abs(kink[0]) <= 3 * abs(P[0]) @ abs(away) * (1 + 1e-9)


@pytest.mark.claim("thm-attention-rate")
def test_the_bound_for_windows_holds_everywhere(rng):
    """At edges too, for any bandwidth from 1/n to 1, for functions as steep as allowed."""
    for n in (5, 23, 60):
        K, Q = kr.grid(n), np.concatenate([rng.random((30, 1)), [[0.0], [1.0]], kr.grid(n)[:4]])
        for h in (1 / n, 1.3 / n, 0.1, 0.37, 1.0):
            if h < 1 / n:
                continue
            P = kr.box_weights(Q, K, h)
            assert ((P > 0).sum(-1) >= np.floor(n * h + 1e-9)).all()
            for steep in (lambda x: 2 * abs(x - 0.3), lambda x: 2 * x, lambda x: 2 * np.sin(x)):
                bias, variance = kr.bias_and_variance(P, Q, K, steep, 0.7)
                assert (bias**2 <= 4 * h * h * (1 + 1e-9)).all()
                assert (variance <= 2 * 0.49 / (n * h) * (1 + 1e-9)).all()


@pytest.mark.claim("thm-attention-rate")
@pytest.mark.parametrize("n", [5, 23, 60])
def test_how_far_the_bound_for_windows_is_from_sharp(n):
    """A window at the edge just before its second key, and a kink with a key on each side, come as near as any."""
    K, part = kr.grid(n), {"bias": [], "variance": []}
    Q = np.concatenate([[[0.0], [1.0]], K[:4], K[:4] + 0.5 / n])
    for h in (1 / n, 1.3 / n, 1.4999 / n, 2.4999 / n, 0.4, 1.0):
        P = kr.box_weights(Q, K, h)
        for i, q in enumerate(Q[:, 0]):
            bias, variance = kr.bias_and_variance(P[i : i + 1], Q[i : i + 1], K, lambda x, q=q: 2 * abs(x - q), 0.7)
            part["bias"].append(bias[0] ** 2 / (4 * h * h))
            part["variance"].append(variance[0] / (2 * 0.49 / (n * h)))
    assert 0.444 < max(part["bias"]) < 4 / 9 + 1e-9 and 0.7499 < max(part["variance"]) < 3 / 4 + 1e-9


@pytest.mark.claim("thm-attention-rate")
def test_the_best_bandwidth_of_the_bound():
    """It minimises the bound, has its value, and the risk stays below."""
    L, noise = 2.0, 0.5
    for n in (50, 400, 3200):
        a = noise**2 / n
        hs = np.geomspace(1e-3, 1, 20_001)
        bound = L**2 * hs**2 + 2 * a / hs
        h = (a / L**2) ** (1 / 3)
        compare(hs[bound.argmin()] / h, 1.0, name="bandwidth", atol=1e-3)
        compare(bound.min(), 3 * (L * a) ** (2 / 3), name="value", atol=1e-8)
        assert 1 / n <= h <= 1, "the hypothesis of the last sentence"
        Q = np.linspace(0, 1, 41)[:, None]
        bias, variance = kr.bias_and_variance(kr.box_weights(Q, kr.grid(n), h), Q, kr.grid(n), lambda x: L * x, noise)
        assert (bias**2 + variance).max() <= 3 * (L * a) ** (2 / 3)


@pytest.mark.slow
@pytest.mark.claim("thm-attention-rate", "prop-smooth-rate")
@pytest.mark.parametrize("name", ["box", "Gaussian"])
def test_the_exponents_of_the_best_risk(name):
    """A kink at the query gives n to the -2/3, a smooth function -4/5, for both kernels."""
    numbers = [101, 301, 901, 2701]
    kink = [kr.best_risk(n, 0.5, lambda x: abs(x - 0.5), 0.3, WEIGHTS[name])[0] for n in numbers]
    smooth = [kr.best_risk(n, 0.5, lambda x: np.sin(6 * x), 0.3, WEIGHTS[name])[0] for n in numbers]
    assert abs(kr.slope(numbers, kink) + 2 / 3) < 0.02 and abs(kr.slope(numbers, smooth) + 4 / 5) < 0.02


@pytest.mark.claim("prop-smooth-rate")
def test_the_bound_for_smooth_functions():
    """At keys of the grid with the whole window inside; at the edge it fails."""
    B, noise = 4.0, 0.3
    for n in (41, 200):
        K = kr.grid(n)
        for h in (1 / n, 2.5 / n, 0.1, 0.3):
            Q = K[(K[:, 0] >= h) & (K[:, 0] <= 1 - h)]
            for bent in (lambda x: B * x * x / 2 + 7 * x, lambda x: B * np.cos(x)):
                bias, variance = kr.bias_and_variance(kr.box_weights(Q, K, h), Q, K, bent, noise)
                assert (abs(bias) <= B * h * h / 3 * (1 + 1e-9)).all()
                assert (variance <= noise**2 / (n * h) * (1 + 1e-9)).all()
        h = (
            1 / n
        )  # the bias is reached by a parabola and one key on each side, two thirds of the variance by three keys
        one, _ = kr.bias_and_variance(kr.box_weights(K[3:4], K, h), K[3:4], K, lambda x: B * x * x / 2, noise)
        compare(one[0], B * h * h / 3, name="reached", rtol=1e-9)
        _, three = kr.bias_and_variance(kr.box_weights(K[3:4], K, 1.9999 * h), K[3:4], K, np.sin, noise)
        compare(three[0] * n * 1.9999 * h / noise**2, 2 / 3, name="of the variance", atol=1e-4)
    edge, _ = kr.bias_and_variance(kr.box_weights(K[:1], K, 0.1), K[:1], K, lambda x: 7 * x, noise)
    assert abs(edge[0]) > 5 * B * 0.01 / 3


@pytest.mark.claim("prop-smooth-rate")
def test_the_best_bandwidth_for_smooth_functions():
    B, a = 4.0, 0.09 / 200
    hs = np.geomspace(1e-3, 1, 20_001)
    bound = B**2 * hs**4 / 9 + a / hs
    compare(hs[bound.argmin()] ** 5 / (9 * a / (4 * B**2)), 1.0, name="bandwidth", atol=3e-3)
    compare(bound.min(), 5 / 9 * (9 / 4) ** 0.8 * B**0.4 * a**0.8, name="value", atol=1e-9)


@pytest.mark.claim("lem-gaussian-window")
def test_the_constants_of_the_gaussian_kernel(rng):
    kept, moved = [], []
    for n in (5, 40, 200):
        K, Q = kr.grid(n), np.concatenate([rng.random((40, 1)), [[0.0], [1.0]]])
        for h in (1 / n, 1.7 / n, 0.2, 1.0):
            P = kr.gaussian_weights(Q, K, h)
            assert ((P * P).sum(-1) <= 2 * np.e**0.5 / (n * h)).all()
            assert ((P * abs(Q - K[:, 0])).sum(-1) <= 10.6 * h).all()
            kept.append((P * P).sum(-1).max() * n * h / (2 * np.e**0.5))
            moved.append((P * abs(Q - K[:, 0])).sum(-1).max() / (10.6 * h))
    assert 0.305 < max(kept) < 0.315 and 0.078 < max(moved) < 0.08, "so far from sharp, as the page says"
    compare([10.6**2, 2 * np.e**0.5], [113, 3.3], name="the constants of the risk", atol=0.7)


@pytest.mark.slow
@pytest.mark.claim("thm-random-design", "pf:random-design")
def test_leading_terms_with_random_keys(rng):
    """Mean over 200 draws of keys of density 1/2 + x: bias and variance given the keys, against the formulas."""
    n, h, x = 4000, 0.06, 0.2

    def f(t):
        return np.sin(4 * t)

    biases, variances = [], []
    for _ in range(200):
        K = (-0.5 + np.sqrt(0.25 + 2 * rng.random((n, 1)))).clip(0, 1)  # the inverse of the distribution function
        bias, variance = kr.bias_and_variance(kr.gaussian_weights(np.array([[x]]), K, h), np.array([[x]]), K, f, 1.0)
        biases.append(bias[0])
        variances.append(variance[0])
    p, slope = 0.5 + x, 1.0
    want = h**2 * (-16 * np.sin(4 * x) / 2 + 4 * np.cos(4 * x) * slope / p)
    without_design = h**2 * (-16 * np.sin(4 * x) / 2)
    error = np.std(biases) / 200**0.5
    assert abs(np.mean(biases) - want) < 4 * error + 0.05 * abs(without_design)
    compare(np.mean(variances) * n * h * p * 2 * np.pi**0.5, 1.0, name="variance", atol=0.05)
    assert abs(np.mean(biases) - without_design) > 12 * error, "the draws tell the design term from nothing"


@pytest.mark.slow
@pytest.mark.claim("thm-random-design")
def test_the_design_term_by_itself(rng):
    """For a line the bias is the design term alone."""
    n, h, x, found = 4000, 0.06, 0.4, []
    for _ in range(200):
        K = -0.5 + np.sqrt(0.25 + 2 * rng.random((n, 1)))
        found.append(float((kr.gaussian_weights(np.array([[x]]), K, h) @ K)[0, 0] - x))
    want, error = h**2 / 0.9, np.std(found) / 200**0.5
    assert want > 8 * error, "the draws tell the term from nothing"
    assert abs(np.mean(found) - want) < 4 * error + 0.02 * want


@pytest.mark.claim("prop-edge-bias")
def test_bias_at_the_edge():
    """Per bandwidth the root of 2/pi times the slope; of lines per square -0.376 times the curvature."""

    def f(x):
        return np.cos(3 * x) + x

    found = []
    for h in (0.04, 0.02, 0.01):
        K, Q = kr.grid(2000), np.zeros((1, 1))
        plain, _ = kr.bias_and_variance(kr.gaussian_weights(Q, K, h), Q, K, f, 1.0)
        lines, _ = kr.bias_and_variance(kr.line_weights(Q, K, h, 1e-10), Q, K, f, 1.0)
        found.append((plain[0] / h, lines[0] / h**2))
    want = (1 - 4 / np.pi) / (1 - 2 / np.pi) / 2 * -9
    assert abs(found[-1][0] - (2 / np.pi) ** 0.5) < 0.05 and abs(found[-1][1] / want - 1) < 0.01
    gaps = [abs(found[i][0] - (2 / np.pi) ** 0.5) for i in range(3)]
    assert 1.8 < gaps[0] / gaps[1] < 2.2 and 1.8 < gaps[1] / gaps[2] < 2.2, "the rest is of the next order"


@pytest.mark.claim("prop-local-lines", "eq:local-linear")
def test_weights_of_lines(rng):
    """They sum to 1; what is left of the mean displacement is the ridge's; lines come back, with one-sided keys too."""
    for d, ridge in ((1, 1e-11), (3, 1e-11), (3, 0.4)):
        K, Q, h = 1 + rng.random((12, d)), rng.random((4, d)), 0.8
        L, w = kr.line_weights(Q, K, h, ridge), kr.gaussian_weights(Q, K, h)
        compare(L.sum(-1), np.ones(4), name="sums", atol=1e-10)
        mean = w @ K - Q
        for i in range(4):
            E = K - (w @ K)[i]
            A = E.T @ (w[i][:, None] * E) + ridge * h * h * np.eye(d)
            u = np.linalg.solve(A, mean[i])
            compare(L[i], w[i] * (1 - E @ u), name="weights", atol=1e-8)
            compare((L @ K - Q)[i], ridge * h * h * u, name="displacement", atol=1e-8)
        if ridge < 1e-9:
            b = rng.standard_normal((d, 2))
            compare(L @ (K @ b + 3), Q @ b + 3, name="lines", atol=1e-7)
            assert abs(w @ (K @ b + 3) - Q @ b - 3).max() > 0.1 and L.min() < 0


@pytest.mark.claim("lem-leave-one-out", "eq:leave-one-out")
@pytest.mark.parametrize("name", ["Gaussian", "lines"])
def test_leaving_one_out_is_the_fit_without_it(name, rng):
    """Fit n times without the pair, and compare with the one matrix of weights."""
    K, V, h = rng.standard_normal((14, 2)), rng.standard_normal((14, 3)), 1.2
    weigh = kr.gaussian_weights if name == "Gaussian" else partial(kr.line_weights, ridge=1e-12)
    L = weigh(K, K, h)
    want = [V[i] - (weigh(K[i : i + 1], np.delete(K, i, 0), h) @ np.delete(V, i, 0))[0] for i in range(14)]
    compare(an.leave_one_out(L, V)[0], want, name="left out", atol=1e-8)
    compare((V - L @ V) / (1 - np.diag(L)[:, None]), want, name="the shortcut", atol=1e-8)
    inside = ((V - L @ V) ** 2).mean()
    assert inside < 0.8 * (np.array(want) ** 2).mean()


@pytest.mark.claim("lem-leave-one-out")
def test_errors_inside_are_smaller_by_one_minus_the_own_weight(rng):
    K, V = rng.standard_normal((20, 1)), rng.standard_normal((20, 1))
    for h in (0.3, 1.0, 3.0):
        P = kr.gaussian_weights(K, K, h)
        compare(V - P @ V, (1 - np.diag(P)[:, None]) * an.leave_one_out(P, V)[0], name="inside", atol=1e-10)
    assert ((V - kr.gaussian_weights(K, K, 1e-4) @ V) ** 2).mean() < 1e-6


LARGER = np.tril(np.ones((7, 7)), -1)


@pytest.mark.claim("thm-relation-width")
def test_a_relation_needs_the_width_of_its_rank(rng):
    """Exact at the rank, for relations drawn with a rank; one feature less leaves at least the next singular value."""
    drawn = rng.standard_normal((6, 3)) @ rng.standard_normal((3, 8))
    for R, rank in ((LARGER, 6), (drawn, 3), (np.eye(5), 5)):
        phi, psi = kr.relation_features(R)
        assert phi.shape[1] == psi.shape[1] == rank
        compare(phi @ psi.T, R, name="relation", atol=1e-10)
        less, more = kr.relation_features(R, rank - 1)
        missed = np.linalg.norm(R - less @ more.T, 2)
        compare(missed, np.linalg.svd(R, compute_uv=False)[rank - 1], name="what is missed", atol=1e-10)
        assert missed > 0.1
        tries = [
            rng.standard_normal((len(R), rank - 1)) @ rng.standard_normal((rank - 1, R.shape[1])) for _ in range(50)
        ]
        assert all(np.linalg.matrix_rank(x) < rank for x in tries)
        best = min(np.linalg.norm(R - t * ((R * t).sum() / (t * t).sum()), 2) for t in tries)
        assert best >= missed * (1 - 1e-9), "no drawn pair of maps of that width does better"


@pytest.mark.claim("thm-relation-width")
def test_order_has_full_rank_but_its_sign_has_width_two():
    n = 7
    for count in (2, 3, n):
        assert np.linalg.matrix_rank(np.tril(np.ones((count, count)), -1)) == count - 1
    i = np.arange(n, dtype=float)
    phi, psi = np.stack([i - 0.5, np.ones(n)], -1), np.stack([np.ones(n), -i], -1)
    S = phi @ psi.T
    np.testing.assert_array_equal(S > 0, LARGER > 0)
    P, _ = an.softmax(20 * S)
    assert (P[:, 0] > 0.99).all(), "softmax of these scores points at the smallest alone"


@pytest.mark.claim("thm-relation-width")
def test_one_map_for_both_is_symmetric_and_positive(rng):
    """No pair of things can be ordered; a positive semidefinite relation is reached, another symmetric one is not."""
    for _ in range(20):
        phi = rng.standard_normal((5, 3))
        S = phi @ phi.T
        compare(S, S.T, name="symmetric")
        assert np.linalg.eigvalsh(S).min() > -1e-12 and not ((S > 0) & (S.T < 0)).any()
    values, vectors = np.linalg.eigh(S)
    root = vectors * np.sqrt(values.clip(0))
    compare(root @ root.T, S, name="reached", atol=1e-10)
    swap = np.array([[0.0, 1], [1, 0]])  # symmetric: "is the other one"
    assert np.linalg.eigvalsh(swap).min() < -0.9
    near = [np.linalg.norm(swap - phi @ phi.T) for phi in 0.7 * rng.standard_normal((500, 2, 2))]
    assert min(near) > 0.999, "no positive semidefinite matrix is nearer than the negative eigenvalue"


@pytest.mark.claim("prop-mercer")
def test_tied_features_give_weights_with_eigenvalues_from_0_to_1(rng):
    for n, w in ((6, 2), (9, 12), (4, 1)):
        phi = 1.5 * rng.standard_normal((n, w))
        S = phi @ phi.T / w**0.5
        A, (P, _) = np.exp(S), an.attention_weights(phi, phi)
        assert np.linalg.eigvalsh(S).min() > -1e-10 and np.linalg.eigvalsh(A).min() > -1e-10 * A.max()
        values = np.linalg.eigvals(P)
        assert abs(values.imag).max() < 1e-9 and -1e-10 < values.real.min() and values.real.max() < 1 + 1e-10
        assert abs(P - P.T).max() > 0.01, "the weights themselves are not symmetric"
        share = A.sum(-1) / A.sum()
        compare(share[:, None] * P, (share[:, None] * P).T, name="balance", atol=1e-12)


@pytest.mark.claim("prop-mercer")
def test_two_maps_keep_nothing_of_it():
    cycle = np.roll(np.eye(5), 1, 1)
    phi, psi = kr.relation_features(8 * cycle)
    P, _ = an.softmax(phi @ psi.T)
    values = np.linalg.eigvals(P)
    assert abs(values.imag).max() > 0.9 and values.real.min() < -0.7
    assert np.linalg.eigvalsh((phi @ psi.T + psi @ phi.T) / 2).min() < -6


@pytest.mark.claim("thm-exponential-features", "eq:taylor-features")
@pytest.mark.parametrize(("d", "M"), [(1, 3), (3, 5), (4, 2)])
def test_the_features_of_the_exponential_and_what_is_cut_off(d, M, rng):
    X, Y = rng.standard_normal((20, d)), rng.standard_normal((20, d))
    F, _ = an.taylor_features(X, M)
    G, _ = an.taylor_features(Y, M)
    t = (X * Y).sum(-1)
    compare((F * G).sum(-1), sum(t**m / factorial(m) for m in range(M + 1)), name="products", atol=1e-10)
    assert F.shape[-1] == kr.monomial_count(d, M)
    R = np.linalg.norm(X, axis=-1) * np.linalg.norm(Y, axis=-1)
    bound = R ** (M + 1) / factorial(M + 1) * np.exp(R)
    error = abs(np.exp(t) - (F * G).sum(-1))
    assert (error <= bound * (1 + 1e-9)).all()
    squares = (F * F).sum(-1)
    assert (squares < np.exp((X * X).sum(-1))).all(), "the whole feature's length is e to the square of x"


@pytest.mark.claim("thm-exponential-features")
def test_the_bound_is_sharp_to_its_exponential_factor():
    """For x = y of one variable the error is at least the bound without e^{RS}: no smaller power would do."""
    for M in (2, 5, 8):
        for R in (0.3, 1.0):
            x = np.array([[R]])
            F, _ = an.taylor_features(x, M)
            error = np.exp(R * R) - float((F * F).sum())
            assert error >= (R * R) ** (M + 1) / factorial(M + 1) * (1 - 1e-6)
    F, _ = an.taylor_features(np.array([[1.5, -0.5]]), 30)
    compare((F * F).sum(), np.exp(2.5), name="all features", atol=1e-10)


@pytest.mark.claim("prop-kernel-pair", "pf:kernel-pair")
def test_two_maps_have_a_pair_of_spaces_and_one_map_has_one(rng):
    """Functions f = sum c_i kappa(., y_i) and g = sum b_j kappa(x_j, .): values, the pairing, and the sharp bound."""
    q, k, c, b = (
        rng.standard_normal((6, 3)),
        rng.standard_normal((5, 3)),
        rng.standard_normal(5),
        rng.standard_normal(6),
    )
    F, G = (an.taylor_features(X, 60)[0] for X in (q[:, :2], k[:, :2]))
    kappa = np.exp(q[:, :2] @ k[:, :2].T)
    compare(F @ G.T, kappa, name="kernel", atol=1e-9)
    u, v = c @ G, b @ F  # the coordinates of f and of g
    compare(F @ u, kappa @ c, name="values of f", atol=1e-9)
    compare(v @ u, b @ kappa @ c, name="the pairing", atol=1e-9)
    compare(u @ u, c @ np.exp(k[:, :2] @ k[:, :2].T) @ c, name="the norm is that of the keys", atol=1e-8)
    size = np.exp((q[:, :2] ** 2).sum(-1) / 2)
    assert (abs(F @ u) <= size * np.linalg.norm(u) * (1 + 1e-9)).all()
    for x in q[:, :2]:  # kappa(., y) with k(y) = q(x)
        own = an.taylor_features(x[None], 60)[0][0]
        compare(own @ own, np.exp(x @ x / 2) * np.linalg.norm(own), name="equality", rtol=1e-9)
    assert abs(kappa[:5] - kappa[:5].T).max() > 0.1, "two maps: the kernel is not symmetric"
    one = np.exp(k[:, :2] @ k[:, :2].T)  # one map: the pairing of f with itself is its square norm
    compare(u @ u, c @ one @ c, name="the inner product", atol=1e-8)
    assert np.linalg.eigvalsh(one).min() > 0


@pytest.mark.claim("prop-valid-weights")
def test_which_kernels_give_weights(rng):
    """A kernel of one sign always does; of two keys of different signs one gets a negative weight, or there is none."""
    Q, K = rng.standard_normal((8, 3)), rng.standard_normal((10, 3))
    t = Q @ K.T
    for kernel in (np.exp, partial(kr.taylor, degree=2), partial(kr.taylor, degree=4), lambda t: -np.cosh(t)):
        P = kernel(t) / kernel(t).sum(-1, keepdims=True)
        assert (P > 0).all()
    for kernel in (lambda t: t, lambda t: t**3, partial(kr.taylor, degree=1), partial(kr.taylor, degree=3)):
        A = kernel(3 * t)
        row = next(row for row in A if row.min() < 0 < row.max())
        pair = np.array([row.min(), row.max()])
        assert (pair / pair.sum()).min() < 0
    orthogonal = np.array([[0.0, 1.0]])
    with pytest.raises(ValueError, match="has no weights"):
        an.linear_attention(np.array([[1.0, 0.0]]), orthogonal, orthogonal, feature=_squares)


def _squares(X):
    """Features of the square of the dot product."""
    F = (X[..., :, None] * X[..., None, :]).reshape(*X.shape[:-1], -1)
    return F, lambda dF: (_ for _ in ()).throw(NotImplementedError)


@pytest.mark.claim("lem-even-degree")
def test_even_polynomials_are_positive_and_odd_ones_are_not():
    t = np.linspace(-40, 40.0001, 160_000)
    for M in range(1, 9):
        values = kr.taylor(t, M)
        changes = np.flatnonzero(np.diff(np.sign(values)))
        if M % 2:
            assert len(changes) == 1 and t[changes[0]] < 0 and (np.diff(values) > 0).all()
        else:
            assert (values > 0).all()
            lowest = t[values.argmin()]
            zero = t[np.flatnonzero(np.diff(np.sign(kr.taylor(t, M - 1))))[0]]
            assert abs(lowest - zero) < 1e-3, "it turns where the polynomial before it is 0"
            assert (np.diff(values[t < lowest - 1e-3]) < 0).all(), "left of it, less alike means more weight"
            compare(values.min(), lowest**M / factorial(M), name="the least value", atol=1e-3)


@pytest.mark.claim("lem-even-degree")
def test_an_opposite_key_gains_weight_under_degree_two():
    F = [an.taylor_features(np.array([[x, 0.0]]), 2)[0][0] for x in (2.0, 0.5, -2.0)]
    compare([F[0] @ F[2], F[0] @ F[1]], [5.0, 2.5], name="weights")  # the products are -4 and 1
