"""What the contrastive loss says: collapse, repeated captions, the scale, and the information of a pair."""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import captions
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)


def softmax(S):
    return an.softmax(S)[0]


def halves(S):
    """The two means: of finding the caption of a picture, and the picture of a caption."""
    gaps = [A - np.diagonal(A)[:, None] for A in (S, S.T)]
    tops = [A.max(1) for A in gaps]
    return [np.mean(top + np.log(np.exp(A - top[:, None]).sum(1))) for A, top in zip(gaps, tops, strict=True)]


def floor(classes):
    """log n minus the entropy of the captions in the batch, by counting."""
    counts = np.array([np.sum(classes == c) for c in classes])
    return np.log(counts).mean()


@pytest.mark.claim("eq:contrastive-loss", "eq:contrastive-loss-vjp", "prop-pull-and-push")
@settings(max_examples=12)
@given(seeds, st.integers(1, 6), st.floats(-1, 3))
def test_the_gradient_is_softmax_minus_the_identity_both_ways(seed, n, tau):
    rng = np.random.default_rng(seed)
    U, V, tau = rng.standard_normal((n, 4)), rng.standard_normal((n, 4)), np.array(tau)
    S, _ = an.cosine_scores(U, V, tau)
    loss, vjp = an.matching_loss(S)
    compare(loss, np.mean(halves(S)), name="two means", atol=1e-12)
    dS = (softmax(S) + softmax(S.T).T - 2 * np.eye(n)) / (2 * n)
    compare(vjp(1.7), 1.7 * dS, name="softmax minus identity", atol=1e-13)
    compare(dS.sum(), 0.0, name="pull and push cancel", atol=1e-13)
    dU, dV, _ = an.contrastive_loss(U, V, tau)[1](1.0)
    compare((U * dU).sum(-1), np.zeros(n), name="at right angles", atol=1e-12)
    compare((V * dV).sum(-1), np.zeros(n), name="at right angles", atol=1e-12)
    u, v = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (U, V))
    force = np.exp(tau) * dS @ v  # what the captions do to each picture, before its length is taken out
    force -= u * (u * force).sum(-1, keepdims=True)
    compare(dU, force / np.linalg.norm(U, axis=1, keepdims=True), name="the sum over captions", atol=1e-12)
    force = np.exp(tau) * dS.T @ u
    force -= v * (v * force).sum(-1, keepdims=True)
    compare(dV, force / np.linalg.norm(V, axis=1, keepdims=True), name="the sum over pictures", atol=1e-12)
    compare(an.contrastive_loss(3 * U, V / 7, tau)[0], loss, name="lengths do not count", atol=1e-12)


@pytest.mark.claim("lem-collapse")
@settings(max_examples=8)
@given(seeds, st.integers(2, 9), st.floats(-2, 4))
def test_collapse_costs_log_n_and_has_no_gradient(seed, n, tau):
    rng = np.random.default_rng(seed)
    U, V = np.tile(rng.standard_normal(3), (n, 1)), np.tile(rng.standard_normal(3), (n, 1))
    U, V = U * rng.uniform(0.1, 9, (n, 1)), V * rng.uniform(0.1, 9, (n, 1))  # lengths do not count
    loss, vjp = an.contrastive_loss(U, V, np.array(tau))
    compare(loss, np.log(n), name="log n", atol=1e-12)
    for name, dX in zip(("U", "V", "scale"), vjp(1.0), strict=True):
        compare(dX, np.zeros_like(dX), name=name, atol=1e-12 * np.exp(max(tau, 0)) * 10)
    U[0] += 0.5 * rng.standard_normal(3) * np.abs(U[0]).max()
    V[0] += 0.5 * rng.standard_normal(3) * np.abs(V[0]).max()
    assert np.abs(an.contrastive_loss(U, V, np.array(tau))[1](1.0)[0]).max() > 1e-9


