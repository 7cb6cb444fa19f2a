"""The page on words as particles: clusters, rates, energies, leaders, and what Euler's method loses."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.optimize import root

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import particles as pa
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)


few = settings(max_examples=6, deadline=None)


def flow(X, B=None, V=None, mask=True, beta=1.0):
    """The twin's: a path takes thousands of velocities, and a vjp that nobody calls would be checked with each."""
    X, B, V, mask = (torch.from_numpy(A) if isinstance(A, np.ndarray) else A for A in (X, B, V, mask))
    return at.sphere_attention_flow(X, B, V, mask, beta=beta).numpy()


def cap(rng, n, d, least):
    """Tokens whose inner products with a direction u are at least ``least``, one of them exactly; and u."""
    u, side = np.eye(d)[0], pa.on_sphere(rng, n, d)
    side[:, 0] = 0
    height = rng.uniform(least, 1, (n, 1))
    height[rng.integers(n)] = least
    return height * u + (1 - height**2) ** 0.5 * pa.unit(side), u


def diameter(X):
    return np.linalg.norm(X[..., :, None, :] - X[..., None, :, :], axis=-1).max((-1, -2))


@pytest.mark.slow
@pytest.mark.claim("thm-one-cluster", "pf:central-projection", "eq:sphere-flow")
@few
@given(seeds, st.integers(2, 7), st.integers(2, 5), st.sampled_from([0.05, 0.3, 0.9]), st.floats(0, 3))
def test_the_cone_of_the_tokens_shrinks(seed, n, d, least, beta):
    """With any matrix of scores: the least inner product, the ranges in every direction, and the bound."""
    rng = np.random.default_rng(seed)
    X, u = cap(rng, n, d, least)
    B = rng.standard_normal((d, d))
    times, path = pa.integrate(partial(flow, B=B, beta=beta), X, 0.2, 20)
    height = path @ u
    assert (np.diff(height.min(-1)) >= -1e-9).all() and height.min(-1)[-1] > least
    shadow = (path / height[..., None])[..., 1:] @ rng.standard_normal((d - 1, 40))
    assert (np.diff(shadow.max(1), axis=0) <= 1e-8).all() and (np.diff(shadow.min(1), axis=0) >= -1e-8).all()
    omega = np.exp(-2 * beta * np.linalg.norm(B, 2))
    bound = 2 * (1 - least**2) ** 0.5 / least * np.exp(-omega * least * times)
    assert (diameter(path) <= bound * (1 + 1e-9)).all()
    assert (np.linalg.norm(path - path[-1].mean(0), axis=-1).max(-1) <= bound + diameter(path)[-1]).all()


@pytest.mark.claim("thm-one-cluster")
def test_the_rate_of_the_theorem_is_nearly_attained():
    """Even weights, two tokens near the centre and opposite to each other beside it."""
    least = 0.99
    side = (1 - least**2) ** 0.5
    times, path = pa.integrate(partial(flow, beta=0.0), np.array([[least, side], [least, -side]]), 0.25, 40)
    bound = 2 * side / least * np.exp(-least * times)
    assert (diameter(path) <= bound).all()
    assert diameter(path)[-1] > bound[-1] * 0.9, "no larger rate than this one, but for the hundredth"
    assert diameter(path)[-1] > 2 * side / least * np.exp(-1.02 * times[-1])


@pytest.mark.claim("thm-one-cluster")
@pytest.mark.parametrize(("n", "d", "beta"), [(2, 2, 0.0), (3, 5, 2.0), (9, 3, 4.0)])
def test_late_distances_fall_at_rate_one(n, d, beta, rng):
    X, _ = cap(rng, n, d, 0.8)
    times, path = pa.integrate(partial(flow, beta=beta), X, 0.4, 40)
    late = np.log(diameter(path[-2]) / diameter(path[-1])) / (times[-1] - times[-2])
    compare(late, 1.0, name="rate", atol=0.01)


