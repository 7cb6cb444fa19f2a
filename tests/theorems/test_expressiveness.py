"""The results of the pages on what several heads can do, and on heads as low-rank maps and as graphs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space

import attnmath.numpy as an
from attnmath.check import compare

seeds = st.integers(0, 10**6)
few = settings(max_examples=15)


def layer(*heads):
    """Parameters of multi-head attention without biases from (Wq, Wk, Wv, Wo) of each head."""
    Wq, Wk, Wv, Wo = zip(*heads, strict=True)
    tree = {"query": np.hstack(Wq), "key": np.hstack(Wk), "value": np.hstack(Wv), "output": np.vstack(Wo)}
    return {name: {"weight": weight, "bias": np.zeros(weight.shape[1])} for name, weight in tree.items()}


def head(rng, d, k, v):
    return tuple(rng.standard_normal(shape) for shape in ((d, k), (d, k), (d, v), (v, d)))


def run(X, *heads):
    return an.multi_head_attention(X, X, X, layer(*heads), heads=len(heads))[0]


@pytest.mark.slow
@pytest.mark.claim("thm-subspaces")
@few
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), seeds)
def test_a_head_reads_a_subspace_and_writes_into_one(k, v, extra, seed):
    rng = np.random.default_rng(seed)
    d = 2 * k + v + extra
    W = head(rng, d, k, v)
    X = rng.standard_normal((5, d))
    O = run(X, W)
    blind = null_space(np.hstack(W[:3]).T)
    assert blind.shape[1] == d - 2 * k - v
    compare(run(X + 3 * rng.standard_normal((5, blind.shape[1])) @ blind.T, W), O, name="moved unseen", atol=1e-8)
    basis = np.hstack(W[:3])
    compare(run(X @ basis @ np.linalg.pinv(basis), W), O, name="projected", atol=1e-8)
    seen = X + basis @ rng.standard_normal(basis.shape[1])
    assert np.abs(run(seen, W) - O).max() > 1e-6, "what it reads does matter"
    assert np.linalg.matrix_rank(np.vstack([O, W[3]]), tol=1e-8) == v, "rows in the row space of W_o"


@pytest.mark.slow
@pytest.mark.claim("thm-subspaces")
@few
@given(st.integers(1, 3), st.integers(1, 3), seeds)
def test_coordinates_are_free_and_subspaces_may_coincide(k, v, seed):
    rng = np.random.default_rng(seed)
    Wq, Wk, Wv, Wo = head(rng, 7, k, v)
    X = rng.standard_normal((5, 7))
    A, C = (np.eye(size) + 0.3 * rng.standard_normal((size, size)) for size in (k, v))
    other = (Wq @ A, Wk @ np.linalg.inv(A).T, Wv @ C, np.linalg.inv(C) @ Wo)
    compare(run(X, other), run(X, (Wq, Wk, Wv, Wo)), name="other coordinates", atol=1e-6, rtol=1e-6)
    second = rng.standard_normal(Wo.shape)
    twice = run(X, (Wq, Wk, Wv, Wo), (Wq, Wk, Wv, second))
    compare(twice, run(X, (Wq, Wk, Wv, Wo + second)), name="two heads that see the same", atol=1e-10)
    blind = [run(X, (0 * Wq, keys, Wv, Wo)) for keys in (Wk, rng.standard_normal(Wk.shape))]
    compare(*blind, name="keys that no query asks for", atol=1e-12)


def lookups(n, r, order):
    asked = np.array(list(itertools.product(range(n), repeat=r)))
    content = np.eye(n)[list(order)]
    return asked, content, np.hstack([content[asked[:, i]] for i in range(r)])


@pytest.mark.claim("thm-two-lookups")
@few
@given(
    st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.05, 1.0, 30.0]), st.booleans(), seeds
)
def test_fewer_heads_than_lookups_cannot(n, h, r, sharpness, guided, seed):
    h, r = min(h, r), max(h, r)
    rng = np.random.default_rng(seed)
    asked, _, target = lookups(n, r, rng.permutation(n))
    scores = sharpness * rng.standard_normal((h, n**r, n))  # any function of the query
    if guided:  # each head looks at a mixture of the keys that are asked for
        scores = np.tensordot(rng.standard_normal((h, r)), np.eye(n)[asked.T], 1) + 0.01 * scores
    P, _ = an.softmax(scores)
    features = np.hstack([*P, np.ones((n**r, 1))])  # the best values and the best constant, for these weights
    best = features @ np.linalg.lstsq(features, target)[0]
    assert ((best - target) ** 2).sum(1).mean() >= (r - h) * (1 - 1 / n) - 1e-9


@pytest.mark.slow
@pytest.mark.claim("thm-two-lookups")
@pytest.mark.parametrize(("n", "r", "h"), [(3, 3, 1), (3, 3, 2), (3, 3, 3), (4, 2, 1), (4, 2, 2), (2, 1, 1)])
@pytest.mark.parametrize("beta", [0.3, 2.0])
def test_as_many_heads_as_lookups_can_and_fewer_reach_the_bound(n, r, h, beta):
    width = max(r, 2) * n
    c = (np.exp(beta) + n - 1) / (np.exp(beta) - 1)
    blocks = [np.eye(width)[:, i * n : (i + 1) * n] for i in range(max(r, 2))]
    params = layer(*((beta * n**0.5 * blocks[i], blocks[0], blocks[1], c * blocks[i].T) for i in range(h)))
    constant = np.full(width, 1 / n)
    constant[: h * n] = -1 / (np.exp(beta) - 1)
    params["output"]["bias"] = constant
    for order in itertools.permutations(range(n)):
        asked, content, target = lookups(n, r, order)
        Q = np.zeros((len(asked), width))
        Q[:, : r * n] = np.hstack([np.eye(n)[asked[:, i]] for i in range(r)])
        K = np.zeros((n, width))
        K[:, : 2 * n] = np.hstack([np.eye(n), content])
        O, _ = an.multi_head_attention(Q, K, K, params, heads=h)
        error = ((O[:, : r * n] - target) ** 2).sum(1).mean()
        compare(error, (r - h) * (1 - 1 / n), name="error", atol=1e-10)


@pytest.mark.claim("thm-two-lookups")
@few
@given(st.integers(2, 5), st.integers(1, 3), st.data(), seeds)
def test_no_sum_of_narrow_heads_is_a_wide_one(d, h, data, seed):
    """Mixed differences along z_1 … z_h: zero for every sum of h narrow heads, not for a head of width d."""
    k, rng = data.draw(st.integers(1, d - 1)), np.random.default_rng(seed)
    y, u = rng.standard_normal((2, d))
    keys = np.stack([y, y + u])
    narrow = [head(rng, d, k, 3) for _ in range(h)]
    if data.draw(st.booleans()):  # as near to the wide head as the width allows
        parts = [np.eye(d)[:, rng.permutation(d)[:k]] for _ in range(h)]
        narrow = [(part, part, *rest) for part, (_, _, *rest) in zip(parts, narrow, strict=True)]
    wide = (np.eye(d), np.eye(d), np.eye(d), rng.standard_normal((d, d)))
    b = u / d**0.5  # B = I / sqrt(d)
    corners, signs = np.zeros((1, d)), np.ones(1)
    for Wq, Wk, _, _ in narrow:
        z = np.linalg.lstsq(np.stack([Wq @ Wk.T @ u, b]), np.array([0.0, 1.0]))[0]
        assert abs(z @ b - 1) < 1e-9, "B u is no multiple of B^i u"
        corners, signs = np.concatenate([corners, corners + z]), np.concatenate([signs, -signs])
    corners = corners + 0.3 * b / (b @ b)  # where no derivative of the sigmoid is near zero

    def difference(*heads):
        params = layer(*heads)
        for name, shift in (("query", 0.5), ("key", 2.0), ("value", 1.0), ("output", 1.0)):
            if heads[0] is not wide:
                params[name]["bias"] = shift * rng.standard_normal(params[name]["bias"].shape)
        return np.abs(signs @ an.multi_head_attention(corners, keys, keys, params, heads=len(heads))[0]).max()

    scale = np.abs(u @ wide[3]).max()
    assert difference(*narrow) < 1e-9
    assert difference(wide) > 1e-3 * scale


def radon(keys):
    """The two sets of the lemma, the smaller first."""
    c = null_space(np.hstack([keys, np.ones((len(keys), 1))]).T)[:, 0]
    return sorted([np.flatnonzero(c > 1e-12), np.flatnonzero(c < -1e-12)], key=len)


@pytest.mark.claim("lem-radon-weights")
@few
@given(st.integers(1, 5), st.sampled_from([0.1, 1.0, 20.0]), seeds)
def test_narrow_keys_cannot_select_every_set(k, scale, seed):
    rng = np.random.default_rng(seed)
    K = rng.standard_normal((k + 2, k))
    A, B = radon(K)
    assert 1 <= len(A) <= k // 2 + 1
    assert len(B) >= 1
    Q = scale * rng.standard_normal((300, k))
    Q[0] = scale * (K[A].mean(0) - K[B].mean(0))  # tries hardest
    P, _ = an.attention_weights(Q, K)
    assert (P[:, B].max(1) >= P[:, A].min(1) * (1 - 1e-9)).all()


def means_error(P, Wv, Wo, A):
    """Expected squared distance from the mean of the contents in A: sum over keys of |N_j - tau_j I|^2."""
    N = np.einsum("ij,ixy->jxy", P, Wv @ Wo)
    tau = np.isin(np.arange(P.shape[1]), A) / len(A)
    return ((N - tau[:, None, None] * np.eye(N.shape[-1])) ** 2).sum()


@pytest.mark.claim("lem-means-floor")
def test_the_expected_error_is_the_sum_of_norms(rng):
    d, A = 4, [0, 2]
    P, _ = an.softmax(rng.standard_normal((2, d)))
    Wv, Wo = rng.standard_normal((2, d, 2)), rng.standard_normal((2, 2, d))
    contents = rng.standard_normal((100_000, d, d))
    O = sum(np.einsum("j,sjx->sx", p, contents) @ wv @ wo for p, wv, wo in zip(P, Wv, Wo, strict=True))
    sampled = ((O - contents[:, A].mean(1)) ** 2).sum(1).mean()
    compare(sampled, means_error(P, Wv, Wo, A), name="error", rtol=0.02)


@pytest.mark.claim("lem-means-floor")
@pytest.mark.parametrize(("d", "h"), [(3, 3), (4, 2), (6, 2), (6, 3), (4, 4)])
def test_narrow_heads_of_equal_total_width_cannot(d, h):
    """Descend on everything but the keys: queries and all values. The bound holds on the way and at the end."""
    k, generator = d // h, torch.Generator().manual_seed(d + h)
    keys = torch.randn(h, d, k, generator=generator, dtype=torch.float64)
    A, _ = radon(keys[0, : k + 2].numpy())  # only the first head has to fail
    bound = k / (k + 1) / len(A) ** 2
    assert bound >= k / (k + 1) / (k // 2 + 1) ** 2
    tau = torch.zeros(d, dtype=torch.float64)
    tau[A] = 1 / len(A)
    sizes = [(h, k), (h, d, k), (h, k, d)]
    params = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
    for _ in range(100):
        q, Wv, Wo = params = [param.detach().requires_grad_() for param in params]
        P = torch.softmax(torch.einsum("ik,ijk->ij", q, keys), -1)
        N = torch.einsum("ij,ixy->jxy", P, Wv @ Wo)
        error = ((N - tau[:, None, None] * torch.eye(d, dtype=torch.float64)) ** 2).sum()
        assert error >= bound
        gradients = torch.autograd.grad(error, params)
        params = [param - 0.1 * gradient for param, gradient in zip(params, gradients, strict=True)]
    assert error < d / len(A), "better than giving up"


@pytest.mark.claim("lem-means-floor")
@pytest.mark.parametrize("d", [3, 5])
def test_the_bound_is_sharp_for_heads_of_width_one(d):
    """All heads select key 1, but the first has the same scalar for key 2: half of its weight goes there."""
    keys = np.full((d, d), -9.0)
    keys[:, 1] = keys[0, 2] = 0
    P, _ = an.softmax(9 * keys)
    Wv, Wo = np.eye(d)[:, :, None], np.eye(d)[:, None, :]
    compare(means_error(P, Wv, Wo, [1]), 1 / 2, name="error", atol=1e-12)
    for factor in (0.5, 0.9, 1.1, 2.0):  # for the first head
        assert means_error(P, Wv, np.array([factor] + [1] * (d - 1))[:, None, None] * Wo, [1]) > 1 / 2


@pytest.mark.claim("lem-means-floor")
@pytest.mark.parametrize("d", [2, 4, 5])
@pytest.mark.parametrize("beta", [0.5, 3.0, 8.0])
def test_one_wide_head_can(d, beta):
    bound, errors = 2 * d * (d - 1) ** 2 * np.exp(-2 * beta), []
    for asked in itertools.product((0.0, 1.0), repeat=d):
        A = np.flatnonzero(asked)
        if len(A):
            P, _ = an.attention_weights(beta * d**0.5 * np.array([asked]), np.eye(d))
            errors.append(means_error(P, np.eye(d)[None], np.eye(d)[None], A))
    assert max(errors) <= bound + 1e-20
    if d == 2:  # the bound is the error, up to what large scores forget
        assert np.isclose(max(errors), bound / (1 + np.exp(-beta)) ** 2)


@pytest.mark.claim("lem-score-rank")
@few
@given(st.integers(1, 4), seeds)
def test_log_weights_have_rank_at_most_one_more_than_the_width(k, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((9, 6)), rng.standard_normal((8, 6))
    Q, K = (Z @ rng.standard_normal((6, k)) + rng.standard_normal(k) for Z in (X, Y))  # with biases
    S, _ = an.scaled_dot_score(Q, K)
    P, _ = an.softmax(S)
    assert np.linalg.matrix_rank(S, tol=1e-9) == k
    assert np.linalg.matrix_rank(np.log(P), tol=1e-9) == k + 1
    centred = np.log(P) - np.log(P).mean(1, keepdims=True)  # some c, found from P alone
    U, s, Vt = np.linalg.svd(centred)
    again, _ = an.attention_weights(U[:, :k] * s[:k] * k**0.5, Vt[:k].T)
    compare(again, P, name="weights from queries and keys found in their logarithm", atol=1e-9)
    wider = np.log(an.softmax(rng.standard_normal((8, 8)))[0])
    wider -= wider.mean(1, keepdims=True)
    assert np.linalg.matrix_rank(wider, tol=1e-9) == 7 > k, "general weights are out of reach"


def determinant(rows):
    rows, value = [list(row) for row in rows], Fraction(1)
    for c in range(len(rows)):
        pivot = next((i for i in range(c, len(rows)) if rows[i][c]), None)
        if pivot is None:
            return 0
        rows[c], rows[pivot] = rows[pivot], rows[c]
        value *= rows[c][c]
        for row in rows[c + 1 :]:
            factor = row[c] / rows[c][c]
            row[:] = [x - factor * y for x, y in zip(row, rows[c], strict=True)]
    return value


@pytest.mark.claim("lem-softmax-rank")
@few
@given(
    st.lists(st.integers(-9, 9), min_size=7, max_size=7, unique=True),
    st.lists(st.integers(-9, 9), min_size=7, max_size=7, unique=True),
)
def test_weights_of_rank_one_scores_are_invertible(q, k):
    """Base 2 for e: exact fractions."""

    def weights(q, k):
        E = [[Fraction(2) ** (x * y) for y in k] for x in q]
        return [[e / sum(row) for e in row] for row in E]

    P, _ = an.softmax(np.log(2) * np.outer(q, k).astype(float))
    compare(P, np.array(weights(q, k), float), name="weights", atol=1e-12)
    assert determinant(weights(q, k)) != 0
    assert determinant(weights([*q[:6], q[0]], k)) == 0, "equal queries"
    assert determinant(weights(q, [*k[:6], k[0]])) == 0, "equal keys"


def diameter(X):
    return np.linalg.norm(X[:, None] - X[None], axis=-1).max()


def dobrushin(P):
    return 1 - np.minimum(P[:, None], P[None]).sum(-1).min()


@pytest.mark.claim("lem-random-walk")
@few
@given(st.integers(2, 6), st.sampled_from([0.1, 1.0, 4.0]), seeds)
def test_attention_is_a_random_walk_that_forgets(n, scale, seed):
    rng = np.random.default_rng(seed)
    P, R, T = an.softmax(scale * rng.standard_normal((3, n, n)))[0]
    walk = P @ R @ T
    paths = sum(P[0, i] * R[i, j] * T[j] for i in range(n) for j in range(n))
    compare(walk[0], paths, name="three steps", atol=1e-12)
    compare(walk.sum(1), np.ones(n), name="row sums", atol=1e-12)

    delta = dobrushin(P)
    compare(np.abs(P[:, None] - P[None]).sum(-1).max() / 2, delta, name="both forms", atol=1e-12)
    X = rng.standard_normal((n, 3))
    assert diameter(P @ X) <= delta * diameter(X) + 1e-12
    sets = np.array(list(itertools.product((0.0, 1.0), repeat=n))[1:-1]).T
    compare(np.ptp(P @ sets, axis=0).max(), delta, name="no smaller factor does", atol=1e-12)
    assert delta <= 1 - n * P.min() + 1e-12
    limit = np.linalg.matrix_power(P, 2**16)
    assert np.ptp(limit, axis=0).max() <= max((1 - n * P.min()) ** (2**16), 1e-9)
    compare(limit @ P, limit, name="limit", atol=1e-8)


@pytest.mark.slow
@pytest.mark.claim("lem-rank-collapse")
@few
@given(st.integers(1, 3), st.sampled_from([1e-3, 0.1, 1.0]), seeds)
def test_pure_attention_cubes_the_diameter(h, scale, seed):
    rng = np.random.default_rng(seed)
    d, k, n = 5, 2, 6
    heads = [head(rng, d, k, k) for _ in range(h)]
    params = layer(*heads)
    for tree in params.values():
        tree["bias"] = rng.standard_normal(tree["bias"].shape)
    X = rng.standard_normal(d) + scale * rng.standard_normal((n, d))

    def norm(A):
        return np.linalg.norm(A, 2)

    record = {}
    Y, _ = an.multi_head_attention(X, X, X, params, heads=h, attend=an.recording(an.attention_fused, record))
    for P, (Wq, Wk, _, _) in zip(record["weights"], heads, strict=True):
        assert dobrushin(P) <= norm(Wq @ Wk.T) / k**0.5 * diameter(X) ** 2 / 4 + 1e-12
    bracket = sum(norm(Wv @ Wo) * norm(Wq @ Wk.T) / k**0.5 for Wq, Wk, Wv, Wo in heads) / 4
    assert diameter(Y) <= bracket * diameter(X) ** 3 * (1 + 1e-9) + 1e-12

    c = bracket**0.5
    X = 0.9 * (X - X.mean(0)) / (c * diameter(X)) + X.mean(0)  # c diam = 0.9
    for t in range(1, 4):
        X, _ = an.multi_head_attention(X, X, X, params, heads=h)
        assert c * diameter(X) <= 0.9 ** (3**t) + 1e-12


@pytest.mark.claim("lem-rank-collapse", "exr-bounded-scores")
@pytest.mark.parametrize("a", [0.1, 1.0, 2.0])
def test_two_tokens_attain_the_quarter(a):
    X, one = np.array([[a / 2], [-a / 2]]), np.eye(1)
    P, _ = an.attention_weights(X, X)
    assert dobrushin(P) == pytest.approx(math.tanh(a * a / 4), rel=1e-12)
    Y, _ = an.self_attention(X, one, one, one)
    assert diameter(Y) == pytest.approx(math.tanh(a * a / 4) * a, rel=1e-12)
    assert a > 0.1 or diameter(Y) > 0.999 * a**3 / 4
    s = a * a / 4  # the scores are s and -s
    steps = math.ceil(math.log(1e-6) / math.log(math.tanh(s)))
    gaps = [np.ptp(np.linalg.matrix_power(P, t), axis=0).max() for t in (steps - 1, steps)]
    assert gaps[1] <= 1e-6 * (1 + 1e-9) and (gaps[0] > 1e-6 or steps == 1) and (s != 1 or steps == 51)


@pytest.mark.claim("lem-rank-collapse")
@pytest.mark.parametrize("common", [0.0, 1.0])
def test_the_third_power_is_the_right_one(common, rng):
    X, W, mean = rng.standard_normal((6, 4)), head(rng, 4, 4, 4), common * rng.standard_normal(4)
    ratios = [diameter(run(mean + s * X, W)) / s**3 for s in (4e-3, 2e-3, 1e-3)]
    compare(ratios[1:], ratios[:1] * 2, name="diameter over the cube of the scale", rtol=0.05)