@pytest.mark.claim("thm-caption-floor")
@settings(max_examples=20)
@given(seeds, st.lists(st.integers(0, 3), min_size=1, max_size=9), st.floats(-1, 6))
def test_equal_captions_keep_both_halves_above_the_floor(seed, classes, tau):
    rng, classes = np.random.default_rng(seed), np.array(classes)
    n = len(classes)
    counts = np.bincount(classes)
    entropy = -sum(c / n * np.log(c / n) for c in counts if c)
    compare(floor(classes), np.log(n) - entropy, name="log n minus the entropy", atol=1e-12)
    U, table = rng.standard_normal((n, 5)), rng.standard_normal((4, 5))
    U += rng.choice([0, 3]) * table[classes]  # sometimes pictures that are near to their captions
    S, _ = an.cosine_scores(U, table[classes], np.array(tau))
    assert min(halves(S)) >= floor(classes) - 1e-9
    twin = at.contrastive_loss(*map(torch.from_numpy, (U, table[classes], np.array(tau))))
    assert twin.item() >= floor(classes) - 1e-9


@pytest.mark.claim("thm-caption-floor")
@pytest.mark.parametrize("classes", [[0, 0, 1, 1], [2, 2, 2, 0], [0, 1, 2, 3]])
@pytest.mark.parametrize("near", [0, 3])
def test_different_captions_keep_the_mean_over_their_holders_above_the_floor(classes, near, rng):
    classes = np.array(classes)
    U, table = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    U, V = U + near * table[classes], rng.standard_normal((4, 5)) + near * table[classes]
    within = [order for order in permutations(range(4)) if (classes[list(order)] == classes).all()]
    assert len(within) == np.prod([np.prod(range(1, np.sum(classes == c) + 1)) for c in set(classes)])
    S, _ = an.cosine_scores(U, V, np.array(2.0))
    means = np.mean([halves(S[:, list(order)]) for order in within], 0)
    assert (means >= floor(classes) - 1e-12).all()
    own, _ = an.cosine_scores(U, U, np.array(4.0))  # one way alone can cost less
    assert len(within) == 1 or min(halves(own)) < floor(classes)


@pytest.mark.claim("thm-caption-floor")
@pytest.mark.parametrize("classes", [[0, 1, 2, 3], [0, 0, 1, 2, 2, 2], [1, 1, 1]])
def test_the_floor_is_approached_and_belongs_to_equal_captions_only(classes, rng):
    classes, tau = np.array(classes), np.array(np.log(60.0))
    U = np.eye(4)[classes]
    loss, _ = an.contrastive_loss(U, U, tau)
    compare(loss, floor(classes), name="pictures of a class alike", atol=1e-12)
    assert loss >= floor(classes)
    own = np.eye(len(classes))  # captions with vectors of their own
    assert an.contrastive_loss(own, own, tau)[0] < 1e-12
    if 1 < len(set(classes)) < len(classes):
        mixed = np.roll(U, 1, 0)
        assert an.contrastive_loss(mixed, U, tau)[0] > floor(classes) + 1


@pytest.mark.claim("prop-scale-gradient", "eq:cosine-scores-vjp")
@settings(max_examples=10)
@given(seeds, st.integers(2, 7), st.floats(-1, 3))
def test_the_scale_moves_by_expected_minus_own_score(seed, n, tau):
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((n, 3)), rng.standard_normal((n, 3))
    S, _ = an.cosine_scores(U, V, np.array(tau))
    expected = (softmax(S) * S).sum(1).mean() + (softmax(S.T) * S.T).sum(1).mean()
    dtau = an.contrastive_loss(U, V, np.array(tau))[1](1.0)[2]
    compare(dtau, expected / 2 - np.diagonal(S).mean(), name="the gradient by tau", atol=1e-12)
    scales = np.linspace(0.1, 8, 5)
    losses = [float(an.contrastive_loss(U, V, np.array(np.log(s)))[0]) for s in scales]
    assert (np.diff(losses, 2) > -1e-10).all(), "convex in the scale"


@pytest.mark.claim("prop-scale-gradient")
def test_a_batch_without_error_wants_any_larger_scale_and_one_with_an_error_does_not(rng):
    own = np.eye(4) + 0.1 * rng.standard_normal((4, 4))
    losses, slopes = [], []
    for tau in np.linspace(-3, 3, 7):
        loss, vjp = an.contrastive_loss(own, np.eye(4), np.array(tau))
        losses.append(float(loss))
        slopes.append(float(vjp(1.0)[2]))
    assert max(slopes) < 0 and losses[-1] < 1e-6
    wrong = own.copy()
    wrong[[0, 1]] = own[[1, 0]]  # two pictures changed
    slopes = [float(an.contrastive_loss(wrong, np.eye(4), np.array(tau))[1](1.0)[2]) for tau in (-3.0, 3.0)]
    assert slopes[0] < 0 < slopes[1] or slopes[0] > 0, "too confident is punished"
    assert slopes[1] > 1