@pytest.mark.claim("thm-one-cluster")
def test_a_closed_half_is_not_enough():
    """Opposite tokens stay where they are: the hypothesis says open."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0]])
    compare(flow(X, beta=3.0), 0 * X, name="velocity", atol=1e-15)


@pytest.mark.claim("prop-norm-is-step", "eq:euler-step")
@few
@given(seeds, st.floats(0.01, 0.5), st.floats(0, 5))
def test_a_post_norm_layer_is_a_step(seed, h, beta):
    X = pa.on_sphere(np.random.default_rng(seed), 6, 3)
    O, _ = an.attention(beta * X, X, X, scale=1.0)
    layer, F = pa.unit(X + h * O), an.sphere_attention_flow(X, beta=beta)[0]
    own = h / (1 + h * (X * O).sum(-1, keepdims=True))
    compare(layer, pa.unit(X + own * F), name="a step of its own length", atol=1e-13)
    assert (np.linalg.norm(layer - X - h * F, axis=-1) <= 3 * h**2).all()
    assert (np.linalg.norm(pa.euler(partial(flow, beta=beta), X, h) - X - h * F, axis=-1) <= h**2 / 2).all()


@pytest.mark.claim("prop-norm-is-step")
def test_the_constants_of_a_layer_are_what_the_page_says():
    """Over all s and |F|: 0.725 for the layer; and half for Euler's step, which two groups of tokens attain."""
    h = np.linspace(0.01, 0.5, 50)[:, None, None]
    s, f = np.meshgrid(np.linspace(-1, 1, 201), np.linspace(0, 1, 101))
    g = h / (1 + h * s)
    layer = np.stack([np.ones_like(g * f), g * f]) / np.sqrt(1 + (g * f) ** 2)
    apart = np.hypot(layer[0] - 1, layer[1] - h * f) / h**2 * (s**2 + f**2 <= 1)
    assert 0.72 < apart.max() < 0.725 < 3
    X = np.concatenate([[[1.0, 0.0]], np.tile([0.0, 1.0], (500, 1))])
    F = flow(X, beta=0.0)
    apart = np.linalg.norm(pa.unit(X + 0.1 * F) - X - 0.1 * F, axis=-1).max()
    assert 0.49 * 0.1**2 < apart <= 0.5 * 0.1**2


def exactly(f, X, end):
    solved = solve_ivp(
        lambda t, x: f(x.reshape(X.shape)).ravel(), (0, end), X.ravel(), "DOP853", rtol=1e-11, atol=1e-12
    )
    return solved.y[:, -1].reshape(X.shape)


def layer_step(f, X, h, beta):
    X = torch.from_numpy(X)
    return pa.unit((X + h * at.attention(beta * X, X, X, scale=1.0)).numpy())


@pytest.mark.claim("prop-euler-error", "prop-norm-is-step")
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_the_error_of_eulers_method_is_of_first_order(beta, rng):
    """Twice the layers, half the error; and the bound, with the constants of the proposition."""
    f, X, end, slope = partial(flow, beta=beta), pa.on_sphere(rng, 7, 3), 1.0, 3 + 2 * beta
    reference = exactly(f, X, end)
    for method, C in ((pa.euler, 0.5), (partial(layer_step, beta=beta), 3.0)):
        ends = [pa.integrate(f, X, end / L, L, method=method)[1][-1] for L in (16, 64, 128)]
        errors = [np.linalg.norm(Y - reference, axis=-1).max() for Y in ends]
        for L, error in zip((16, 64, 128), errors, strict=True):
            assert error <= (C + slope / 2) / slope * (np.exp(slope * end) - 1) * end / L
        assert 1.85 < errors[1] / errors[2] < 2.2 and errors[2] > 1e-5
    fine = [abs(pa.integrate(f, X, end / L, L)[1][-1] - reference).max() for L in (4, 8)]
    assert 11 < fine[0] / fine[1] < 24, "of fourth order"


@pytest.mark.claim("prop-euler-error")
@few
@given(seeds, st.floats(0, 6))
def test_the_velocity_is_lipschitz_in_the_ball(seed, beta):
    """The largest change of any token's velocity for a change of length 1 of every token."""
    rng = np.random.default_rng(seed)
    X = pa.on_sphere(rng, 6, 2) * rng.uniform(0.3, 1, (6, 1)) ** 0.2
    most = 0
    for _ in range(30):
        D = pa.on_sphere(rng, 6, 2)
        change = (flow(X + 1e-6 * D, beta=beta) - flow(X - 1e-6 * D, beta=beta)) / 2e-6
        most = max(most, np.linalg.norm(change, axis=-1).max())
    assert 0.3 < most <= 3 + 2 * beta


