"""The results of the page on widths and schedules: sign steps, the two rules, noise scales and batches."""

import numpy as np
import pytest
import torch

from attnmath.batch_noise import noise_scale, progress_share
from attnmath.check import compare
from attnmath.width import factors

ROOT_TWO_OVER_PI = np.sqrt(2 / np.pi)


@pytest.mark.claim("lem-sign-step")
@pytest.mark.parametrize("n", [1, 5, 64])
def test_a_sign_step_moves_each_output_by_the_sum_of_sizes(n, rng):
    """With torch's Adam on a loss that bends, in float64."""
    x, target = rng.standard_normal(n), torch.from_numpy(rng.standard_normal(3))
    W = torch.from_numpy(rng.standard_normal((n, 3))).requires_grad_()
    adam = torch.optim.Adam([W], lr=0.01, eps=0.0)

    def outputs(v):
        return torch.from_numpy(v) @ W

    y = outputs(x)
    loss = (y - target).pow(4).sum()
    (delta,) = torch.autograd.grad(loss, y, retain_graph=True)
    other = rng.standard_normal(n)
    before = outputs(other).detach()
    loss.backward()
    adam.step()
    compare(outputs(x) - y, -0.01 * np.abs(x).sum() * np.sign(delta.numpy()), atol=1e-12)
    want = -0.01 * (other @ np.sign(x)) * np.sign(delta.numpy())
    compare(outputs(other) - before, want, atol=1e-12)


def network(n, base, rule, rng, x):
    """f = a x U V w with the rule's spreads and multiplier: its matrices, the rates, and f."""
    kinds = {kind: factors(kind, n, base, rule) for kind in ("input", "hidden", "output")}
    U = 0.7 * rng.standard_normal((len(x), n))
    V = base**-0.5 * kinds["hidden"].spread * rng.standard_normal((n, n))
    w = base**-0.5 * kinds["output"].spread * rng.standard_normal((n, 1))
    a = kinds["output"].multiplier
    return [U, V, w], [kinds[kind].rate for kind in kinds], lambda U, V, w: a * (x @ U @ V @ w).item()


def changes(n, base, rule, rng, x, rate=0.1):
    """What one sign step of each matrix alone does to f, by torch's gradients, and what the theorem says."""
    matrices, rates, f = network(n, base, rule, rng, x)
    tensors = [torch.from_numpy(M).requires_grad_() for M in matrices]
    a = factors("output", n, base, rule).multiplier
    U, V, w = tensors
    loss = ((a * torch.from_numpy(x) @ U @ V @ w) - 5.0).square().sum()
    delta = 2 * (f(*matrices) - 5.0)
    loss.backward()
    found = []
    for i, (M, T, scale) in enumerate(zip(matrices, tensors, rates, strict=True)):
        moved = list(matrices)
        moved[i] = M - rate * scale * np.sign(T.grad.numpy())
        found.append(f(*moved) - f(*matrices))
    U, V, w = matrices
    h = x @ U
    sums = [np.abs(x).sum() * np.abs(V @ w).sum(), np.abs(h).sum() * np.abs(w).sum(), np.abs(h @ V).sum()]
    want = [-np.sign(delta) * a * rate * scale * S for scale, S in zip(rates, sums, strict=True)]
    return found, want


@pytest.mark.claim("thm-width-step")
@pytest.mark.parametrize("rule", ["standard", "mup"])
@pytest.mark.parametrize("n", [3, 16, 50])
def test_the_change_of_the_output_is_a_product_of_sums(rule, n, rng):
    found, want = changes(n, 4, rule, rng, rng.standard_normal(5))
    compare(found, want, atol=1e-12)
    assert np.abs(want).min() > 1e-6


@pytest.mark.claim("thm-width-step")
def test_means_grow_with_three_powers_and_with_mup_not_at_all(rng):
    """Means over many networks against the formulas; kappa by the gamma function."""
    from math import lgamma

    x, rate, base, draws = rng.standard_normal(5), 0.1, 4, 250
    length, size = 0.7 * np.linalg.norm(x), np.abs(x).sum()

    def kappa(n):
        return np.sqrt(2 / n) * np.exp(lgamma((n + 1) / 2) - lgamma(n / 2))

    for n in (4, 12, 36):
        k = kappa(n)
        assert np.sqrt(n / (n + 1)) <= k <= 1
        means = rate * np.array([ROOT_TWO_OVER_PI * size * k, 2 / np.pi * length, ROOT_TWO_OVER_PI * length * k])
        for rule, powers in (("standard", n ** np.array([0.5, 1.5, 1.0])), ("mup", base ** np.array([0.5, 1.5, 1.0]))):
            found = np.abs([changes(n, base, rule, rng, x)[0] for _ in range(draws)]).mean(0)
            np.testing.assert_allclose(found, means * powers, rtol=0.12)


