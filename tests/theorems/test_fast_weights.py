"""The results of the page on memories that decay and correct: what they store, what they lose, and their chunks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import check_vjp, compare

seeds = st.integers(0, 2**32 - 1)


def unit(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def orthonormal(rng, p, k):
    return np.linalg.qr(rng.standard_normal((k, p)))[0].T


ONE = np.ones((1, 1))


@pytest.mark.claim("prop-delta-replaces", "eq:fast-weights")
@settings(max_examples=20)
@given(seeds)
def test_the_delta_rule_replaces_and_linear_attention_adds(seed):
    """One write into any memory: what the key then reads, and what orthogonal keys read."""
    rng = np.random.default_rng(seed)
    k, v = 5, 3
    S, key, value = rng.standard_normal((k, v)), unit(rng.standard_normal((1, k))), rng.standard_normal((1, v))
    others = np.linalg.svd(key)[2][1:]  # orthogonal to the key
    replaced, _ = an.fast_weights_state(key, value, beta=ONE, state=S)
    added, _ = an.fast_weights_state(key, value, state=S)
    compare(key @ replaced, value, name="replaced", atol=1e-12)
    compare(key @ added, key @ S + value, name="added", atol=1e-12)
    compare(others @ replaced, others @ S, name="the others, replaced", atol=1e-12)
    compare(others @ added, others @ S, name="the others, added", atol=1e-12)
    half, _ = an.fast_weights_state(key, value, beta=0.5 * ONE, state=S)
    compare(key @ half, (key @ S + value) / 2, name="half a step", atol=1e-12)


@pytest.mark.claim("prop-delta-replaces")
@settings(max_examples=10)
@given(seeds)
def test_orthonormal_keys_written_in_any_order(seed):
    """A dictionary, to which the memory is compared: the last value, and the sum of all."""
    rng = np.random.default_rng(seed)
    names, values = orthonormal(rng, 4, 6), rng.standard_normal((12, 3))
    order = rng.integers(0, 4, 12)
    last, total = {}, {}
    for i, value in zip(order, values, strict=True):
        last[i], total[i] = value, total.get(i, 0) + value
    K = names[order]
    for beta, wanted in ((ONE, last), (None, total)):
        S, _ = an.fast_weights_state(K, values, beta=beta, chunk=5)
        for i, value in wanted.items():
            compare(names[i] @ S, value, name=f"key {i}", atol=1e-12)


@pytest.mark.claim("prop-delta-replaces", "rem-delta-gradient")
def test_a_write_is_a_step_of_gradient_descent(rng):
    S, key, value = (torch.tensor(rng.standard_normal(shape)) for shape in ((5, 3), (1, 5), (1, 3)))
    S.requires_grad_()
    loss = ((key @ S - value) ** 2).sum() / 2
    (dS,) = torch.autograd.grad(loss, S)
    beta = torch.tensor([[0.3]], dtype=torch.float64)
    written = at.fast_weights_state(key, value, beta=beta, state=S)
    compare(written, S - 0.3 * dS, name="a step of rate beta", atol=1e-12)


@pytest.mark.claim("prop-memory-capacity")
@settings(max_examples=10)
@given(seeds)
def test_as_many_orthonormal_pairs_as_components_and_no_more(seed):
    rng = np.random.default_rng(seed)
    k, v = 6, 4
    K, V = orthonormal(rng, k, k), rng.standard_normal((k, v))
    for beta in (ONE, None):
        S, _ = an.fast_weights_state(K, V, beta=beta)
        compare(K @ S, V, name="all k pairs", atol=1e-12)
    for p in (k + 1, 2 * k):
        K = unit(rng.standard_normal((p, k)))
        left = np.eye(p) - K @ np.linalg.pinv(K)
        compare(np.trace(left) / p, (p - k) / p, name="mean error of the best memory", atol=1e-12)
        V = rng.standard_normal((p, v))
        best, *_ = np.linalg.lstsq(K, V, rcond=None)
        error = ((K @ best - V) ** 2).sum()
        compare(error, ((left @ V) ** 2).sum(), name="error of the best memory", atol=1e-10)
        assert error > 1e-3
        for beta in (ONE, None):
            S, _ = an.fast_weights_state(K, V, beta=beta)
            assert ((K @ S - V) ** 2).sum() > error


def mean_errors(k, p, beta, rng, texts):
    """Squared error of each pair's recall after p writes, values of mean square length 1: mean, and its own error."""
    K = unit(rng.standard_normal((texts, p, k)))
    V = rng.standard_normal((texts, p, 8)) / 8**0.5
    S, _ = an.fast_weights_state(K, V, beta=beta)
    errors = ((K @ S - V) ** 2).sum(-1)
    return errors.mean(0), errors.std(0) / texts**0.5, ((K @ S) * V).sum(-1).mean(0)


