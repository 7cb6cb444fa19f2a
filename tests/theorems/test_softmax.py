"""The vectorised form, its masks, and softmax in floating point: what the two chapters prove, over drawn inputs.

Each test names the labels that it would refute. Each was seen to fail with the fault that its comment names.
"""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jaxtyping import config

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

U = {np.float16: 2.0**-11, np.float32: 2.0**-24, np.float64: 2.0**-53}
quick = settings(max_examples=40, deadline=None, derandomize=True)
scores = st.integers(1, 9).flatmap(lambda m: arrays(np.float64, m, elements=st.floats(-30, 30)))
seeds = st.integers(0, 2**32 - 1)


def draw(seed, n=3, m=5, k=2, v=7):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, k)), rng.standard_normal((m, k)), rng.standard_normal((m, v))


def jacobian(f, x):
    """Row i of the Jacobian is the vjp of the i-th unit vector."""
    y, vjp = f(x)
    return np.array([vjp(e) for e in np.eye(y.size)])


# ---- softmax, log-sum-exp, Jacobian ------------------------------------------------------------------------------


@pytest.mark.claim("lem-shift-invariance", "pf:softmax-shift")
@given(x=scores, c=st.sampled_from([-1e4, -3.0, 0.5, 1e4]))
@quick
def test_a_common_shift_of_the_scores_changes_nothing(x, c):  # fault: E = exp(S), no maximum
    for f in (an.softmax, lambda x: (at.softmax(torch.tensor(x)).numpy(), None)):
        compare(f(x + c)[0], f(x)[0], name="softmax(x + c)", rtol=1e-10)
    compare(an.log_softmax(x + c)[0], an.log_softmax(x)[0], name="log_softmax(x + c)", atol=1e-10)
    y = an.log_softmax(x)[0]  # the converse: equal weights, so the scores differ by a constant, here lse(x)
    compare(x - y, np.full_like(x, an.logsumexp(x)[0]), name="x - log softmax(x)", atol=1e-12, rtol=1e-12)


@pytest.mark.claim("lem-softmax-jacobian", "pf:softmax-jacobian", "eq:softmax-vjp")
@given(x=scores, seed=seeds)
@quick
def test_the_jacobian_is_a_covariance(x, seed):  # fault: vjp without the row correction; with the factor 2
    J = jacobian(an.softmax, x)
    p = an.softmax(x)[0]
    z = np.random.default_rng(seed).standard_normal(x.size)
    compare(J, np.diag(p) - np.outer(p, p), name="J", atol=1e-15)
    compare(z @ J @ z, (p * (z - (p * z).sum()) ** 2).sum(), name="the variance of z under p", atol=1e-13)
    compare(J.sum(-1), np.zeros_like(p), name="J 1", atol=1e-15)
    values = np.linalg.eigvalsh(J)
    assert values.min() > -1e-14 and values.max() <= 0.5 + 1e-14
    if p.min() > 1e-11:  # every other eigenvalue is at least min p; rounding moves them all by some 1e-16
        assert (values < 1e-3 * p.min()).sum() == 1, "the kernel of J is spanned by ones"


@pytest.mark.claim("lem-softmax-jacobian")
def test_half_is_attained_and_a_vanished_weight_joins_the_kernel():  # fault: J / 2; J without diag
    assert np.isclose(np.linalg.eigvalsh(jacobian(an.softmax, np.zeros(2))).max(), 0.5)
    J = jacobian(an.softmax, np.array([0.0, 0.0, -np.inf]))
    assert np.linalg.matrix_rank(J) == 1 and not J[2].any() and not J[:, 2].any()


@pytest.mark.claim("eq:softmax-vjp")
def test_a_cotangent_of_ones_sees_nothing(rng):  # fault: a vjp with the sum over all axes
    P, vjp = an.softmax(rng.standard_normal((3, 5)), 0.7)
    compare(vjp(np.ones_like(P)), np.zeros_like(P), name="vjp of ones", atol=1e-15)
    assert np.abs(vjp(rng.standard_normal(P.shape))).max() > 0.01