@pytest.mark.claim("prop-multiplier-symmetry")
def test_a_multiplier_moves_into_spread_and_rate(rng):
    """Under Adam with epsilon 0: many steps of (a, W, rate) and of (a / c, c W, c rate) have the same outputs."""
    X, Y = torch.from_numpy(rng.standard_normal((20, 6))), torch.from_numpy(rng.standard_normal((20, 3)))
    first, c = torch.from_numpy(rng.standard_normal((6, 3))), 8.0

    def train(a, W, rate, kind):
        W = W.clone().requires_grad_()
        steps, found = kind([W], lr=rate), []
        for _ in range(30):
            Z = a * torch.tanh(X) @ W
            steps.zero_grad()
            (Z - Y).square().mean().backward()
            steps.step()
            found.append(Z.detach())
        return torch.stack(found)

    def adam(params, lr):
        return torch.optim.Adam(params, lr=lr, eps=0.0)

    compare(train(2 / c, c * first, 0.05 * c, adam), train(2.0, first, 0.05, adam), atol=1e-9)
    plain = train(2 / c, c * first, 0.05 * c, torch.optim.SGD), train(2.0, first, 0.05, torch.optim.SGD)
    assert (plain[0] - plain[1]).abs().max() > 1e-2, "not so for gradient descent"


@pytest.mark.claim("prop-noise-unbiased", "eq:noise-signal", "eq:noise-trace")
@pytest.mark.parametrize(("b", "B"), [(1, 2), (1, 3), (2, 3)])
def test_the_estimates_are_unbiased_over_all_batches(b, B, rng):
    """All batches of a small population, drawn with replacement, weigh alike; the big one holds the small one."""
    from itertools import product

    rows = rng.standard_normal((5, 4)) + 1.0
    G, trace = rows.mean(0), rows.var(0).sum()
    found = []
    for chosen in product(range(5), repeat=B):
        small, big = rows[list(chosen[:b])].mean(0), rows[list(chosen)].mean(0)
        found.append(noise_scale(b, B, small @ small, big @ big)[:2])
    compare(np.mean(found, 0), [G @ G, trace], atol=1e-12)


def quadratic(rng, d=6):
    A = rng.standard_normal((d, d))
    H, G = A @ A.T + np.eye(d), rng.standard_normal(d)
    return H, G, rng.standard_normal((9, d)) * np.arange(1, d + 1)  # rows: what one example's gradient adds


@pytest.mark.claim("thm-batch-progress", "eq:batch-progress")
@pytest.mark.parametrize("B", [1, 2, 3])
def test_the_best_mean_progress_of_a_step_is_the_share_of_the_law(B, rng):
    """The mean over all batches of a population, best over step lengths, by brute force."""
    from itertools import product

    H, G, noise = quadratic(rng)
    noise -= noise.mean(0)
    batches = np.array([G + noise[list(chosen)].mean(0) for chosen in product(range(9), repeat=B)])

    def progress(length, g):
        return (length * g @ G - 0.5 * length**2 * np.einsum("...i,ij,...j->...", g, H, g)).mean()

    noise_of_step = np.einsum("ij,jk,ik->", noise, H, noise) / 9 / (G @ H @ G)
    best = G @ G / (G @ H @ G)
    lengths = np.linspace(0, best, 20_001)
    one, two = progress(1.0, batches), progress(2.0, batches)
    bent = (2 * one - two) / 2  # progress(e) = e * slope - e^2 * bent, from two of its values
    values = lengths * (one + bent) - lengths**2 * bent
    share = progress_share(B, noise_of_step)
    compare(values.max(), share * progress(best, G), atol=1e-6)
    compare(lengths[values.argmax()], best * share, atol=2 * lengths[1])
    assert 0.01 < share < 0.95


@pytest.mark.claim("thm-batch-progress")
def test_with_equal_curvatures_the_scale_is_the_simple_one(rng):
    _, G, noise = quadratic(rng)
    noise -= noise.mean(0)
    H = 3.0 * np.eye(len(G))
    general = np.einsum("ij,jk,ik->", noise, H, noise) / 9 / (G @ H @ G)
    compare(general, (noise**2).sum() / 9 / (G @ G), atol=1e-12)


@pytest.mark.claim("prop-steps-examples")
def test_steps_and_examples_lie_on_a_hyperbola():
    """Counted: steps of a loss that falls by the share of the law each time, until a given fall."""
    scale, fall, best = 40.0, 1.0, 1e-5
    found = []
    for B in (4, 40, 400):
        S = round(fall / (best * progress_share(B, scale)))
        found.append((S, S * B))
    least_S, least_E = fall / best, fall / best * scale
    for S, E in found:
        compare((S / least_S - 1) * (E / least_E - 1), 1.0, atol=1e-3)
    compare([found[1][0] / least_S, found[1][1] / least_E], [2.0, 2.0], atol=1e-3)
