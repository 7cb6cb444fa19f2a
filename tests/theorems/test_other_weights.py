"""The page on what else could weigh the words: why softmax, what a sink is, and what Sinkhorn's iteration does."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp, softmax

import attnmath.numpy as an
from attnmath.check import check_vjp, compare

PAGE = Path(__file__).parents[2] / "chapters" / "09_theory" / "other_weights.ipynb"


def by_form(f):
    """The weighting f(s_i) / sum f(s_j)."""
    return lambda s: f(s) / f(s).sum(-1, keepdims=True)


def moved(weights, rng, count=200):
    """The largest change of weights when a constant is added to all scores."""
    s, c = 2 * rng.standard_normal((count, 4)), 2 * rng.standard_normal((count, 1))
    return np.abs(weights(s + c) - weights(s)).max()


OTHERS = {
    "softplus": lambda s: np.logaddexp(0, s),
    "sigmoid": lambda s: 1 / (1 + np.exp(-s)),
    "square": lambda s: 1 + s * s,
    "exp plus one": lambda s: np.exp(s) + 1,
    "cosh": np.cosh,
    "bounded": lambda s: 2 + np.arctan(s),
    "bent exponential": lambda s: np.exp(s + 0.05 * np.sin(s)),
}


@pytest.mark.claim("thm-only-softmax")
@pytest.mark.parametrize("rate", [-1.5, 0.0, 0.4, 1.0, 2.5])
def test_exponentials_are_invariant_and_are_softmax(rate, rng):
    weights = by_form(lambda s: 3 * np.exp(rate * s))
    assert moved(weights, rng) < 1e-12
    s = rng.standard_normal((9, 4))
    if rate > 0:
        compare(weights(s), an.softmax(s, temperature=1 / rate)[0], atol=1e-14)


@pytest.mark.claim("thm-only-softmax")
@pytest.mark.parametrize("name", OTHERS)
def test_no_other_positive_function_is(name, rng):
    """Neither for four scores, nor for the two of the proof; and the proof's identity holds for each."""
    f = OTHERS[name]
    assert moved(by_form(f), rng) > 5e-3
    s, c = rng.standard_normal((2, 50))
    h = lambda x: np.log(f(x)) - np.log(f(np.zeros(1)))  # noqa: E731
    logit = lambda a, b: np.diff(np.log(by_form(f)(np.stack([b, a], -1))), axis=-1)[..., 0]  # noqa: E731
    change = logit(s + c, c) - logit(s, 0 * s)
    compare(change, h(s + c) - h(s) - h(c), name="what additivity lacks", atol=1e-12)
    assert np.abs(change).max() > 1e-3


@pytest.mark.claim("thm-only-softmax")
def test_without_continuity_there_are_others():
    """On the numbers a + b sqrt 2, f = e^a is positive and invariant, and no exponential of the number."""
    rng = np.random.default_rng(2)
    s, c = rng.integers(-3, 4, (40, 4, 2)), rng.integers(-3, 4, (40, 1, 2))
    weights = lambda x: softmax(x[..., 0].astype(float), -1)  # noqa: E731
    compare(weights(s + c), weights(s), atol=1e-14)
    number = lambda x: x[..., 0] + x[..., 1] * 2**0.5  # noqa: E731
    near, far = np.array([7, -5]), np.array([0, 0])  # 7 - 5 sqrt 2 = -0.07
    assert abs(number(near)) < 0.08 and weights(np.stack([near, far]))[0] > 0.999, "a jump: near 0, all the weight"


@pytest.mark.claim("lem-weights-by-ratios")
def test_ratios_without_the_others_give_the_form(rng):
    """From two scores at a time f is known, and with it all weights; a doubly stochastic ratio depends on others."""
    for f in (np.exp, OTHERS["softplus"], OTHERS["square"]):
        w, s = by_form(f), rng.standard_normal((20, 5))
        rebuilt = lambda x, w=w: w(np.stack([x, 0 * x], -1))[..., 0] / w(np.stack([x, 0 * x], -1))[..., 1]  # noqa: E731
        compare(by_form(rebuilt)(s), w(s), atol=1e-13)
    S = rng.standard_normal((3, 3))
    T = S.copy()
    T[0, 2] += 2  # another key, the same query
    ratio = lambda X: an.sinkhorn_weights(X, steps=300)[0][0, 0] / an.sinkhorn_weights(X, steps=300)[0][0, 1]  # noqa: E731
    assert abs(np.log(ratio(S) / ratio(T))) > 0.05


