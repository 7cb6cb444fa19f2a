"""The results of the page on losses."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare
from attnmath.metrics import calibration_error

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 9)
amounts = st.floats(0.01, 1)
few = settings(max_examples=20, deadline=None)


def entropy(q):
    q = q[q > 0]
    return -(q * np.log(q)).sum()


def divergence(q, p):
    return (q[q > 0] * np.log(q[q > 0] / p[q > 0])).sum()


def token_loss(z, y, smoothing=0.0):
    return float(an.cross_entropy(z, np.array(y), smoothing=smoothing)[0])


@pytest.mark.claim("lem-cross-entropy-split")
@few
@given(seeds, sizes, st.floats(0, 1))
def test_cross_entropy_is_entropy_and_divergence(seed, t, smoothing):
    rng = np.random.default_rng(seed)
    z, y = 3 * rng.standard_normal(t), int(rng.integers(t))
    q, p = an.smoothed_targets(np.array(y), t, smoothing), an.softmax(z)[0]
    compare(q.sum(), 1.0, name="a distribution", atol=1e-12)
    loss = token_loss(z, y, smoothing)
    compare(loss, entropy(q) + divergence(q, p), name="the two parts", atol=1e-10)
    assert loss > entropy(q) and divergence(q, p) > 0
    general = rng.dirichlet(np.ones(t))
    general[: t // 2] = 0
    general /= general.sum()
    compare(-(general * np.log(p)).sum(), entropy(general) + divergence(general, p), name="with zeros", atol=1e-10)
    assert divergence(general, p) > 0


@pytest.mark.claim("lem-cross-entropy-gradient", "eq:cross-entropy-vjp")
@few
@given(seeds, sizes, st.floats(0, 1), st.floats(0.1, 50))
def test_the_gradient_is_bounded_and_blind_to_shifts(seed, t, smoothing, spread):
    rng = np.random.default_rng(seed)
    z, y = spread * rng.standard_normal(t), np.array(rng.integers(t))
    loss, vjp = an.cross_entropy(z, y, smoothing=smoothing)
    g = vjp(1.0)
    compare(g, an.softmax(z)[0] - an.smoothed_targets(y, t, smoothing), name="p - q", atol=1e-12)
    compare(g.sum(), 0.0, name="sum", atol=1e-12)
    assert np.abs(g).max() <= 1 and np.abs(g).sum() <= 2
    hard, vjp = an.cross_entropy(z, y)
    compare(np.abs(vjp(1.0)).sum(), 2 * (1 - np.exp(-hard)), name="pull of a hard target", atol=1e-12)
    compare(an.cross_entropy(z + 7.0, y, smoothing=smoothing)[0], loss, name="a shift", atol=1e-11)


@pytest.mark.claim("lem-cross-entropy-gradient")
@few
@given(seeds, sizes, st.floats(0, 1))
def test_the_hessian_is_the_jacobian_of_softmax(seed, t, smoothing):
    rng = np.random.default_rng(seed)
    z, y = torch.from_numpy(rng.standard_normal(t)), torch.tensor(int(rng.integers(t)))
    H = torch.autograd.functional.hessian(lambda z: at.cross_entropy(z, y, smoothing=smoothing), z).numpy()
    p = an.softmax(z.numpy())[0]
    compare(H, np.diag(p) - np.outer(p, p), name="Hessian", atol=1e-12)
    values, vectors = np.linalg.eigh(H)
    assert abs(values[0]) < 1e-12 < values[1], "strictly convex but for one direction"
    compare(np.abs(vectors[:, 0]), np.full(t, t**-0.5), name="the kernel", atol=1e-9)


@pytest.mark.claim("prop-label-smoothing", "eq:smoothed-target", "eq:smoothed-loss")
@few
@given(seeds, sizes, st.floats(0, 1))
def test_smoothing_adds_cross_entropy_with_the_uniform(seed, t, smoothing):
    rng = np.random.default_rng(seed)
    z, y = 3 * rng.standard_normal(t), int(rng.integers(t))
    u, p = np.full(t, 1 / t), an.softmax(z)[0]
    want = (1 - smoothing) * token_loss(z, y) + smoothing * (math.log(t) + divergence(u, p))
    compare(token_loss(z, y, smoothing), want, name="the mixture", atol=1e-10)
    q = an.smoothed_targets(np.array(y), t, smoothing)
    compare(token_loss(z, y, smoothing), -(q * np.log(p)).sum(), name="its definition", atol=1e-10)


@pytest.mark.slow
@pytest.mark.claim("prop-label-smoothing", "eq:smoothed-target")
@few
@given(seeds, sizes, amounts)
def test_the_optimum_is_the_target_and_its_lead_is_finite(seed, t, eps):
    rng = np.random.default_rng(seed)
    y, gamma = int(rng.integers(t)), math.log(1 + t * (1 - eps) / eps)
    q = an.smoothed_targets(np.array(y), t, eps)
    best = gamma * (np.arange(t) == y) + rng.standard_normal()
    loss, vjp = an.cross_entropy(best, np.array(y), smoothing=eps)
    compare(an.softmax(best)[0], q, name="p = q", atol=1e-12)
    compare(loss, entropy(q), name="least loss", atol=1e-10)
    compare(vjp(1.0), np.zeros(t), name="stationary", atol=1e-12)
    z = np.zeros(t)
    for _ in range(200):
        _, vjp = an.cross_entropy(z, np.array(y), smoothing=eps)
        z = z - 1.5 * vjp(1.0)
        z -= z.mean()
    direction = rng.standard_normal(t)
    direction -= direction.mean()
    assert token_loss(best + 0.1 * direction / np.linalg.norm(direction), y, eps) > loss, "strict"
    assert loss - 1e-12 <= token_loss(z, y, eps) < loss + 0.2, "and descent goes there"


@pytest.mark.claim("prop-label-smoothing")
@few
@given(seeds, sizes)
def test_without_smoothing_no_logits_are_best(seed, t):
    rng = np.random.default_rng(seed)
    z, y = rng.standard_normal(t), int(rng.integers(t))
    z[y] = np.delete(z, y).max() + 1  # beyond a lead of 37 the loss is 0 in 64 bits
    losses = [token_loss(a * z, y) for a in (1, 5, 20, 30)]
    assert all(b < a for a, b in pairwise(losses)) and 0 < losses[-1] < 1e-11 < losses[0]
    compare(losses[0], np.log1p(np.exp(np.delete(z, y) - z[y]).sum()), name="log(1 + ...)", atol=1e-12)
    tied = z.copy()
    tied[(y + 1) % t] = tied[y]  # one other keeps up, however large the rest of the lead
    assert token_loss(300 * tied, y) >= math.log(2) - 1e-12
    smoothed = [token_loss(a * z, y, 0.1) for a in (1, 10, 100, 300)]
    assert smoothed[-1] > smoothed[0] and smoothed[-1] > 1, "smoothing brings them back"


@pytest.mark.claim("prop-label-smoothing")
@few
@given(seeds, sizes, amounts, st.floats(0.1, 100))
def test_the_smoothed_loss_grows_with_the_spread_of_the_logits(seed, t, eps, spread):
    rng = np.random.default_rng(seed)
    z, y = spread * rng.standard_normal(t), int(rng.integers(t))
    assert token_loss(z, y, eps) >= eps / t * (z.max() - z.min())


@pytest.mark.slow
@pytest.mark.claim("prop-label-smoothing")
def test_weights_stay_bounded_with_smoothing_and_grow_without(rng):
    """Softmax regression with fewer features than examples: separable, yet the smoothed optimum is not p = q."""
    centres = 3 * np.eye(3)
    y = np.arange(30) % 3
    X = centres[y] + 0.3 * rng.standard_normal((30, 3))
    found = {}
    for eps in (0.0, 0.1):
        W, sizes = np.zeros((3, 3)), []
        for step in range(4001):
            loss, vjp = an.cross_entropy(X @ W, y, smoothing=eps)
            G = X.T @ vjp(1.0)
            W = W - 0.3 * G
            if step in (1000, 2000, 4000):
                sizes.append(np.linalg.norm(W))
        found[eps] = (sizes, np.linalg.norm(G), float(loss))
        assert ((X @ W).argmax(-1) == y).all(), "separable"
    assert found[0.0][0][2] > found[0.0][0][1] + 0.1 > found[0.0][0][0] + 0.2 and found[0.0][2] < 0.01
    compare(found[0.1][0][2], found[0.1][0][1], name="the norm has settled", atol=1e-6)
    assert found[0.1][1] < 1e-8 and found[0.1][2] > entropy(an.smoothed_targets(np.array(0), 3, 0.1)) + 1e-3


@pytest.mark.claim("lem-smoothing-calibration", "eq:calibration-error")
@few
@given(seeds, st.integers(2, 5), st.sampled_from([0.0, 0.1, 0.25, 0.6]), st.integers(1, 20))
def test_at_the_optimum_smoothing_is_too_modest_by_eps(seed, t, eps, bins):
    """Contexts whose labels occur in exact proportion to pi: the sample is the population."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(20, rng.dirichlet(np.ones(t)), size=6)
    pi = counts / 20
    context = np.repeat(np.arange(6), 20)
    labels = np.concatenate([np.repeat(np.arange(t), row) for row in counts])
    assume(eps > 0 or (pi > 0).all())
    best = (1 - eps) * pi + eps / t
    Z = np.log(best)
    loss, vjp = an.cross_entropy(Z[context], labels, smoothing=eps)
    summed = np.zeros_like(Z)
    np.add.at(summed, context, vjp(1.0))
    compare(summed, np.zeros_like(Z), name="stationary, hence the minimum of a convex loss", atol=1e-12)
    moved = Z + 0.1 * rng.standard_normal(Z.shape)
    assert an.cross_entropy(moved[context], labels, smoothing=eps)[0] > loss
    A = pi.max(-1).mean()
    compare(calibration_error(best[context], labels, bins), eps * (A - 1 / t), name="error", atol=1e-10)
    assert (best.argmax(-1) == pi.argmax(-1)).all()


