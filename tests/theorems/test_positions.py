"""Positions (Chapter 5): a shift is a rotation, rotary scores see differences only, two pairings, a straight line."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 20).map(lambda half: 2 * half)
bases = st.sampled_from([10000.0, 50.0, 3.0])


def shift_matrix(k, d, base):
    """Block by block, as the proposition writes it."""
    R = np.zeros((d, d))
    for i in range(d // 2):
        beta = base ** (-2 * i / d) * k
        R[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[np.cos(beta), -np.sin(beta)], [np.sin(beta), np.cos(beta)]]
    return R


@pytest.mark.claim("def-sinusoidal", "eq:sinusoid")
def test_sinusoids_by_definition():
    E = an.sinusoidal_positions(7, 6, start=3)
    for row in range(7):
        for i in range(3):
            angle = (row + 3) / 10000 ** (2 * i / 6)
            compare(E[row, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)], name=f"position {row + 3}, pair {i}")
    compare(an.sinusoidal_positions(9, 4, 5.0, 2)[:, 3], np.cos((2 + np.arange(9)) * 5**-0.5), name="another base")
    compare(at.sinusoidal_positions(7, 6, start=3, dtype=torch.float64), E, name="the twin")
    assert at.sinusoidal_positions(2, 2).dtype == torch.float32 and E.dtype == np.float64
    assert an.sinusoidal_positions(2, 2, dtype=np.float16).dtype == np.float16
    far = at.sinusoidal_positions(1, 2, start=10**6)[0]
    compare(far, [np.sin(1e6), np.cos(1e6)], name="computed in float64", atol=1e-6)


@pytest.mark.claim("prop-relative-position")
@few
@given(widths, bases, st.integers(-300, 300), st.integers(-300, 300), st.integers(0, 2000))
def test_a_shift_is_one_rotation_for_all_positions(d, base, k, other, start):
    E, moved = an.sinusoidal_positions(11, d, base, start), an.sinusoidal_positions(11, d, base, start + k)
    R = shift_matrix(k, d, base)
    compare(E @ R, moved, name="e_p R_k", atol=1e-9)
    compare(R @ shift_matrix(other, d, base), shift_matrix(k + other, d, base), name="R_k R_l", atol=1e-9)
    compare(R.T, shift_matrix(-k, d, base), name="transpose")
    compare(R @ R.T, np.eye(d), name="orthogonal")


@pytest.mark.claim("lem-sinusoid-kernel")
@few
@given(widths, bases, st.integers(0, 3000), st.integers(0, 3000))
@example(4, 10000.0, 7, 7)
@example(2, 10000.0, 710, 0)  # 710 is nearly a multiple of two pi
def test_inner_products_depend_on_the_distance(d, base, p, q):
    e, f = (an.sinusoidal_positions(1, d, base, start)[0] for start in (p, q))
    kernel = sum(np.cos(base ** (-2 * i / d) * (p - q)) for i in range(d // 2))
    compare(e @ f, kernel, name="kernel", atol=1e-9)
    compare(((e - f) ** 2).sum(), d - 2 * kernel, name="squared distance", atol=1e-9)
    assert (kernel < d / 2) == (p != q)


@pytest.mark.claim("lem-add-concatenate")
@few
@given(seeds, st.integers(2, 6), st.integers(1, 5))
def test_added_positions_can_do_what_appended_ones_can(seed, words, places):
    rng = np.random.default_rng(seed)
    d = words + places + int(rng.integers(0, 3))
    span_x, span_e = rng.standard_normal((words, d)), rng.standard_normal((places, d))
    x, e = rng.standard_normal((5, words)) @ span_x, rng.standard_normal((5, places)) @ span_e
    W = rng.standard_normal((d, 4))
    compare((x + e) @ W, np.hstack([x, e]) @ np.vstack([W, W]), name="appending with shared weights")
    apart = rng.standard_normal((2, 2, d, 4))  # query and key maps of words and of places
    appended = [np.hstack([x, e]) @ np.vstack(list(pair)) for pair in apart]
    terms = sum(
        rows @ apart[0, a] @ apart[1, b].T @ others.T
        for a, rows in enumerate((x, e))
        for b, others in enumerate((x, e))
    )
    compare(appended[0] @ appended[1].T, terms, name="four terms", atol=1e-9 * abs(terms).max())
    A = rng.standard_normal((2, 2, d, d))
    want = x @ A[0, 0] @ x.T + x @ A[0, 1] @ e.T + e @ A[1, 0] @ x.T + e @ A[1, 1] @ e.T
    dual = np.linalg.pinv(np.vstack([span_x, span_e]))
    project = [dual[:, :words] @ span_x, dual[:, words:] @ span_e]
    one = sum(project[a] @ A[a, b] @ project[b].T for a in (0, 1) for b in (0, 1))
    compare((x + e) @ one @ (x + e).T, want, name="four matrices in one", atol=1e-6 * abs(want).max())
    added = [(x + e) @ sum(project[a] @ pair[a] for a in (0, 1)) for pair in apart]
    compare(added[0] @ added[1].T, terms, name="at the same width of the head", atol=1e-6 * abs(terms).max())


@pytest.mark.parametrize("pairing", ["interleaved", "half"])
@pytest.mark.claim("lem-rotary-relative", "eq:rotary")
@few
@given(seeds, widths, bases, st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 5000))
def test_rotary_scores_depend_on_the_difference(pairing, seed, k, base, p, q, both):
    x, y = np.random.default_rng(seed).standard_normal((2, 1, k))

    def score(p, q):
        return (
            an.rotary(x, base=base, start=p, pairing=pairing)[0]
            @ an.rotary(y, base=base, start=q, pairing=pairing)[0].T
        ).item()

    pairs = [z[0].reshape(-1, 2) if pairing == "interleaved" else z[0].reshape(2, -1).T for z in (x, y)]
    X, Y = (pair @ [1, 1j] for pair in pairs)
    waves = abs(X * Y) * np.cos(base ** (-2 * np.arange(k // 2) / k) * (p - q) + np.angle(X) - np.angle(Y))
    compare(score(p, q), waves.sum(), name="sum of waves", atol=1e-8)
    compare(score(p + both, q + both), score(p, q), name="both moved on", atol=1e-8)
    Z = an.rotary(x, base=base, start=p, pairing=pairing)[0]
    compare(np.linalg.norm(Z), np.linalg.norm(x), name="length")


@pytest.mark.claim("lem-rotary-relative")
def test_rotary_scores_do_see_the_difference(rng):
    """The lemma would be empty for a rotation by nothing."""
    x, y = rng.standard_normal((2, 1, 6))
    scores = {(an.rotary(x, start=p)[0] @ y.T).item() for p in range(8)}
    assert np.diff(sorted(scores)).min() > 1e-4


@pytest.mark.claim("lem-rotary-pairing", "eq:rotary-pairing")
@few
@given(seeds, widths, st.integers(0, 100))
def test_the_pairings_are_a_permutation_apart(seed, k, start):
    rng = np.random.default_rng(seed)
    X, order = rng.standard_normal((3, 5, k)), an.half_to_interleaved(k)
    half, _ = an.rotary(X, pairing="half", start=start)
    compare(half[..., order], an.rotary(X[..., order], start=start)[0], name="rotary of the permuted")
    compare(
        an.rotary(X, start=start)[0][..., order.argsort()],
        an.rotary(X[..., order.argsort()], start=start, pairing="half")[0],
        name="and back",
    )
    assert sorted(order) == list(range(k)) and at.half_to_interleaved(k).tolist() == order.tolist()
    for i in range(k // 2):
        assert (order[2 * i], order[2 * i + 1]) == (i, i + k // 2)
    Z, Wq, Wk = rng.standard_normal((5, 7)), *rng.standard_normal((2, 7, k))
    both = [[an.rotary(Z @ W, pairing="half")[0] for W in (Wq, Wk)], [an.rotary(Z @ W[:, order])[0] for W in (Wq, Wk)]]
    scores = [an.dot_score(*pair)[0] for pair in both]
    compare(scores[1], scores[0], name="scores of permuted weights")
    if k > 2:
        wrong = an.dot_score(*(an.rotary(Z @ W)[0] for W in (Wq, Wk)))[0]
        assert abs(wrong - scores[0]).max() > 1e-3


@pytest.mark.claim("eq:alibi")
def test_alibi_by_definition():
    compare(an.alibi_slopes(8), 2.0 ** -np.arange(1, 9), name="eight slopes")
    compare(an.alibi_slopes(2), [2.0**-4, 2.0**-8], name="two slopes")
    slopes = an.alibi_slopes(4)
    B = an.alibi_bias(3, 5, slopes)
    for h in range(4):
        for i in range(3):
            for j in range(5):
                assert B[h, i, j] == -slopes[h] * abs(i + 2 - j)
    compare(at.alibi_bias(3, 5, torch.from_numpy(slopes)), B, name="the twin")
    assert an.alibi_bias(2, 2, slopes.astype(np.float16)).dtype == np.float16


@pytest.mark.parametrize("h", [1, 2, 3, 5, 8, 12, 14])
@pytest.mark.claim("eq:alibi")
def test_alibi_weights_are_those_of_bloom(h, rng):
    """`transformers` adds slope times the key's position, which softmax under a causal mask cannot tell apart."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    n = 7
    theirs = build_alibi_tensor(torch.ones(1, n), h, torch.float64).numpy().reshape(h, 1, n)
    compare(at.alibi_slopes(h, dtype=torch.float64), an.alibi_slopes(h), name="slopes of the twin")
    compare(theirs[:, 0, 1], an.alibi_slopes(h), name="slopes", atol=1e-7)
    S, mask = rng.standard_normal((h, n, n)), an.causal_mask(n)
    weights = [an.softmax(np.where(mask, S + B, -np.inf))[0] for B in (an.alibi_bias(n, n, an.alibi_slopes(h)), theirs)]
    compare(*weights, name="weights", atol=1e-6)


@pytest.mark.claim("eq:relative-score")
@few
@given(seeds, st.integers(1, 6), st.integers(0, 9), st.integers(0, 4))
def test_relative_scores_pair_by_pair(seed, n, more, w):
    rng = np.random.default_rng(seed)
    m = n + more
    Q, K, A = rng.standard_normal((n, 3)), rng.standard_normal((m, 3)), rng.standard_normal((2 * w + 1, 3))
    S, _ = an.relative_score(Q, K, A)
    for i in range(n):
        for j in range(m):
            offset = max(-w, min(w, j - (i + m - n)))
            compare(S[i, j], Q[i] @ (K[j] + A[offset + w]) / 3**0.5, name=f"query {i}, key {j}")
    last, _ = an.relative_score(Q[-1:], K, A)
    compare(last, S[-1:], name="one query with cached keys")