# The table of the page: which weighting has which property.

WEIGHTINGS = {
    "softmax": lambda S: an.softmax(S)[0],
    "sigmoid": lambda S: an.pointwise_weights(S)[0],
    "ReLU": lambda S: an.pointwise_weights(S, kind="relu")[0],
    "squared ReLU": lambda S: an.pointwise_weights(S, kind="squared_relu")[0],
    "squared scores": lambda S: an.pointwise_weights(S, kind="square")[0],
    "a sink": lambda S: an.sink_weights(S)[0],
    "doubly stochastic": lambda S: an.sinkhorn_weights(S, steps=150)[0],
}


def properties(weigh, rng):
    """Each property in twenty random matrices of scores, some of which are integers."""
    found = dict.fromkeys(("positive", "sum 1", "order", "shift", "sensitive", "competition", "rows"), True)
    for trial in range(20):
        S = 1.5 * rng.standard_normal((4, 5)) if trial % 2 else rng.integers(-2, 3, (4, 5)).astype(float)
        W, (i, j), order = weigh(S), (rng.integers(4), rng.integers(5)), rng.permutation(5)
        up, other = S.copy(), S.copy()
        up[i, j] += 0.5
        other[i - 1] = rng.standard_normal(5)
        raised = weigh(up)[i]
        left = np.arange(5) != j
        found["positive"] &= bool(W.min() > 0)
        found["sum 1"] &= bool(np.abs(W.sum(-1) - 1).max() < 1e-9)
        found["order"] &= bool(np.abs(weigh(S[:, order]) - W[:, order]).max() < 1e-9)
        found["shift"] &= bool(np.abs(weigh(S + rng.standard_normal((4, 1))) - W).max() < 1e-9)
        found["sensitive"] &= bool(raised[j] > W[i, j] + 1e-6)
        found["competition"] &= bool(raised[left].sum() < W[i, left].sum() - 1e-6)
        found["rows"] &= bool(np.abs(weigh(other)[i] - W[i]).max() < 1e-9)
    return found


def table():
    """Rows of the page's table: name to yes and no."""
    text = "\n".join(cell.source for cell in nbformat.read(PAGE, 4).cells if cell.cell_type == "markdown")
    rows = re.findall(r"^\| ([^|]+) \|((?: [✓✗] \|){7})$", text, re.M)
    return {name: [mark == "✓" for mark in re.findall("[✓✗]", marks)] for name, marks in rows}


@pytest.mark.claim("sec-who-gives-up-what")
@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_who_gives_up_what(name, rng):
    """Every entry of the page's table."""
    rows = table()
    assert len(rows) == len(WEIGHTINGS)
    row = next(marks for title, marks in rows.items() if title.startswith(name))
    assert list(properties(WEIGHTINGS[name], rng).values()) == row


# Each key by itself.


@pytest.mark.claim("prop-sigmoid-bias", "eq:pointwise-weights")
def test_what_the_bias_of_a_sigmoid_does(rng):
    for m in (1, 7, 500):
        s = 2 * rng.standard_normal((30, m))
        W, _ = an.pointwise_weights(s)
        gap = np.exp(s) / m - W
        assert gap.min() >= 0 and (gap - np.exp(2 * s) / m**2).max() <= 1e-12
        compare(gap, (np.exp(s) / m) ** 2 / (1 + np.exp(s) / m), name="the remainder", atol=1e-11)
        assert (np.abs(W.sum(-1) - np.exp(s).mean(-1)) <= np.exp(2 * s).mean(-1) / m).all()
        compare(an.pointwise_weights(np.zeros((1, m)))[0].sum(), m / (m + 1), atol=1e-12)
    s, V = 0.5 * rng.standard_normal((1, 4000)), rng.standard_normal((4000, 3))
    W, P = an.pointwise_weights(s)[0], an.softmax(s)[0]
    compare(W @ V, np.exp(s).mean() * P @ V, name="softmax without its denominator", atol=1e-3)


