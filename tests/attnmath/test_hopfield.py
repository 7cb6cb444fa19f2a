"""Hopfield networks: the functions of PyTorch and SciPy, models that use the core, bad input, measured memories."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import logsumexp

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import check_vjp, compare
from attnmath.hopfield import (
    binary_energy,
    binary_recall,
    crosstalk,
    hebb,
    keys_holding,
    on_sphere,
    separation,
    settle,
    wrong_weight,
)
from attnmath.tree import map_tree
from tests.attnmath.refusals import check_refused

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("scale", [None, 0.4])
def test_steps_are_pytorchs_attention_again_and_again(steps, scale, rng):
    X, K, dY = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 6, 4)), rng.standard_normal((2, 3, 4))
    leaves = [torch.from_numpy(A).requires_grad_() for A in (X, K)]
    Z = leaves[0]
    for _ in range(steps):
        Z = F.scaled_dot_product_attention(Z, leaves[1], leaves[1], scale=scale)
    Y, vjp = an.hopfield(X, K, scale=scale, steps=steps)
    compare(Y, Z, atol=1e-12)
    compare(vjp(dY), torch.autograd.grad(Z, leaves, torch.from_numpy(dY)), atol=1e-12)


def test_the_energy_is_scipys(rng):
    X, K = rng.standard_normal((5, 4)), rng.standard_normal((6, 4))
    for beta in (None, 0.3, 30.0):
        b = beta or 0.5
        want = (X**2).sum(-1) / 2 - logsumexp(b * X @ K.T, axis=-1) / b
        compare(an.hopfield_energy(X, K, scale=beta)[0], want, atol=1e-12)
        compare(at.hopfield_energy(torch.from_numpy(X), torch.from_numpy(K), scale=beta), want, atol=1e-12)


@WORLDS
def test_one_step_of_the_core_is_attention_and_more_steps_are_not(world, rng):
    Q, K, V = (rng.standard_normal(s) for s in ((3, 4), (6, 4), (6, 2)))
    if world is at:
        Q, K, V = map(torch.from_numpy, (Q, K, V))
    take = (lambda r: r) if world is at else (lambda r: r[0])
    compare(take(world.hopfield_attention(Q, K, V, steps=1)), take(world.attention(Q, K, V)), atol=1e-14)
    fallen = take(world.hopfield(Q, K, steps=2))
    three = take(world.hopfield_attention(Q, K, V, steps=3))
    compare(three, take(world.attention(fallen, K, V)), atol=1e-14)
    assert abs(np.asarray(three) - np.asarray(take(world.attention(Q, K, V)))).max() > 0.01
    compare(take(world.hopfield_attention(Q, K, K, steps=3)), take(world.hopfield(Q, K, steps=3)), atol=1e-14)


@pytest.mark.parametrize("causal", [False, True])
def test_the_core_goes_into_multi_head_attention(causal, rng):
    """Both worlds, values and gradients, with no other file edited."""
    params = shapes.random_tree(shapes.attention_shapes(6, 3), rng, 0.5)
    X = rng.standard_normal((2, 5, 6))
    mask = np.tril(np.ones((5, 5), bool)) if causal else True
    core = partial(an.hopfield_attention, steps=3, scale=1.3)
    O, _ = an.multi_head_attention(X, X, X, params, 3, mask, attend=core)
    leaves = map_tree(torch.from_numpy, params)
    tX, tmask = torch.from_numpy(X), torch.from_numpy(mask) if causal else True
    twin = at.multi_head_attention(
        tX, tX, tX, leaves, 3, tmask, attend=partial(at.hopfield_attention, steps=3, scale=1.3)
    )
    compare(O, twin, atol=1e-12)
    check_vjp(lambda X: (lambda r: (r[0], lambda d: sum(r[1](d)[:3])))(
        an.multi_head_attention(X, X, X, params, 3, mask, attend=core)), X, rng=rng)  # fmt: skip
    plain, _ = an.multi_head_attention(X, X, X, params, 3, mask)
    assert abs(O - plain).max() > 1e-3
    if causal:
        changed = X.copy()
        changed[:, -1] += 1
        again, _ = an.multi_head_attention(changed, changed, changed, params, 3, mask, attend=core)
        compare(again[:, :-1], O[:, :-1], name="no word sees a later one", atol=1e-14)


@pytest.mark.slow
def test_samples_under_vmap(rng):
    X, K = torch.from_numpy(rng.standard_normal((4, 3, 5))), torch.from_numpy(rng.standard_normal((6, 5)))
    loss = lambda X: (at.hopfield(X, K, steps=3) * X.detach()).sum() + at.hopfield_energy(X, K).sum()  # noqa: E731
    compare(torch.func.vmap(torch.func.grad(loss))(X), torch.stack([torch.func.grad(loss)(x) for x in X]), atol=1e-12)


X, K = np.ones((3, 4)), np.ones((5, 4))
BAD = [
    ("hopfield", (X, np.ones((5, 3))), {}, r"K has shape \(5, 3\), expected \(\.\.\., m, k\) with k = 4"),
    ("hopfield", (X, np.ones((0, 4))), {}, r"K has shape \(0, 4\): .* at least one key is needed"),
    ("hopfield", (X, K), {"steps": 0}, r"steps is 0; it must be an integer >= 1"),
    ("hopfield", (X, K), {"steps": 2.0}, r"steps is 2\.0; it must be an integer >= 1"),
    ("hopfield", (X, K), {"scale": 0.0}, r"scale is 0\.0; it must be > 0"),
    ("hopfield", (X, K), {"scale": float("inf")}, r"scale is inf; it must be a finite number"),
    ("hopfield", (X, K, np.zeros((3, 5), bool)), {}, r"row \(0,\) may attend to no key"),
    ("hopfield", (X, K, np.ones((3, 5))), {}, r"mask has dtype .*float64; masks are boolean"),
    ("hopfield", (X.astype(np.float32), K), {}, r"K has dtype .*float64 but \w has"),
    ("hopfield_attention", (X, K, np.ones((4, 2))), {}, r"V has shape \(4, 2\), expected \(\.\.\., m, v\) with m = 5"),
    ("hopfield_attention", (X, K, K), {"steps": 0}, r"steps is 0; it must be an integer >= 1"),
    ("hopfield_attention", (X, K, K), {"scale": -1.0}, r"scale is -1\.0; it must be > 0"),
    ("hopfield_energy", (X, np.ones((5, 3))), {}, r"K has shape \(5, 3\)"),
    ("hopfield_energy", (X, np.ones((0, 4))), {}, r"at least one pattern is needed"),
    ("hopfield_energy", (X, K), {"scale": -2.0}, r"scale is -2\.0; it must be > 0"),
]


@WORLDS
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, world, as_users_call):
    check_refused(world, *BAD[row])


def test_directions_are_uniform(rng):
    D = on_sphere(rng, 20_000, 3)
    compare((D**2).sum(-1), np.ones(20_000), atol=1e-12)
    assert abs(D.mean(0)).max() < 5 / 20_000**0.5 and abs(D.T @ D / 20_000 - np.eye(3) / 3).max() < 0.01
    assert abs((np.abs(D[:, 1]) < 0.5).mean() - 0.5) < 0.02, "in three dimensions one component is uniform"


def test_separation_pair_by_pair(rng):
    K = rng.standard_normal((7, 3))
    want = [min(K[i] @ K[i] - K[i] @ K[j] for j in range(7) if j != i) for i in range(7)]
    compare(separation(K), want, atol=1e-12)


def test_wrong_weights_are_sums_of_attention_weights(rng):
    """The right weight that they leave, against the library's attention with the right pattern beside the others."""
    d, c, b, seed = 6, 0.7, 0.9, 5
    s = wrong_weight(np.random.default_rng(seed), d, c, b, most=12, cues=3)
    again = np.random.default_rng(seed)
    K, U = on_sphere(again, 12, d), on_sphere(again, 3, d)
    for i, u in enumerate(U):
        side = np.linalg.qr(np.stack([u, rng.standard_normal(d)]).T)[0][:, 1]
        right = c * u + (1 - c * c) ** 0.5 * side
        for n in (1, 5, 12):
            P, _ = an.attention_weights(u[None], np.vstack([right, K[:n]]), scale=b * d)
            compare(P[0, 0], 1 / (1 + s[i, n - 1]), atol=1e-12)
    with pytest.raises(ValueError, match=r"sharpness is 0\.0"):
        crosstalk(4, 0.5, 0.0)