@pytest.mark.claim("lem-lse-bounds", "eq:logsumexp")
@given(x=scores)
@quick
def test_log_sum_exp_is_just_above_the_maximum(x):  # fault: mean for sum
    L, top = an.logsumexp(x)[0], x.max()
    assert top <= L <= top + np.log(x.size) + 1e-12
    compare(an.logsumexp(np.full_like(x, x[0]))[0], x[0] + np.log(x.size), name="all equal", atol=1e-12)
    if x.size > 1 and np.sort(x)[-2] > top - 20:
        assert L > top, "the lower bound is attained for one score only"


@pytest.mark.claim("lem-lse-convex", "eq:logsumexp-vjp")
@given(x=scores, seed=seeds, a=st.floats(0.05, 0.95))
@quick
def test_log_sum_exp_is_convex_with_gradient_softmax(x, seed, a):  # fault: -logsumexp; vjp without dL
    y = x + np.random.default_rng(seed).standard_normal(x.size) * 3

    def L(x):
        return an.logsumexp(x)[0]

    assert L(a * x + (1 - a) * y) <= a * L(x) + (1 - a) * L(y) + 1e-12
    assert L(y) >= L(x) + an.softmax(x)[0] @ (y - x) - 1e-12, "above its tangent"
    compare(an.logsumexp(x)[1](np.asarray(-2.0)), -2 * an.softmax(x)[0], name="vjp", atol=1e-14)
    compare(L(x + 7), L(x) + 7, name="linear along ones", atol=1e-12)


@pytest.mark.claim("eq:log-softmax", "eq:log-softmax-vjp")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_log_softmax_is_finite_and_accurate_at_ten_thousand(dtype, rng):  # fault: log(softmax); S - logsumexp(S)
    x = np.array([1e4, 9992, -1e4, 0], dtype)  # exact in float16
    logP, vjp = an.log_softmax(x)
    want = x.astype(float) - 1e4 - np.log1p(np.exp(-8.0))
    assert np.isfinite(logP).all() and logP.dtype == dtype
    compare(logP, want, name="log_softmax", rtol=4 * U[dtype], atol=U[dtype])
    compare(at.log_softmax(torch.tensor(x)), want, name="its twin", rtol=4 * U[dtype], atol=U[dtype])
    dlogP = rng.standard_normal(4).astype(dtype)
    want = dlogP - np.exp(want) * dlogP.sum(dtype=float)
    compare(vjp(dlogP), want, name="vjp", rtol=16 * U[dtype], atol=16 * U[dtype])


# ---- floating point ------------------------------------------------------------------------------------------------


@pytest.mark.claim("pf:softmax-shift")
@pytest.mark.parametrize(("dtype", "threshold"), [(np.float64, 709.782), (np.float32, 88.722), (np.float16, 11.086)])
def test_overflow_thresholds(dtype, threshold):  # fault: threshold 709 for float32; softmax without the shift
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isfinite(np.exp(dtype(threshold))) and np.isinf(np.exp(dtype(threshold + 0.02)))
        x = np.array([threshold + 0.02, 0], dtype)
        naive = np.exp(x) / np.exp(x).sum()
    assert np.isnan(naive[0]), "the formula without the shift"
    compare(an.softmax(x)[0], np.array([1, np.exp(-threshold - 0.02)]), name="softmax", atol=1e-4)
    assert np.log(float(np.finfo(dtype).max)) == pytest.approx(threshold, abs=0.005)


@pytest.mark.claim("lem-softmax-error")
@pytest.mark.parametrize(("dtype", "c"), [(np.float64, 2), (np.float32, 5), (np.float16, 2)])
def test_rounding_error_of_softmax_is_within_the_bound(dtype, c):  # fault: scores shifted by their minimum; u / 8
    rng = np.random.default_rng(3)
    for m in (2, 8, 33):
        low = {np.float64: -600, np.float32: -80, np.float16: -8}[dtype]
        x = rng.uniform(low / 2, -low / 2, m).astype(dtype)
        with localcontext() as context:
            context.prec = 50
            E = [Decimal(s).exp() for s in x.tolist()]
            exact = [e / sum(E) for e in E]
            error = [float(abs(Decimal(q) - p) / p) for q, p in zip(an.softmax(x)[0].tolist(), exact, strict=True)]
        bound = (x.max() - x.astype(float) + np.log(m) + m + 2 * c) * U[dtype]
        normal = np.array([float(p) for p in exact]) > np.finfo(dtype).tiny
        assert (np.array(error) <= bound * (1 + bound))[normal].all(), "beyond the bound"


