"""The results of the page on selective scans: associativity, the gate, the duality with masked attention, its rank."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)


def joined(first, second):
    """Two steps h -> a h + b, one after the other, as one step."""
    return second[0] * first[0], second[0] * first[1] + second[1]


@pytest.mark.claim("lem-scan-associative", "eq:linear-scan", "eq:linear-scan-vjp", "alg-parallel-scan")
@settings(max_examples=25)
@given(seeds, st.integers(1, 70))
def test_steps_may_be_joined_in_any_order(seed, n):
    """Exactly, in integers; and so a tree of any shape gives the states of the recurrence, as does the library."""
    rng = np.random.default_rng(seed)
    p, q, r = (tuple(int(x) for x in rng.integers(-9, 10, 2)) for _ in "pqr")
    assert joined(joined(p, q), r) == joined(p, joined(q, r))

    def tree(steps):
        if len(steps) == 1:
            return steps[0]
        cut = int(rng.integers(1, len(steps)))
        return joined(tree(steps[:cut]), tree(steps[cut:]))

    a, b = rng.uniform(-1, 1, n), rng.standard_normal(n)
    H, vjp = an.linear_scan(a[:, None], b[:, None], form="parallel")
    h = 0.0
    for t in range(n):
        h = a[t] * h + b[t]
        compare(H[t, 0], h, name="the recurrence", atol=1e-11)
    compare(tree(list(zip(a, b, strict=True)))[1], h, name="a tree", atol=1e-11)
    dH = rng.standard_normal((n, 1))
    compare(vjp(dH), an.linear_scan(a[:, None], b[:, None])[1](dH), name="cotangents", atol=1e-10)


@pytest.mark.claim("alg-parallel-scan")
@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_a_parallel_scan_does_linear_work_in_logarithmically_many_rounds(n, monkeypatch):
    """Counted while the library's own function runs: every round once down, and fewer than 2 n joints."""
    module = import_module("attnmath.numpy.selective_scan")  # the package gives the function by that name

    sizes, real = [], module.scan_parallel

    def counting(A, B, axis):
        sizes.append(A.shape[axis])
        return real(A, B, axis)

    monkeypatch.setattr(module, "scan_parallel", counting)
    counting(np.full((n, 1), 0.5), np.ones((n, 1)), 0)
    assert len(sizes) == int(np.log2(n)) + 1 and sum(size // 2 + (size - 1) // 2 for size in sizes) < 2 * n


@pytest.mark.claim("prop-gate")
@given(st.floats(-20, 20), st.floats(-3, 3), st.floats(-3, 3))
def test_one_state_is_a_gate(z, before, u):
    """With A = -1, B = 1 and a step softplus(z), the zero-order hold is (1 - sigmoid(z)) h + sigmoid(z) u."""
    step, gate = np.logaddexp(0, z), 1 / (1 + np.exp(-z))
    a, b = an.discretise(-np.ones((1, 1)), np.ones((1, 1)), float(step))
    compare(a[0, 0] * before + b[0, 0] * u, (1 - gate) * before + gate * u, name="gate", atol=1e-9)


def drawn(rng, n, s, p):
    B, C, X = rng.standard_normal((n, s)), rng.standard_normal((n, s)), rng.standard_normal((n, p))
    return B, C, X, -rng.exponential(0.3, n)


@pytest.mark.claim("thm-duality", "eq:state-space-dual", "eq:selective-scan", "eq:dual-chunk")
@settings(max_examples=20)
@given(seeds, st.integers(1, 30), st.integers(1, 5), st.integers(1, 4))
def test_a_scan_is_masked_linear_attention(seed, n, s, p):
    """The recurrence, the product with the mask written entry by entry, both forms of the library, and its scan."""
    rng = np.random.default_rng(seed)
    B, C, X, g = drawn(rng, n, s, p)
    H, Y = np.zeros((s, p)), []
    for t in range(n):
        H = np.exp(g[t]) * H + np.outer(B[t], X[t])
        Y.append(C[t] @ H)
    L = np.array([[np.exp(g[j + 1 : i + 1].sum()) if j <= i else 0.0 for j in range(n)] for i in range(n)])
    compare((L * (C @ B.T)) @ X, Y, name="the product", atol=1e-10)
    for chunk in (None, 4):
        compare(an.state_space_dual(C, B, X, decay=g, chunk=chunk)[0], Y, name=f"chunk={chunk}", atol=1e-10)
    step = np.broadcast_to(-g[:, None], X.shape)  # every channel has the rate -1 and the same step
    scanned, _ = an.selective_scan(X / step, step, np.full((p, s), -1.0), B, C)
    compare(scanned, Y, name="selective scan", atol=1e-8)


@pytest.mark.claim("prop-semiseparable")
@settings(max_examples=15)
@given(seeds, st.integers(1, 4))
def test_every_block_below_the_diagonal_has_the_rank_of_the_state(seed, s):
    rng = np.random.default_rng(seed)
    n = 16
    B, C, _, g = drawn(rng, n, s, 1)
    W, _ = an.state_space_dual(C, B, np.eye(n), decay=0.3 * g)
    for row in range(s, n - s):  # rows from this one on, columns up to it: the block holds one entry of the diagonal
        values = np.linalg.svd(W[row:, : row + 1], compute_uv=False)
        assert (values[s:] < 1e-10 * values[0]).all() and values[s - 1] > 1e-10 * values[0]
        wider = np.linalg.svd(W[row:, : row + 2], compute_uv=False)  # one column more, which begins with a zero
        assert wider[s] > 1e-10 * wider[0]
    softmax, _ = an.attention_weights(C, B, an.causal_mask(n))
    assert np.linalg.matrix_rank(softmax[n // 2 :, : n // 2], tol=1e-10) > s


@pytest.mark.claim("lem-decay-gradient", "eq:dual-decay-vjp", "eq:state-space-dual-vjp", "eq:dual-chunk-vjp")
@settings(max_examples=15)
@given(seeds, st.integers(1, 12))
def test_the_gradient_of_a_decay_needs_two_inner_products(seed, n):
    """Against the derivative of each entry of the mask, written out."""
    rng = np.random.default_rng(seed)
    B, C, X, g = drawn(rng, n, 3, 2)
    dY = rng.standard_normal((n, 2))
    L = np.array([[np.exp(g[j + 1 : i + 1].sum()) if j <= i else 0.0 for j in range(n)] for i in range(n)])
    M = (dY @ X.T) * L * (C @ B.T)
    want = [sum(M[i, j] for i in range(k, n) for j in range(k)) for k in range(n)]
    for chunk in (None, 3):
        compare(an.state_space_dual(C, B, X, decay=g, chunk=chunk)[1](dY)[3], want, name="dg", atol=1e-10)


@pytest.mark.claim("eq:selective-scan-vjp")
def test_recomputed_states_give_the_gradient_of_kept_ones(rng):
    from tests.attnmath.cases.selective_scan import scanned

    args = scanned(2, n=23)(rng)
    dY = rng.standard_normal(args[0].shape)
    want = an.selective_scan(*args, chunk=100)[1](dY)
    for chunk, form in ((1, "sequential"), (5, "parallel"), (23, "parallel")):
        compare(an.selective_scan(*args, chunk=chunk, form=form)[1](dY), want, name="cotangents", atol=1e-11)


@pytest.mark.claim("eq:mamba", "eq:mamba2", "eq:mamba-vjp", "eq:mamba2-vjp")
@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_a_layer_is_causal_and_its_step_depends_on_the_input(name, rng):
    from attnmath.shapes import random_tree
    from tests.attnmath.cases.selective_scan import MAMBA, MAMBA2

    layer, tree = getattr(an, name), {"mamba": MAMBA, "mamba2": MAMBA2}[name]
    params, X = random_tree(tree, rng, 0.7), rng.standard_normal((9, 6))
    later = X.copy()
    later[5:] += 1
    Y, moved = layer(X, params)[0], layer(later, params)[0]
    compare(moved[:5], Y[:5], name="the past", atol=1e-13)
    assert np.abs(moved[5:] - Y[5:]).min() > 1e-6
    assert np.abs(layer(2 * X, params)[0] - 2 * Y).max() > 0.1  # a layer with fixed steps and no gate would be linear
