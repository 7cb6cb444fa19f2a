"""Sparse weights: losses of the entmax package, bad input, masks, ties, huge scores, and models with the cores."""

from functools import partial

import entmax
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import check_vjp, compare
from attnmath.tree import flatten, unflatten
from tests.attnmath.refusals import check_refused

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
RULES = {
    "sparsemax": lambda w, S, **options: w.sparsemax(S, **options),
    "entmax15": lambda w, S, **options: w.entmax15(S, **options),
    "entmax_bisect": lambda w, S, **options: w.entmax_bisect(S, 1.3, **options),
}
EACH = pytest.mark.parametrize("rule", RULES)


def value(world, name, S, **options):
    result = RULES[name](world, S if world is an else torch.from_numpy(S), **options)
    return result[0] if world is an else result.numpy()


@pytest.mark.parametrize(("alpha", "theirs"), [(1.5, entmax.entmax15_loss), (2.0, entmax.sparsemax_loss)])
def test_losses_are_those_of_the_package(alpha, theirs, rng):
    S, right = 2 * rng.standard_normal((40, 7)), rng.integers(0, 7, 40)
    leaf = torch.tensor(S, requires_grad=True)
    expected = theirs(leaf, torch.from_numpy(right))
    L, vjp = an.fenchel_young_loss(S, np.eye(7)[right], alpha)
    dL = rng.standard_normal(40)
    compare(L, expected, atol=1e-12)
    compare(vjp(dL), torch.autograd.grad(expected, leaf, torch.from_numpy(dL))[0], atol=1e-12)
    assert (L == 0).any() and (L > 1).any()


def test_at_alpha_one_the_loss_is_cross_entropy(rng):
    S, right = rng.standard_normal((9, 5)), rng.integers(0, 5, 9)
    compare(
        an.fenchel_young_loss(S, np.eye(5)[right], 1.0)[0],
        torch.nn.functional.cross_entropy(torch.from_numpy(S), torch.from_numpy(right), reduction="none"),
        atol=1e-12,
    )


@WORLDS
def test_a_loss_where_a_masked_key_is_right_is_infinite_and_elsewhere_it_is_not(world):
    S, Y = np.array([[1.0, -np.inf, 0.5], [1.0, -np.inf, 0.5]]), np.eye(3)[[2, 1]]
    args = (S, Y) if world is an else (torch.from_numpy(S), torch.from_numpy(Y))
    L = world.fenchel_young_loss(*args, 2.0)
    L = np.asarray(L[0] if world is an else L)
    assert L[1] == np.inf
    P = np.array([0.75, 0.0, 0.25])
    compare(L[0], P @ [1, 0, 0.5] + (1 - P @ P) / 2 - 0.5, atol=1e-12)


@WORLDS
@EACH
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_huge_scores_masks_and_ties(world, rule, dtype):
    most = np.finfo(dtype).max
    S = np.array([[most, -most, -np.inf, most], [-most, -np.inf, -most, -most]], dtype)
    P = value(world, rule, S)
    assert P.dtype == np.dtype(dtype)
    compare(P, np.array([[0.5, 0, 0, 0.5], [1 / 3, 0, 1 / 3, 1 / 3]]), atol=1e-6)
    near = value(world, rule, np.array([[1e4, 1e4 - 0.5, 0.0]], dtype))
    compare(near, value(world, rule, np.array([[0.5, 0.0, -1e4]], dtype)), atol=1e-6)
    assert 0.1 < near[0, 1] < 0.4


@WORLDS
@EACH
def test_infinity_and_nan_are_not_hidden(world, rule):
    S = np.array([[np.inf, 1.0, 0.0], [np.nan, 1.0, 0.0], [0.0, -30.0, 0.1]])
    P = value(world, rule, S)
    assert np.isnan(P[:2]).all() and P[2, 1] < 1e-3 and abs(P[2].sum() - 1) < 1e-12


@WORLDS
@EACH
def test_empty_rows(world, rule, rng):
    S = rng.standard_normal((2, 3, 5))
    S[1, 2] = -np.inf
    with pytest.raises(ValueError, match=r"row \(1, 2\) may attend to no key.*empty_rows='zero'"):
        value(world, rule, S)
    P = value(world, rule, S, empty_rows="zero")
    sums = np.ones((2, 3))
    sums[1, 2] = 0
    compare(P.sum(-1), sums, atol=1e-12)


@EACH
def test_gradients_of_masked_keys_and_empty_rows_are_zero(rule, rng):
    S, dP = rng.standard_normal((2, 3, 5))
    S[0, :3] = -np.inf
    S[2] = -np.inf
    leaf = torch.tensor(S, requires_grad=True)
    twin = RULES[rule](at, leaf, empty_rows="zero")
    (grad,) = torch.autograd.grad(twin, leaf, torch.from_numpy(dP))
    dS = RULES[rule](an, S, empty_rows="zero")[1](dP)
    compare(dS, grad, atol=1e-12)
    assert not dS[0, :3].any() and not dS[2].any() and np.abs(dS[1]).max() > 1e-3