@pytest.mark.claim("lem-softmax-error")
def test_weights_of_a_long_float16_row_sum_to_one_in_any_layout():  # fault: E.sum without the float32 accumulator
    assert np.add.accumulate(np.ones(4096, np.float16))[-1] == 2048, "a float16 accumulator stops"
    S = np.zeros((4096, 2), np.float16).T
    P, _ = an.softmax(S)
    assert P.dtype == np.float16 and (P.sum(-1, dtype=np.float64) == 1).all()
    compare(an.logsumexp(S)[0], np.full(2, np.log(4096)), name="logsumexp", rtol=1e-3)
    assert (at.softmax(torch.tensor(S)).double().sum(-1) == 1).all()


@pytest.mark.claim("pf:fused-softmax")
def test_scaling_the_queries_is_scaling_the_scores_until_float16_overflows(rng):  # fault: Q / k
    Q, K, _ = draw(1)
    compare(an.softmax((Q / np.sqrt(2)) @ K.T)[0], an.attention_weights(Q, K)[0], name="scale first")
    q = np.full((1, 64), 40, np.float16)
    with np.errstate(over="ignore"):
        assert np.isinf(q @ q.T).all() and ((q / np.float16(8)) @ q.T == 12_800).all()


# ---- the matrix form -----------------------------------------------------------------------------------------------


@pytest.mark.claim("ex-worked-example")
def test_worked_example():  # fault: softmax over the queries; no factor
    X = np.array([[1.0, 2, 0, 1], [1, 0, 2, 2], [0, 0, 2, 2]])
    Q = X @ np.array([[1.0, -1], [1, 0], [1, 1], [0, 0]])
    K = X @ np.array([[1.0, 4], [6, 0], [4, 2], [3, 2]]) / 10
    V = X @ np.array([[1.0, 1], [0, 1], [0, 0], [0, 1]])
    compare(Q @ K.T, [[4.2, 3.3, 3.4], [5.4, 5.7, 5.0], [4.4, 5.4, 4.4]], name="scores")
    compare(an.attention_weights(Q, K)[0][0], [0.48, 0.25, 0.27], name="weights of position 1", atol=0.005)
    compare(an.attention(Q, K, V)[0], [[0.7292, 3.206], [0.7479, 3.0824], [0.7517, 3.0]], name="O", atol=5e-4)


@pytest.mark.claim(
    "lem-matrix-identities", "def-scaled-dot-product", "pf:score-entry", "eq:attention-weights", "pf:output-row"
)
@given(seed=seeds, n=st.integers(1, 6), m=st.integers(1, 6), k=st.integers(1, 6))
@quick
def test_matrix_form_row_by_row(seed, n, m, k):  # fault: items 2 and 3 without the factor; softmax over axis -2
    Q, K, V = draw(seed, n, m, k)
    P, O = an.attention_weights(Q, K)[0], an.attention(Q, K, V)[0]
    for i in range(n):
        row = np.array([sum(Q[i, c] * K[j, c] for c in range(k)) / k**0.5 for j in range(m)])
        compare(Q[i] @ K.T / k**0.5, row, name="item 1", atol=1e-13)
        weights = np.exp(row) / np.exp(row).sum()
        compare(P[i], weights, name="items 2 and 4", rtol=1e-10)
        compare(O[i], sum(weights[j] * V[j] for j in range(m)), name="items 3 and 5", rtol=1e-10, atol=1e-12)
        general = an.general_attention(Q, K, V, an.scaled_dot_score)[0]
        compare(O, general, name="general attention with f = q.k / sqrt(d_k), g = identity", atol=1e-13)


