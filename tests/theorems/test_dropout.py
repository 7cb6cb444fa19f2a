"""What the page on dropout says of expectations, row sums and gradients, by summing over all masks."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.cache import KeyValueCache
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)
rates = st.floats(0.0, 0.95)
few = settings(max_examples=20, deadline=None)


def expectation(f, m, p):
    """The mean of f(keep) over all masks of length m, each with its probability: no sampling."""
    total = 0.0
    for keep in product([True, False], repeat=m):
        keep = np.array(keep)
        total = total + (1 - p) ** keep.sum() * p ** (~keep).sum() * f(keep)
    return total


@pytest.mark.slow
@pytest.mark.claim("def-dropout", "lem-dropout-moments")
@few
@given(seeds, rates, st.integers(1, 6))
def test_mean_variance_and_covariance(seed, p, m):
    rng = np.random.default_rng(seed)
    x, W = rng.standard_normal(m), rng.standard_normal((m, 3))

    def y(keep):
        return an.dropout(x, keep, p)[0]

    factor = p / (1 - p)
    compare(expectation(y, m, p), x, name="mean", atol=1e-9)
    second = expectation(lambda k: np.outer(y(k), y(k)), m, p)
    compare(second - np.outer(x, x), factor * np.diag(x**2), name="covariance of the entries", atol=1e-8)
    compare(np.trace(second), (x**2).sum() / (1 - p), name="mean square", atol=1e-8)
    through = expectation(lambda k: np.outer(y(k) @ W - x @ W, y(k) @ W - x @ W), m, p)
    compare(through, factor * (W.T * x**2) @ W, name="covariance behind a matrix", atol=1e-8)


@pytest.mark.claim("lem-dropout-ridge")
@few
@given(seeds, rates, st.integers(1, 6))
def test_dropout_is_a_ridge(seed, p, m):
    rng = np.random.default_rng(seed)
    x, w, t = rng.standard_normal(m), rng.standard_normal(m), rng.standard_normal()
    expected = expectation(lambda k: (t - an.dropout(x, k, p)[0] @ w) ** 2, m, p)
    compare(expected, (t - x @ w) ** 2 + p / (1 - p) * (x**2 @ w**2), name="the penalty", atol=1e-8)


def attend(P, V, keep, p):
    """The output of the library's attention for one query with the given weights."""
    Q, K = np.ones((1, 1)), np.log(P)[:, None]
    return an.attention(Q, K, V, drop=lambda X: an.dropout(X, keep, p))[0][0]


@pytest.mark.slow
@pytest.mark.claim("lem-dropout-row-sum")
@few
@given(seeds, rates, st.integers(1, 6), st.floats(0.1, 8))
def test_the_row_sum_and_the_output(seed, p, m, spread):
    rng = np.random.default_rng(seed)
    P, _ = an.softmax(spread * rng.standard_normal(m))
    V, t, c = rng.standard_normal((m, 3)), rng.standard_normal(3), rng.standard_normal(3)
    factor = p / (1 - p)
    ones = np.ones((m, 1))
    compare(expectation(lambda k: attend(P, ones, k, p), m, p), np.ones(1), name="mean of the row sum", atol=1e-9)
    variance = expectation(lambda k: (attend(P, ones, k, p)[0] - 1) ** 2, m, p)
    compare(variance, factor * (P**2).sum(), name="variance of the row sum", atol=1e-8)
    assert factor / m - 1e-9 <= variance <= factor + 1e-9
    o = P @ V
    compare(expectation(lambda k: attend(P, V, k, p), m, p), o, name="mean output", atol=1e-9)
    covariance = expectation(lambda k: np.outer(attend(P, V, k, p) - o, attend(P, V, k, p) - o), m, p)
    compare(covariance, factor * (V.T * P**2) @ V, name="covariance of the output", atol=1e-8)
    loss = expectation(lambda k: ((t - attend(P, V, k, p)) ** 2).sum(), m, p)
    compare(loss, ((t - o) ** 2).sum() + factor * (P**2 @ (V**2).sum(-1)), name="expected loss", atol=1e-8)
    keep = rng.random(m) >= p
    moved = attend(P, V + c, keep, p) - attend(P, V, keep, p)
    compare(moved, c * attend(P, ones, keep, p), name="a common shift", atol=1e-9)


@pytest.mark.claim("lem-dropout-row-sum")
def test_a_sharp_head_is_silent_or_loud():
    P, V = np.array([1.0, 1e-300, 1e-300]), np.array([[2.0], [5], [7]])
    results = {round(float(attend(P, V, np.array(k), 0.2)[0]), 9) for k in product([True, False], repeat=3)}
    assert results == {0.0, 2.5}