def test_a_learned_alpha_beside_masked_keys(rng):
    """No score of -inf gets into the slope in alpha, where 0 times infinity would be nan."""
    S, dP = rng.standard_normal((2, 3, 5))
    S[0, 1:3] = -np.inf
    alpha = np.array([[1.3], [1.5], [2.2]])
    leaf = torch.tensor(alpha, requires_grad=True)
    twin = at.entmax_bisect(torch.from_numpy(S), leaf)
    (grad,) = torch.autograd.grad(twin, leaf, torch.from_numpy(dP))
    dalpha = an.entmax_bisect(S, alpha)[1](dP)[1]
    compare(dalpha, grad, atol=1e-10)
    assert np.abs(dalpha[0]).max() > 1e-3


def test_a_masked_key_is_a_key_that_is_not_there(rng):
    Q, K, V = (rng.standard_normal(s) for s in ((4, 3), (6, 3), (6, 2)))
    seen = np.array([True, False, True, True, False, True])
    for alpha in (1.0, 1.3, 1.5, 2.0):
        O, vjp = an.entmax_attention(Q, K, V, seen, alpha=alpha)
        less, less_vjp = an.entmax_attention(Q, K[seen], V[seen], alpha=alpha)
        dO = rng.standard_normal(O.shape)
        compare(O, less, atol=1e-12)
        dQ, dK, dV = vjp(dO)
        compare((dQ, dK[seen], dV[seen]), less_vjp(dO), atol=1e-12)
        assert not dK[~seen].any() and not dV[~seen].any()


def test_alphas_of_rows_are_alphas_of_numbers(rng):
    """Each head as if it were alone; and the cotangent of a shared alpha is the sum of those of its rows."""
    S, dP = rng.standard_normal((2, 3, 4, 6))
    alpha = np.array([1.2, 1.6, 2.3])[:, None, None]
    P, vjp = an.entmax_bisect(S, alpha)
    for h in range(3):
        compare(P[h], an.entmax_bisect(S[h], float(alpha[h, 0, 0]))[0], atol=1e-12)
    apart = np.broadcast_to(alpha, (3, 4, 1)).copy()
    compare(vjp(dP)[1], an.entmax_bisect(S, apart)[1](dP)[1].sum(1, keepdims=True), atol=1e-12)


def test_towards_one_the_weights_are_those_of_softmax(rng):
    S = rng.standard_normal((5, 9))
    wrong = [np.abs(an.entmax_bisect(S, 1 + c)[0] - an.softmax(S)[0]).max() for c in (1e-2, 1e-3, 1e-4)]
    assert wrong[0] > 8 * wrong[1] > 64 * wrong[2] > 0 and wrong[2] < 1e-3


@EACH
def test_gradients_sample_by_sample_and_tensors_without_values(rule, rng):
    X = torch.from_numpy(rng.standard_normal((3, 4, 5)))

    def loss(X):
        return (RULES[rule](at, X) * torch.linspace(0.3, 1.7, 5)).sum()

    samples = torch.func.vmap(torch.func.grad(loss))(X)
    assert samples.abs().max() > 1e-3
    compare(samples, torch.stack([torch.func.grad(loss)(x) for x in X]), atol=1e-12)
    with FakeTensorMode():
        assert RULES[rule](at, torch.ones(4, 5)).shape == (4, 5)


CORES = {
    "sparsemax": lambda w: w.sparsemax_attention,
    "entmax": lambda w: partial(w.entmax_attention, alpha=1.5),
    "between": lambda w: partial(w.entmax_attention, alpha=1.25, scale=0.9),
}