@pytest.mark.slow
@pytest.mark.claim("prop-crosstalk")
@pytest.mark.parametrize(("k", "p"), [(5, 4), (16, 24)])
def test_crosstalk_of_random_keys(k, p, rng):
    mean, spread, signal = mean_errors(k, p, None, rng, 3_000)
    assert (np.abs(mean - (p - 1) / k) < 5 * spread).all()
    assert np.abs(signal - 1).max() < 0.1, "no pair is forgotten"
    values = 3 * rng.standard_normal((p, 2))  # any fixed values
    K = unit(rng.standard_normal((3_000, p, k)))
    S, _ = an.fast_weights_state(K, values)
    errors = ((K @ S - values) ** 2).sum(-1)
    lengths = (values**2).sum(-1)
    wanted = (lengths.sum() - lengths) / k
    assert (np.abs(errors.mean(0) - wanted) < 5 * errors.std(0) / 3_000**0.5).all()


def forgetting(k, p):
    """The error of prop-forgetting for each of p pairs, by its recursion."""
    q, errors = 1 - 1 / k, []
    for j in range(1, p + 1):
        x = y = 1.0
        s = k * (1 - q**j)
        for _ in range(p - j):
            x = (1 - 2 / k) * x + 1 / k + (s + 2 * x) / (k * (k + 2))
            y, s = q * y, q * s + 1
        errors.append(x - 2 * y + 1)
    return np.array(errors)


@pytest.mark.slow
@pytest.mark.claim("prop-forgetting")
@pytest.mark.parametrize(("k", "p"), [(5, 7), (16, 20)])
def test_the_delta_rule_forgets_at_a_known_rate(k, p, rng):
    mean, spread, signal = mean_errors(k, p, ONE, rng, 3_000)
    assert (np.abs(mean - forgetting(k, p)) < 5 * spread + 1e-12).all()
    wanted = (1 - 1 / k) ** np.arange(p)[::-1]
    assert np.abs(signal - wanted).max() < 0.05 < (1 - wanted).max()
    assert mean[-1] < 1e-20 and mean.mean() < (p - 1) / k, "the last pair is exact, and on average it errs less"


@pytest.mark.claim("thm-chunked-delta", "eq:memory-scores", "eq:memory-solve", "eq:memory-output", "eq:memory-state")
@settings(max_examples=15)
@given(seeds, st.integers(1, 9), st.booleans())
def test_a_chunk_is_one_triangular_system(seed, C, fine):
    """The page's formulas with loops for the decays and SciPy's triangular solver, against key after key."""
    rng = np.random.default_rng(seed)
    k, v = 4, 3
    Q, K, V = (rng.standard_normal((C, width)) for width in (k, k, v))
    a, b = rng.uniform(0, 1, (C, k if fine else 1)), rng.uniform(0, 2, (C, 1))
    K, S = unit(K), rng.standard_normal((k, v))
    W = np.array([[a[j:i].prod(0) if j <= i else 0 * a[0] for j in range(C + 1)] for i in range(C + 1)])
    A, L = np.zeros((2, C, C))
    for i in range(C):
        for j in range(i + 1):
            A[i, j] = (Q[i] * W[i + 1, j + 1] * K[j]).sum()
            L[i, j] = b[i, 0] * (K[i] * W[i + 1, j + 1] * K[j]).sum() if j < i else 0
    U = solve_triangular(np.eye(C) + L, b * (V - (W[1:, 0] * K) @ S), lower=True, unit_diagonal=True)
    O = A @ U + (W[1:, 0] * Q) @ S
    after = W[C, 0][:, None] * S + (W[C, 1:] * K).T @ U
    got, _ = an.fast_weights_recurrent(Q, K, V, decay=a, beta=b, state=S)
    compare(O, got, name="outputs", atol=1e-11)
    for chunk in (C, 2, 1):
        compare(an.fast_weights(Q, K, V, decay=a, beta=b, state=S, chunk=chunk)[0], O, name="library", atol=1e-11)
        last, _ = an.fast_weights_state(K, V, decay=a, beta=b, state=S, chunk=chunk)
        compare(last, after, name="memory", atol=1e-11)


