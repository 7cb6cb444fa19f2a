"""What rank costs: the best approximation, a random projection's exact error, and what projected keys can't do."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.low_rank import best_error, projection_error

seeds = st.integers(0, 2**32 - 1)


def weights(rng, n, m, scale=1.0):
    return an.softmax(scale * rng.standard_normal((n, m)))[0]


@pytest.mark.claim("thm-eckart-young", "eq:best-rank")
@settings(max_examples=20)
@given(seeds, st.integers(1, 4))
def test_no_matrix_of_that_rank_is_nearer(seed, r):
    """The truncated decomposition attains the error, and alternating least squares does not pass it."""
    rng = np.random.default_rng(seed)
    P = weights(rng, 6, 5, 2.0)
    U, s, W = np.linalg.svd(P)
    best = best_error(P, r)
    compare(np.linalg.norm(P - U[:, :r] * s[:r] @ W[:r]), best, name="truncated", atol=1e-12)
    B = rng.standard_normal((r, 5))
    for _ in range(100):
        A = P @ np.linalg.pinv(B)
        B = np.linalg.pinv(A) @ P
    found = np.linalg.norm(P - A @ B)
    assert found >= best - 1e-12 and (r > 1 or found < best + 0.2)
    assert best_error(P, 5) == 0 and np.isclose(best_error(P, 0), np.linalg.norm(P))


@pytest.mark.claim("prop-softmax-full-rank")
@pytest.mark.parametrize("n", [8, 64])
@pytest.mark.parametrize("lost", [0.3, 0.01])
def test_scores_of_rank_two_make_weights_without_a_small_singular_value(n, lost):
    angle = 2 * np.pi * np.arange(n) / n
    points = np.stack([np.cos(angle), np.sin(angle)], 1)
    beta = np.log((n - 1) * (1 - lost) / lost) / (1 - np.cos(2 * np.pi / n))
    S = beta * points @ points.T
    P, _ = an.softmax(S)
    assert np.linalg.matrix_rank(S) == 2
    assert (1 - P.diagonal() <= lost * (1 + 1e-9)).all()
    values = np.linalg.svd(P, compute_uv=False)
    assert values[-1] >= 1 - 2 * lost - 1e-9 and values[0] <= 1 + 1e-9
    for r in (1, 2, n // 2, n - 1):
        assert best_error(P, r) >= (1 - 2 * lost) * np.sqrt(n - r) - 1e-9


def every_projection(r, m, fourth):
    """Projections and their probabilities, whose moments up to the fifth are those of signs, or of a Gaussian."""
    nodes, chances = {1.0: ([-1, 1], [0.5, 0.5]), 3.0: ([-(3**0.5), 0, 3**0.5], [1 / 6, 2 / 3, 1 / 6])}[fourth]
    for at in product(range(len(nodes)), repeat=r * m):
        S = np.array([nodes[i] for i in at]).reshape(r, m) / r**0.5
        yield S, np.prod([chances[i] for i in at])


@pytest.mark.claim("thm-projection-error", "eq:projection-error")
@pytest.mark.parametrize("fourth", [1.0, 3.0])
@pytest.mark.parametrize("r", [1, 2])
def test_the_error_of_a_projection_by_listing_all_of_them(fourth, r, rng):
    """Two rows of weights, three keys, two columns of values: mean and mean square are finite sums."""
    P, V = weights(rng, 2, 3, 2.0), rng.standard_normal((3, 2))
    mean, square, total = 0, 0, 0
    for S, chance in every_projection(r, 3, fourth):
        O = P @ S.T @ S @ V
        mean, square, total = mean + chance * O, square + chance * ((O - P @ V) ** 2).sum(), total + chance
    compare(total, 1.0, name="probabilities", atol=1e-12)
    compare(mean, P @ V, name="the mean", atol=1e-12)
    compare(square, projection_error(P, V, r, fourth), name="the mean square", atol=1e-12)


@pytest.mark.claim("prop-projection-size")
@pytest.mark.parametrize("fourth", [1.0, 3.0])
def test_values_without_a_common_part_are_lost(fourth, rng):
    """Over all values of signs, error to output is (n + fourth - 2) / r, whatever the weights."""
    n = 4
    for P in (np.full((3, n), 1 / n), np.eye(n), weights(rng, 3, n, 3.0)):
        listed = [np.array(signs, float)[:, None] for signs in product([-1, 1], repeat=n)]
        error = np.mean([projection_error(P, V, 2, fourth) for V in listed])
        output = np.mean([((P @ V) ** 2).sum() for V in listed])
        compare(error / output, (n + fourth - 2) / 2, name="error to output", atol=1e-12)


@pytest.mark.claim("prop-projection-size")
def test_at_a_real_size_zero_is_the_better_answer(rng):
    """n = 1024, d = 32, r = 256, one draw: the error is twice the output, as the root of 1025 / 256 says."""
    Q, K, V = rng.standard_normal((3, 1024, 32))
    P, _ = an.attention_weights(Q, K)
    S = rng.standard_normal((256, 1024)) / 16
    O = P @ V
    ratio = np.linalg.norm(P @ S.T @ (S @ V) - O) / np.linalg.norm(O)
    assert abs(ratio - (1025 / 256) ** 0.5) < 0.1
    assert np.isclose(projection_error(P, V, 256) ** 0.5 / np.linalg.norm(O), 2, rtol=0.05)


@pytest.mark.claim("prop-linformer-rank", "eq:linformer", "eq:linformer-slots")
@settings(max_examples=15)
@given(seeds, st.integers(1, 4))
def test_projected_attention_has_the_rank_of_its_slots(seed, r):
    """The weights on the keys themselves, whatever the projections, are no nearer than the best of rank r."""
    rng = np.random.default_rng(seed)
    Q, K, V = rng.standard_normal((3, 7, 3))
    E, F = rng.standard_normal((2, r, 7))
    P, _ = an.attention_weights(Q, K)
    seen = {}
    O, _ = an.recording(an.linformer_attention, seen)(Q, K, V, E=E, F=F)
    mixed = seen["weights"]
    compare(mixed @ V, O, name="linear in the values", atol=1e-12)
    compare(mixed, an.attention_weights(Q, E @ K)[0] @ F, name="by hand", atol=1e-12)
    assert np.linalg.matrix_rank(mixed) <= r
    assert np.linalg.norm(P - mixed) >= best_error(P, r) - 1e-12


@pytest.mark.claim("lem-rank-of-values")
@settings(max_examples=15)
@given(seeds, st.integers(1, 3))
def test_for_given_values_the_rank_of_the_values_is_enough(seed, v):
    rng = np.random.default_rng(seed)
    P, V = weights(rng, 8, 8, 2.0), rng.standard_normal((8, v))
    near = P @ V @ np.linalg.pinv(V)
    assert np.linalg.matrix_rank(near) == v
    compare(near @ V, P @ V, name="exact", atol=1e-11)
    other = rng.standard_normal((8, 1))  # and for other values it is not
    assert np.abs(near @ other - P @ other).max() > 1e-3


@pytest.mark.claim("lem-small-projection")
def test_a_small_projection_forgets_the_query(rng):
    """Scores of at most s move each weight by at most (e^{2 s} - 1) / r, and the outputs to one point."""
    Q, K, V = rng.standard_normal((3, 9, 4))
    R = rng.standard_normal((3, 9))
    for delta in (1e-1, 1e-3, 1e-6):
        S = Q @ (delta * R @ K).T / 2
        P, _ = an.softmax(S)
        bound = (np.exp(2 * np.abs(S).max()) - 1) / 3
        assert np.abs(P - 1 / 3).max() <= bound
        O, _ = an.linformer_attention(Q, K, V, delta * R, R)
        middle = (R @ V).mean(0)
        assert np.abs(O - middle).max() <= bound * np.abs(R @ V).sum(0).max() + 1e-12
    assert np.ptp(O, axis=0).max() < 1e-4 < 1e-2 < np.ptp(an.attention(Q, K, V)[0], axis=0).max()


@pytest.mark.claim("prop-linformer-causal")
@settings(max_examples=15)
@given(seeds)
def test_a_projection_shows_the_first_query_a_later_value(seed):
    """With E of full rank some keys give each slot a weight of its own: F must be 0 where nothing may be seen."""
    rng = np.random.default_rng(seed)
    n, r = 6, 3
    E, F = rng.standard_normal((2, r, n))
    a, j = rng.integers(r), rng.integers(1, n)
    F[:, 1:] = 0
    Q, V = np.ones((n, 1)), rng.standard_normal((n, 2))
    K = np.linalg.pinv(E) @ (20.0 * np.eye(r)[a])[:, None]  # the first query looks at slot a
    later = V.copy()
    later[j] += 1
    causal, _ = an.linformer_attention(Q, K, V, E, F)
    compare(an.linformer_attention(Q, K, later, E, F)[0], causal, name="nothing of later values", atol=0.0)
    F[a, j] = 0.7
    moved = an.linformer_attention(Q, K, later, E, F)[0] - an.linformer_attention(Q, K, V, E, F)[0]
    compare(moved[0], np.full(2, 0.7), name="what leaks", atol=1e-6)


@pytest.mark.claim("prop-linformer-causal", "eq:slot-mask")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_mask_of_complete_slots_is_causal(size, rng):
    n = 8
    blocks = np.kron(np.eye(-(-n // size)), np.ones(size))[:, :n]
    E, F = (blocks * rng.uniform(0.5, 1, blocks.shape) for _ in range(2))
    mask = an.slot_mask(n, E, F)
    np.testing.assert_array_equal(mask.sum(-1), [(i + 1) // size + (n % size > 0 and i == n - 1) for i in range(n)])
    Q, K, V = rng.standard_normal((3, n, 3))
    for j in range(n):
        K2, V2 = K.copy(), V.copy()
        K2[j] += 1
        V2[j] += 1
        changed = an.linformer_attention(Q, K2, V2, E, F, mask, empty_rows="zero")[0]
        plain = an.linformer_attention(Q, K, V, E, F, mask, empty_rows="zero")[0]
        same = np.isclose(changed, plain, atol=1e-12).all(-1)
        assert same[:j].all() and not same[-1]
        assert same[j] == ((j + 1) % size != 0 and j < n - 1), "its own token is seen only where a slot ends"
