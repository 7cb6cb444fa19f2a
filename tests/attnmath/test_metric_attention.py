"""Metric attention and heat on a graph: references, bad input, equal forms, offsets, and what is kept."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from scipy.spatial.distance import cdist

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import check_vjp, compare
from attnmath.count import bytes_held
from attnmath.heat import dirichlet_energy, graph_heat, walk_spectrum, without_density
from tests.attnmath.refusals import check_refused, lift

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def graph(rng, n=7):
    """A connected graph with loops, some edges missing."""
    A = rng.random((n, n)) * (rng.random((n, n)) < 0.5)
    return A + A.T + np.diag(rng.random(n)) + 0.3 * (abs(np.subtract.outer(range(n), range(n))) == 1)


def test_scores_are_those_of_scipy(rng):
    Q, K = rng.standard_normal((5, 4)), rng.standard_normal((7, 4))
    compare(an.metric_score(Q, K, 0.7)[0], -cdist(Q, K, "sqeuclidean") / (2 * 0.7**2), atol=1e-12)


@pytest.mark.slow
def test_the_kernel_is_that_of_scikit_learn(rng):
    from sklearn.metrics.pairwise import rbf_kernel  # seconds

    Q, K = rng.standard_normal((5, 4)), rng.standard_normal((7, 4))
    compare(np.exp(an.metric_score(Q, K, 0.7)[0]), rbf_kernel(Q, K, gamma=1 / (2 * 0.7**2)), atol=1e-13)


def test_attention_is_the_general_form_with_the_score(rng):
    """Two ways to one function: the biased dot product, and the softmax of the distances themselves."""
    Q, K, V = rng.standard_normal((3, 5, 4)), rng.standard_normal((3, 7, 4)), rng.standard_normal((3, 7, 2))
    mask, width = rng.random((3, 5, 7)) < 0.5, np.array([0.4, 1.0, 2.0])
    mask[..., 2] = True
    O, vjp = an.metric_attention(Q, K, V, width, mask)
    want, general_vjp = an.general_attention(Q, K, V, an.metric_score, (width,), mask=mask)
    compare(O, want, atol=1e-13)
    dO = rng.standard_normal(O.shape)
    dQ, dK, dV, dwidth = vjp(dO)
    wQ, wK, wV, (wwidth,), *_ = general_vjp(dO)
    compare((dQ, dK, dV, dwidth), (wQ, wK, wV, wwidth), atol=1e-12)


@WORLDS
def test_a_common_offset_costs_no_digits(world, rng):
    """In float32, a hundred thousand from the origin; the formula expanded there is wrong by far more."""
    Q, K, V = (rng.integers(-8, 8, s) / 4 for s in ((6, 4), (9, 4), (9, 2)))
    far = [np.float32(X + 1e5) for X in (Q, K)]
    compare(np.float64(far[0]) - 1e5, Q, atol=0.0, rtol=0.0)  # the offset itself rounds nothing away
    A = [lift(world, X) for X in (*far, np.float32(V))]
    O, S = world.metric_attention(*A, 1.0), world.metric_score(*A[:2], 1.0)
    O, S = (X[0] if world is an else X for X in (O, S))
    compare(O, an.metric_attention(Q, K, V, 1.0)[0], atol=0.05)
    compare(S, -cdist(Q, K, "sqeuclidean") / 2, atol=0.2)
    plain = -((far[0] ** 2).sum(-1)[:, None] + (far[1] ** 2).sum(-1) - 2 * far[0] @ far[1].T) / 2
    assert abs(plain + cdist(Q, K, "sqeuclidean") / 2).max() > 100


@WORLDS
def test_no_score_is_positive(world, rng):
    X = lift(world, 100 + rng.standard_normal((40, 5)).astype(np.float32))
    S = world.metric_score(X, X, 0.01)
    S = np.asarray(S[0] if world is an else S)
    assert S.max() <= 0 and abs(np.diag(S)).max() < 0.1 < -S.min()


def test_nothing_quadratic_is_kept(rng):
    """2,000 tokens: the weights alone would be 32 megabytes."""
    X = rng.standard_normal((2000, 8))
    _, vjp = an.metric_attention(X, X, X, 1.0)
    assert 2 * X.nbytes < bytes_held(vjp) < 2000**2 * 8 / 3


@pytest.mark.slow
def test_in_a_decoder_of_both_worlds(rng):
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 1, 9, heads=3), rng, 0.5)
    ids, width = rng.integers(0, 11, (2, 9)), np.array([0.5, 1.0, 2.0])

    def model(params):
        return an.decoder_only(ids, params, 3, attend=partial(an.metric_attention, bandwidth=width))

    Y, _ = model(params)
    core = partial(at.metric_attention, bandwidth=torch.from_numpy(width))
    twin = at.decoder_only(torch.from_numpy(ids), at.from_numpy(params), 3, attend=core)
    compare(twin, Y, name="twin", atol=1e-11)
    assert abs(Y - an.decoder_only(ids, params, 3)[0]).max() > 1e-2, "another attention"
    check_vjp(model, params, rng=rng)


@WORLDS
def test_each_head_has_its_width(world, rng):
    Q, K, V = (rng.standard_normal(s) for s in ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 2)))
    width = np.array([0.3, 1.0, 5.0])
    O = world.metric_attention(*(lift(world, X) for X in (Q, K, V, width)))
    O = O[0] if world is an else O
    for h, w in enumerate(width):
        compare(O[:, h], an.metric_attention(Q[:, h], K[:, h], V[:, h], float(w))[0], atol=1e-12)


X = np.ones((4, 3))
BAD = [
    ("metric_score", (X, np.ones((5, 2)), 1.0), {}, r"K has shape \(5, 2\), expected \(\.\.\., m, k\) with k = 3"),
    ("metric_score", (X, np.ones((0, 3)), 1.0), {}, r"K has shape \(0, 3\): its axis -2 is empty; at least one key"),
    ("metric_score", (X, X, 0.0), {}, r"bandwidth holds a number that is not positive and finite.*exponential"),
    ("metric_score", (X, X, np.array([1.0, -2.0])), {}, r"bandwidth holds a number that is not positive"),
    ("metric_attention", (X, X, X, np.inf), {}, r"bandwidth holds a number that is not positive and finite"),
    ("metric_attention", (X, X, X, np.ones(2, np.float32)), {}, r"bandwidth has dtype .*float32 but Q has"),
    (
        "metric_attention",
        (np.ones((2, 4, 3)), X, X, np.ones(3)),
        {},
        r"bandwidth has leading axes \(3,\), which do not",
    ),
    ("metric_attention", (X, X, np.ones((3, 3)), 1.0), {}, r"V has shape \(3, 3\), expected .* with m = 4"),
    ("metric_attention", (X, X, X, 1.0), {"mask": np.zeros((4, 4), bool)}, r"row \(0,\) may attend to no key"),
    ("metric_attention", (X, X, X, 1.0), {"empty_rows": "nan"}, r"empty_rows is 'nan'; expected one of"),
]


@WORLDS
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, world, as_users_call):
    check_refused(world, *BAD[row])


GRAPHS = [
    (walk_spectrum, (np.ones((2, 3)),), r"A has shape \(2, 3\); expected a square matrix"),
    (walk_spectrum, (np.array([[1.0, 2.0], [0.0, 1.0]]),), "A is not symmetric or has a negative entry"),
    (walk_spectrum, (np.array([[1.0, -2.0], [-2.0, 9.0]]),), "A is not symmetric or has a negative entry"),
    (dirichlet_energy, (np.diag([1.0, 0.0]), np.ones(2)), "A has a row of zeros; a node without an edge"),
    (dirichlet_energy, (np.ones((2, 2)), np.ones(3)), r"X has shape \(3, 1\)"),
    (graph_heat, (np.ones((2, 2)), -1.0), r"time is -1\.0; it must be >= 0"),
    (without_density, (np.ones((2, 3)),), r"A has shape \(2, 3\)"),
]


@pytest.mark.parametrize("row", range(len(GRAPHS)))
def test_what_is_no_graph_gets_a_sentence(row, as_users_call):
    f, args, message = GRAPHS[row]
    with pytest.raises(ValueError, match=message) as error:
        f(*args)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("time", [0.0, 0.3, 1.0, 7.0])
def test_heat_is_scipys_matrix_exponential(time, rng):
    A = graph(rng)
    P = A / A.sum(-1, keepdims=True)
    compare(graph_heat(A, time), expm(-time * (np.eye(len(A)) - P)), atol=1e-12)


def test_spectrum_is_numpys_and_its_vectors_are_orthonormal(rng):
    A = graph(rng)
    P = A / A.sum(-1, keepdims=True)
    values, U, share = walk_spectrum(A)
    compare(np.sort(values), np.sort(np.linalg.eigvals(P).real), atol=1e-12)
    compare(P @ U, U * values, atol=1e-12)
    compare((U.T * share) @ U, np.eye(len(A)), atol=1e-12)
    compare(share @ P, share, atol=1e-13)


def test_energy_is_the_sum_over_pairs(rng):
    A, X = graph(rng), rng.standard_normal((7, 3))
    pairs = sum(A[i, j] * ((X[i] - X[j]) ** 2).sum() for i in range(7) for j in range(7)) / 2
    compare(dirichlet_energy(A, X), pairs, atol=1e-11)
    compare(dirichlet_energy(A, X[:, 0]), dirichlet_energy(A, X[:, :1]), atol=0.0)


def test_density_is_divided_out_of_the_kernel(rng):
    """And scores in the thousands do not overflow."""
    S = an.metric_score(*[rng.standard_normal((6, 2))] * 2, 0.5)[0]
    A = np.exp(S)
    rho = A.sum(0)
    for alpha in (0.0, 0.5, 1.0):
        compare(np.exp(without_density(S, alpha)), A / np.outer(rho, rho) ** alpha, atol=1e-12)
    compare(without_density(S + 2000, 1.0) - without_density(S, 1.0), np.full((6, 6), -2000.0), atol=1e-9)
