"""The page on stores: what dropped keys do to an output, and a bound that does not look at them."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)


def kept_and_dropped(seed, m, keep, scale):
    rng = np.random.default_rng(seed)
    Q, K, V = scale * rng.standard_normal((4, 5)), rng.standard_normal((m, 5)), rng.standard_normal((m, 3))
    S = an.scaled_dot_score(Q, K)[0]
    best = np.argsort(-S, -1)[:, :keep]
    P = an.softmax(S)[0]
    tau = 1 - np.take_along_axis(P, best, -1).sum(-1)
    return (Q, K, V), np.take_along_axis(S, best, -1), P, tau


@pytest.mark.claim("thm-dropped-weight", "eq:top-k-attention")
@given(seed=seeds, m=st.integers(2, 20), keep=st.integers(1, 19), scale=st.floats(0.1, 6))
def test_an_output_moves_by_the_dropped_weight(seed, m, keep, scale):
    keep = min(keep, m - 1)
    (Q, K, V), _, P, tau = kept_and_dropped(seed, m, keep, scale)
    O, near = P @ V, an.top_k_attention(Q, K, V, keep=keep)[0]
    assert (abs(O - near) <= tau[:, None] * np.ptp(V, 0) + 1e-12).all()
    if (tau > 1e-6).all():
        others = np.ones_like(P)
        np.put_along_axis(others, np.argsort(-P, -1)[:, :keep], 0, -1)
        D = (P * others) @ V / tau[:, None]
        compare(O - near, tau[:, None] * (D - near), atol=1e-8, name="tau times the difference of two averages")


@pytest.mark.claim("prop-dropped-bound", "eq:dropped-weight")
@given(seed=seeds, m=st.integers(2, 20), keep=st.integers(1, 19), scale=st.floats(0.1, 6))
def test_the_kept_scores_bound_the_dropped_weight(seed, m, keep, scale):
    keep = min(keep, m - 1)
    _, scores, _, tau = kept_and_dropped(seed, m, keep, scale)
    bound = an.dropped_weight_bound(scores, m - keep)
    assert (tau <= bound + 1e-12).all()
    compare(at.dropped_weight_bound(torch.from_numpy(scores), m - keep), bound, name="the twin")


@pytest.mark.claim("prop-dropped-bound")
def test_equal_scores_attain_the_bound():
    compare(an.dropped_weight_bound(np.full((1, 3), 1.7), 5), [5 / 8])
    assert an.dropped_weight_bound(np.array([[3.0, 1.0]]), 0) == 0


def loss_of_mixture(p, s, weight):
    return -np.log((1 - weight) * p + weight * s).mean()


@pytest.mark.claim("prop-store-mixture")
@given(seed=seeds, n=st.integers(1, 12), power=st.floats(0.5, 4), quiet=st.floats(0, 0.9))
def test_what_a_mixture_costs_and_when_it_helps(seed, n, power, quiet):
    """Bound, derivative, convexity, and the mean ratio that says whether some weight is better than none."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.01, 1, n) ** power
    s = rng.uniform(0, 1, n) ** power * (rng.random(n) > quiet)
    weights = np.concatenate([[1e-9], np.geomspace(1e-6, 0.999, 400)])
    losses = np.array([loss_of_mixture(p, s, weight) for weight in weights])
    each = -np.log((1 - weights[:, None]) * p + weights[:, None] * s) + np.log(p)
    assert (each <= -np.log1p(-weights)[:, None] + 1e-12).all()
    slopes = np.array([((p - s) / ((1 - w) * p + w * s)).mean() for w in weights])
    assert (np.diff(slopes) >= -1e-9 * abs(slopes[:-1]) - 1e-12).all()
    for w, slope in zip((0.2, 0.6), (((p - s) / ((1 - w) * p + w * s)).mean() for w in (0.2, 0.6)), strict=True):
        difference = (loss_of_mixture(p, s, w + 1e-5) - loss_of_mixture(p, s, w - 1e-5)) / 2e-5
        compare(difference, slope, atol=1e-6, rtol=1e-6, name="the derivative")
    ratio = (s / p).mean()
    if abs(ratio - 1) > 1e-3:
        assert (losses.min() < loss_of_mixture(p, s, 0) - 1e-12) == (ratio > 1)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_it_goes_into_a_model(world, rng):
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 17, layers=1, heads=3), rng, 0.4)
    ids = rng.integers(0, 11, 9)
    if world is at:
        params, ids = at.from_numpy(params), torch.from_numpy(ids)
    call = partial(world.decoder_only, ids, params, 3)
    whole, few, most = (
        np.asarray(Z if world is at else Z[0])
        for Z in (call(), *(call(attend=partial(world.top_k_attention, keep=t)) for t in (2, 9)))
    )
    compare(most, whole)
    compare(few[:2], whole[:2], name="the first two have no more keys")
    assert abs(few[3:] - whole[3:]).max() > 1e-3


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_bad_input(world, rng):
    X = rng.standard_normal((3, 4))
    X = torch.from_numpy(X) if world is at else X
    for keep in (0, -1):
        with pytest.raises(ValueError, match=rf"keep is {keep}; it must be an integer >= 1"):
            world.top_k_attention(X, X, X, keep=keep)
    with pytest.raises(ValueError, match="dropped is -1; it must be >= 0"):
        world.dropped_weight_bound(X, -1)
    with pytest.raises(ValueError, match="at least one score is needed"):
        world.dropped_weight_bound(X[:, :0], 1)