@pytest.mark.claim("lem-dropout-scores")
@few
@given(seeds, st.floats(0.0, 0.9), st.floats(0.05, 0.95))
def test_dropped_scores_renormalise_and_shrink_towards_an_even_split(seed, p, a):
    rng = np.random.default_rng(seed)
    P, _ = an.softmax(rng.standard_normal(5))
    V, keep = rng.standard_normal((5, 2)), rng.random(5) < 0.6
    keep[rng.integers(5)] = True
    O, _ = an.attention(np.ones((1, 1)), np.log(P)[:, None], V, keep)
    compare(O[0], (P * keep) @ V / (P * keep).sum(), name="divided by their sum", atol=1e-9)
    assert (O[0] <= V[keep].max(0) + 1e-12).all() and (O[0] >= V[keep].min(0) - 1e-12).all()
    two, first = np.array([a, 1 - a]), np.array([[1.0], [0]])

    def kept(keep):
        return an.attention(np.ones((1, 1)), np.log(two)[:, None], first, keep, empty_rows="zero")[0][0, 0]

    mean = expectation(kept, 2, p) / (1 - p**2)
    compare(mean - 0.5, (1 - p) / (1 + p) * (a - 0.5), name="two keys", atol=1e-9)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_masks_have_the_rate_that_was_asked_for(p):
    """Dropped, not kept, with probability p: five standard deviations of room."""
    room = 5 * (p * (1 - p) / 40_000) ** 0.5
    for keep in (
        an.draw_keep((200, 200), p, np.random.default_rng(0)),
        at.draw_keep((200, 200), p, torch.Generator().manual_seed(0)).numpy(),
    ):
        assert keep.dtype == bool and keep.shape == (200, 200) and abs((~keep).mean() - p) <= room


def test_random_dropout_draws_anew_and_agrees_with_its_own_gradient(rng):
    drop, X, dY = an.random_dropout(0.5, np.random.default_rng(0)), np.ones((30, 30)), rng.standard_normal((30, 30))
    (Y, vjp), (Z, _) = drop(X), drop(X)
    assert (Y != Z).any() and set(np.unique(Y)) == {0.0, 2.0}
    compare(vjp(dY), Y * dY, name="the mask of the value")
    drop, X = at.random_dropout(0.5, torch.Generator().manual_seed(0)), torch.ones(30, 30, requires_grad=True)
    Y, Z = drop(X), drop(X)
    assert bool((Y != Z).any())
    Y.sum().backward()
    compare(X.grad, Y.detach(), name="the mask of the value")


def test_16_and_32_bits_stay_what_they_are(rng):
    keep = an.draw_keep((3, 5), 0.1, rng)
    for dtype in (np.float16, np.float32, np.float64):
        X = rng.standard_normal((3, 5)).astype(dtype)
        Y, vjp = an.dropout(X, keep, 0.1)
        assert Y.dtype == dtype and vjp(Y).dtype == dtype
    assert at.dropout(torch.ones(2, dtype=torch.bfloat16), torch.tensor([True, False]), 0.1).dtype == torch.bfloat16


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_a_transformer_drops_where_the_book_says(world):
    """Two embeddings, two sub-layers for each encoder layer, three for each decoder layer; every map of weights."""
    params = shapes.random_tree(shapes.transformer_shapes(11, 4, 8, 2, 6), np.random.default_rng(0))
    if world is at:
        params = at.from_numpy(params)
    seen = {"drop": [], "drop_weights": []}

    def count(name):
        def drop(X):
            seen[name].append(tuple(X.shape))
            return (X, lambda dX: dX) if world is an else X

        return drop

    source, target = np.array([[3, 1, 4, 1, 5]]), np.array([[2, 7, 1]])
    if world is at:
        source, target = torch.from_numpy(source), torch.from_numpy(target)
    options = {
        "embed": partial(world.token_embedding, drop=count("drop")),
        "join": partial(world.sublayer, drop=count("drop")),
        "attend": partial(world.attention, drop=count("drop_weights")),
    }
    world.transformer(source, target, params, 2, **options)
    assert sorted(seen["drop"]) == sorted([(1, 5, 4)] * (1 + 2 * 2) + [(1, 3, 4)] * (1 + 3 * 2))
    maps = [(1, 2, 5, 5)] * 2 + [(1, 2, 3, 3)] * 2 + [(1, 2, 3, 5)] * 2
    assert sorted(seen["drop_weights"]) == sorted(maps)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_a_cache_does_not_silence_dropped_weights(world):
    """All weights dropped: rows read through a cache see nothing, as they do without it."""
    params = shapes.random_tree(shapes.attention_shapes(4), np.random.default_rng(0))
    X, p = np.random.default_rng(1).standard_normal((1, 3, 4)), params
    zero = (lambda P: (0 * P, None)) if world is an else (lambda P: 0 * P)
    if world is at:
        X, p = torch.from_numpy(X), at.from_numpy(params)
    core = world.cached(partial(world.attention, drop=zero), KeyValueCache())
    Y = world.multi_head_attention(X, X, X, p, 2, attend=core)
    compare((Y[0] if world is an else Y)[0], np.tile(params["output"]["bias"], (3, 1)), name="the bias")


@pytest.mark.parametrize("dice", ["own", "default"])
def test_under_torch_checkpoint_only_the_default_generator_is_restored(dice):
    torch.manual_seed(0)
    X, W = torch.randn(20, 20, requires_grad=True), torch.randn(20, 20)
    drop = at.random_dropout(0.3, torch.default_generator if dice == "default" else torch.Generator())
    Y = checkpoint(lambda X: torch.tanh(drop(X @ W)), X, use_reentrant=False)
    (want,) = torch.autograd.grad(torch.tanh((X @ W) * (Y != 0) / 0.7).sum(), X)
    (got,) = torch.autograd.grad(Y.sum(), X)
    assert torch.allclose(got, want, atol=1e-5) == (dice == "default")
