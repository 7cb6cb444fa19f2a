"""The results of the pages on feed-forward networks, normalisation and residual connections."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import shapes
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 7)
few = settings(max_examples=15, deadline=None)


def draws(seed):
    return np.random.default_rng(seed)


def identity(X):
    return X, lambda dY: dY


# feed-forward


@pytest.mark.claim("lem-linear-collapse")
@few
@given(seeds, widths, widths)
def test_without_the_activation_the_network_is_one_affine_map_of_rank_at_most_the_least_width(seed, d, f):
    rng = draws(seed)
    p = shapes.random_tree(shapes.feed_forward_shapes(d, f), rng)
    up, down = p["up"], p["down"]
    M, c = up["weight"] @ down["weight"], up["bias"] @ down["weight"] + down["bias"]
    X = rng.standard_normal((9, d))
    compare(an.feed_forward(X, p, identity)[0], X @ M + c, name="one map", atol=1e-9)
    assert np.linalg.matrix_rank(M) <= min(d, f)
    assert np.linalg.matrix_rank(M, tol=1e-12) == min(d, f), "random weights attain the bound"


@pytest.mark.claim("lem-linear-collapse")
@few
@given(seeds, widths, widths)
def test_every_affine_map_of_rank_at_most_the_hidden_width_arises(seed, d, f):
    rng = draws(seed)
    rank = min(d, f)
    U, s, Vt = np.linalg.svd(rng.standard_normal((d, rank)) @ rng.standard_normal((rank, d)))
    c = rng.standard_normal(d)
    W1, W2 = np.zeros((d, f)), np.zeros((f, d))
    W1[:, :rank], W2[:rank] = U[:, :rank] * s[:rank], Vt[:rank]
    p = {"up": {"weight": W1, "bias": np.zeros(f)}, "down": {"weight": W2, "bias": c}}
    X = rng.standard_normal((5, d))
    compare(an.feed_forward(X, p, identity)[0], X @ (U[:, : len(s)] * s) @ Vt + c, name="the map", atol=1e-9)


@pytest.mark.slow
@pytest.mark.claim("lem-position-wise", "def-feed-forward")
@few
@given(seeds, st.integers(2, 6), st.sampled_from(["relu", "gelu", "silu", "gated"]))
def test_position_wise_is_equivariance_without_mixing(seed, n, kind):
    rng = draws(seed)
    if kind == "gated":
        p, f = shapes.random_tree(shapes.gated_feed_forward_shapes(4, 9), rng), an.gated_feed_forward
    else:
        p = shapes.random_tree(shapes.feed_forward_shapes(4, 9), rng)
        f = lambda X, p: an.feed_forward(X, p, getattr(an, kind))  # noqa: E731
    X, order, i = rng.standard_normal((n, 4)), rng.permutation(n), rng.integers(n)
    Y, vjp = f(X, p)
    compare(f(X[order], p)[0], Y[order], name="equivariance")
    compare(Y, np.concatenate([f(x[None], p)[0] for x in X]), name="one function for every row")
    dY = np.zeros((n, 4))
    dY[i] = rng.standard_normal(4)
    dX, _ = vjp(dY)
    assert (dX[np.arange(n) != i] == 0).all()
    silent = kind == "relu" and (X[i] @ p["up"]["weight"] + p["up"]["bias"] <= 0).all()  # one row in 2⁹
    assert (np.abs(dX[i]).max() == 0) == silent


@pytest.mark.claim("lem-position-wise")
def test_neither_half_is_enough_for_position_wise(rng):
    X, order = rng.standard_normal((4, 3)), np.array([1, 0, 3, 2])
    mean = lambda X: X + X.mean(0)  # noqa: E731, equivariant, and it mixes
    compare(mean(X[order]), mean(X)[order], name="equivariance of the mean")
    assert np.abs(mean(X) - np.concatenate([mean(x[None]) for x in X])).max() > 0.1
    own = lambda X: X * np.arange(1.0, 5)[:, None]  # noqa: E731, no mixing, and one function for each row
    assert np.abs(own(X[order]) - own(X)[order]).max() > 0.1


@pytest.mark.claim("lem-gelu-tanh")
def test_the_tanh_form_of_gelu_is_off_by_less_than_5e_4():
    h, slope = 1e-5, 2.83
    x = np.arange(0, 6 + h, h)
    exact, approximate = (np.array([f(np.array([t]))[0].item() for t in (2.699, 2.7)]) for f in (an.gelu, an.gelu_tanh))
    assert np.abs(exact - approximate).max() > 4.7e-4, "the bound is not idle"
    gap = np.abs(an.gelu(x)[0] - an.gelu_tanh(x)[0])
    assert gap.max() < 4.74e-4 and gap.max() + slope * h / 2 < 5e-4, "between the points of the grid too"
    assert np.abs(np.diff(gap)).max() <= slope * h, "the bound on the slope"
    compare(an.gelu(-x)[0] - an.gelu_tanh(-x)[0], an.gelu(x)[0] - an.gelu_tanh(x)[0], name="even", atol=1e-14)
    far = np.linspace(6, 100, 1000)
    assert np.abs(an.gelu(far)[0] - an.gelu_tanh(far)[0]).max() < 2e-8
    _, vjp = an.gelu_tanh(x)
    assert np.abs(vjp(np.ones_like(x))).max() < 1.7
    u = np.linspace(0, 20, 200_001)
    assert (u * (1 - np.tanh(u) ** 2)).max() < 0.45


@pytest.mark.claim("lem-swish")
@few
@given(seeds, st.floats(0.05, 20))
def test_swish_lies_between_a_line_and_the_rectifier(seed, beta):
    x = draws(seed).standard_normal(200) * 4 / beta
    y, vjp = an.swish(x, beta)
    compare(y, an.swish(beta * x)[0] / beta, name="scaling", atol=1e-12)
    one = np.ones_like(x)
    compare(vjp(one) + an.swish(-x, beta)[1](one), one, name="slopes of x and -x")
    h = 1e-6 / beta
    compare(vjp(one), (an.swish(x + h, beta)[0] - an.swish(x - h, beta)[0]) / (2 * h), name="the slope", atol=1e-7)
    w = 0.2784645427610738
    assert math.isclose(w * math.exp(w), math.exp(-1), rel_tol=1e-12)
    gap = an.relu(x)[0] - y
    assert (gap >= 0).all() and (gap <= w / beta * (1 + 1e-12)).all()
    t = np.array([1 + w, -1 - w]) / beta
    compare(an.relu(t)[0] - an.swish(t, beta)[0], np.full(2, w / beta), name="equality at 1 + w")


@pytest.mark.claim("lem-swish")
def test_swish_becomes_half_of_x(rng):
    x = rng.standard_normal(50)
    compare(an.swish(x, 1e-9)[0], x / 2, name="beta near 0", atol=1e-8)
    compare(an.swish(x, 1e9)[0], np.maximum(x, 0), name="beta near infinity", atol=1e-8)


@pytest.mark.claim("lem-dead-unit")
@few
@given(seeds)
def test_a_dead_unit_gets_no_gradient_and_a_living_one_does(seed):
    rng = draws(seed)
    p = shapes.random_tree(shapes.feed_forward_shapes(4, 6), rng)
    X = rng.standard_normal((20, 4))
    p["up"]["bias"][2] = -1 - (X @ p["up"]["weight"])[:, 2].max()
    p["up"]["bias"][3] = 1 - (X @ p["up"]["weight"])[:, 3].min()
    for activation, dead in ((an.relu, True), (an.gelu, False), (an.silu, False)):
        _, vjp = an.feed_forward(X, p, activation)
        _, g = vjp(rng.standard_normal((20, 4)))
        sizes = [np.abs(part).max() for part in (g["up"]["weight"][:, 2], g["up"]["bias"][2], g["down"]["weight"][2])]
        assert all(s == 0 for s in sizes) if dead else all(s > 0 for s in sizes)
        assert np.abs(g["up"]["weight"][:, 3]).max() > 0


@pytest.mark.claim("lem-gated")
@few
@given(seeds, st.integers(1, 6), st.integers(1, 6))
def test_a_gate_computes_every_quadratic_form(seed, d, r):
    rng = draws(seed)
    r = min(d, r)
    s, lam = rng.standard_normal((d, r)), rng.standard_normal(r)
    p = {"gate": {"weight": s}, "up": {"weight": s * lam}, "down": {"weight": np.ones((r, 1))}}
    X = rng.standard_normal((8, d))
    S = (s * lam) @ s.T
    Y, _ = an.gated_feed_forward(X, p, identity)
    compare(Y[:, 0], np.einsum("ni,ij,nj->n", X, S, X), name="x S x^T", atol=1e-9)
    x, y = X[:4], X[4:]
    f = lambda X: an.gated_feed_forward(X, p, identity)[0]  # noqa: E731
    assert np.abs(f(x + y) - f(x) - f(y) + f(0 * x)).max() > 1e-6, "not affine"


@pytest.mark.claim("lem-gated")
@few
@given(seeds, st.integers(1, 9))
def test_a_rectifier_network_is_piecewise_linear_with_a_kink_per_unit(seed, f):
    rng = draws(seed)
    p = shapes.random_tree(shapes.feed_forward_shapes(1, f), rng)
    kinks = np.sort(-p["up"]["bias"] / p["up"]["weight"][0])
    ends = np.concatenate([[kinks[0] - 1], kinks, [kinks[-1] + 1]])
    for a, b in pairwise(ends):
        x = np.linspace(a, b, 5)[:, None]
        y, _ = an.feed_forward(x, p, an.relu)
        compare(np.diff(y[:, 0], 2), np.zeros(3), name="no curvature between kinks", atol=1e-9 * (1 + np.abs(y).max()))


@pytest.mark.claim("lem-gated")
@given(st.integers(1, 100), st.integers(1, 100))
def test_the_gated_network_is_matched_at_two_thirds_of_the_width(d, f):
    def weights(tree):
        return sum(math.prod(leaf["weight"]) for leaf in tree.values())

    plain = weights(shapes.feed_forward_shapes(d, 3 * f))
    assert weights(shapes.gated_feed_forward_shapes(d, 2 * f)) == plain
    assert weights(shapes.gated_feed_forward_shapes(d, 2 * f + 1)) > plain


# normalisation


def rows(seed, n, d):
    rng = draws(seed)
    X = rng.standard_normal((n, d)) * np.exp(rng.normal(0, 2, (n, 1))) + rng.normal(0, 3, (n, 1))
    assume((X.std(-1) > 1e-3).all())
    return rng, X


@pytest.mark.claim("lem-norm-geometry", "def-layer-norm")
@few
@given(seeds, st.integers(2, 8), st.sampled_from([1e-12, 1e-3, 1.0]))
def test_layer_norm_projects_onto_a_plane_and_a_sphere(seed, d, eps):
    rng, X = rows(seed, 6, d)
    N, _ = an.layer_norm(X, np.ones(d), np.zeros(d), eps)
    P = np.eye(d) - 1 / d
    n = X @ P / np.linalg.norm(X @ P, axis=-1, keepdims=True) * d**0.5
    v = X.var(-1, keepdims=True)
    compare(N, np.sqrt(v / (v + eps)) * n, name="the direction and its length", atol=1e-8)
    compare(N.sum(-1), np.zeros(6), name="the hyperplane", atol=1e-8)
    if eps < 1e-9:
        a, c = np.exp(rng.normal(0, 1, (6, 1))), rng.normal(0, 3, (6, 1))
        compare(an.layer_norm(a * X + c, np.ones(d), np.zeros(d), eps)[0], N, name="shift and scale", atol=1e-5)
        compare(an.layer_norm(n, np.ones(d), np.zeros(d), eps)[0], n, name="every point of the sphere", atol=1e-8)
        compare(an.layer_norm(-X, np.ones(d), np.zeros(d), eps)[0], -N, name="a negative scale is another point")


@pytest.mark.claim("lem-norm-geometry")
@few
@given(seeds, st.integers(3, 8))
def test_rows_with_one_image_differ_by_shift_and_scale(seed, d):
    rng, X = rows(seed, 1, d)
    x, other = X[0], rng.standard_normal(d)
    same = np.linalg.matrix_rank(np.stack([np.ones(d), x, other])) == 2
    N = [an.layer_norm(z, np.ones(d), np.zeros(d), 1e-12)[0] for z in (x, other)]
    assert not same and np.abs(N[0] - N[1]).max() > 1e-6


@pytest.mark.claim("lem-norm-jacobian")
@few
@given(seeds, st.integers(2, 8), st.sampled_from([1e-14, 1e-2, 1.0]))
def test_the_jacobian_of_layer_norm_is_a_scaled_projection(seed, d, eps):
    rng = draws(seed)
    x = rng.standard_normal(d) + rng.normal()
    assume(x.std() > 0.1)
    N, vjp = an.layer_norm(x, np.ones(d), np.zeros(d), eps)
    J = np.stack([vjp(e)[0] for e in np.eye(d)])
    r = (x.var() + eps) ** -0.5
    compare(J, r * (np.eye(d) - 1 / d - np.outer(N, N) / d), name="J", atol=1e-9)
    compare(J, J.T, name="J is symmetric", atol=1e-9)
    compare(J @ np.ones(d), np.zeros(d), name="on ones", atol=1e-9)
    compare(J @ (x - x.mean()), eps * r**3 * (x - x.mean()), name="on x P", atol=1e-9)
    v = rng.standard_normal(d)
    basis, _ = np.linalg.qr(np.stack([np.ones(d), x], 1))
    v = v - basis @ (basis.T @ v)
    compare(J @ v, r * v, name="on the rest", atol=1e-9)
    h = 1e-6
    difference = [
        (an.layer_norm(x + h * e, *_ones(d), eps)[0] - an.layer_norm(x - h * e, *_ones(d), eps)[0]) for e in np.eye(d)
    ]
    compare(J, np.stack(difference) / (2 * h), name="a finite difference", atol=1e-6 * max(1, r**3))
    if eps < 1e-9:
        assert np.linalg.matrix_rank(J, tol=1e-6) == d - 2
        compare(an.layer_norm(3 * x, *_ones(d), eps)[1](v)[0], J @ v / 3, name="J(ax) = J(x)/a", atol=1e-9)


def _ones(d):
    return np.ones(d), np.zeros(d)


@pytest.mark.claim("lem-scale-invariant")
@few
@given(seeds, st.floats(0.2, 5), st.floats(0.01, 10))
def test_weights_before_a_norm_only_grow(seed, a, rate):
    rng = draws(seed)
    X, C, W = rng.standard_normal((9, 4)), rng.standard_normal((9, 5)), rng.standard_normal((4, 5))

    def gradient(W):
        N, vjp = an.layer_norm(X @ W, *_ones(5), 1e-14)
        return (C * N).sum(), X.T @ vjp(C)[0]

    loss, G = gradient(W)
    assume(np.linalg.norm(G) < 1e4)
    scaled, Ga = gradient(a * W)
    compare(scaled, loss, name="L(aW) = L(W)", atol=1e-7)
    compare(Ga, G / a, name="g(aW) = g(W)/a", atol=1e-6, rtol=1e-6)
    compare((G * W).sum(), 0.0, name="orthogonal", atol=1e-7 * (1 + np.linalg.norm(G)))
    compare(((W - rate * G) ** 2).sum(), (W * W).sum() + rate**2 * (G * G).sum(), name="Pythagoras", rtol=1e-7)


@pytest.mark.claim("lem-rms-norm")
@few
@given(seeds, st.integers(2, 7), st.sampled_from([1e-12, 0.3]))
def test_layer_norm_is_rms_norm_behind_centred_weights(seed, d, eps):
    rng = draws(seed)
    H, W, b, gain = (rng.standard_normal(s) for s in ((6, 4), (4, d), (d,), (d,)))
    P = np.eye(d) - 1 / d
    layer, _ = an.layer_norm(H @ W + b, gain, np.zeros(d), eps)
    compare(an.rms_norm(H @ (W @ P) + b @ P, gain, eps)[0], layer, name="centred weights", atol=1e-8)
    if eps < 1e-9:
        assert np.abs(an.rms_norm(H @ W + b, gain, eps)[0] - layer).max() > 1e-3, "without centring they differ"
        x = H @ W + b
        N, vjp = an.rms_norm(x[0], np.ones(d), eps)
        J = np.stack([vjp(e)[0] for e in np.eye(d)])
        compare(np.linalg.norm(N), d**0.5, name="the sphere", atol=1e-9)
        u = x[0] / np.linalg.norm(x[0])
        compare(J, (np.eye(d) - np.outer(u, u)) / np.sqrt((x[0] ** 2).mean()), name="J", atol=1e-7)
        assert np.linalg.matrix_rank(J, tol=1e-6) == d - 1


# residual connections


@pytest.mark.claim("lem-residual-monotone")
@few
@given(seeds, st.integers(1, 5), st.floats(0, 3))
def test_a_residual_layer_shrinks_nothing_exactly_under_the_condition(seed, d, shift):
    rng = draws(seed)
    J = rng.standard_normal((d, d)) + shift * np.eye(d)
    least = np.linalg.svd(np.eye(d) + J, compute_uv=False)[-1]
    conditions = [np.linalg.eigvalsh(J + J.T + product)[0] for product in (J.T @ J, J @ J.T)]
    assume(min(abs(c) for c in conditions) > 1e-9)
    assert (least >= 1) == (conditions[0] >= 0) == (conditions[1] >= 0)
    K = J @ J.T - 1.5 * (J - J.T)  # <v, vK> >= 0 for every v
    assert np.linalg.svd(np.eye(d) + K, compute_uv=False)[-1] >= 1 - 1e-9


@pytest.mark.claim("lem-residual-paths")
@few
@given(seeds, st.integers(1, 6), st.integers(1, 4))
def test_the_product_is_a_sum_over_paths(seed, L, d):
    rng = draws(seed)
    J = rng.standard_normal((L, d, d))
    product, paths, counts = np.eye(d), 0, [0] * (L + 1)
    for j in J:
        product = (np.eye(d) + j) @ product
    for k in range(L + 1):
        for chosen in combinations(range(L), k):
            path = np.eye(d)
            for i in chosen:
                path = J[i] @ path
            paths, counts[k] = paths + path, counts[k] + 1
    compare(product, paths, name="paths", atol=1e-9, rtol=1e-9)
    assert sum(counts) == 2**L and counts == [math.comb(L, k) for k in range(L + 1)]


def backward(vjps, dX):
    for vjp in reversed(vjps):
        dX = dX + vjp(dX)[0]
    return dX


@pytest.mark.slow
@pytest.mark.claim("thm-residual-gradient")
@few
@given(seeds, st.integers(1, 12), st.floats(0.01, 0.99))
def test_the_gradient_through_residual_layers_stays_between_the_products(seed, L, most):
    """On real, nonlinear layers: the Jacobians are those at the points visited."""
    rng = draws(seed)
    X, vjps, norms, sizes = rng.standard_normal((1, 4)), [], [], rng.uniform(0, most, L)
    for size in sizes:
        p = shapes.random_tree(shapes.feed_forward_shapes(4, 6), rng)
        _, vjp = an.feed_forward(X, p)
        scale = size / np.linalg.norm(np.concatenate([vjp(e[None])[0] for e in np.eye(4)]), 2)
        p["down"] = {name: scale * a for name, a in p["down"].items()}
        F, vjp = an.feed_forward(X, p)
        norms.append(np.linalg.norm(np.concatenate([vjp(e[None])[0] for e in np.eye(4)]), 2))
        X = X + F
        vjps.append(vjp)
    compare(np.array(norms), sizes, name="the hypothesis", atol=1e-9)
    dX = rng.standard_normal((1, 4))
    ratio = np.linalg.norm(backward(vjps, dX)) / np.linalg.norm(dX)
    assert np.prod(1 - sizes) * (1 - 1e-9) <= ratio <= np.prod(1 + sizes) * (1 + 1e-9)
    bare = dX
    for vjp in reversed(vjps):
        bare = vjp(bare)[0]
    assert np.linalg.norm(bare) <= np.prod(sizes) * np.linalg.norm(dX) * (1 + 1e-9)


@pytest.mark.claim("thm-residual-gradient")
@given(st.integers(1, 200), st.floats(0.01, 0.99), st.floats(0.01, 5))
def test_the_bounds_are_attained_and_do_not_widen_with_depth(L, size, c):
    dX = np.array([[3.0, -4.0]])
    for sign in (-1, 1):
        _, vjp = an.linear(dX, sign * size * np.eye(2), np.zeros(2))
        ratio = np.linalg.norm(backward([vjp] * min(L, 20), dX)) / 5
        assert math.isclose(ratio, (1 + sign * size) ** min(L, 20), rel_tol=1e-9)
    if c < L:
        assert (1 + c / L) ** L <= math.exp(c)
        assert (1 - c / L) ** L >= math.exp(-c / (1 - c / L)) * (1 - 1e-9)
    for b in (c, L / 2, L / 1.9):
        if b < L:  # 4^-b, attained at the depth 2 b, is a bound from there on and not before
            assert ((1 - b / L) ** L >= 4**-b * (1 - 1e-9)) == (2 * b <= L * (1 + 1e-9))
    assert math.isclose(0.5**L, 4 ** -(L / 2)), "attained"
    assert (1 + c / 1e6) ** 1e6 > 0.999 * math.exp(c), "and e^c in the limit"


@pytest.mark.claim("thm-residual-gradient")
def test_without_the_bound_below_one_everything_may_vanish():
    """The counterexample to the claim that each factor is at least the identity."""
    dX = np.array([[3.0, -4.0]])
    _, vjp = an.linear(dX, -np.eye(2), np.zeros(2))
    assert (backward([vjp], dX) == 0).all()


@pytest.mark.claim("lem-norm-placement")
@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("s", [0.7, 1.3])
def test_depth_in_the_model_that_can_be_solved(pre, s, rng):
    d, L, times = 6, 4, 40_000
    W = s / d**0.5 * rng.standard_normal((L, times, d, d))
    x0, v = rng.standard_normal((2, d))
    x0, v = (d**0.5 * u / np.linalg.norm(u) for u in (x0, v))
    root = (1 + s * s) ** 0.5
    scale = [(1 + l * s * s) ** -0.5 if pre else 1 / root for l in range(L)]  # c_l of the branch
    keep = 1 if pre else 1 / root
    x, inputs = np.broadcast_to(x0, (times, d)), []
    for c, w in zip(scale, W, strict=True):
        inputs.append(x)
        x = keep * x + c * np.einsum("ti,tij->tj", x, w)
    expected = 1 + L * s * s if pre else 1
    assert abs((x**2).sum(-1).mean() / d / expected - 1) < 0.05
    last = (1 + L * s * s) ** -0.5 if pre else 1.0
    dx = np.broadcast_to(last * v, (times, d))
    for l in reversed(range(L)):
        dW = (inputs[l] ** 2).sum(-1) * (dx**2).sum(-1) * scale[l] ** 2
        expected = 1 / (1 + (l + 1) * s * s) if pre else 1 / (1 + s * s)
        assert abs(dW.mean() / d**2 / expected - 1) < 0.08, f"the gradient of matrix {l + 1}"
        dx = keep * dx + scale[l] * np.einsum("tj,tij->ti", dx, W[l])
    assert abs((dx**2).sum(-1).mean() / d - 1) < 0.08, "the gradient at the bottom"
    identity_path = (last * keep**L) ** 2
    assert math.isclose(identity_path, 1 / (1 + L * s * s) if pre else (1 + s * s) ** -L)
    compare((dx.mean(0) ** 2).sum() / d, identity_path, name="the mean is the identity path", atol=3e-3, rtol=0.03)
