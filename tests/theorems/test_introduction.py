"""The lemmas of Chapter 1: what a recurrent state forgets, what it can hold, and the direct path of attention."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath.check import compare


def last_state_jacobian(X, h0, W, U, b):
    """dh_T / dh_0, one row per component of h_T, through the vjp."""
    H, vjp = an.rnn(X, h0, W, U, b)
    rows = []
    for i in range(len(h0)):
        dH = np.zeros_like(H)
        dH[-1, i] = 1
        rows.append(vjp(dH)[1])
    return np.stack(rows), H


@pytest.mark.claim("lem-spectral-bound", "eq:rnn-vjp")
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.floats(0.1, 3.0), st.integers(0, 2**32 - 1))
def test_the_spectral_bound_holds_and_is_attained(steps, sigma, seed):
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((5, 5))
    U *= sigma / np.linalg.norm(U, 2)
    X, h0, W = rng.standard_normal((steps, 3)), rng.standard_normal(5), rng.standard_normal((3, 5))
    J, H = last_state_jacobian(X, h0, W, U, np.zeros(5))
    norm = np.linalg.norm(J, 2)

    def bound(gamma):
        return (gamma * sigma) ** steps

    assert norm <= bound((1 - H**2).max()) * (1 + 1e-9)
    # at rest, with an orthogonal matrix, the bound is an equality: without it a bound that is too weak would pass
    rest, _ = last_state_jacobian(np.zeros((steps, 3)), np.zeros(5), W, sigma * np.linalg.qr(U)[0], np.zeros(5))
    compare(np.linalg.norm(rest, 2), bound(1.0), name="norm at rest", rtol=1e-9)


@pytest.mark.claim("lem-saturated-fixed-point")
@pytest.mark.parametrize("u", [1.01, 1.5, 3.0, 10.0])
def test_a_network_that_amplifies_forgets_at_its_fixed_point(u):
    h = np.ones(1)
    for _ in range(5000):
        h = np.tanh(u * h)
    W, U, b, X = np.zeros((1, 1)), np.array([[u]]), np.zeros(1), np.zeros((1, 1))
    at_rest, _ = last_state_jacobian(X, np.zeros(1), W, U, b)
    saturated, H = last_state_jacobian(X, h, W, U, b)
    assert h[0] > 0
    compare(H[0], h, name="the fixed point", atol=1e-9)
    compare(at_rest[0, 0], u, name="slope at rest")
    assert 0 < saturated[0, 0] < 1
    grid = np.linspace(1e-6, 1, 100_001)
    assert (np.diff(np.sign(np.tanh(u * grid) - grid)) != 0).sum() == 1, "one positive fixed point"


@pytest.mark.claim("lem-counting")
@pytest.mark.parametrize(
    ("s", "n", "bits"), [(2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 1, 1), (3, 1, 2), (4, 1, 1), (4, 1, 2)]
)
def test_a_code_exists_exactly_if_there_are_bits_enough(s, n, bits):
    """Over all maps from sequences to states: one without a collision exists if and only if h b >= n log2 s."""
    codes = itertools.product(range(2**bits), repeat=s**n)
    recoverable = any(len(set(code)) == s**n for code in codes)
    assert recoverable == (bits >= n * np.log2(s))


@pytest.mark.claim("lem-linear-memory")
def test_a_linear_reader_gets_at_most_one_number_per_number(rng):
    """Exactly, over all 2^8 sign sequences: the R² of all positions sum to at most the width, whatever the network."""
    X = np.array(list(itertools.product([-1.0, 1.0], repeat=8)))
    assert np.allclose(X.T @ X / len(X), np.eye(8))  # uncorrelated, variance 1

    def bound(width):
        return min(width, 8)  # no more than there are numbers

    totals = []
    for width, scale in ((1, 1.0), (2, 0.5), (3, 1.0), (3, 3.0), (12, 1.0)):
        W, U = rng.standard_normal((1, width)), scale * rng.standard_normal((width, width)) / width**0.5
        H, _ = an.rnn(X[..., None], np.zeros((len(X), width)), W, U, np.zeros(width))
        state = H[:, -1] - H[:, -1].mean(0)
        fit = state @ np.linalg.lstsq(state, X, rcond=None)[0]
        r2 = (fit**2).mean(0)
        assert r2.sum() <= bound(width) + 1e-9
        totals.append(r2.sum())
    assert totals[0] > 0.5 and totals[-1] > 4, "and networks use much of it"
    kept = X[:, :3] - X[:, :3].mean(0)  # a state of the first three numbers attains the bound
    fit = kept @ np.linalg.lstsq(kept, X, rcond=None)[0]
    compare((fit**2).mean(0).sum(), float(bound(3)), name="the sum of R² of three kept numbers", atol=1e-9)


@pytest.mark.claim("lem-direct-path")
def test_the_path_through_the_values_is_the_weight_whatever_the_distance(rng):
    Q, K, V = rng.standard_normal((7, 4)), rng.standard_normal((11, 4)), rng.standard_normal((11, 3))
    P, _ = an.attention_weights(Q, K)
    O, vjp = an.attention(Q, K, V)
    J = np.zeros((7, 3, 11, 3))
    for i, c in np.ndindex(7, 3):
        dO = np.zeros_like(O)
        dO[i, c] = 1
        J[i, c] = vjp(dO)[2]
    compare(J, np.einsum("ij,cd->icjd", P, np.eye(3)), name="do_i / dv_j")
    compare(P.mean(-1), np.full(7, 1 / 11), name="mean factor")