@pytest.mark.claim("thm-chunked-delta", "lem-wy")
@settings(max_examples=15)
@given(seeds, st.integers(1, 20))
def test_a_product_of_reflections_has_a_compact_form(seed, C):
    rng = np.random.default_rng(seed)
    k = 5
    K, b = unit(rng.standard_normal((C, k))), rng.uniform(0, 2, (C, 1))
    product = np.eye(k)
    for key, beta in zip(K, b, strict=True):
        product = (np.eye(k) - beta * np.outer(key, key)) @ product
    W = solve_triangular(np.eye(C) + b * np.tril(K @ K.T, -1), b * K, lower=True)
    compare(np.eye(k) - K.T @ W, product, name="I - K'W", atol=1e-11)
    none = np.zeros((C, 1))
    moved, _ = an.fast_weights_state(K, none, beta=b, state=np.eye(k)[:, :1])
    compare(moved, product[:, :1], name="the library's memory without values", atol=1e-11)


@pytest.mark.claim("pf:memory-inverse")
@settings(max_examples=15)
@given(seeds, st.integers(1, 70))
def test_the_inverse_of_any_size(seed, C):
    from attnmath.numpy.fast_weights import unit_lower_inverse

    rng = np.random.default_rng(seed)
    L = np.tril(rng.standard_normal((2, C, C)) / C**0.5, -1)
    compare(unit_lower_inverse(L) @ (np.eye(C) + L), np.broadcast_to(np.eye(C), L.shape), name="identity", atol=1e-9)


@pytest.mark.claim("lem-delta-bounded")
@settings(max_examples=20)
@given(seeds, st.floats(0.05, 3))
def test_when_a_write_can_enlarge_the_memory(seed, beta):
    rng = np.random.default_rng(seed)
    key = rng.standard_normal(5)
    for length in (0.5, 1.0, 2.0):
        key *= length / np.linalg.norm(key)
        norm = np.linalg.norm(np.eye(5) - beta * np.outer(key, key), 2)
        compare(norm, max(1.0, abs(1 - beta * length**2)), name="norm", atol=1e-12)
        assert (norm > 1 + 1e-9) == (beta * length**2 > 2 + 1e-9)


@pytest.mark.claim("lem-delta-bounded")
def test_long_keys_let_the_memory_explode(rng):
    """Keys of length 1 keep it below the sum of what is written; random keys of length 8 do not."""
    K, V = rng.standard_normal((200, 64)), rng.standard_normal((200, 4))
    tame, _ = an.fast_weights_state(unit(K), V, beta=ONE)
    wild, _ = an.fast_weights_state(K, V, beta=ONE)
    assert np.linalg.norm(tame) < np.linalg.norm(V, axis=-1).sum() and np.abs(wild).max() > 1e50


@pytest.mark.claim("eq:memory-decays", "eq:memory-decays-vjp")
@pytest.mark.parametrize("width", [1, 4])
def test_products_of_decays(width, rng):
    from attnmath.numpy.fast_weights import memory_decays

    a = rng.uniform(0.2, 1, (2, 5, width))
    W, _ = memory_decays(a)
    for i in range(6):
        for j in range(6):
            wanted = a[:, j:i].prod(1) if j <= i else np.zeros((2, width))
            compare(W[..., i, j], wanted, name=f"W[{i}, {j}]", atol=1e-14)
    check_vjp(lambda a: memory_decays(a), a, rng=rng)
    shut = np.where(rng.random(a.shape) < 0.4, 0, a)
    dW = rng.standard_normal(W.shape)
    leaf = torch.tensor(shut, requires_grad=True)
    from attnmath.torch.fast_weights import memory_decays as twin

    (wanted,) = torch.autograd.grad(twin(leaf), leaf, torch.from_numpy(dW))
    compare(memory_decays(shut)[1](dW), wanted, name="gradient at zeros", atol=1e-12)