@pytest.mark.claim("prop-euler-error")
@pytest.mark.parametrize("beta", [0.0, 3.0, 6.0])
def test_the_lipschitz_constant_is_nearly_needed(beta):
    """The slope of one token's velocity: 2.31 among equal tokens, and nearly 2 beta between two crowds."""
    n, e = 200_000, 1e-6

    def slope(x, keys, dx, dkeys):
        def velocity(sign):
            y, K = x + sign * e * dx, keys + sign * e * dkeys
            score = beta * K @ y
            w = np.exp(score - score.max())
            O = w @ K / w.sum()
            return O - (y @ O) * y

        return np.linalg.norm(velocity(1) - velocity(-1)) / (2 * e)

    up, side = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    equal = slope(up, np.tile(up, (n, 1)), np.array([-1, -(8**0.5)]) / 3, np.tile(side, (n, 1)))
    sign = np.resize([1.0, -1.0], n)[:, None]
    crowds = slope(up, np.concatenate([sign * side, [up]]), side, np.concatenate([sign * up, [side]]))
    assert 0.998 * (16 / 3) ** 0.5 < equal <= 3 + 2 * beta
    assert 0.99 * 2 * beta <= crowds <= 3 + 2 * beta


@pytest.mark.claim("lem-equal-angles", "eq:equal-angles")
@few
@given(seeds, st.integers(2, 6), st.floats(0, 4), st.floats(0, 0.8))
def test_equal_angles_stay_equal(seed, n, beta, share):
    cosine = -1 / (n - 1) + share * n / (n - 1) + 0.01
    C = np.full((n, n), cosine) + (1 - cosine) * np.eye(n)
    turned, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    X = np.linalg.cholesky(C) @ turned
    F = flow(X, beta=beta)
    speed = F @ X.T + X @ F.T
    off = ~np.eye(n, dtype=bool)
    compare(speed[off], np.full(n * n - n, pa.equal_angles(cosine, n, beta)), name="speed", atol=1e-11)
    twice = np.repeat(X, 3, axis=0)
    compare(flow(twice, beta=beta)[::3], F, name="clusters of three move as one token", atol=1e-12)


@pytest.mark.claim("lem-equal-angles")
@pytest.mark.parametrize(("n", "beta"), [(2, 3.0), (5, 2.0)])
def test_the_time_of_equal_angles(n, beta):
    time = pa.equal_angle_time(n, beta)
    seen = pa.time_to_one(partial(flow, beta=beta), np.eye(n)[None], step=0.05)
    assert 0 <= seen[0] - time <= 0.06
    assert pa.equal_angle_time(2, 12.0) / pa.equal_angle_time(2, 11.0) == pytest.approx(np.e, rel=0.12)


@pytest.mark.claim("lem-equal-angles")
def test_the_rule_for_the_wait_of_two_clusters():
    """The exponential divided by 2 beta sin^2; and two places 40 degrees apart, simulated."""
    for degrees, beta in ((40, 64.0), (60, 40.0), (90, 30.0)):
        cosine = np.cos(np.radians(degrees))
        rule = np.exp(beta * (1 - cosine)) / (2 * beta * (1 - cosine**2))
        assert 1 < pa.equal_angle_time(2, beta, start=cosine) / rule < 1.1
    angle, beta, layers = np.radians(40), 24.0, 0
    X = on_circle(np.array([0, angle]))
    while X[0] @ X[1] < 0.99:
        X, layers = pa.euler(partial(flow, beta=beta), X, 1.0), layers + 1
    assert abs(layers - pa.equal_angle_time(2, beta, start=np.cos(angle))) < 3 < 10 < layers


@pytest.mark.claim("prop-attention-energy", "eq:particle-energy")
@few
@given(seeds, st.floats(0.2, 3))
def test_self_attention_climbs_an_energy(seed, beta):
    """With values equal to the symmetric scores; in the metric of the softmax's sums, token by token."""
    rng = np.random.default_rng(seed)
    X, B = pa.on_sphere(rng, 6, 3), rng.standard_normal((3, 3))
    B = B + B.T

    def energy(X):
        return np.exp(beta * X @ B @ X.T).sum() / (2 * beta)

    F, Z = flow(X, B, B, beta=beta), np.exp(beta * X @ B @ X.T).sum(-1, keepdims=True)
    D = rng.standard_normal(X.shape)
    D = D - (D * X).sum(-1, keepdims=True) * X
    slope = (energy(pa.unit(X + 1e-5 * D)) - energy(pa.unit(X - 1e-5 * D))) / 2e-5
    compare((Z * F * D).sum(), slope, name="the differential of the energy", atol=1e-7, rtol=1e-6)
    compare(pa.energy(X, beta), energy_of_identity(X, beta), name="energy", atol=1e-12)
    for V, sign in ((np.eye(3), 1), (-np.eye(3), -1)):
        path = pa.integrate(partial(flow, V=V, beta=beta), X, 0.1, 10)[1]
        assert (sign * np.diff(pa.energy(path, beta)) > 0).all()