def test_settle_on_every_state_of_a_small_network(rng):
    """Component by component in plain Python; a tie keeps the sign, and an unknown component becomes 1."""
    P = rng.choice([-1.0, 1.0], (2, 6))
    W = hebb(P)
    starts = np.array([[1.0 if n >> a & 1 else -1.0 for a in range(6)] for n in range(64)])
    starts[::5, 2] = 0
    ends = settle(W, starts)
    for x, end in zip(starts.copy(), ends, strict=True):
        for _ in range(20):
            for a in range(6):
                h = sum(W[a, b] * x[b] for b in range(6))
                x[a] = 1.0 if h > 1e-12 else -1.0 if h < -1e-12 else (x[a] or 1.0)
        compare(end, x)
    assert (abs(ends) == 1).all() and len(np.unique(ends, axis=0)) < 12
    assert (binary_energy(W, ends) <= binary_energy(W, np.where(starts == 0, 1, starts)) + 1e-12).mean() > 0.9
    compare(settle(np.zeros((3, 3)), np.array([[-1.0, 1.0, 0.0]])), [[-1.0, 1.0, 1.0]], name="without any input")
    with pytest.raises(ValueError, match="sweeps is 0"):
        settle(W, starts, sweeps=0)


def test_binary_recall_falls_near_the_known_capacity():
    """Amit, Gutfreund and Sompolinsky's 0.138 d: nearly all below, few well above."""
    means = [np.mean([binary_recall(np.random.default_rng(s), n, 100) for s in range(3)]) for n in (6, 14, 26)]
    assert means[0] > 0.95 and 0.5 < means[1] < 0.98 and means[2] < 0.4


def test_keys_holding_one_by_one(rng):
    P = rng.dirichlet(np.full(9, 0.4), (4, 5))
    for share in (0.5, 0.9, 1.0):
        for row, count in zip(P.reshape(-1, 9), keys_holding(P, share).ravel(), strict=True):
            heavy = sorted(row, reverse=True)
            assert sum(heavy[:count]) >= share - 1e-8 > sum(heavy[: count - 1]) - 1e-8 * (share == 1)
    assert keys_holding(np.full((1, 10), 0.1)).tolist() == [9]
    for share in (0.0, 1.1):
        with pytest.raises(ValueError, match=r"share is .*; it must lie in \(0, 1\]"):
            keys_holding(P, share)