@pytest.mark.claim("eq:fast-weights-vjp", "eq:memory-vjp")
@pytest.mark.parametrize("form", [an.fast_weights, an.fast_weights_recurrent])
def test_gradients_of_gates_through_many_chunks(form, rng):
    """Eleven keys in chunks of three, so that a gate's gradient comes from later chunks too."""
    Q, K, V = (rng.standard_normal((2, 11, width)) for width in (4, 4, 3))
    decay, beta, state = rng.uniform(0.6, 0.95, (2, 11, 1)), rng.uniform(0.2, 0.9, (11, 1)), rng.standard_normal((4, 3))

    def f(Q, K, V, decay, beta, state):
        return form(Q, K, V, decay=decay, beta=beta, state=state, chunk=3)

    check_vjp(f, Q, unit(K), V, decay, beta, state, rng=rng)


@pytest.mark.claim("eq:retention-decays", "tab-memories")
def test_special_cases(rng):
    """Rows of the table of rules, each against its own paper's parallel form."""
    n, k = 12, 4
    Q, K, V = rng.standard_normal((3, 2, n, k))
    plain = np.tril(Q @ K.swapaxes(-1, -2)) @ V
    compare(an.fast_weights(Q, K, V, chunk=5)[0], plain, name="linear attention", atol=1e-12)
    gamma = an.retention_decays(2)
    compare(gamma.ravel(), [31 / 32, 63 / 64], name="decays", atol=0.0, rtol=0.0)
    compare(at.retention_decays(2), gamma, name="twin", atol=0.0, rtol=0.0)
    D = np.tril(gamma ** np.subtract.outer(np.arange(n), np.arange(n)))
    retention = (Q @ K.swapaxes(-1, -2) * D) @ V
    compare(an.fast_weights(Q, K, V, decay=gamma, chunk=5)[0], retention, name="retention", atol=1e-12)
    gates = rng.uniform(0.5, 1, (2, n, k))
    B = np.cumprod(gates, -2)
    gated = np.tril((Q * B) @ (K / B).swapaxes(-1, -2)) @ V
    compare(an.fast_weights(Q, K, V, decay=gates, chunk=5)[0], gated, name="gated linear attention", atol=1e-10)
    K, beta = unit(K), rng.uniform(0, 1, (2, n, 1))
    delta = np.tril(Q @ K.swapaxes(-1, -2)) @ np.linalg.solve(
        np.eye(n) + np.tril(beta * K @ K.swapaxes(-1, -2), -1), beta * V
    )
    compare(an.fast_weights(Q, K, V, beta=beta, chunk=5)[0], delta, name="DeltaNet", atol=1e-11)
    half = np.log(0.5) / np.log(an.retention_decays(3).ravel())
    assert (np.abs(half / [22, 44, 88] - 1) < 0.01).all()


@pytest.mark.claim("eq:fast-weights")
def test_rules_in_a_memory_of_two_rows():
    """The page's example: animal 3, street 2, animal 5."""
    K, V = np.array([[1.0, 0], [0, 1], [1, 0]]), np.array([[3.0], [2], [5]])
    half, fine = np.array([[1.0], [1.0], [0.5]]), np.array([[1.0, 1], [1, 1], [0, 1]])
    for options, wanted in (
        ({}, [8, 2]),
        ({"decay": half}, [6.5, 1]),
        ({"decay": fine}, [5, 2]),
        ({"beta": ONE}, [5, 2]),
        ({"beta": ONE, "decay": half}, [5, 1]),
    ):
        S, _ = an.fast_weights_state(K, V, **options)
        compare(S.ravel(), wanted, name=str(options), atol=1e-14)
