"""The page on linear attention: local averages, finitely many features, three forms, and a memory that fills up."""

from functools import partial

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath.check import check_vjp, compare


def as_it_is(X):
    return X, lambda dX: dX


@pytest.mark.claim("lem-local-average")
def test_the_output_is_the_best_constant(rng):
    """Any other answer has a larger sum of squares, by the square of the distance times the sum of the kernel."""
    q, K, V = rng.standard_normal((1, 3)), rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    F, FK = an.elu_plus_one(q)[0], an.elu_plus_one(K)[0]
    for kappa, o in (
        (np.exp(q @ K.T / 3**0.5)[0], an.attention(q, K, V)[0][0]),
        ((F @ FK.T)[0], an.linear_attention(q, K, V)[0][0]),
    ):
        loss = lambda y, kappa=kappa: (kappa * ((V - y) ** 2).sum(-1)).sum()  # noqa: E731
        for _ in range(5):
            step = rng.standard_normal(2)
            compare(loss(o + step) - loss(o), kappa.sum() * step @ step, atol=1e-10)


def weights(Q, K, **options):
    """The matrix of an attention that does not normalise."""
    return an.linear_attention(Q, K, np.eye(len(K)), normalise=False, **options)[0]


@pytest.mark.claim("prop-finite-features")
@pytest.mark.parametrize("n", [3, 6])
def test_no_finite_number_of_features_gives_the_exponential(n, rng):
    """At logarithms and whole numbers the kernel's matrix is Vandermonde's: of full rank, whatever n."""
    x, y = np.log(np.arange(1, n + 1.0))[:, None], np.arange(n)[:, None]
    G = np.exp(x @ y.T)
    det = np.prod([b - a for a in range(1, n + 1) for b in range(a + 1, n + 1)])
    compare(np.linalg.det(G), float(det), atol=0.0, rtol=1e-9)
    for f in (1, 2):
        W = rng.standard_normal((1, f))
        feature = lambda X, W=W: (np.exp(X @ W), None)  # noqa: E731
        assert np.linalg.matrix_rank(weights(x, y.astype(float), feature=feature)) == f < n
    e = an.elu_plus_one(rng.standard_normal((9, 4)))[0]
    assert np.linalg.matrix_rank(weights(e, e, feature=as_it_is)) == 4


def shares(FQ, FK):
    """The weights of features, normalised, of queries and keys that are features already."""
    return an.linear_attention(FQ, FK, np.eye(len(FK)), feature=as_it_is)[0]


@pytest.mark.claim("lem-sharp-rows")
@pytest.mark.parametrize("f", [1, 2, 5])
def test_few_features_are_sharp_at_few_keys(f, rng):
    """However sharp the features, at most f keys have a majority; f of them can, and half cannot be less."""
    most = 0
    for power in (1.0, 5.0, 40.0):
        for _ in range(20):
            FQ, FK = np.exp(power * rng.standard_normal((400, f))), np.exp(power * rng.standard_normal((3 * f, f)))
            winners = np.unique(np.nonzero(shares(FQ, FK) > 0.5)[1])
            most = max(most, len(winners))
            assert len(winners) <= f
    assert most == f or f == 5
    one_each = np.eye(f) + 1e-6
    assert (shares(one_each, one_each).diagonal() > 0.99).all(), "f keys can be sharp"
    twins = np.repeat(one_each, 2, 0)  # each key twice: nearly half the weight is no majority, and 2 f keys have it
    held = np.unique(np.nonzero(shares(one_each, twins) > 0.4999)[1])
    assert len(held) == 2 * f > f


@pytest.mark.claim("lem-sharp-rows")
def test_the_bound_needs_queries_that_see_all_keys():
    """Under a causal mask one feature that grows gives each query's own key nine tenths, however many there are."""
    n = 12
    FQ, FK = np.ones((n, 1)), 10.0 ** np.arange(n)[:, None]
    weights = FQ @ FK.T * np.tri(n)
    assert (weights / weights.sum(1, keepdims=True)).diagonal().min() >= 0.9
    assert len(np.unique(np.nonzero(shares(FQ, FK) > 0.5)[1])) == 1


