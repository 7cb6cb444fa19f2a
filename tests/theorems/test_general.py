"""The statements of the notebooks `notation` and `general_attention`, as tests that would refute them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import check_vjp, compare

WORLDS = ("numpy", "torch")
seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=12, deadline=None)


def call(world, name, *arrays, **static):
    """A library function in either world: NumPy arrays in, NumPy array out."""
    if world == "numpy":
        y, _ = getattr(an, name)(*arrays, **static)
        return y
    tensors = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in arrays]
    static = {key: torch.tensor(a) if isinstance(a, np.ndarray) else a for key, a in static.items()}
    return getattr(at, name)(*tensors, **static).numpy()


def general(world, Q, K, V, score="dot_score", score_params=(), mask=True):
    """General attention with a score of the library by name."""
    if world == "numpy":
        return an.general_attention(Q, K, V, getattr(an, score), score_params, mask=mask)[0]
    params = tuple(map(torch.tensor, score_params))
    mask = mask if mask is True else torch.tensor(mask)
    return at.general_attention(*map(torch.tensor, (Q, K, V)), getattr(at, score), params, mask=mask).numpy()


def scores_and_params(rng, q, k):
    """The four scores with random parameters; the two that need one width only where there is one."""
    every = [
        ("multiplicative_score", (rng.standard_normal((q, k)),)),
        ("additive_score", tuple(rng.standard_normal(shape) for shape in ((q, 4), (k, 4), (4,)))),
    ]
    return every + ([("dot_score", ()), ("scaled_dot_score", ())] if q == k else [])


def given_scores(Q, K, S):
    """A score that answers with S, whatever the queries and keys."""
    return S, lambda dS: (np.zeros_like(Q), np.zeros_like(K), dS)


def with_scores(S, V):
    """Attention whose scores are S."""
    n, m = S.shape
    return an.general_attention(np.zeros((n, 1)), np.zeros((m, 1)), V, given_scores, (S,))[0]


def in_hull(o, G):
    """Is o a convex combination of the rows of G? A linear program finds the one that comes nearest to it."""
    m, d = G.shape
    A = np.block([[G.T, -np.ones((d, 1))], [-G.T, -np.ones((d, 1))]])
    program = linprog(np.eye(m + 1)[m], A_ub=A, b_ub=np.append(o, -o), A_eq=np.append(np.ones(m), 0)[None], b_eq=[1])
    assert program.success, program.message
    return program.fun < 1e-9


def random_mask(rng, n, m):
    mask = rng.random((n, m)) < 0.6
    mask[np.arange(n), rng.integers(m, size=n)] = True
    return mask


# Notation


@pytest.mark.claim("lem-row-products")
def test_a_row_times_a_matrix_read_in_two_ways():
    rng = np.random.default_rng(0)
    a, B, C = rng.standard_normal(5), rng.standard_normal((3, 5)), rng.standard_normal((5, 2))
    compare(an.dot_score(a[None], B)[0][0], np.array([sum(x * y for x, y in zip(a, b, strict=True)) for b in B]))
    compare(an.linear(a[None], C, np.zeros(2))[0][0], sum(x * c for x, c in zip(a, C, strict=True)))


@pytest.mark.claim("pf:linear-map", "pf:composition")
def test_two_linear_maps_are_one_in_the_order_in_which_they_stand():
    rng = np.random.default_rng(1)
    X, A, B = rng.standard_normal((7, 3)), rng.standard_normal((3, 5)), rng.standard_normal((5, 2))
    twice = an.linear(an.linear(X, A, np.zeros(5))[0], B, np.zeros(2))[0]
    compare(twice, an.linear(X, A @ B, np.zeros(2))[0])
    compare(twice, ((B.T @ A.T) @ X.T).T)  # the column convention


@quick
@given(seeds)
@pytest.mark.claim("lem-cauchy-schwarz", "pf:cosine", "pf:inner-product", "pf:norm")
def test_the_cosine_lies_between_minus_one_and_one(seed):
    rng = np.random.default_rng(seed)
    X = an.unit_norm(rng.standard_normal((5, 3)) * 10 ** rng.uniform(-3, 3, (5, 1)))[0]
    cosines = an.dot_score(X, np.vstack([X, -3 * X]))[0] / np.repeat([1, 3], 5)
    assert (abs(cosines) <= 1 + 1e-12).all()
    compare(np.diag(cosines[:, :5]), np.ones(5))
    compare(np.diag(cosines[:, 5:]), -np.ones(5))
    assert (abs(cosines[:, :5] - np.eye(5) * cosines[:, :5]) < 1).all(), "equality only for parallel vectors"


@pytest.mark.claim("lem-trace", "pf:trace", "pf:frobenius", "pf:linear-gradient")
def test_the_trace_moves_factors_across_and_gives_the_gradient_of_a_linear_map():
    rng = np.random.default_rng(2)
    X, W, Y = rng.standard_normal((7, 3)), rng.standard_normal((3, 5)), rng.standard_normal((7, 5))
    compare(np.trace(X.T @ Y @ W.T), np.trace(W.T @ X.T @ Y))
    compare(np.linalg.norm(Y) ** 2, np.trace(Y.T @ Y))
    dX, dW, _ = an.linear(X, W, np.zeros(5))[1](Y)
    compare([(dX * X).sum(), (dW * W).sum()], [(Y * (X @ W)).sum()] * 2)
    compare((dX, dW), (Y @ W.T, X.T @ Y))


# The general attention function


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds, st.integers(1, 7))
@pytest.mark.claim("lem-weights-distribution", "def-softmax", "eq:softmax", "eq:general-weights")
def test_the_weights_are_a_distribution_and_zero_exactly_where_masked(world, seed, m):
    rng = np.random.default_rng(seed)
    mask = random_mask(rng, 5, m)
    S = np.where(mask, rng.uniform(-15, 15, (5, m)), -np.inf)
    P = call(world, "softmax", S)
    compare(P, np.exp(S) / np.exp(S).sum(-1, keepdims=True))
    compare(P.sum(-1), np.ones(5))
    assert np.array_equal(P > 0, mask)
    several = mask.sum(-1) > 1
    assert (P[several] < 1).all() and (P[~several].max(-1) == 1).all()


@pytest.mark.claim("lem-weights-distribution")
def test_orthogonal_and_opposite_keys_have_positive_weight():
    query, keys = np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    for world in WORLDS:
        P = call(world, "softmax", call(world, "dot_score", query, keys))
        compare(P, np.exp([[1.0, 0.0, -1.0]]) / np.exp([1.0, 0.0, -1.0]).sum())


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds)
@pytest.mark.claim("def-attention", "eq:general-scores", "eq:general-output")
def test_general_attention_is_its_definition(world, seed):
    rng = np.random.default_rng(seed)
    Q, K, V = rng.standard_normal((2, 3)), rng.standard_normal((5, 3)), rng.standard_normal((5, 7))
    mask = random_mask(rng, 2, 5)
    for score, params in scores_and_params(rng, 3, 3):
        want = np.zeros((2, 7))
        for i in range(2):
            allowed = [j for j in range(5) if mask[i, j]]
            S = [getattr(an, score)(Q[i : i + 1], K[j : j + 1], *params)[0].item() for j in allowed]
            Z = sum(np.exp(s) for s in S)
            want[i] = sum(np.exp(s) / Z * V[j] for s, j in zip(S, allowed, strict=True))
        compare(general(world, Q, K, V, score, params, mask), want, name=score)


@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=6, deadline=None)
@given(seeds, st.sampled_from([0.1, 1.0, 30.0]))
@pytest.mark.claim("prop-convex-combination", "pf:convex-hull")
def test_the_output_lies_in_the_convex_hull_of_the_values(world, seed, spread):
    rng = np.random.default_rng(seed)
    Q, K, V = spread * rng.standard_normal((2, 3)), rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
    mask = random_mask(rng, 2, 5)
    for score, params in scores_and_params(rng, 3, 3):
        for o, allowed in zip(general(world, Q, K, V, score, params, mask), mask, strict=True):
            assert in_hull(o, V[allowed]), score
            for direction in rng.standard_normal((5, 2)):  # every linear functional is bounded by its extremes
                along = V[allowed] @ direction
                assert along.min() - 1e-12 <= o @ direction <= along.max() + 1e-12


@pytest.mark.claim("prop-convex-combination", "eq:general-output")
def test_the_hull_is_that_of_the_transformed_values():
    rng = np.random.default_rng(3)
    V = -np.abs(rng.standard_normal((4, 2)))

    def square(V):
        return V**2, lambda dG: 2 * V * dG

    Q, K = rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    O, _ = an.general_attention(Q, K, V, an.dot_score, transform=square)
    compare(O, an.softmax(an.dot_score(Q, K)[0])[0] @ V**2)  # first the transformation, then the average
    for o in O:
        assert in_hull(o, V**2) and not in_hull(o, V)


@quick
@given(seeds)
@pytest.mark.claim("lem-reachable")
def test_every_inner_point_of_the_hull_is_reached_and_no_corner(seed):
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((5, 2))
    beta = rng.dirichlet(np.ones(5)) * (rng.random(5) < 0.7)
    if beta.sum() > 0:
        point = beta / beta.sum() @ G
        compare(with_scores(np.log(beta, where=beta > 0, out=np.full(5, -np.inf))[None], G)[0], point, atol=1e-10)
    epsilon, c = 0.1, G.mean(0)
    edge = rng.dirichlet(np.ones(5))
    o = (edge @ G + epsilon * c) / (1 + epsilon)  # the construction of the proof
    S = np.log((edge + epsilon / 5) / (1 + epsilon))
    compare(with_scores(S[None], G)[0], o, atol=1e-10)
    # with finite scores the segment from any value through the output goes on inside the hull
    output = with_scores(rng.uniform(-3, 3, (1, 5)), G)[0]
    for g in G:
        assert in_hull(output + 1e-4 * (output - g), G)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.claim("lem-no-count")
def test_equal_values_hide_how_many_they_are(world):
    rng = np.random.default_rng(4)
    v = rng.standard_normal((1, 7))
    for m in (1, 2, 5, 30):
        Q, K = rng.standard_normal((2, 3)), rng.standard_normal((m, 3))
        compare(general(world, Q, K, np.repeat(v, m, 0)), np.repeat(v, 2, 0))


@pytest.mark.claim("prop-differentiability", "eq:general-vjp")
def test_general_attention_has_the_gradient_that_the_chain_rule_gives():
    rng = np.random.default_rng(5)
    Q, K, V = rng.standard_normal((2, 3)), rng.standard_normal((5, 3)), rng.standard_normal((5, 7))
    W, b, dO = rng.standard_normal((7, 4)), rng.standard_normal(4), rng.standard_normal((2, 4))
    mask = random_mask(rng, 2, 5)
    for score, params in scores_and_params(rng, 3, 3):

        def f(Q, K, V, W, b, *params, score=score):
            O, vjp = an.general_attention(Q, K, V, getattr(an, score), params, an.linear, (W, b), mask)

            def flat(dO):
                dQ, dK, dV, dscore, dtransform = vjp(dO)
                return dQ, dK, dV, *dtransform, *dscore

            return O, flat

        check_vjp(f, Q, K, V, W, b, *params, rng=rng)
        leaves = [torch.tensor(x, requires_grad=True) for x in (Q, K, V, W, b, *params)]
        tq, tk, tv, tw, tb, *tparams = leaves
        O = at.general_attention(
            tq, tk, tv, getattr(at, score), tuple(tparams), at.linear, (tw, tb), torch.tensor(mask)
        )
        O.backward(torch.tensor(dO))
        compare(f(Q, K, V, W, b, *params)[1](dO), tuple(leaf.grad for leaf in leaves), name=score)


@pytest.mark.claim("pf:general-score-gradient", "prop-differentiability")
def test_the_gradient_of_a_score_is_its_weight_times_the_deviation_of_its_value():
    rng = np.random.default_rng(6)
    S, V, dO = rng.standard_normal((2, 5)), rng.standard_normal((5, 7)), rng.standard_normal((2, 7))
    P, softmax_vjp = an.softmax(S)
    want = np.array([[P[i, j] * dO[i] @ (V[j] - P[i] @ V) for j in range(5)] for i in range(2)])
    compare(softmax_vjp(dO @ V.T), want)


@pytest.mark.claim("prop-differentiability")
def test_the_hypothesis_on_the_score_is_needed():
    def slope(side):  # of the output at the key 0, keys 0 and 1, scores -|q - k|
        h = side * 1e-6
        S = -np.abs(np.array([[0.0], [h]]) - np.array([0.0, 1.0]))
        return np.diff(with_scores(S, np.array([[0.0], [1.0]]))[:, 0])[0] / h

    assert abs(slope(1) - slope(-1)) > 0.1


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=7))
@pytest.mark.claim("lem-temperature")
def test_temperature_goes_from_the_maximum_to_the_mean(world, numbers):
    u = np.array(numbers, float)
    m, best = len(u), u == u.max()
    compare(call(world, "softmax", u, temperature=1e-3), best / best.sum())
    compare(call(world, "softmax", u, temperature=1e9), np.full(m, 1 / m), atol=1e-8)
    if not best.all():
        gap = u.max() - u[~best].max()
        for tau in (0.1, 0.5, 2.0):
            outside = call(world, "softmax", u, temperature=tau)[~best].sum()
            assert outside <= (m - best.sum()) / best.sum() * np.exp(-gap / tau) * (1 + 1e-12)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.claim("pf:lookup", "lem-temperature")
def test_a_lookup_is_the_cold_limit(world):
    m, row = 11, 3
    V = np.random.default_rng(7).standard_normal((m, 2))
    for tau in (1.0, 0.3):
        P = call(world, "softmax", call(world, "dot_score", np.eye(m)[row : row + 1], np.eye(m)), temperature=tau)
        compare(P[0, row], 1 / (1 + (m - 1) * np.exp(-1 / tau)))
    compare(general(world, np.eye(m)[row : row + 1] / 0.01, np.eye(m), V)[0], V[row])
    compare(general(world, np.zeros((1, m)), np.eye(m), V)[0], V.mean(0))


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds)
@pytest.mark.claim("lem-pair-permutation")
def test_permuting_the_pairs_permutes_the_weights_and_leaves_the_output(world, seed):
    rng = np.random.default_rng(seed)
    Q, K, V = rng.standard_normal((2, 3)), rng.standard_normal((5, 3)), rng.standard_normal((5, 7))
    mask, order = random_mask(rng, 2, 5), rng.permutation(5)
    for score, params in scores_and_params(rng, 3, 3):
        O = general(world, Q, K, V, score, params, mask)
        compare(general(world, Q, K[order], V[order], score, params, mask[:, order]), O, name=score)
    P = call(world, "attention_weights", Q, K, mask)
    compare(call(world, "attention_weights", Q, K[order], mask[:, order]), P[:, order])


def gaussian_regression(Q, K, V, sigma):
    """The estimator of Nadaraya and Watson, term by term."""
    out = []
    for q in Q:
        kernel = [np.exp(-((q - k) ** 2).sum() / (2 * sigma**2)) for k in K]
        out.append(sum(w * v for w, v in zip(kernel, V, strict=True)) / sum(kernel))
    return np.array(out)


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds, st.floats(0.3, 3))
@pytest.mark.claim("lem-nadaraya-watson", "pf:nadaraya-watson", "pf:lifted")
def test_attention_is_kernel_regression(world, seed, sigma):
    rng = np.random.default_rng(seed)
    Q, K, V = rng.standard_normal((2, 3)), rng.standard_normal((5, 3)), rng.standard_normal((5, 7))
    want = gaussian_regression(Q, K, V, sigma)
    S = -((Q[:, None] - K[None]) ** 2).sum(-1) / 2
    compare(call(world, "softmax", S, temperature=sigma**2) @ V, want, atol=1e-10)
    lifted_Q = np.hstack([Q, np.ones((2, 1))]) / sigma**2
    lifted_K = np.hstack([K, -(K**2).sum(-1, keepdims=True) / 2])
    compare(general(world, lifted_Q, lifted_K, V), want, atol=1e-10)
    compare(call(world, "attention", 2 * lifted_Q, lifted_K, V), want, atol=1e-10)  # width 4, so the scale is 1/2


@pytest.mark.parametrize("world", WORLDS)
@quick
@given(seeds)
@pytest.mark.claim("lem-equal-norms")
def test_dot_products_are_gaussian_exactly_for_keys_of_equal_norm(world, seed):
    rng = np.random.default_rng(seed)
    sigma = 0.8
    Q, V = rng.standard_normal((2, 3)), rng.standard_normal((5, 7))
    K = an.unit_norm(rng.standard_normal((5, 3)))[0]
    compare(general(world, Q / sigma**2, K, V), gaussian_regression(Q, K, V, sigma), atol=1e-10)
    K = K * rng.uniform(1, 2, (5, 1))
    P = call(world, "softmax", call(world, "dot_score", Q / sigma**2, K))
    kernel = np.exp(-((Q[:, None] - K[None]) ** 2).sum(-1) / (2 * sigma**2))
    lengthened = kernel * np.exp((K**2).sum(-1) / (2 * sigma**2))
    compare(P, lengthened / lengthened.sum(-1, keepdims=True), atol=1e-10)
    assert abs(P - kernel / kernel.sum(-1, keepdims=True)).max() > 1e-6, "unequal norms"