def joint(rng, x=3, y=3):
    P = rng.dirichlet(np.full(x * y, 0.3)).reshape(x, y) + 1e-3
    return P / P.sum()


def information(P):
    return float((P * np.log(P / P.sum(1, keepdims=True) / P.sum(0, keepdims=True))).sum())


def expected_loss(P, f, n):
    """The exact mean of -log softmax at the partner, over n independent pairs: a sum over all that may happen."""
    y, marginal = range(P.shape[1]), P.sum(0)
    total = 0.0
    for a, first in product(range(P.shape[0]), y):
        for others in product(y, repeat=n - 1):
            scores = f[a, [first, *others]]
            total += P[a, first] * marginal[list(others)].prod() * (np.log(np.exp(scores).sum()) - scores[0])
    return total


@pytest.mark.claim("thm-infonce")
@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(1, 5), st.sampled_from([0.0, 1.0, 5.0]))
def test_the_loss_of_independent_pairs_bounds_their_information(seed, n, size):
    rng = np.random.default_rng(seed)
    P = joint(rng)
    best = np.log(P / P.sum(1, keepdims=True) / P.sum(0, keepdims=True))
    for f in (best, size * rng.standard_normal(P.shape), best + 0.3 * rng.standard_normal(P.shape)):
        for Q, g in ((P, f), (P.T, f.T)):  # both directions
            assert np.log(n) - expected_loss(Q, g, n) <= min(information(P), np.log(n)) + 1e-12


@pytest.mark.claim("thm-infonce")
def test_with_the_best_scores_the_bound_closes_as_the_batch_grows(rng):
    P = joint(rng) / 4 + np.eye(3) / 4  # mostly the pairs of equal numbers
    best = np.log(P / P.sum(1, keepdims=True) / P.sum(0, keepdims=True))
    gaps = [information(P) - np.log(n) + expected_loss(P, best, n) for n in range(1, 8)]
    assert information(P) > 0.2 and (np.diff(gaps) < 0).all() and gaps[-1] < 0.35 * gaps[0]
    wrong = -best
    assert information(P) - np.log(7) + expected_loss(P, wrong, 7) > gaps[-1] + 0.3


@pytest.mark.claim("thm-infonce")
def test_pairs_that_are_not_independent_or_known_to_the_scores_break_the_bound():
    p = 0.9  # two classes, and a batch that always has one of each
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    own = np.eye(2)
    loss, _ = an.contrastive_loss(own, own, np.array(np.log(60.0)))
    assert np.log(2) - loss > entropy + 0.3
    rng = np.random.default_rng(0)  # pairs by lot have no information, and vectors that know the batch a loss of 0
    lot = rng.permutation(6)
    U, V = np.eye(6), np.eye(6)[np.argsort(lot)]
    assert np.log(6) - an.contrastive_loss(U, V[lot], np.array(np.log(60.0)))[0] > 1.7


@pytest.mark.parametrize(("n", "scale"), [(2, 0.5), (3, 1.0), (7, 1.0), (64, 1.0), (64, 14.3)])
def test_the_least_loss_at_a_fixed_scale_is_that_of_a_simplex(n, scale, rng):
    """Its proof is exercise 10 of problem set 8."""
    least = np.log1p((n - 1) * np.exp(-scale * n / (n - 1)))
    simplex = np.eye(n) - 1 / n
    compare(an.contrastive_loss(simplex, simplex, np.array(np.log(scale)))[0], least, name="simplex", atol=1e-12)
    for spread in (0.0, 0.1, 1.0):
        U, V = (simplex + spread * rng.standard_normal((n, n)) / np.sqrt(n) for _ in range(2))
        assert an.contrastive_loss(U, V, np.array(np.log(scale)))[0] >= least - 1e-12


def test_no_model_finds_more_captions_own_pictures_than_there_are_captions(rng):
    """Captions that are equal have one best picture together."""
    classes = rng.integers(0, 4, 30)
    V = rng.standard_normal((4, 5))[classes]
    for U in (rng.standard_normal((30, 5)), V + 0.01 * rng.standard_normal((30, 5))):
        best = (V @ U.T).argmax(-1)
        assert (best == np.arange(30)).sum() <= len(set(classes)) < 30
    assert len(set(captions.prompts("the digit {a}", range(10)))) == 10