def energy_of_identity(X, beta):
    return sum(np.exp(beta * x @ y) for x in X for y in X) / (2 * beta)


def on_circle(angles):
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def turning(angles, B):
    """The velocities of tokens on a circle as numbers."""
    return (flow(on_circle(angles), B) * on_circle(angles + np.pi / 2)).sum(-1)


def derivative(f, x, h=1e-5):
    return np.stack([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))], 1)


@pytest.mark.claim("prop-no-energy")
def test_a_spiral_refutes_every_energy():
    """At a point of rest the derivative of a gradient flow has real eigenvalues; here it has not."""
    B, start = np.diag([-2.0, -6.0]), [2.23810046, 5.38102888, 3.63056145, 6.26535129]
    rest = root(turning, start, args=(B,), method="lm", options={"xtol": 1e-15}).x
    assert abs(turning(rest, B)).max() < 1e-13 and abs(rest - start).max() < 1e-6
    values = np.linalg.eigvals(derivative(lambda a: turning(a, B), rest))
    compare(np.sort(abs(values.imag))[2:], [0.2268, 0.2268], name="imaginary parts", atol=1e-4)
    compare(values.real[values.imag > 0.1], [-1.6224], name="real part", atol=1e-4)
    J = derivative(lambda a: turning(a, B), rest)
    size = 1.001 * abs(np.linalg.inv(J[:3, :3])).sum(1).max()
    eta = size * (abs(turning(rest, B)).max() + 1e-13)
    assert size < 220 and size * 1100 * eta < 1e-5, "Newton and Kantorovich: there is a point of rest"
    assert 4e-6 * np.linalg.cond(np.linalg.eig(J)[1]) < 1e-3, "Bauer and Fike: its eigenvalues are as far from real"
    same = derivative(lambda a: (flow(on_circle(a), B, B) * on_circle(a + np.pi / 2)).sum(-1), np.arange(4) * np.pi / 2)
    assert abs(np.linalg.eigvals(same).imag).max() < 1e-8, "with V = B, where there is an energy, a cross rests"


@pytest.mark.claim("prop-no-energy")
def test_the_second_derivatives_are_within_the_bound_of_the_proof(rng):
    """Second differences along directions of largest entry 1, at random angles."""
    B, h = np.diag([-2.0, -6.0]), 1e-4
    A, D = rng.uniform(0, 7, (400, 4)), rng.choice([-1.0, 1.0], (400, 4))
    pairs = zip(A, D, strict=True)
    bend = [abs(turning(a + h * d, B) - 2 * turning(a, B) + turning(a - h * d, B)).max() / h**2 for a, d in pairs]
    assert 10 < max(bend) < 1100


@pytest.mark.claim("prop-no-energy")
@few
@given(seeds)
def test_two_tokens_climb_their_inner_product(seed):
    rng = np.random.default_rng(seed)
    X, B = pa.on_sphere(rng, 2, 4), rng.standard_normal((4, 4))
    F = flow(X, B)
    P, _ = an.attention_weights(X @ B, X, scale=1.0)
    slope = X[::-1] - (X[0] @ X[1]) * X
    compare(F / np.array([[P[0, 1]], [P[1, 0]]]), slope, name="the gradient of the inner product", atol=1e-12)


@pytest.mark.slow
@pytest.mark.claim("prop-causal-leader")
@few
@given(seeds, st.integers(2, 6), st.integers(2, 4), st.sampled_from([0.1, 0.6]), st.floats(0, 2))
def test_all_follow_the_first_token(seed, n, d, least, beta):
    rng = np.random.default_rng(seed)
    X, _ = cap(rng, n, d, least)
    B, mask = rng.standard_normal((d, d)), np.tril(np.ones((n, n), bool))
    times, path = pa.integrate(partial(flow, B=B, mask=mask, beta=beta), X, 0.4, 20)
    compare(path[-1, 0], X[0], name="the first token", atol=1e-12)
    omega = np.exp(-2 * beta * np.linalg.norm(B, 2))
    bound = 2 * (1 - least**2) ** 0.5 / least * np.exp(-omega * least * times / n)
    assert (np.linalg.norm(path - X[0], axis=-1).max(-1) <= bound * (1 + 1e-9)).all()