@pytest.mark.claim("lem-matrix-identities")
def test_the_factor_and_the_common_width_are_needed(rng):  # fault: factor 1
    q, K = rng.standard_normal((1, 64)), rng.standard_normal((7, 64))
    assert np.abs(an.attention_weights(q, K)[0] - an.softmax(q @ K.T)[0]).max() > 0.1
    config.update("jaxtyping_disable", True)  # else the tests' own shape checks speak first
    try:
        with pytest.raises(ValueError, match="with k = 64"):
            an.attention_weights(q, K[:, :63])
    finally:
        config.update("jaxtyping_disable", False)


@pytest.mark.slow
@pytest.mark.claim("eq:attention-vjp-qk", "eq:attention-vjp-v")
@given(seed=seeds)
@quick
def test_gradients_of_attention(seed):  # fault: dS = P * dP; the factor missing from dK
    Q, K, V = draw(seed)
    dO = np.random.default_rng(seed + 1).standard_normal((3, 7))
    P, O = an.attention_weights(Q, K)[0], an.attention(Q, K, V)[0]
    dQ, dK, dV = an.attention(Q, K, V)[1](dO)
    dP = dO @ V.T
    row = (P * dP).sum(-1)
    compare((dO * O).sum(-1), row, name="the row correction is dO_i . o_i", atol=1e-12)
    dS = P * (dP - row[:, None])
    want = dS @ K / 2**0.5, dS.T @ Q / 2**0.5, P.T @ dO
    compare((dQ, dK, dV), want, name="the derivation", atol=1e-12)
    tensors = [torch.tensor(A, requires_grad=True) for A in (Q, K, V)]
    twin = torch.autograd.grad(at.attention(*tensors), tensors, torch.tensor(dO))
    compare((dQ, dK, dV), twin, name="the twin's autograd", atol=1e-12)
    shifted = an.attention(Q, K, V + np.arange(7.0))[1](dO)
    compare(shifted[:2], (dQ, dK), name="a common shift of the values", atol=1e-10)


# ---- masks ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.claim("eq:masked-scores", "eq:attention-weights")
@given(seed=seeds)
@quick
def test_masked_weights_are_zero_and_the_others_those_of_fewer_keys(seed):  # fault: -1e4 unscaled; mask after softmax
    Q, K, V = draw(seed)
    mask = np.random.default_rng(seed).random((3, 5)) < 0.5
    mask[:, seed % 5] = True
    P, O = an.attention_weights(Q, K, mask)[0], an.attention(Q, K, V, mask)[0]
    assert (P[~mask] == 0).all() and np.allclose(P.sum(-1), 1)
    for i in range(3):
        compare(
            O[i], an.attention(Q[i : i + 1], K[mask[i]], V[mask[i]])[0][0], name="only the allowed keys", atol=1e-12
        )
    with np.errstate(divide="ignore"):
        additive = an.softmax(an.scaled_dot_score(Q, K)[0] + np.log(mask.astype(float)))[0]
    compare(P, additive, name="adding 0 and -inf", atol=1e-14)


@pytest.mark.claim("eq:masked-scores")
@given(seed=seeds)
@quick
def test_the_three_interfaces_and_their_two_polarities(seed):  # fault: no inversion for nn.MultiheadAttention
    X = torch.tensor(np.random.default_rng(seed).standard_normal((1, 5, 4)))
    mask = torch.tensor(np.random.default_rng(seed).random((5, 5)) < 0.5) | torch.eye(5, dtype=torch.bool)
    mha = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True, dtype=torch.float64).requires_grad_(False)
    mha.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    mha.out_proj.weight.copy_(torch.eye(4))
    want = an.attention(*[X.numpy()] * 3, mask.numpy())[0]
    compare(at.attention(X, X, X, mask), want, name="twin", atol=1e-12)
    compare(F.scaled_dot_product_attention(X, X, X, attn_mask=mask), want, name="True = take part", atol=1e-12)
    compare(mha(X, X, X, attn_mask=~mask)[0], want, name="True = ignore", atol=1e-12)