@pytest.mark.claim("eq:pointwise-weights-vjp", "eq:sink-weights-vjp", "eq:weighed-vjp")
def test_gradients(rng):
    S = rng.standard_normal((3, 4, 5))
    for kind in ("sigmoid", "relu", "squared_relu", "square"):
        check_vjp(lambda S, kind=kind: an.pointwise_weights(S, kind=kind), S, rng=rng)
    check_vjp(an.sink_weights, S, rng.standard_normal(3), rng=rng)
    args = [rng.standard_normal(shape) for shape in ((3, 4, 2), (3, 5, 2), (3, 5, 6))]
    check_vjp(lambda *a: an.sinkhorn_attention(*a, steps=3), *args, rng=rng)


# A sink.


@pytest.mark.claim("prop-sink-is-a-key", "eq:sink-weights", "eq:weighed")
def test_a_sink_is_a_key_of_value_zero(rng):
    Q, K, V = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 6))
    b = np.array([0.7, -1.2])
    longer = [np.concatenate([X, np.zeros_like(X[:, :1])], 1) for X in (K, V)]
    bias = np.zeros((2, 1, 6))
    bias[:, 0, -1] = b
    compare(an.sink_attention(Q, K, V, sinks=b)[0], an.attention(Q, *longer, bias=bias)[0], atol=1e-13)
    compare(an.sink_attention(Q, K, V)[0], an.attention(Q, *longer)[0], name="off by one", atol=1e-13)


@pytest.mark.claim("prop-sink-gate")
def test_a_sink_is_a_gate(rng):
    Q, K, V = (2 * rng.standard_normal(shape) for shape in ((2, 30, 4), (2, 5, 4), (2, 5, 6)))
    b = np.array([[2.5], [-0.4]])
    S = Q @ K.swapaxes(-1, -2) / 2
    gate = 1 / (1 + np.exp(b - logsumexp(S, -1)))
    compare(an.sink_weights(S, b[:, 0])[0].sum(-1), gate, name="the sum", atol=1e-13)
    compare(an.sink_attention(Q, K, V, sinks=b[:, 0])[0], gate[..., None] * an.attention(Q, K, V)[0], atol=1e-12)
    assert (gate <= 5 * np.exp(S.max(-1) - b) + 1e-15).all() and gate.min() < 0.4 and gate.max() > 0.9
    low = an.sink_weights(np.full((1, 1, 5), -9.0), np.array([2.0]))[0].sum()
    compare(low / (5 * np.exp(-9.0 - 2.0)), 1.0, name="equal low scores reach the bound", atol=1e-4)


@pytest.mark.claim("lem-zero-values")
def test_values_of_zero_make_a_sink_of_the_query(rng):
    """Keys 0 and 3 lose their values; the others see a sink that differs from query to query."""
    Q, K, V = rng.standard_normal((3, 4)), rng.standard_normal((6, 4)), rng.standard_normal((6, 2))
    silent = np.isin(np.arange(6), (0, 3))
    b = logsumexp(Q @ K[silent].T / 2, -1)
    one_each = np.broadcast_to(K[~silent], (3, 4, 4)), np.broadcast_to(V[~silent], (3, 4, 2))
    O, _ = an.sink_attention(Q[:, None], *one_each, sinks=b)
    compare(O[:, 0], an.attention(Q, K, V * ~silent[:, None])[0], atol=1e-13)
    assert np.ptp(b) > 0.1


# Doubly stochastic weights.


def spread(x, axis=-1):
    return np.ptp(x, axis=axis)


def diameter(S):
    """The largest s_ij + s_kl - s_il - s_kj."""
    D = S[:, None, :, None] - S[:, None, None, :]  # i, ., j, l
    return (D - np.swapaxes(D, 0, 1)).max()