@pytest.mark.claim("prop-causal-leader")
def test_the_first_bound_is_nearly_attained_by_two_tokens():
    least = 0.99
    side = (1 - least**2) ** 0.5
    X, mask = np.array([[least, side], [least, -side]]), np.tril(np.ones((2, 2), bool))
    times, path = pa.integrate(partial(flow, mask=mask, beta=0.0), X, 0.25, 40)
    bound = 2 * side / least * np.exp(-least * times / 2)
    apart = np.linalg.norm(path[:, 1] - X[0], axis=-1)
    assert (apart <= bound * (1 + 1e-9)).all() and apart[-1] > 0.95 * bound[-1]


@pytest.mark.claim("prop-causal-leader")
@pytest.mark.parametrize(("n", "d", "beta"), [(2, 2, 1.0), (4, 3, 0.5), (9, 3, 2.0)])
def test_late_followers_come_nearer_at_the_rate_of_one_half(n, d, beta, rng):
    """And no faster, whatever n is; from the second at the first the rate is that of the third, two thirds."""
    X, _ = cap(rng, n, d, 0.8)
    mask = np.tril(np.ones((n, n), bool))
    for start, rate in ((X, 1 / 2), (np.concatenate([X[:1], X[:1], X[2:]]), 2 / 3)):
        if n == 2 and rate > 0.5:
            continue
        times, path = pa.integrate(partial(flow, mask=mask, beta=beta), start, 0.4, 80)
        apart = np.linalg.norm(path - X[0], axis=-1).max(-1)
        late = np.log(apart[-10] / apart[-1]) / (times[-1] - times[-10])
        compare(late, rate, name="rate", atol=0.03)


@pytest.mark.claim("prop-causal-leader")
def test_the_leader_is_the_first_and_no_other(rng):
    X, _ = cap(rng, 5, 3, 0.4)
    mask = np.tril(np.ones((5, 5), bool))
    end = pa.integrate(partial(flow, mask=mask, beta=1.0), X, 0.8, 60)[1][-1]
    assert abs(end - X[0]).max() < 1e-6 < 0.1 < np.linalg.norm(X[1:] - X[0], axis=-1).min()


@pytest.mark.slow
@pytest.mark.claim("prop-repulsion")
@pytest.mark.parametrize(("n", "d"), [(2, 2), (3, 2), (4, 3), (5, 4)])
def test_repelled_tokens_reach_the_simplex(n, d, rng):
    beta = 0.5
    X = pa.on_sphere(rng, 4, n, d)
    floor = (n * np.exp(beta) + n * (n - 1) * np.exp(-beta / (n - 1))) / (2 * beta)
    assert (pa.energy(X, beta) > floor + 1e-6).all()
    end = pa.integrate(partial(flow, V=-np.eye(d), beta=beta), X, 0.8, 100)[1][-1]
    off = (end @ end.swapaxes(-1, -2))[:, ~np.eye(n, dtype=bool)]
    compare(off, np.full(off.shape, -1 / (n - 1)), name="inner products", atol=1e-5)
    compare(pa.energy(end, beta), np.full(4, floor), name="energy", atol=1e-9)


@pytest.mark.slow
@pytest.mark.claim("prop-repulsion")
def test_no_simplex_fits_into_the_plane(rng):
    beta, n = 2.0, 6
    floor = (n * np.exp(beta) + n * (n - 1) * np.exp(-beta / (n - 1))) / (2 * beta)
    end = pa.integrate(partial(flow, V=-np.eye(2), beta=beta), pa.on_sphere(rng, 4, n, 2), 1.0, 160)[1][-1]
    assert (pa.energy(end, beta) > floor + 0.01).all()
    angles = np.sort(np.arctan2(end[..., 1], end[..., 0]))
    gaps = np.diff(angles, axis=-1)
    compare(gaps, np.full(gaps.shape, np.pi / 3), name="gaps", atol=1e-4)


@pytest.mark.claim("lem-equal-angles")
def test_warmer_attention_is_faster():
    """The smaller the inverse temperature, the sooner there is one cluster."""
    times = [pa.equal_angle_time(16, beta) for beta in (0.0, 1.0, 2.0, 4.0, 8.0)]
    assert all(a < b for a, b in pairwise(times)) and times[-1] > 20 * times[0]
