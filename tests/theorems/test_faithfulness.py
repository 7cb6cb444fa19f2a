"""The page on whether a map says why: what flows, what adds up, what a map leaves open, and what a deletion tests."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from attnmath import faithfulness as F
from attnmath.check import compare
from attnmath.rollout import attention_rollout

seeds = st.integers(0, 2**32 - 1)


def weights(rng, *shape, sharp=1.5):
    E = np.exp(sharp * rng.standard_normal(shape))
    return E / E.sum(-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.claim("lem-flow", "eq:attention-flow")
@settings(max_examples=8, deadline=None)
@given(seeds, st.integers(1, 4))
def test_flow_lies_between_the_rollout_and_the_cuts(seed, layers):
    """Both bounds, the closed forms of one and two layers, and a linear programme for the flow itself."""
    rng = np.random.default_rng(seed)
    P = weights(rng, layers, 2, 4, 4)
    A = (P.mean(1) + np.eye(4)) / 2
    flow, R = F.attention_flow(P), attention_rollout(P)
    assert (flow >= R - 1e-6).all() and (flow <= np.minimum(A[0].sum(0), 1) + 1e-6).all()
    assert (flow.sum(-1) >= 1 - 1e-6).all()
    if layers == 1:
        compare(flow, A[0], atol=1e-7)
    if layers == 2:
        compare(flow, np.minimum(A[1][:, :, None], A[0]).sum(1), atol=1e-7)
        assert (flow > R + 1e-3).any(), "the two are not the same"
    if layers == 3:
        compare(flow[1, 2], by_programme(A, 1, 2), atol=1e-7)


def by_programme(A, i, j):
    """The largest flow as a linear programme over the edges of three layers."""
    n = A.shape[-1]
    edges = [(level, a, b) for level in range(3) for a in range(n) for b in range(n)]
    gain = [-(level == 2 and a == i) for level, a, b in edges]
    limits = [(0, A[edge] if not (edge[0] == 2 and edge[1] != i) else 0) for edge in edges]
    limits = [(0, 0) if edge[0] == 0 and edge[2] != j else limit for edge, limit in zip(edges, limits, strict=True)]
    nodes = [(level, a) for level in (1, 2) for a in range(n)]
    balance = [
        [(lv + 1 == level + 1 and lv == level and b == a) - (lv == level - 1 and aa == a) for lv, aa, b in edges]
        for level, a in nodes
    ]
    return -linprog(gain, A_eq=balance, b_eq=np.zeros(len(nodes)), bounds=limits).fun


@pytest.mark.claim("prop-linear-scores")
@settings(max_examples=20, deadline=None)
@given(seeds)
def test_three_scores_agree_if_the_answer_is_a_sum_and_not_otherwise(seed):
    rng = np.random.default_rng(seed)
    W, X, b = rng.standard_normal((3, 5, 2))

    def answer(kept):
        return 0.7 + (W * np.where(kept[..., None], X, b)).sum((-2, -1))

    want = (W * (X - b)).sum(-1)
    compare(F.occlusion(answer, 5), want, atol=1e-10)
    compare(F.integrated_gradients(lambda Z: np.broadcast_to(W, Z.shape), X, b).sum(-1), want, atol=1e-10)
    product = F.occlusion(lambda kept: np.exp(answer(kept)), 5)
    whole, none = (np.exp(answer(np.full((1, 5), on)))[0] for on in (True, False))
    assert abs(product.sum() - (whole - none)) > 1e-6 * abs(whole - none), "of a product occlusion does not add up"


@pytest.mark.claim("thm-integrated-gradients", "eq:integrated-gradients")
@settings(max_examples=20, deadline=None)
@given(seeds)
def test_integrated_gradients_add_up_and_words_that_play_no_part_get_nothing(seed):
    rng = np.random.default_rng(seed)
    X, b = rng.standard_normal((2, 4))

    def f(Z):  # the last component plays no part
        return np.tanh(Z[..., 0] * Z[..., 1]) + np.exp(Z[..., 2] / 2)

    def gradient(Z):
        slope = 1 - np.tanh(Z[..., 0] * Z[..., 1]) ** 2
        return np.stack([slope * Z[..., 1], slope * Z[..., 0], np.exp(Z[..., 2] / 2) / 2, 0 * Z[..., 3]], -1)

    got = F.integrated_gradients(gradient, X, b, points=80)
    compare(got.sum(), f(X) - f(b), atol=1e-8)
    compare(got[2:], [np.exp(X[2] / 2) - np.exp(b[2] / 2), 0.0], atol=1e-10)  # a summand of its own is occlusion
    plain = (X - b) * gradient(X)
    if abs(X - b).min() > 0.5 and abs(f(X) - f(b)) > 0.5:
        assert abs(plain.sum() - (f(X) - f(b))) > 1e-3, "gradient times input does not add up"


@pytest.mark.claim("prop-removal", "eq:removal")
@settings(max_examples=20, deadline=None)
@given(seeds)
def test_any_weight_may_count_for_nothing(seed):
    """The construction of the proof: the heaviest key plays no part, and the lightest one plays one."""
    rng = np.random.default_rng(seed)
    p, V = weights(rng, 5), np.zeros((5, 1))
    top, low = int(p.argmax()), int(p.argmin())
    V[low], V[top] = 1.0, p[low] / (1 - p[top])
    found = [F.removal(p, V, j)[0] for j in range(5)]
    rest = np.delete(p, low) / np.delete(p, low).sum()
    compare(found[top], 0.0, atol=1e-15)
    compare(found[low], (p @ V - rest @ np.delete(V, low, 0))[0], atol=1e-12)
    assert found[low] > 1e-3 * p[low]
    compare(V[top, 0] * (1 - p[low] - p[top]) / (1 - p[low]), found[low], atol=1e-12)


@pytest.mark.claim("thm-free-weights", "eq:same-output", "eq:free-directions")
@pytest.mark.parametrize(("n", "v", "rank"), [(9, 3, 3), (9, 3, 2), (12, 4, 4), (5, 4, 4), (4, 6, 6)])
def test_the_weights_with_one_output(n, v, rank, rng):
    """The vertices span as many directions as the theorem says, have few keys, and one key can be silenced."""
    p, V = weights(rng, n), rng.standard_normal((n, rank)) @ rng.standard_normal((rank, v))
    A = np.vstack([V.T, np.ones(n)])
    full = np.linalg.matrix_rank(A)
    found = []
    for _ in range(60):
        q = linprog(rng.standard_normal(n), A_eq=A, b_eq=A @ p, bounds=[(0, None)] * n).x
        compare(q @ V, p @ V, atol=1e-7)
        assert (q > 1e-9).sum() <= full <= v + 1, "a vertex has at most rank keys"
        found.append(q)
    spanned = np.linalg.matrix_rank(np.array(found) - p, tol=1e-6)
    assert spanned == n - full == F.free_directions(V) >= n - v - 1
    far = F.farthest_weights(p, V)
    if n == full:
        compare(far, p, atol=1e-7)
    else:
        assert F.distance(far, p) > 1e-3 and far.min() < 1e-9
        compare(far @ V, p @ V, atol=1e-7)


@pytest.mark.claim("prop-deletion-order", "eq:deletion-curve", "eq:occlusion")
def test_occlusion_orders_best_if_the_answer_is_a_sum_and_fails_on_copies(rng):
    a = rng.standard_normal(5)

    def answer(kept):
        return kept @ a

    curves = np.array([F.deletion_curve(answer, np.array(order, float), steps=5) for order in permutations(range(5))])
    best = F.deletion_curve(answer, F.occlusion(answer, 5), steps=5)
    compare(curves.min(0), best, atol=1e-12)
    compare(curves.mean(0), a.sum() * (1 - np.arange(6) / 5), atol=1e-12)

    def copies(kept):  # two copies of a word that counts 3, and a word that counts 1
        return 3.0 * kept[:, :2].any(-1) + kept[:, 2]

    compare(F.occlusion(copies, 3), [0.0, 0.0, 1.0])
    poor = F.deletion_curve(copies, F.occlusion(copies, 3), steps=3)
    good = F.deletion_curve(copies, np.array([2.0, 1.0, 0.0]), steps=3)
    compare(poor, [4.0, 3.0, 3.0, 0.0])
    compare(good, [4.0, 4.0, 1.0, 0.0])
