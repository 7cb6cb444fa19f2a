"""A store beside a model: loops, scikit-learn's search and Gaussian regression say the same, and bad input is told."""

from math import dist, exp

import numpy as np
import pytest
import torch
from scipy.special import softmax as scipy_softmax
from sklearn.neighbors import NearestNeighbors
from torch._subclasses.fake_tensor import FakeTensorMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import kernel_regression as kr
from attnmath.check import compare
from tests.attnmath.refusals import check_refused

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def store(rng, n=6, m=40, k=5, t=9):
    """Queries, keys, and a token for each key; token 2 follows none."""
    followed = rng.integers(0, t - 1, m)
    return rng.standard_normal((n, k)), rng.standard_normal((m, k)), followed + (followed >= 2)


@pytest.mark.parametrize("keep", [None, 1, 7])
def test_it_is_the_sum_over_the_keys_of_a_token(keep, rng):
    """In Python's own numbers, one query, one key and one token after the other."""
    Q, K, followed = store(rng)
    P, _ = an.store_distribution(Q, K, followed, 9, temperature=3.0, keep=keep)
    for q, p in zip(Q, P, strict=True):
        near = sorted((dist(q, k) ** 2, token) for k, token in zip(K, followed.tolist(), strict=True))[:keep]
        whole = sum(exp(-d / 3.0) for d, _ in near)
        want = [sum(exp(-d / 3.0) for d, token in near if token == w) / whole for w in range(9)]
        compare(p, want, name="one query", atol=1e-14)
    assert (P[:, 2] == 0).all() and np.allclose(P.sum(-1), 1)


@WORLDS
@pytest.mark.parametrize("keep", [1, 8, 40])
def test_the_nearest_keys_are_scikit_learns(world, keep, rng):
    Q, K, followed = store(rng)
    far, index = NearestNeighbors(n_neighbors=keep, algorithm="kd_tree").fit(K).kneighbors(Q)
    want = (scipy_softmax(-(far**2) / 2.0, -1)[..., None] * np.eye(9)[followed[index]]).sum(-2)
    given = [torch.from_numpy(X) for X in (Q, K, followed)] if world is at else (Q, K, followed)
    P = world.store_distribution(*given, 9, temperature=2.0, keep=keep)
    compare(P if world is at else P[0], want, name="scikit-learn", atol=1e-13)


def test_it_is_gaussian_regression_of_one_hot_values(rng):
    """Nadaraya and Watson's average, bandwidth h and T = 2 h^2; and so the mean number that follows."""
    Q, K, followed = store(rng, k=2)
    P, _ = an.store_distribution(Q, K, followed, 9, temperature=2 * 0.7**2)
    W = kr.gaussian_weights(Q, K, 0.7)
    compare(P, W @ np.eye(9)[followed], name="one-hot values", atol=1e-13)
    compare(P @ np.arange(9.0), W @ followed.astype(float), name="the mean of the tokens' numbers", atol=1e-12)


@pytest.mark.parametrize("keep", [3, 40])
def test_it_is_attention_to_longer_keys(keep, rng):
    """A squared distance is a dot product with a key that holds its own square; with the gradient of attention."""
    Q, K, followed = store(rng)
    P, vjp = an.store_distribution(Q, K, followed, 9, temperature=2.5, keep=keep)
    asked = np.concatenate([2 * Q, np.ones((6, 1))], -1) * 6**0.5 / 2.5
    longer = np.concatenate([K, -(K**2).sum(-1, keepdims=True)], -1)
    O, attention_vjp = an.top_k_attention(asked, longer, np.eye(9)[followed], keep=keep)
    compare(P, O, name="attention", atol=1e-13)
    dP = rng.standard_normal(P.shape)
    dasked, dlonger, _ = attention_vjp(dP)
    want = 2 * dasked[:, :-1] * 6**0.5 / 2.5, dlonger[:, :-1] - 2 * K * dlonger[:, -1:]
    compare(vjp(dP), want, name="its gradient", atol=1e-12)


def test_a_query_is_drawn_towards_the_keys_of_its_token(rng):
    """Every step along the gradient of the log-probability of a token makes the token likelier."""
    Q, K, followed = store(rng, n=1)
    found = []
    for _ in range(60):
        P, vjp = an.store_distribution(Q, K, followed, 9, temperature=4.0)
        found.append(P[0, 3])
        Q = Q + 0.1 * vjp(np.eye(9)[[3]] / P[0, 3])[0]
    assert (np.diff(found) > 0).all() and found[-1] > 1.5 * found[0]


@WORLDS
def test_equal_keys_are_kept_together(world):
    K, followed = np.array([[1.0], [5.0], [1.0]]), np.array([0, 1, 2])
    given = [torch.from_numpy(X) if world is at else X for X in (np.zeros((1, 1)), K, followed)]
    P = world.store_distribution(*given, 3, keep=1)
    compare(P if world is at else P[0], [[0.5, 0.0, 0.5]])