def potentials(S, steps):
    """u after each step, by the text's formulas."""
    n, m = S.shape
    u = [-logsumexp(S, 1)]
    for _ in range(steps):
        v = np.log(n / m) - logsumexp(S + u[-1][:, None], 0)
        u.append(-logsumexp(S + v, 1))
    return np.array(u), v


@pytest.mark.claim("lem-ratio-distance")
def test_ratios_bound_the_distance(rng):
    p, q = rng.dirichlet(np.full(6, 0.7), (2, 4000))
    wide = spread(np.log(p / q))
    distance = np.abs(p - q).sum(-1) / 2
    assert (distance <= np.tanh(wide / 4) + 1e-12).all() and (distance > 0.6 * np.tanh(wide / 4)).any()
    for a in (0.3, 2.0):  # two outcomes, mirrored: equality
        e = 1 / (1 + np.exp(-a))
        compare(2 * e - 1, np.tanh(2 * a / 4), atol=1e-14)


@pytest.mark.claim("thm-birkhoff-contraction")
def test_a_half_step_contracts(rng):
    for shape in ((2, 2), (3, 5), (6, 4)):
        S = rng.standard_normal(shape)
        u = 3 * rng.standard_normal((2, 3000, shape[0], 1))
        moved = spread(np.diff(logsumexp(S + u, 2), axis=0)[0])
        ratio = moved / spread(np.diff(u[..., 0], axis=0)[0])
        assert ratio.max() <= np.tanh(diameter(S) / 4) + 1e-12
    a = 1.3
    S, u = np.array([[a, 0], [0, a]]), np.array([[1e-5], [-1e-5]])
    slope = spread(logsumexp(S + u, 0) - logsumexp(S - u, 0)) / spread(2 * u[:, 0])
    compare(slope, np.tanh(diameter(S) / 4), name="the constant is reached", atol=1e-8)


@pytest.mark.claim("thm-sinkhorn-converges", "eq:sinkhorn-rows", "eq:sinkhorn-columns", "eq:sinkhorn-weights")
@pytest.mark.parametrize("shape", [(4, 4), (3, 6), (7, 5)])
def test_the_iteration_converges_at_a_linear_rate(shape, rng):
    S = 0.7 * rng.standard_normal(shape)
    u, v = potentials(S, 200)
    P, _ = an.sinkhorn_weights(S, steps=200)
    compare(P, np.exp(S + u[-1][:, None] + v), atol=1e-13)
    compare(P.sum(0), np.full(shape[1], shape[0] / shape[1]), name="columns", atol=1e-13)
    compare(P.sum(1), np.ones(shape[0]), name="rows", atol=1e-13)
    rate = np.tanh(diameter(S) / 4) ** 2
    errors = spread(u[:12] - u[-1])
    assert (errors <= rate ** np.arange(12) * errors[0] + 1e-13).all() and errors[3] > 1e-9
    scaled = P * (shape[1] / shape[0]) ** 0.5
    asymptotic = np.linalg.svd(scaled, compute_uv=False)[1] ** 2
    assert asymptotic <= rate
    seen = [e for e in spread(potentials(S, 60)[0] - u[-1]) if e > 1e-9]
    compare(seen[-1] / seen[-2], asymptotic, name="the rate at the end", atol=0.03)


@pytest.mark.claim("thm-sinkhorn-converges")
@pytest.mark.parametrize("a", [0.5, 2.0])
def test_no_faster_rate_holds_for_all_scores(a, rng):
    """Two words with the scores a and 0: near the limit each step shrinks the distance by exactly kappa squared."""
    S = np.array([[a, 0.0], [0.0, a]]) + rng.standard_normal((2, 1)) + rng.standard_normal(2)
    far = spread(potentials(S, 300)[0] - potentials(S, 300)[0][-1])
    seen = far[(far > 1e-9) & (far < 1e-4)]
    compare(seen[1:] / seen[:-1], np.full(len(seen) - 1, np.tanh(diameter(S) / 4) ** 2), name="rate", rtol=1e-3)