@pytest.mark.parametrize("name", CORES)
def test_a_language_model_takes_the_cores(name, rng):
    """Without an edit: both worlds agree, values and gradients, and a cache writes what the whole text writes."""
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 2, 9, norm=an.rms_norm), rng, 0.6)
    ids = rng.integers(0, 11, (2, 9))
    Y, vjp = an.decoder_only(ids, params, 3, attend=CORES[name](an), norm=an.rms_norm)
    dY = rng.standard_normal(Y.shape)
    leaves = {path: torch.tensor(leaf, requires_grad=True) for path, leaf in flatten(params).items()}
    twin = at.decoder_only(torch.from_numpy(ids), unflatten(leaves), 3, attend=CORES[name](at), norm=at.rms_norm)
    compare(twin, Y, name="twin", atol=1e-10)
    grads = torch.autograd.grad(twin, list(leaves.values()), torch.from_numpy(dY))
    compare(flatten(vjp(dY)), dict(zip(leaves, grads, strict=True)), name="gradient", atol=1e-9)
    soft, _ = an.decoder_only(ids, params, 3, norm=an.rms_norm)
    assert np.abs(soft - Y).max() > 1e-2
    cache, record = {}, {}
    parts = [
        an.decoder_only(ids[:, a:b], params, 3, attend=CORES[name](an), norm=an.rms_norm, cache=cache)[0]
        for a, b in ((0, 4), (4, 9))
    ]
    compare(np.concatenate(parts, 1), Y, name="with a cache", atol=1e-10)
    an.decoder_only(ids, params, 3, attend=CORES[name](an), norm=an.rms_norm, record=record)
    P = record["layers"]["0"]["attention"]["weights"]
    assert (P[np.broadcast_to(np.tril(np.ones((9, 9), bool)), P.shape)] == 0).any() and not np.triu(P, 1).any()


def test_a_head_learns_its_alpha(rng):
    """The cotangent of one alpha a head is that of a finite difference."""
    Q, K, V = (rng.standard_normal(s) for s in ((2, 3, 4), (2, 5, 4), (2, 5, 3)))
    alpha = np.array([1.4, 1.8])[:, None, None]
    check_vjp(lambda Q, K, V, alpha: an.entmax_attention(Q, K, V, alpha=alpha), Q, K, V, alpha, rng=rng)


X, S, Y = np.zeros((4, 3)), np.zeros((2, 5)), np.full((2, 5), 0.2)
BAD = [
    ("sparsemax", (S.astype(int),), {}, r"S has dtype .*int64; floats are expected"),
    ("sparsemax", (np.zeros((3, 0)),), {}, r"S has shape \(3, 0\): its axis -1 is empty; at least one score"),
    ("sparsemax", (S,), {"empty_rows": "nan"}, r"empty_rows is 'nan'; expected one of 'error', 'zero'"),
    ("entmax15", (S - np.inf,), {}, r"row \(0,\) may attend to no key"),
    ("entmax_bisect", (S, 1.0), {}, r"alpha is 1, .* take softmax"),
    ("entmax_bisect", (S, 0.5), {}, r"alpha is 0\.5; it must be a finite number >= 1"),
    ("entmax_bisect", (S, float("inf")), {}, r"alpha is inf; it must be a finite number"),
    ("entmax_bisect", (S, float("nan")), {}, r"alpha is nan; it must be > 0"),
    ("entmax_bisect", (S, np.ones((2, 1))), {}, r"alpha holds 1; each must be finite and > 1"),
    ("entmax_bisect", (S, np.full((2, 5), 1.5)), {}, r"alpha has shape \(2, 5\); .*broadcasts to \(2, 1\)"),
    ("entmax_bisect", (S, np.array(1.5)), {}, r"alpha has shape \(\)"),
    ("entmax_bisect", (S, np.full((2, 1), 1.5, np.float32)), {}, r"alpha has dtype .*float32 but S has"),
    ("entmax_bisect", (S,), {"halvings": 0}, r"halvings is 0; it must be an integer >= 1"),
    ("tsallis_entropy", (S, 0.9), {}, r"alpha is 0\.9; it must be a finite number >= 1"),
    ("fenchel_young_loss", (S, 2 * Y), {}, r"Y has a row that is no distribution"),
    ("fenchel_young_loss", (S, Y - np.eye(5)[:2] + np.eye(5)[1:3]), {}, r"Y has a row that is no distribution"),
    ("fenchel_young_loss", (S, np.full((2, 4), 0.25)), {}, r"Y has shape \(2, 4\), expected .* with m = 5"),
    ("fenchel_young_loss", (S, Y, 0.0), {}, r"alpha is 0\.0; it must be > 0"),
    ("entmax_attention", (X, X, X), {"alpha": 0.3}, r"alpha is 0\.3"),
    ("entmax_attention", (X, X[:0], X[:0]), {}, r"K has shape \(0, 3\): its axis -2 is empty"),
    ("entmax_attention", (X, X, X), {"mask": np.ones((4, 5), bool)}, r"mask has shape \(4, 5\)"),
    ("entmax_attention", (X, X, X), {"mask": np.eye(4) > 1}, r"row \(0,\) may attend to no key"),
    ("sparsemax_attention", (X, X, X), {"mask": np.ones((4, 4))}, r"mask has dtype .*masks are boolean"),
    ("sparsemax_attention", (X, X, X), {"scale": -1.0}, r"scale is -1\.0"),
    ("sparsemax_attention", (X, X, X), {"bias": np.ones(7)}, r"bias has shape \(7,\)"),
]


@WORLDS
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, world, as_users_call):
    check_refused(world, *BAD[row])