@WORLDS
def test_a_mixture_is_a_distribution_and_costs_no_more_than_its_part(world, rng):
    model, said = rng.dirichlet(np.full(7, 0.3), (2, 50))
    given = [torch.from_numpy(X) if world is at else X for X in (model, said)]
    P = world.store_mixture(*given, 0.3)
    P = P.numpy() if world is at else P[0]
    compare(P.sum(-1), np.ones(50))
    assert (np.log(model) - np.log(P) <= -np.log(0.7) + 1e-12).all() and abs(P - model).max() > 0.1


def test_what_cannot_be_looked_at_is_computed(rng):
    """Shapes without values, samples of vmap, and 16 bits."""
    Q, K, followed = map(torch.from_numpy, store(rng))
    with FakeTensorMode():
        P = at.store_distribution(torch.ones(6, 5), torch.ones(40, 5), torch.ones(40, dtype=torch.long), 9, keep=4)
        assert at.store_mixture(P, P, 0.5).shape == (6, 9)
    whole = at.store_distribution(Q, K, followed, 9, keep=4)
    rows = torch.func.vmap(lambda q: at.store_distribution(q[None], K, followed, 9, keep=4)[0])(Q)
    compare(rows, whole, name="row by row", atol=1e-12)
    low = at.store_distribution(Q.bfloat16(), K.bfloat16(), followed.to(torch.uint8), 9, temperature=3.0)
    assert low.dtype == torch.bfloat16
    compare(low, at.store_distribution(Q, K, followed, 9, temperature=3.0), name="bfloat16", atol=0.02)


X, IDS, NAN = np.ones, np.array([0, 1, 2, 1]), np.full((4, 2), np.nan)
STORE, MIX = "store_distribution", "store_mixture"
GOOD = (X((3, 2)), X((4, 2)), IDS, 3)
BAD = {
    "temperature 0": (STORE, GOOD, {"temperature": 0.0}, r"temperature is 0\.0; it must be > 0"),
    "temperature nan": (
        STORE,
        GOOD,
        {"temperature": float("nan")},
        r"temperature is nan; it must be > 0",
    ),
    "keep 0": (STORE, GOOD, {"keep": 0}, r"keep is 0; it must be an integer >= 1"),
    "vocabulary 0": (STORE, (*GOOD[:3], 0), {}, r"vocabulary is 0; it must be an integer >= 1"),
    "id too large": (
        STORE,
        (*GOOD[:3], 2),
        {},
        r"followed holds 2, which is not between 0 and t - 1 = 1",
    ),
    "id negative": (STORE, (*GOOD[:2], IDS - 1, 3), {}, r"followed holds -1, which is not between 0"),
    "fewer ids": (
        STORE,
        (*GOOD[:2], IDS[:3], 3),
        {},
        r"followed has shape .*3.*; expected integers of shape \(4,\), one for each row of K",
    ),
    "float ids": (STORE, (*GOOD[:2], 1.0 * IDS, 3), {}, r"followed has .*float64; expected integers"),
    "no key": (STORE, (X((3, 2)), X((0, 2)), IDS[:0], 3), {}, r"at least one key is needed"),
    "no component": (STORE, (X((3, 0)), X((4, 0)), IDS, 3), {}, r"at least one component is needed"),
    "widths": (STORE, (X((3, 2)), X((4, 5)), IDS, 3), {}, r"K has shape \(4, 5\).*k = 2"),
    "dtypes": (
        STORE,
        (X((3, 2)), X((4, 2), np.float32), IDS, 3),
        {},
        r"K has dtype .*float32 but Q has",
    ),
    "nan in a key": (STORE, (X((3, 2)), NAN, IDS, 3), {}, r"K holds a number that is nan or infinite"),
    "nan in a query": (STORE, (NAN, X((4, 2)), IDS, 3), {}, r"Q holds a number that is nan or infinite"),
    "infinite key": (STORE, (X((3, 2)), np.full((4, 2), np.inf), IDS, 3), {}, r"K holds a number .* infinite"),
    "weight above": (MIX, (X(3) / 3, X(3) / 3, 1.5), {}, r"weight is 1\.5; .* >= 0 and <= 1"),
    "weight below": (MIX, (X(3) / 3, X(3) / 3, -0.1), {}, r"weight is -0\.1; .* >= 0 and <= 1"),
    "weight nan": (MIX, (X(3) / 3, X(3) / 3, float("nan")), {}, r"weight is nan; .* >= 0 and <= 1"),
    "weight none": (MIX, (X(3) / 3, X(3) / 3, None), {}, r"weight is None; .* >= 0 and <= 1"),
    "logits": (MIX, (-X(3), X(3) / 3, 0.5), {}, r"model holds a number that is negative.*not logits"),
    "nan": (MIX, (X(2) / 2, NAN[0], 0.5), {}, r"store holds a number that is negative, nan or infinite"),
    "vocabularies": (MIX, (X(3) / 3, X(4) / 4, 0.5), {}, r"store has shape \(4,\).*t = 3"),
}


@WORLDS
@pytest.mark.parametrize("row", BAD)
def test_bad_input_is_told(world, row, as_users_call):
    check_refused(world, *BAD[row])
