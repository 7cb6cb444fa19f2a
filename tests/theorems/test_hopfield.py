"""The page on energy and memory: what a step lowers and by how much, where it leads, what is recalled, how many fit."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import hyp0f1, rel_entr
from scipy.special import logsumexp as scipy_logsumexp
from scipy.special import softmax as scipy_softmax
from scipy.stats import binom

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.hopfield import binary_energy, crosstalk, hebb, on_sphere, separation, settle, wrong_weight

SCALES = pytest.mark.parametrize("beta", [0.05, 0.5, 2.0, 20.0])


def draw(rng, m=9, k=5, n=40, spread=1.0):
    """Patterns of unequal lengths, and states near and far."""
    return rng.standard_normal((n, k)) * rng.uniform(0.1, 3, (n, 1)), spread * rng.standard_normal((m, k))


def fall(X, K, beta, steps=1):
    """Many steps, by SciPy's softmax: the library's own calls are checked for their shapes here, which takes time."""
    for _ in range(steps):
        X = scipy_softmax(beta * X @ K.T, -1) @ K
    return X


def test_the_short_form_is_the_library(rng):
    X, K = draw(rng)
    compare(fall(X, K, 0.7, 3), an.hopfield(X, K, scale=0.7, steps=3)[0], atol=1e-12)


def joint(x, p, K, beta):
    """The energy of a state and weights, each given."""
    return x @ x / 2 - p @ (K @ x) - scipy_softmax_entropy(p) / beta


def scipy_softmax_entropy(p):
    return -rel_entr(p, 1).sum()


@pytest.mark.claim("thm-hopfield-descent", "pf:hopfield-joint", "eq:hopfield-energy", "eq:hopfield")
@SCALES
def test_a_step_minimises_over_the_weights_and_then_over_the_state(beta, rng):
    X, K = draw(rng)
    X = X[:5]
    E, _ = an.hopfield_energy(X, K, scale=beta)
    Y, _ = an.hopfield(X, K, scale=beta)
    for x, y, e in zip(X, Y, E, strict=True):
        p = scipy_softmax(beta * K @ x)
        compare(joint(x, p, K, beta), e, name="the energy is the least over weights", atol=1e-10, rtol=1e-10)
        for other in rng.dirichlet(np.full(9, 0.5), 50):
            assert joint(x, other, K, beta) >= e - 1e-10
        least = minimize(lambda z: joint(z, p, K, beta), np.zeros(5), jac=lambda z: z - p @ K)
        compare(y, least.x, name="the update is the least over states", atol=1e-5)


@pytest.mark.claim("thm-hopfield-descent", "pf:hopfield-fall")
@SCALES
def test_the_energy_falls_by_exactly_so_much(beta, rng):
    """Half the square of the step plus the divergence of the weights; against SciPy's functions."""
    X, K = draw(rng)
    for _ in range(4):
        Y, _ = an.hopfield(X, K, scale=beta)
        before, after = (np.square(Z).sum(-1) / 2 - scipy_logsumexp(beta * Z @ K.T, -1) / beta for Z in (X, Y))
        p, q = (scipy_softmax(beta * Z @ K.T, -1) for Z in (X, Y))
        step = ((X - Y) ** 2).sum(-1) / 2
        compare(before - after, step + rel_entr(p, q).sum(-1) / beta, name="fall", atol=1e-10, rtol=1e-9)
        E = [an.hopfield_energy(Z, K, scale=beta)[0] for Z in (X, Y)]
        assert (E[0] - E[1] >= step - 1e-10).all() and step.max() > 1e-9
        X = Y