@pytest.mark.claim("thm-sinkhorn-converges")
def test_only_one_matrix_has_the_form(rng):
    """Constants of rows and of columns change where the iteration starts, and not where it ends."""
    S = rng.standard_normal((4, 5))
    P, _ = an.sinkhorn_weights(S, steps=400)
    Q, _ = an.sinkhorn_weights(S + 3 * rng.standard_normal((4, 1)) + 3 * rng.standard_normal(5), steps=400)
    compare(Q, P, atol=1e-12)
    first, second = (an.sinkhorn_weights(X, steps=0)[0] for X in (S, S + 3 * rng.standard_normal(5)))
    assert np.abs(first - second).max() > 0.1


def divergence(p, q):
    return (p * np.log(p / q)).sum()


@pytest.mark.claim("prop-sinkhorn-falls")
def test_each_half_step_falls_by_what_was_wrong(rng):
    S = 2 * rng.standard_normal((4, 6))
    limit, c = an.sinkhorn_weights(S, steps=800)[0], np.full(6, 4 / 6)
    fallen = 0
    for t in range(6):
        P, after = (an.sinkhorn_weights(S, steps=t + k)[0] for k in (0, 1))
        half = P * c / P.sum(0)
        by_columns, by_rows = divergence(c, P.sum(0)), divergence(np.ones(4), half.sum(1))
        compare(divergence(limit, P) - divergence(limit, half), by_columns, name="columns", atol=1e-11)
        compare(divergence(limit, half) - divergence(limit, after), by_rows, name="rows", atol=1e-11)
        fallen += by_columns + by_rows
        assert by_columns > 1e-12 and fallen <= divergence(limit, an.sinkhorn_weights(S, steps=0)[0])


def entropy(P):
    return -(P * np.log(P)).sum()


@pytest.mark.claim("prop-transport-entropy")
def test_the_limit_is_the_best_plan_with_entropy(rng):
    """Against other matrices with the same sums: what they lack is exactly the divergence."""
    for eps, (n, m) in ((1.0, (4, 4)), (0.3, (3, 5))):
        S = rng.standard_normal((n, m))
        best, _ = an.sinkhorn_weights(S / eps, steps=600)
        objective = lambda P, S=S, eps=eps: (P * S).sum() + eps * entropy(P)  # noqa: E731
        for _ in range(8):
            P, _ = an.sinkhorn_weights(rng.standard_normal((n, m)), steps=150)
            compare(objective(best) - objective(P), eps * divergence(P, best), atol=1e-9)


@pytest.mark.claim("prop-transport-entropy", "sec-who-gives-up-what")
def test_a_higher_score_gets_a_higher_weight(rng):
    """By the sum of two divergences; with one query there is nothing to prefer."""
    S, T = rng.standard_normal((2, 4, 5))
    T[1:] = S[1:]
    P, R = (an.sinkhorn_weights(X, steps=500)[0] for X in (S, T))
    compare(((R - P) * (T - S)).sum(), divergence(P, R) + divergence(R, P), atol=1e-11)
    assert divergence(P, R) > 0.01
    compare(an.sinkhorn_weights(S[:1])[0], np.full((1, 5), 0.2), name="one query", atol=1e-14)


def plan(S):
    """The best plan without entropy, by linear programming."""
    n, m = S.shape
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    sums = np.concatenate([np.ones(n), np.full(m, n / m)])
    done = linprog(-S.ravel(), A_eq=np.vstack([rows, columns]), b_eq=sums, bounds=(0, None))
    assert done.status == 0
    return done.x.reshape(n, m)