# remarks and solutions


def test_a_penalty_on_the_log_sum_moves_no_optimum(rng):
    """rem-z-loss: the shift that makes it 0 costs nothing, and its gradient is the only force along the ones."""
    z, y, weight = rng.standard_normal(5), np.array(2), 0.3
    L, vjp = an.logsumexp(z)
    g = weight * 2 * L * vjp(np.array(1.0))
    compare(g, 2 * weight * L * an.softmax(z)[0], name="gradient", atol=1e-12)
    compare(g.sum(), 2 * weight * L, name="force", atol=1e-12)
    shifted = z - L
    compare(an.cross_entropy(shifted, y)[0], an.cross_entropy(z, y)[0], name="loss", atol=1e-12)
    compare(an.logsumexp(shifted)[0], 0.0, name="penalty", atol=1e-12)


@few
@given(seeds, sizes, st.floats(0, 0.99))
def test_the_two_conventions_are_one_family(seed, t, eps):
    y = np.random.default_rng(seed).integers(t, size=4)
    other = eps * (t - 1) / t
    theirs = np.where(np.arange(t) == y[:, None], 1 - other, other / (t - 1))
    compare(an.smoothed_targets(y, t, eps), theirs, name="conventions", atol=1e-12)


def test_solutions_of_the_exercises():
    """exr-micro-batches, exr-undo-smoothing and exr-bits-per-character."""
    rng = np.random.default_rng(0)
    Z, y, c = rng.standard_normal((8, 4)), rng.integers(4, size=8), (2, 6)
    whole, vjp = an.cross_entropy(Z, y)
    parts = [an.cross_entropy(Z[a:b], y[a:b]) for a, b in ((0, 2), (2, 8))]
    repaired = np.mean([2 * n / 8 * loss for n, (loss, _) in zip(c, parts, strict=True)])
    compare(repaired, whole, name="repaired", atol=1e-12)
    G = np.concatenate([v(0.5) for _, v in parts])
    compare(G[:2] / vjp(1.0)[:2], np.full((2, 4), 8 / (2 * 2)), name="weight of a short part", atol=1e-9)
    compare(G[2:] / vjp(1.0)[2:], np.full((6, 4), 8 / (2 * 6)), name="weight of a long part", atol=1e-9)
    pi = rng.dirichlet(np.ones(5))
    p = 0.9 * pi + 0.02
    compare((p - 0.02) / 0.9, pi, name="undone", atol=1e-12)
    assert round(1 / 0.9, 2) == 1.11
    assert 250 * math.log2(16) == 1000 and round(200 * math.log2(25)) == 929
