"""The results of the pages on optimisers, weight decay, warm-up and clipping."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.schedules import warmup

seeds = st.integers(0, 2**32 - 1)
rates = st.floats(0.05, 0.995)
few = settings(max_examples=20, deadline=None)


def path(gradients, *, start=0.0, lr=1.0, **options):
    """The weights along a path of Adam, the start included, and the last state."""
    gradients = np.asarray(gradients, float)
    w = {"w": np.full(gradients.shape[1:] or (1,), float(start))}
    state, weights = an.adam_state(w), [w["w"]]
    for g in gradients:
        w, state = an.adam(w, {"w": np.reshape(g, w["w"].shape)}, state, lr, **options)
        weights.append(w["w"])
    return np.array(weights), state


# Adam


@pytest.mark.claim("lem-adam-correction")
@few
@given(seeds, rates, rates, st.integers(1, 12))
def test_the_correction_makes_the_averages_of_stationary_gradients_unbiased(seed, b1, b2, t):
    """Exactly, by all sequences of a gradient that takes two values, dependent ones included."""
    rng = np.random.default_rng(seed)
    values, chance = rng.standard_normal(2), rng.uniform(0.1, 0.9)
    # a stationary chain: with probability 1/2 the last value again, else a fresh one
    histories = {(): 1.0}
    for _ in range(min(t, 8)):
        grown = {}
        for history, p in histories.items():
            for i, q in ((0, chance), (1, 1 - chance)):
                keep = 0.5 * (history[-1] == i) + 0.5 * q if history else q
                grown[(*history, i)] = p * keep
        histories = grown
    steps = min(t, 8)
    m_mean = v_mean = 0.0
    gradients = values[np.array(list(histories)).T]  # one column per history
    _, state = path(gradients, betas=(b1, b2))
    p = np.array(list(histories.values()))
    m_mean, v_mean = p @ state["first"]["w"], p @ state["second"]["w"]
    mu, s = chance * values[0] + (1 - chance) * values[1], chance * values[0] ** 2 + (1 - chance) * values[1] ** 2
    compare(m_mean, (1 - b1**steps) * mu, name="E[m]", atol=1e-10)
    compare(v_mean, (1 - b2**steps) * s, name="E[v]", atol=1e-10)


@pytest.mark.claim("lem-adam-correction")
def test_a_constant_gradient_is_followed_by_steps_of_the_rate():
    weights, _ = path(np.full(30, -3.0), lr=0.1, eps=0.0)
    compare(np.diff(weights[:, 0]), np.full(30, 0.1), name="steps", atol=1e-12)


@pytest.mark.claim("lem-adam-units")
@few
@given(seeds, rates, rates, st.floats(-6, 6), st.sampled_from([0.0, 1e-3, 1.0]))
def test_a_factor_of_the_gradients_is_a_factor_of_eps(seed, b1, b2, log_c, eps):
    c, g = 10**log_c, np.random.default_rng(seed).standard_normal((9, 5))
    plain, _ = path(g, betas=(b1, b2), eps=eps)
    scaled, _ = path(c * g, betas=(b1, b2), eps=c * eps)
    compare(scaled, plain, name="the same steps", atol=1e-9)
    if eps == 0:
        own, _ = path(g * 10.0 ** np.arange(-2, 3), betas=(b1, b2), eps=0.0)
        compare(own, plain, name="a factor for each entry", atol=1e-9)
    elif abs(log_c) > 1:
        other, _ = path(c * g, betas=(b1, b2), eps=eps)
        assert np.abs(other - plain).max() > 1e-6, "eps has a unit"


def bound(t, b1, b2):
    powers = (b1**2 / b2) ** np.arange(t)
    return (1 - b1) / (1 - b1**t) * np.sqrt((1 - b2**t) / (1 - b2) * powers.sum())


@pytest.mark.claim("lem-adam-bound")
@few
@given(seeds, rates, rates, st.integers(1, 25), st.sampled_from([0.0, 1e-3]))
def test_no_step_is_longer_than_the_bound(seed, b1, b2, t, eps):
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((t, 50)) * rng.uniform(0.3, 3, 50) ** np.arange(t)[:, None]
    g[:-1, ::5] *= 1e-6  # spikes
    weights, _ = path(g, betas=(b1, b2), eps=eps)
    for i in range(t):
        assert np.abs(weights[i + 1] - weights[i]).max() <= bound(i + 1, b1, b2) * (1 + 1e-9)
        if b1**2 < b2:
            assert bound(i + 1, b1, b2) <= (1 - b1) / np.sqrt((1 - b2) * (1 - b1**2 / b2)) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.claim("lem-adam-bound")
@few
@given(rates, rates, st.integers(1, 25), st.floats(0.2, 5))
def test_growing_gradients_attain_the_bound_and_nothing_else_does(b1, b2, t, other):
    i = np.arange(t)
    weights, _ = path((b2 / b1) ** i, betas=(b1, b2), eps=0.0)
    last = abs(weights[-1] - weights[-2])[0]
    compare(last, bound(t, b1, b2), name="attained", atol=1e-9, rtol=1e-9)
    assume(t > 1 and abs(other - b2 / b1) > 0.1)
    weights, _ = path(other**i, betas=(b1, b2), eps=0.0)
    assert abs(weights[-1] - weights[-2])[0] < last


@pytest.mark.claim("lem-adam-bound")
def test_the_limit_of_the_bound_and_the_papers_smaller_one():
    for (b1, b2), limit in (((0.9, 0.98), 1.698), ((0.9, 0.999), 7.27)):
        infinite = (1 - b1) / np.sqrt((1 - b2) * (1 - b1**2 / b2))
        assert abs(bound(20_000, b1, b2) / infinite - 1) < 1e-6 and abs(infinite - limit) < 0.01
        assert bound(1, b1, b2) == pytest.approx(1) and infinite > 1.6 * max(1, (1 - b1) / np.sqrt(1 - b2))


@pytest.mark.claim("lem-decay-sgd")
@few
@given(seeds, st.floats(0, 1), st.floats(0, 2))
def test_for_gradient_descent_the_penalty_is_a_decay(seed, lr, decay):
    """The gradient of the penalised loss by a central difference, exact for a quadratic loss."""
    rng = np.random.default_rng(seed)
    w, b = rng.standard_normal((2, 4))
    A = rng.standard_normal((4, 4))

    def penalised(x):
        return 0.5 * x @ A.T @ A @ x + b @ x + 0.5 * decay * x @ x

    gradient = np.array([(penalised(w + e) - penalised(w - e)) / 2 for e in np.eye(4)])
    g = A.T @ A @ w + b
    compare(w - lr * gradient, (1 - lr * decay) * w - lr * g, name="the decoupled step", atol=1e-10)


@pytest.mark.slow
@pytest.mark.claim("lem-decay-adam")
@few
@given(seeds, st.floats(-2, 2), st.floats(0.01, 1))
def test_the_unit_of_the_loss_enters_the_penalty_and_not_the_decay(seed, log_c, decay):
    g, c = np.random.default_rng(seed).standard_normal((9, 5)), 10**log_c
    options = {"start": 1.0, "lr": 0.01, "eps": 0.0}
    adamw, _ = path(g, weight_decay=decay, **options)
    compare(path(c * g, weight_decay=decay, **options)[0], adamw, name="AdamW", atol=1e-10)
    penalty = path(c * g, weight_decay=decay, decoupled=False, **options)[0]
    same = path(g, weight_decay=decay / c, decoupled=False, **options)[0]
    compare(penalty, same, name="the penalty of lambda / c", atol=1e-10)
    if abs(log_c) > 0.5:
        assert np.abs(penalty - path(g, weight_decay=decay, decoupled=False, **options)[0]).max() > 1e-8


@pytest.mark.slow
@pytest.mark.claim("lem-decay-adam")
@few
@given(st.floats(0.1, 3), st.floats(-4, 0), st.integers(1, 30))
def test_without_a_gradient_the_penalty_forgets_its_coefficient(w0, log_decay, t):
    zeros, lr, decay = np.zeros(t), 0.01, 10**log_decay
    options = {"start": w0, "lr": lr, "eps": 1e-60}
    shrunk = path(zeros, weight_decay=decay, **options)[0][-1, 0]
    compare(shrunk, (1 - lr * decay) ** t * w0, name="AdamW", atol=1e-12)
    penalty = path(zeros, weight_decay=decay, decoupled=False, **options)[0]
    one = path(zeros, weight_decay=1.0, decoupled=False, **options)[0]
    compare(penalty, one, name="every lambda alike", atol=1e-9)
    compare(penalty[0] - penalty[1], [lr], name="the first step", atol=1e-12)


# the schedule


@pytest.mark.claim("lem-warmup-peak", "eq:warmup")
@few
@given(st.integers(1, 2048), st.integers(2, 5000), st.floats(0.1, 10))
def test_the_schedule_rises_to_its_peak_and_falls(d, w, c):
    steps = [s for s in (1, w // 2, w - 1, w, w + 1, 2 * w, 10 * w) if s >= 1]
    rates = {s: warmup(s, d, w, c) for s in steps}
    assert rates[w] == pytest.approx(c / np.sqrt(d * w), rel=1e-12)
    up, down = sorted(s for s in rates if s <= w), sorted(s for s in rates if s >= w)
    assert all(rates[a] < rates[b] for a, b in pairwise(up))
    assert all(rates[a] > rates[b] for a, b in pairwise(down))
    assert rates[w - 1] == pytest.approx(rates[w] * (w - 1) / w, rel=1e-12), "a straight line up to the peak"
    assert rates[w + 1] == pytest.approx(rates[w] * (w / (w + 1)) ** 0.5, rel=1e-12), "and the root from it"
    assert warmup(10 * w, d, 3 * w, c) == pytest.approx(rates[10 * w], rel=1e-12), "one curve"
    assert warmup(2 * w, d, 3 * w, c) < rates[2 * w]


def truncated(t, p, cut):
    """E[min(rho^-p, cut)] for the length rho of a standard normal vector in t dimensions."""
    tail = integrate.quad(lambda x: stats.chi.pdf(x, t) * x**-p, cut ** (-1 / p), np.inf, limit=500)[0]
    return tail + cut * stats.chi.cdf(cut ** (-1 / p), t)


@pytest.mark.claim("lem-adaptive-variance")
@pytest.mark.parametrize(("t", "p"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_the_moments_of_the_adaptive_factor(t, p):
    low, middle, high = (truncated(t, p, cut) for cut in (1e2, 1e4, 1e6))
    if t > p:
        assert high - middle < 0.3 * (middle - low) + 1e-6, "the truncated mean settles"
    else:
        assert high - middle > 0.9 * (middle - low), "the truncated mean grows without end"


@pytest.mark.claim("lem-adaptive-variance")
def test_the_corrected_average_lies_between_multiples_of_the_squared_length(rng):
    g = rng.standard_normal((4, 1000))
    _, state = path(g, betas=(0.9, 0.7))
    v, a = state["second"]["w"] / (1 - 0.7**4), 0.3 * 0.7 ** np.arange(4) / (1 - 0.7**4)
    chi = (g**2).sum(0)
    assert (a.min() * chi <= v).all() and (v <= a.max() * chi).all()
    compare(a.sum(), 1.0, name="positive weights that add up to 1")


@pytest.mark.claim("lem-noise-step")
@few
@given(rates, rates, st.integers(1, 10))
def test_noise_walks_fastest_at_the_start(b1, b2, t):
    """Exactly: signs are uncorrelated with variance 1, and there are 2^t histories."""
    signs = 1.0 - 2 * (np.arange(2**t) >> np.arange(t)[:, None] & 1)
    _, state = path(signs, betas=(b1, b2))
    m2 = (state["first"]["w"] ** 2).mean() / (1 - b1**t) ** 2
    v = state["second"]["w"].mean() / (1 - b2**t)
    want = (1 - b1) / (1 + b1) * (1 + b1**t) / (1 - b1**t)
    compare(m2 / v, want, name="the ratio", atol=1e-9)
    if t == 1:
        compare(want, 1.0, name="the first step", atol=1e-9)


# clipping


@pytest.mark.claim("lem-clip-projection", "eq:clip")
@few
@given(seeds, st.integers(1, 6), st.floats(0.1, 3))
def test_clipping_is_the_nearest_point_of_the_ball(seed, n, c):
    rng = np.random.default_rng(seed)
    g, h = 2 * rng.standard_normal((2, n))
    p, q = (an.clip_by_norm({"a": x[:1], "b": x[1:]}, c)[0] for x in (g, h))
    p, q = (np.concatenate([x["a"], x["b"]]) for x in (p, q))
    assert np.linalg.norm(p) <= c * (1 + 1e-12)
    points = rng.standard_normal((200, n))
    points *= c * rng.random((200, 1)) ** (1 / n) / np.linalg.norm(points, axis=1, keepdims=True)
    near = p + 1e-3 * rng.standard_normal((200, n))
    near *= np.minimum(1, c / np.linalg.norm(near, axis=1, keepdims=True))
    distance = np.linalg.norm(g - np.concatenate([points, near]), axis=1)
    assert (distance >= np.linalg.norm(g - p) - 1e-12).all()
    assert np.linalg.norm(p - q) <= np.linalg.norm(g - h) + 1e-12
    compare(p * np.linalg.norm(g), g * np.linalg.norm(p), name="the direction", atol=1e-10)


@pytest.mark.claim("lem-clip-projection")
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_inside_the_ball_clipping_keeps_every_distance(share, rng):
    """So no constant below 1 would do in the place of the 1 before the distance."""
    g, h = rng.standard_normal((2, 5))
    g, h = (share * x / np.linalg.norm(x) for x in (g, h))
    p, q = (an.clip_by_norm({"a": x}, 1.0)[0]["a"] for x in (g, h))
    compare(np.linalg.norm(p - q), np.linalg.norm(g - h), name="the distance", atol=1e-12)
