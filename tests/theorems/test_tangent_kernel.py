"""The page on infinitely many heads: moments of output and kernel, how training goes, kurtosis, two deep tokens."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import attnmath.numpy as an
from attnmath import tangent_study
from attnmath.check import compare
from attnmath.deep_limit import two_token_layer, two_token_limit, two_token_stack
from attnmath.tangent_kernel import (
    PARTS,
    first_weights,
    jacobian,
    many_heads,
    tangent_kernel,
)
from attnmath.tree import flatten, map_tree, unflatten

N, D, K = 4, 3, 2  # tokens, components, width of a head


def sentences(m=3):
    return np.random.default_rng(3).standard_normal((m, N, D))


def shares(X, heads, seed):
    """What single heads add, by sentence: outputs (m, h), and gradients (m, h, .) by the part of the weights.

    A layer of h heads is h layers of one: its output is linear in the output weights, and a head's weights are columns.
    """
    theta = first_weights(np.random.default_rng(seed), heads, d=D, width=K)
    gradients = {}
    for x in X:
        _, vjp = many_heads(x[None], theta, heads)
        for name, leaf in vjp(np.full(1, heads**0.5)).items():
            G = leaf["weight"] if name == "output" else leaf["weight"].T
            gradients.setdefault(name, []).append(G.reshape(heads, -1))
    gradients = {name: np.stack(G) for name, G in gradients.items()}
    return (gradients["output"] * theta["output"]["weight"].reshape(heads, -1)).sum(-1), gradients


def inner(G):
    """(m, m, h) from (m, h, .): the kernels of single heads."""
    return np.einsum("iap,jap->ija", G, G)


def test_shares_of_heads_add_up_to_output_and_kernel():
    X, heads = sentences(), 6
    phi, gradients = shares(X, heads, 5)
    theta = first_weights(np.random.default_rng(5), heads, d=D, width=K)
    model = partial(many_heads, heads=heads)
    compare(phi.sum(1) / heads**0.5, model(X, theta)[0], name="output", atol=1e-12)
    kernel = sum(inner(G) for G in gradients.values()).mean(-1)
    compare(kernel, tangent_kernel(model, theta, X), name="kernel", atol=1e-12, rtol=1e-12)


@pytest.mark.claim("thm-many-heads")
def test_outputs_and_kernels_have_the_same_moments_at_every_number_of_heads(as_users_call):
    """Means that do not depend on h, and a variance of the kernel that is that of one head, divided by h."""
    X, draws = sentences(), 12
    phi, gradients = shares(X, 80_000, 1)
    one = sum(inner(G) for G in gradients.values())
    Sigma, Theta, v = phi @ phi.T / phi.shape[1], one.mean(-1), one.var(-1)
    for heads in (1, 4):
        model, rng = partial(many_heads, heads=heads), np.random.default_rng(heads)
        layers = [first_weights(rng, heads, d=D, width=K) for _ in range(draws)]
        tangents = np.array([tangent_kernel(model, theta, X[:2]) for theta in layers])
        assert (np.abs(tangents.mean(0) - Theta[:2, :2]) < 4 * (v[:2, :2] / heads / draws) ** 0.5).all()
        f = phi.reshape(3, -1, heads).sum(-1) / heads**0.5
        own = (f**2)[:, None] * (f**2)[None]
        assert (np.abs(f.mean(1)) < 4 * (np.diag(Sigma) / f.shape[1]) ** 0.5).all()
        assert (np.abs(f @ f.T / f.shape[1] - Sigma) < 4 * (own.mean(-1) / f.shape[1]) ** 0.5).all()
    groups = one.reshape(3, 3, -1, 16).mean(-1)
    compare(groups.var(-1), v / 16, name="variance", atol=0.0, rtol=0.1)
    assert (np.abs(one[..., :20_000].mean(-1) - Theta) < 5 * (v / 20_000) ** 0.5).all()


@pytest.mark.claim("thm-many-heads")
def test_values_and_output_contribute_the_outputs_covariance_each():
    X = sentences()
    phi, gradients = shares(X, 150_000, 2)
    Sigma = phi @ phi.T / phi.shape[1]
    size = np.sqrt(np.outer(np.diag(Sigma), np.diag(Sigma)))
    for name in ("value", "output"):
        assert (np.abs(inner(gradients[name]).mean(-1) - Sigma) < 0.05 * size).all(), name
    others = inner(gradients["query"]).mean(-1) / Sigma
    assert others.max() > 1.2 and abs(others).min() < 0.2, "queries contribute something else"


@pytest.mark.claim("thm-many-heads", "prop-head-kurtosis")
@pytest.mark.parametrize("width", [1, 4])
def test_the_excess_kurtosis(width):
    """The formula of the heads' weights against drawn outputs of layers with 1 and 8 heads."""
    X, rng, draws = sentences()[0], np.random.default_rng(width), 200_000
    Q, Ks = rng.standard_normal((2, draws, D, width))
    scores = np.einsum("nd,adk,ak->an", X, Ks, X[-1] @ Q) / (D * width**0.5)
    p = np.exp(scores - scores.max(1, keepdims=True))
    q = ((p / p.sum(1, keepdims=True) @ X) ** 2).sum(1) / D
    want = 3 * (1 + 2 / width) * (q**2).mean() / q.mean() ** 2 - 3
    theta = first_weights(rng, draws, d=D, width=width)
    _, vjp = many_heads(X[None], theta, draws)
    phi = (vjp(np.ones(1))["output"]["weight"] * theta["output"]["weight"]).reshape(draws, -1).sum(-1)
    for heads in (1, 8):
        f = phi[: draws // heads * heads].reshape(-1, heads).sum(-1)
        got = (f**4).mean() / (f**2).mean() ** 2 - 3
        assert abs(got - want / heads) < 0.15 * want / heads + 0.05, (heads, got, want)


@pytest.mark.claim("prop-head-kurtosis")
def test_one_wide_head_is_normal_only_with_the_other_scale():
    """The root keeps the variance of q, the width itself lets it vanish."""
    X, rng, spread = sentences()[0], np.random.default_rng(1), {}
    for width in (16, 1024):
        Q, Ks = rng.standard_normal((2, 2000, D, width))
        for power in (0.5, 1.0):
            P, _ = an.attention_weights((X[-1] @ Q)[:, None], X @ Ks, scale=1 / (D * width**power))
            q = ((P[:, 0] @ X) ** 2).sum(1)
            spread[width, power] = q.var() / q.mean() ** 2
    assert spread[1024, 0.5] > 0.8 * spread[16, 0.5] > 0.05
    assert spread[1024, 1.0] < 0.15 * spread[16, 1.0]


# training ------------------------------------------------------------------------------------------------------------


def flow(model, theta, X, y, T):
    """The gradient flow by SciPy: the weights at the end."""
    flat = flatten(theta)
    start = np.concatenate([A.ravel() for A in flat.values()])
    sizes = np.cumsum([A.size for A in flat.values()])[:-1]

    def tree(w):
        parts = np.split(w, sizes)
        return unflatten({name: part.reshape(flat[name].shape) for name, part in zip(flat, parts, strict=True)})

    def slope(_, w):
        f, vjp = model(X, tree(w))
        return -np.concatenate([A.ravel() for A in flatten(vjp(f - y)).values()])

    return start, solve_ivp(slope, (0, T), start, rtol=1e-5, atol=1e-7).y[:, -1]


def curved(x, theta):
    """A network of one hidden layer, by hand, whose flow takes no time."""
    H = np.tanh(x @ theta["in"])
    return H @ theta["out"], lambda dy: {"in": x.T @ (np.outer(dy, theta["out"]) * (1 - H**2)), "out": dy @ H}


@pytest.mark.claim("thm-lazy-heads")
@pytest.mark.parametrize("width", [1, 3, 30])
@pytest.mark.parametrize("T", [0.1, 2.0, 30.0])
def test_the_way_is_at_most_the_root_of_time_and_loss(width, T, rng):
    x, y = rng.standard_normal((4, 3)), 2 * rng.standard_normal(4)
    theta = {"in": rng.standard_normal((3, width)), "out": rng.standard_normal(width)}
    before, after = flow(curved, theta, x, y, T)
    loss = ((curved(x, theta)[0] - y) ** 2).sum() / 2
    assert 0 < np.linalg.norm(after - before) <= (T * loss) ** 0.5


@pytest.mark.claim("thm-lazy-heads")
def test_the_way_of_the_layer_itself_and_a_bound_that_is_nearly_reached(as_users_call, rng):
    X, y = sentences(), 2 * rng.standard_normal(3)
    model, theta = partial(many_heads, heads=3), first_weights(rng, 3, d=D, width=K)
    before, after = flow(model, theta, X, y, 0.3)
    loss = ((model(X, theta)[0] - y) ** 2).sum() / 2
    assert 0 < np.linalg.norm(after - before) <= (0.3 * loss) ** 0.5
    T = 1.2564  # a line through 0: here (1 - e^-t)^2 / t is largest, and the way is 90 % of the bound
    _, after = flow(lambda x, t: (t["w"] * x, lambda dy: {"w": dy * x}), {"w": np.zeros(1)}, np.ones(1), np.ones(1), T)
    assert 0.88 < after[0] / (T / 2) ** 0.5 < 0.91


@pytest.mark.claim("thm-lazy-heads", "thm-many-heads")
def test_the_rates_of_kernel_outputs_and_weights():
    """Layers that the study trained, and its test trains again: from 64 to 1024 heads, the factor 16."""
    runs = json.loads((Path(__file__).parents[2] / tangent_study.STUDY.file).read_text(encoding="utf-8"))["lines"]

    def median(heads, name):
        return np.median([runs[f"{heads}.{seed}"][name] for seed in tangent_study.SEEDS])

    fall = {name: median(64, name) / median(1024, name) for name in ("turned", "own", "limit", "start", "moved")}
    assert all(8 < fall[name] < 24 for name in ("turned", "own")), fall  # 1 / h gives 16
    assert all(2.7 < fall[name] < 6 for name in ("limit", "start", "moved")), fall  # 1 / root h gives 4


@pytest.mark.claim("thm-lazy-heads")
def test_the_rates_in_the_example_of_one_word():
    """In closed form: the kernel 2 cosh 2s moves by 1 / h, and the output root h sinh 2s against its line as well."""
    changes, gaps = [], []
    for heads in (64, 256, 1024):
        way = solve_ivp(  # of s, where the weights are e^s and e^-s in size
            lambda t, s, h=heads: (1 - h**0.5 * np.sinh(2 * s)) / h**0.5, (0, 2), [0.0], rtol=1e-10, atol=1e-12
        )
        f = heads**0.5 * np.sinh(2 * way.y[0])
        changes.append(2 * np.cosh(2 * way.y[0][-1]) - 2)
        gaps.append(np.abs(f[-1] - (1 - np.exp(-2 * way.t[-1]))))
    for path in (changes, gaps):
        assert all(3.5 < a / b < 4.5 for a, b in pairwise(path)), path


@pytest.mark.claim("thm-lazy-heads", "pf:kernel-change")
def test_the_first_order_change_of_the_kernel_has_mean_zero():
    """D_ijl by differences along the gradient of each head: its mean vanishes, its single terms do not."""
    X, heads, step = sentences(2), 30_000, 1e-4
    theta = first_weights(np.random.default_rng(8), heads, d=D, width=K)
    _, vjp = many_heads(X[:1], theta, heads)
    way = vjp(np.full(1, heads**0.5))

    def kernels(tree):
        rows = []
        for x in X:
            leaves = many_heads(x[None], tree, heads)[1](np.full(1, heads**0.5)).items()
            parts = ((A["weight"] if n == "output" else A["weight"].T).reshape(heads, -1) for n, A in leaves)
            rows.append(np.concatenate(list(parts), 1))
        return (rows[0] * rows[1]).sum(-1)

    ends = [kernels(map_tree(lambda W, G, s=s: W + s * step * G, theta, way)) for s in (1, -1)]
    terms = (ends[0] - ends[1]) / (2 * step)
    assert abs(terms.mean()) < 4 * terms.std() / heads**0.5 and terms.std() > 0.1
    flipped = theta | {"output": {"weight": -theta["output"]["weight"]}}
    other = many_heads(X[:1], flipped, heads)[1](np.full(1, heads**0.5))
    ends = [kernels(map_tree(lambda W, G, s=s: W + s * step * G, flipped, other)) for s in (1, -1)]
    compare((ends[0] - ends[1]) / (2 * step), -terms, name="the other sign", atol=1e-4, rtol=1e-4)


def test_frozen_parts_leave_their_share_of_the_kernel_out():
    """The first question of the page: output weights alone are a linear model."""
    X, heads = sentences(), 3
    theta = first_weights(np.random.default_rng(1), heads, d=D, width=K)
    J = jacobian(partial(many_heads, heads=heads), theta, X)
    f, _ = many_heads(X, theta, heads)
    compare(J[:, -heads * K :] @ theta["output"]["weight"][:, 0], f, name="linear in the output", atol=1e-12)
    assert PARTS[-1] == "output"


# two tokens in a deep stack ------------------------------------------------------------------------------------------


@pytest.mark.claim("prop-two-tokens", "eq:two-token-layer")
@pytest.mark.parametrize("c", [-0.7, -0.1, 0.0, 0.3, 0.95])
@pytest.mark.parametrize(("q", "tau", "b2", "g"), [(1.0, 1.0, 0.5, 1.0), (3.0, 0.5, 0.9, 2.0), (0.3, 4.0, 0.2, 5.0)])
def test_a_shaped_layer_brings_tokens_no_nearer_and_lengthens_them_so_much(c, q, tau, b2, g):
    size, cosine = two_token_layer(q, c, temperature=tau, share=b2, strength=g)
    bound = b2 * g * g / 4 * q**3 * (1 - c) ** 2 / tau**2
    assert abs(cosine) <= abs(c) + 1e-12 and cosine * c >= 0
    assert 0 < size - q <= bound
    if tau == 4:
        assert size - q > 0.9 * bound


@pytest.mark.claim("prop-two-tokens", "eq:two-token-limit")
@pytest.mark.parametrize(("q", "c", "g"), [(1.0, 0.2, 1.0), (1.0, -0.5, 1.0), (0.7, 0.6, 3.0)])
def test_the_deep_limit_is_reached_like_one_over_the_depth(q, c, g):
    gaps = []
    for L in (100, 200, 400):
        path = two_token_stack(L, q, c, temperature=L**0.5, strength=g)
        gaps.append(two_token_limit(1.0, q, c, strength=g) - path[-1, 0])
        compare(path[-1, 1], c, name="cosine", atol=1.0 / L)
        half = two_token_limit(0.5, q, c, strength=g)
        compare(path[L // 2, 0], half, name="half way", atol=2.0 / L)
    for wide, narrow in pairwise(gaps):
        assert 1.85 < wide / narrow < 2.15


@pytest.mark.claim("prop-two-tokens")
@pytest.mark.parametrize("c", [-0.7, 0.0, 0.5])
def test_with_equal_scores_ordinary_attention_collapses_geometrically(c):
    path = two_token_stack(20, 1.3, c, temperature=1e6, share=0.3, shaped=False)
    ratio = (1 - path[:, 1]) / (1 + path[:, 1])  # D / (2 - D)
    compare(ratio, ratio[0] * 0.7 ** np.arange(21), rtol=1e-4, atol=1e-9)
    compare(an.attention(np.zeros((2, 1)), np.zeros((2, 1)), np.eye(2))[0], np.full((2, 2), 0.5), name="U")