@pytest.mark.claim("thm-hopfield-descent", "eq:hopfield-energy-vjp")
@SCALES
def test_the_gradient_is_the_state_minus_its_update(beta, rng):
    """So a step is one of gradient descent with the rate 1; half the rate is sure of three quarters of the fall."""
    X, K = draw(rng)
    E, vjp = an.hopfield_energy(X, K, scale=beta)
    Y, _ = an.hopfield(X, K, scale=beta)
    compare(vjp(np.ones(len(X)))[0], X - Y, atol=1e-11)
    bound = np.square(X - Y).sum(-1) / 2
    short, _ = an.hopfield_energy(X + 0.5 * (Y - X), K, scale=beta)
    assert (E - short >= 0.75 * bound - 1e-10).all()


@pytest.mark.claim("prop-hopfield-limits")
@SCALES
def test_steps_get_small_and_the_limit_is_stationary(beta, rng):
    X, K = draw(rng)
    E = [an.hopfield_energy(X, K, scale=beta)[0]]
    least = -np.square(K).sum(-1).max() / 2 - np.log(len(K)) / beta
    start, smallest = E[0], np.inf
    for t in range(1, 400):
        Y = fall(X, K, beta)
        smallest = np.minimum(smallest, np.square(X - Y).sum(-1))
        assert (smallest <= 2 * (start - least) / t + 1e-12).all()
        X = Y
        if t < 10 or t % 30 == 0:
            E.append(an.hopfield_energy(X, K, scale=beta)[0])
    E = np.array(E)
    assert (np.diff(E, axis=0) <= 1e-11).all() and (E >= least - 1e-11).all()
    Y = fall(X, K, beta)
    assert np.abs(X - Y).max() < 2e-3
    for x in X[::16]:  # SciPy goes downhill from there, and stays
        found = minimize(
            lambda z: an.hopfield_energy(z[None], K, scale=beta)[0][0],
            x,
            jac=lambda z: an.hopfield_energy(z[None], K, scale=beta)[1](np.ones(1))[0][0],
        )
        assert abs(found.fun - an.hopfield_energy(x[None], K, scale=beta)[0][0]) < 1e-4


@pytest.mark.claim("prop-hopfield-limits")
def test_at_the_border_the_way_is_infinitely_long_in_steps_and_short_in_length():
    """Two patterns a and -a with beta |a|^2 = 1: t becomes tanh t, about the root of 3 / (2 n) after n steps."""
    a = np.array([[0.6, 0.8]])
    K, X, way = np.concatenate([a, -a]), 2 * a, 0.0
    for n in range(1, 2001):
        Y = fall(X, K, 1.0)
        way += np.linalg.norm(X - Y)
        X = Y
        if n in (500, 2000):
            compare(np.linalg.norm(X), (1.5 / n) ** 0.5, rtol=0.01)
    assert way < 2
    sharp, flat = fall(2 * a, K, 1.3, 300), fall(2 * a, K, 0.8, 300)
    assert np.linalg.norm(sharp) > 0.5 and np.linalg.norm(flat) < 1e-12


@pytest.mark.claim("lem-hopfield-jacobian", "pf:hopfield-jacobian")
@SCALES
def test_the_jacobian_is_the_covariance_of_the_patterns(beta, rng):
    X, K = draw(rng, n=1)
    _, vjp = an.hopfield(X, K, scale=beta)
    J = np.stack([vjp(row[None])[0][0] for row in np.eye(5)])
    p = scipy_softmax(beta * K @ X[0])
    C = np.cov(K.T, aweights=p, ddof=0)
    compare(J, beta * C, name="Jacobian", atol=1e-11)
    widest = max(np.linalg.norm(a - b) for a in K for b in K)
    assert 0 <= np.linalg.eigvalsh(J).max() <= beta * widest**2 / 4 + 1e-12


def reach(x, K, i, beta):
    """The bound of the theorem, from the patterns and the distance of the cue alone."""
    D = np.linalg.norm(K - K[i], axis=-1).max()
    s = (len(K) - 1) * np.exp(-beta * (separation(K)[i] - D * np.linalg.norm(x - K[i])))
    return D * s / (1 + s)