@pytest.mark.claim("lem-sharp-rows")
def test_two_features_make_one_row_as_sharp_as_you_like():
    feature = lambda X: (np.concatenate([np.exp(20 * X), np.ones_like(X)], -1), None)  # noqa: E731
    W = an.linear_attention(np.ones((1, 1)), np.array([[1.0], [0.0]]), np.eye(2), feature=feature)[0]
    compare(W[0, 1], (1 + np.exp(20)) / (2 + np.exp(20) + np.exp(40)), name="the other key", rtol=1e-12, atol=0.0)
    assert W[0, 1] < 1.01 * np.exp(-20)


@pytest.mark.claim(
    "prop-three-forms",
    "eq:linear-attention",
    "eq:linear-parallel",
    "eq:linear-state",
    "eq:linear-read",
    "eq:linear-chunk",
    "eq:linear-chunk-state",
)
@pytest.mark.parametrize("form", ["parallel", "recurrent", "chunked"])
def test_each_form_is_the_sum_written_out(form, rng):
    n, m, before = 5, 8, 3
    Q, K, V = rng.standard_normal((n, 3)), rng.standard_normal((m, 3)), rng.standard_normal((m, 2))
    FQ, FK = an.elu_plus_one(Q)[0], an.elu_plus_one(K)[0]
    want = np.empty((n, 2))
    for i in range(n):
        seen = range(before + i + 1)
        w = [sum(FQ[i, a] * FK[j, a] for a in range(3)) for j in seen]
        want[i] = sum(w[j] * V[j] for j in seen) / sum(w)
    compare(an.linear_attention(Q, K, V, causal=True, form=form, chunk=2)[0], want, atol=1e-13)


@pytest.mark.claim(
    "prop-linear-gradients",
    "eq:linear-attention-vjp",
    "eq:linear-parallel-vjp",
    "eq:linear-state-vjp",
    "eq:linear-read-vjp",
    "eq:linear-chunk-vjp",
    "eq:elu-plus-one-vjp",
)
@pytest.mark.parametrize("form", ["parallel", "recurrent", "chunked"])
def test_gradients_of_each_form(form, rng):
    Q, K, V = rng.standard_normal((5, 3)), rng.standard_normal((8, 3)), rng.standard_normal((8, 2))
    check_vjp(partial(an.linear_attention, causal=True, form=form, chunk=2), Q, K, V, rng=rng)


@pytest.mark.claim("prop-fast-weights")
def test_what_a_memory_holds(rng):
    """Exact for orthonormal keys; for random ones the mean squared error is (N - 1) / f; beyond f none fits all."""
    f, v = 8, 3
    read = partial(an.linear_attention, feature=as_it_is, normalise=False)
    U = np.linalg.qr(rng.standard_normal((f, f)))[0]
    V = rng.standard_normal((f, v))
    compare(read(U, U, V)[0], V, name="orthonormal keys", atol=1e-13)
    for N in (2, 8, 20):
        K = an.unit_norm(rng.standard_normal((4000, N, f)))[0]
        V = an.unit_norm(rng.standard_normal((4000, N, v)))[0]
        error = ((read(K, K, V)[0] - V) ** 2).sum(-1)
        spread = error.mean(-1).std() / 4000**0.5
        assert abs(error.mean() - (N - 1) / f) < 5 * spread and spread < 0.05 * (N - 1) / f
    K = rng.standard_normal((f + 1, f))
    assert np.linalg.matrix_rank(read(K, K, np.eye(f + 1))[0]) == f, "f + 1 different answers cannot all be right"
    best = np.linalg.lstsq(K, np.eye(f + 1), rcond=None)[0]
    compare(((K @ best - np.eye(f + 1)) ** 2).sum(), 1.0, name="the best state errs by f + 1 - f", atol=1e-10)


@pytest.mark.claim("errata-linear-not-random")
def test_nothing_is_drawn(rng):
    """Linear attention returns the same bits twice; its kernel is no approximation of the exponential."""
    Q, K, V = rng.standard_normal((3, 40, 8))
    first, again = (an.linear_attention(Q, K, V)[0] for _ in range(2))
    assert (first == again).all()
    far = abs(first - an.attention(Q, K, V)[0]).max()
    assert far > 0.1
    draws = [an.performer_attention(Q, K, V, directions=an.draw_directions(16, 8, rng))[0] for _ in range(2)]
    assert abs(draws[0] - draws[1]).max() > 0.01