@pytest.mark.claim("thm-transport-gap")
@pytest.mark.parametrize("shape", [(5, 5), (3, 5)])
def test_the_gap_to_optimal_transport(shape, rng):
    S = rng.standard_normal(shape)
    n, m = shape
    best = plan(S)
    own = -(best[best > 1e-12] * np.log(best[best > 1e-12])).sum()
    gaps = []
    for eps in (3.0, 1.0, 0.3, 0.1, 0.03):
        P, _ = an.sinkhorn_weights(S / eps, steps=int(40 + 60 / eps))
        gaps.append((best * S).sum() - (P * S).sum())
        assert -1e-9 <= gaps[-1] <= eps * (entropy(np.maximum(P, 1e-300)) - own) + 1e-9 <= eps * n * np.log(m) + 1e-9
    assert gaps[0] > 0.5 > 0.01 > gaps[-1]
    compare(P, best, name="the plan at a low temperature", atol=0.05)
    one = rng.standard_normal((40, m))  # a softmax is the case of one query without sums of columns
    gap = one.max(-1) - (an.softmax(one, temperature=0.2)[0] * one).sum(-1)
    assert gap.min() >= 0 and gap.max() <= 0.2 * np.log(m)
    many = (
        4000  # scores x on the diagonal: the limit is the softmax, since all columns are alike; more than half is lost
    )
    lost = [x * (many - 1) / (np.exp(x) + many - 1) / np.log(many) for x in np.linspace(0, 9, 91)]
    assert 0.65 < max(lost) < 1, "the factor log m cannot be made two thirds of it"
    P, _ = an.sinkhorn_weights(3 * np.eye(7), steps=0)
    compare(3 * (7 - np.trace(P)), 7 * 3 * 6 / (np.exp(3) + 6), name="that loss, for seven", atol=1e-12)


@pytest.mark.claim("prop-causal-identity")
def test_a_causal_mask_leaves_the_identity(rng):
    """By linear programming over lower triangular matrices, and the exact slow rate for two words."""
    n = 4
    late = np.triu(np.ones((n, n)), 1).ravel() > 0
    rows, columns = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
    bounds = [(0, 0 if hidden else None) for hidden in late]
    for _ in range(4):
        cost = rng.standard_normal(n * n)
        done = linprog(cost, A_eq=np.vstack([rows, columns]), b_eq=np.ones(2 * n), bounds=bounds)
        compare(done.x.reshape(n, n), np.eye(n), name="the only point", atol=1e-9)
    causal, S = np.tril(np.ones((2, 2), bool)), rng.standard_normal((2, 2))
    x = an.sinkhorn_weights(S, causal, steps=0)[0][1, 0]
    for t in (1, 2, 10, 300):
        compare(an.sinkhorn_weights(S, causal, steps=t)[0][1, 0], x / (1 + 2 * t * x), name="two words", atol=1e-12)


@pytest.mark.claim("prop-causal-identity")
def test_earlier_rows_see_later_ones(rng):
    Q, K, V = rng.standard_normal((3, 4, 2))
    causal, later = np.tril(np.ones((4, 4), bool)), Q.copy()
    later[3] += 1
    change = [
        np.abs(core(Q, K, V, causal)[0] - core(later, K, V, causal)[0])[:3].max()
        for core in (an.sinkhorn_attention, an.attention, an.sink_attention, an.pointwise_attention)
    ]
    assert change[0] > 1e-3 and max(change[1:]) == 0


@pytest.mark.claim(
    "prop-implicit-gradient", "eq:sinkhorn-implicit-vjp", "eq:sinkhorn-rows-vjp", "eq:sinkhorn-columns-vjp"
)
@pytest.mark.parametrize("shape", [(4, 4), (3, 6)])
def test_two_ways_to_the_gradient(shape, rng):
    """Unrolled steps and the linear system agree in the limit, at the linear rate, and not before."""
    S, dP = rng.standard_normal(shape), rng.standard_normal(shape)
    exact = an.sinkhorn_weights(S, steps=600, gradient="implicit")[1](dP)
    errors = [np.abs(an.sinkhorn_weights(S, steps=t)[1](dP) - exact).max() for t in (0, 2, 8, 600)]
    assert errors[-1] < 1e-12 < 1e-4 < errors[1] < errors[0] and errors[2] < 0.3 * errors[1]
    compare(exact.sum(0), np.zeros(shape[1]), name="constants of columns change nothing", atol=1e-12)
    compare(exact.sum(1), np.zeros(shape[0]), name="nor those of rows", atol=1e-12)
    check_vjp(lambda S: an.sinkhorn_weights(S, steps=600, gradient="implicit"), S, rng=rng)