@pytest.mark.claim("thm-hopfield-retrieval", "eq:hopfield-separation", "pf:hopfield-retrieval")
@SCALES
def test_one_step_brings_a_cue_near_its_pattern(beta, rng):
    useful = 0
    for k in (2, 5, 20):
        K = 2 * on_sphere(rng, 6, k) * rng.uniform(0.9, 1.1, (6, 1))
        for i in range(6):
            for r in (0.0, 0.05, 0.3, 0.8):
                x = K[i] + r * on_sphere(rng, 1, k)[0]
                error = np.linalg.norm(fall(x, K, beta) - K[i])
                bound = reach(x, K, i, beta)
                assert error <= bound + 1e-12
                useful += bound < 0.1
    assert useful > 20 or beta < 5


@pytest.mark.claim("thm-hopfield-retrieval")
@SCALES
def test_with_two_patterns_the_bound_is_reached(beta, rng):
    """The cue lies on the line between them: nothing in the bound can be improved."""
    for _ in range(5):
        K = rng.standard_normal((2, 4))
        K *= (separation(K)[0] > 0) * 2 - 1 if separation(K)[0] else 1
        for r in (0.0, 0.2, 0.6):
            x = K[0] + r * (K[1] - K[0]) / np.linalg.norm(K[1] - K[0])
            error = np.linalg.norm(an.hopfield(x[None], K, scale=beta)[0][0] - K[0])
            compare(error, reach(x, K, 0, beta), atol=1e-12, rtol=1e-9)