@pytest.mark.slow
@pytest.mark.claim("eq:masked-scores", "errata-causal-direction")
@given(seed=seeds, t=st.integers(1, 4))
@quick
def test_a_causal_mask_keeps_the_past_from_the_future(seed, t):  # fault: np.tri(5).T; np.tri(5, 5, 1)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5, 3))
    edited = X.copy()
    edited[t:] += 1 + rng.random((5 - t, 3))
    for mask, keeps in ((np.tri(5, dtype=bool), True), (np.tri(5, dtype=bool).T, False)):
        before, after = (an.attention(A, A, A, mask)[0][:t] for A in (X, edited))
        assert np.array_equal(before, after) == keeps


@pytest.mark.claim("pf:causal-rectangular")
@given(seed=seeds, n=st.integers(1, 4))
@quick
def test_the_last_queries_align_at_the_bottom_right(seed, n):  # fault: np.tri(n, m), the top left
    X = np.random.default_rng(seed).standard_normal((5, 3))
    whole = an.attention(X, X, X, np.tri(5, dtype=bool))[0]
    last = an.attention(X[-n:], X, X, np.tri(n, 5, 5 - n, dtype=bool))[0]
    compare(last, whole[-n:], name="bottom right", atol=1e-13)
    x = torch.tensor(X)[None, None]
    top_left = F.scaled_dot_product_attention(x[..., -n:, :], x, x, is_causal=True)[0, 0]
    compare(top_left, an.attention(X[-n:], X, X, np.tri(n, 5, dtype=bool))[0], name="is_causal", atol=1e-13)
    assert np.abs(top_left.numpy() - last).max() > 1e-6


@pytest.mark.claim("eq:masked-scores")
def test_rows_with_nothing_to_see():  # fault: empty_rows ignored; -1e9 for -inf
    Q, K, V = draw(5)
    mask = np.tri(3, 5, dtype=bool)
    mask[1] = False
    for f, wrap in ((an.attention, np.asarray), (at.attention, torch.tensor)):
        args = [wrap(A) for A in (Q, K, V, mask)]
        with pytest.raises(ValueError, match=r"row \(1,\) may attend to no key"):
            f(*args)
        O = f(*args, empty_rows="zero")
        O = O[0] if f is an.attention else O.numpy()
        assert not O[1].any() and np.isfinite(O).all() and O[0].any() and O[2].any()
    cotangents = an.attention(Q, K, V, mask, empty_rows="zero")[1](np.ones((3, 7)))
    assert all(np.isfinite(d).all() for d in cotangents) and not cotangents[0][1].any()


@pytest.mark.claim("errata-minus-1e9")
def test_a_finite_constant_hides_an_empty_row():  # fault: rows with an allowed key
    s = torch.tensor([2.0, 1.0, 0.0])
    compare(torch.softmax(s - 1e4, -1), torch.softmax(s, -1), name="-1e4 added: as if unmasked", atol=1e-6)
    compare(torch.softmax(s - 1e9, -1), torch.full((3,), 1 / 3), name="-1e9 added: uniform", atol=1e-6)
    assert torch.isneginf(torch.tensor(-1e9).to(torch.float16)), "not finite in float16"
    assert torch.softmax(s.to(torch.float16) + torch.tensor(-1e9).to(torch.float16), -1).isnan().all()
    for c in (-1e4, -1e9):  # where some key may be seen, a finite constant leaks exactly nothing
        assert torch.softmax(torch.tensor([0.0, c]), -1)[1] == 0


@pytest.mark.claim("eq:attention")
def test_leading_axes_are_independent_attentions(rng):  # fault: the mask (b, m) read as (b, 1, 1, m)
    Q, K, V = (rng.standard_normal((2, 3, *A.shape)) for A in draw(0))
    real = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
    O = an.attention(Q, K, V, real[:, None, None, :])[0]
    for b in range(2):
        for h in range(3):
            compare(O[b, h], an.attention(Q[b, h], K[b, h], V[b, h], real[b])[0], name="one head", atol=1e-13)
    with pytest.raises(ValueError, match="does not broadcast to the scores' shape"):
        an.attention(Q, K, V, real)