def nearest_in_hull(x, group):
    """The distance to a segment or a point."""
    if len(group) == 1:
        return np.linalg.norm(x - group[0])
    a, b = group
    t = np.clip((x - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
    return np.linalg.norm(x - a - t * (b - a))


def group_numbers(K, G, beta):
    """D_G, D, Delta_G, and the least rho with eps D <= rho by iteration from 0; None if there is none."""
    rest = [j for j in range(len(K)) if j not in G]
    D = max(np.linalg.norm(a - b) for a in K for b in K)
    D_G = max(np.linalg.norm(K[i] - K[j]) for i in G for j in G)
    gap = min((K[i] @ (K[j] - K[m]) for i in G for j in G for m in rest), default=np.inf)
    rho = 0.0
    for _ in range(200):
        s = len(rest) / len(G) * np.exp(-beta * (gap - rho * D))
        rho = D * s / (1 + s)
    eps = s / (1 + s)
    return rho, beta * (D_G**2 / 4 + eps * D**2)


@pytest.mark.claim("thm-hopfield-groups", "pf:hopfield-groups")
@pytest.mark.parametrize(("G", "beta"), [([0], 3.0), ([0], 8.0), ([1, 2], 2.0), ([1, 2], 5.0), ([0, 1, 2, 3], 0.05)])
def test_a_group_answers_with_one_fixed_point(G, beta, rng):
    """A pattern, a near pair, and all of them: from every start nearby to the same point, at the promised rate."""
    K = 2 * np.array([[1.0, 0, 0], [0, 0.98, 0.2], [0, 0.98, -0.2], [-0.6, -0.8, 0]])
    rho, rate = group_numbers(K, G, beta)
    assert rate < 1 and rho < 1
    starts = rng.dirichlet(np.ones(len(G)), 30) @ K[G] + rho * on_sphere(rng, 30, 3)
    limit = fall(starts, K, beta, 600)
    compare(limit, np.broadcast_to(limit[0], limit.shape), name="one limit", atol=1e-9)
    compare(an.hopfield(limit, K, scale=beta)[0], limit, name="fixed", atol=1e-9)
    if len(G) < 3:
        assert nearest_in_hull(limit[0], K[G]) <= rho + 1e-12
    Y, _ = an.hopfield(starts, K, scale=beta)
    before, after = (np.linalg.norm(Z - limit[0], axis=-1) for Z in (starts, Y))
    assert (after <= rate * before + 1e-12).all()
    if len(G) == 2:
        compare(limit[0], K[G].mean(0), name="near the mean of the pair", atol=0.05, rtol=0.0)


@pytest.mark.claim("thm-hopfield-groups")
def test_beyond_the_border_a_pair_falls_apart():
    """beta D^2 / 4 = 1 is where two patterns cease to have one fixed point: the constant cannot be better."""
    K = np.array([[1.0, 0.3], [1.0, -0.3]])
    for factor, one in ((0.95, True), (1.1, False)):
        ends = fall(K, K, factor * 4 / 0.36, 3000)
        assert (np.linalg.norm(ends[0] - ends[1]) < 1e-6) == one


@pytest.mark.claim("thm-hopfield-capacity", "eq:hopfield-crosstalk")
@pytest.mark.parametrize(("d", "c", "b"), [(3, 0.9, 0.5), (8, 0.8, 0.8), (20, 0.8, 1.5), (64, 0.5, 0.5)])
def test_the_mean_weight_of_a_random_pattern(d, c, b):
    """Against the integral over the density of one component, SciPy's series, and the bound."""
    area = quad(lambda u: (1 - u * u) ** ((d - 3) / 2), -1, 1)[0]
    mean = quad(lambda u: np.exp(b * d * (u - c)) * (1 - u * u) ** ((d - 3) / 2), -1, 1, epsabs=0)[0] / area
    compare(crosstalk(d, c, b), mean, rtol=1e-9, atol=0.0)
    compare(crosstalk(d, c, b), np.exp(-b * c * d) * hyp0f1(d / 2, (b * d) ** 2 / 4), rtol=1e-9, atol=0.0)
    assert 0.2 * np.exp(b * b * d / 2 - b * c * d) < crosstalk(d, c, b) < np.exp(b * b * d / 2 - b * c * d) or b > 1
    assert crosstalk(d, c, b) < np.exp(b * b * d / 2 - b * c * d)


@pytest.mark.claim("thm-hopfield-capacity", "pf:hopfield-capacity")
@pytest.mark.parametrize("d", [8, 14])
def test_exponentially_many_patterns_are_recalled(d, rng):
    """The share that is lost and the mean error, against the bounds; and the first moment, to five standard errors."""
    c, M, lost, errors = 0.8, 1.7, [], []
    N = 2 + int(0.3 / crosstalk(d, c, c))
    for _ in range(300):
        K = M * on_sphere(rng, N, d)
        side = np.linalg.qr(np.stack([K[0], rng.standard_normal(d)]).T)[0][:, 1]
        x = c * K[0] + M * (1 - c * c) ** 0.5 * side
        y = fall(x, K, c * d / M**2)
        errors.append(np.linalg.norm(y - K[0]))
        p = scipy_softmax(c * d / M**2 * K @ x)
        lost.append(p[0] <= 0.5)
    q = crosstalk(d, c, c)
    assert np.mean(lost) <= (N - 1) * q and 0.2 * M * (N - 1) * q < np.mean(errors) <= 2 * M * (N - 1) * q
    s = wrong_weight(rng, d, c, c, most=4000, cues=1)[0]
    draws = np.diff(s)
    assert abs(draws.mean() - q) < 5 * draws.std() / len(draws) ** 0.5


@pytest.mark.claim("thm-hopfield-capacity")
def test_the_rate_is_exponential_in_the_width():
    """With b = c a memory may hold e^(d c^2 / 2) patterns and more."""
    for c in (0.5, 0.8, 1.0):
        for d in (10, 40, 160):
            assert crosstalk(d, c, c) <= np.exp(-d * c * c / 2)
        growth = np.log(crosstalk(160, c, c) / crosstalk(40, c, c)) / -120
        assert growth >= c * c / 2


@pytest.mark.claim("lem-binary-energy", "eq:hebb", "eq:hopfield-binary", "eq:hopfield-binary-energy")
def test_the_binary_energy_falls_one_component_at_a_time(rng):
    for m in (3, 10, 30):
        P = rng.choice([-1.0, 1.0], (m, 25))
        W = hebb(P)
        compare(W, (P.T @ P - m * np.eye(25)) / 25, name="Hebb")
        X = rng.choice([-1.0, 1.0], (20, 25))
        E, moved = binary_energy(W, X), 0
        for a in list(range(25)) * 3:
            Y = X.copy()
            h = X @ W[:, a]
            Y[:, a] = np.where(h == 0, X[:, a], np.sign(h))
            changed = Y[:, a] != X[:, a]
            after = binary_energy(W, Y)
            compare(E - after, np.where(changed, 2 * abs(h), 0), name="fall", atol=1e-12)
            X, E, moved = Y, after, moved + changed.sum()
        assert moved > 20
        Y = settle(W, X)
        compare(np.where(Y @ W == 0, Y, np.sign(Y @ W)), Y, name="settled")


@pytest.mark.claim("lem-binary-energy")
def test_all_components_at_once_may_go_in_circles():
    W = np.array([[0.0, 1.0], [1.0, 0.0]])
    x = np.array([1.0, -1.0])
    compare(np.sign(W @ x), -x, name="there")
    compare(np.sign(W @ np.sign(W @ x)), x, name="and back")
    compare(settle(W, x[None]), [[-1.0, -1.0]], name="one after the other it settles")


@pytest.mark.claim("lem-binary-crosstalk")
def test_how_often_a_stored_component_is_unstable(rng):
    d = 40
    for N in (4, 8, 20):
        terms = (N - 1) * (
            d - 1
        )  # a sum of so many signs at most -(d - 1): at least (terms + d - 1) / 2 of them negative
        exact = binom.sf(np.ceil((terms + d - 1) / 2) - 1, terms, 0.5)
        assert exact <= np.exp(-(d - 1) / (2 * (N - 1)))
        flips = []
        for _ in range(150):
            P = rng.choice([-1.0, 1.0], (N, d))
            flips.append((P @ hebb(P) * P <= 1e-12).mean())
        error = np.std(flips) / 150**0.5
        assert abs(np.mean(flips) - exact) < 5 * error + 1e-4
    P = rng.choice([-1.0, 1.0], (7, d))
    linear, _ = an.mean_attention(P, P, P)
    compare(linear * 7 / d - P * 7 / d, P @ hebb(P), name="attention without softmax", atol=1e-12)


@pytest.mark.claim("rem-hopfield-mixture")
def test_the_energy_is_a_mixture_of_gaussians(rng):
    """Minus the logarithm of its density, divided by beta, up to a constant; a step is a mean shift."""
    X, K = draw(rng)
    beta = 1.7
    E, _ = an.hopfield_energy(X, K, scale=beta)
    weights = np.exp(beta * np.square(K).sum(-1) / 2)
    density = (weights * np.exp(-beta / 2 * np.square(X[:, None] - K).sum(-1))).sum(-1)
    compare(E, -np.log(density) / beta, name="mixture", atol=1e-9)


@pytest.mark.claim("rem-hopfield-sparse")
def test_with_sparsemax_a_pattern_is_recalled_exactly(rng):
    """The gap times beta at least 1 suffices; and the joint energy falls too."""
    import torch
    from entmax import sparsemax

    def weights(x):
        return sparsemax(torch.from_numpy(beta * K @ x), dim=-1).numpy()

    def joint_energy(x, p):
        return x @ x / 2 - p @ (K @ x) + (p @ p - 1) / (2 * beta)

    K = 1.5 * on_sphere(rng, 6, 8)
    beta = 1.02 / separation(K).min()
    for i in range(6):
        compare(weights(K[i]) @ K, K[i], name="exact", atol=1e-12)
    beta, x = 0.5, 3 * rng.standard_normal(8)
    falls = []
    for _ in range(6):
        p = weights(x)
        y = p @ K
        falls.append(joint_energy(x, p) - joint_energy(y, weights(y)) - np.square(x - y).sum() / 2)
        x = y
    assert min(falls) >= -1e-12 and max(falls) > 1e-6
