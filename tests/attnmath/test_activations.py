"""Activations block by block: what whole arrays give, in the memory of the result, as precise as stated."""

import tracemalloc

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.count import bytes_held
from attnmath.numpy.blockwise import BLOCK, blockwise
from attnmath.numpy.normal import LOG_ODDS, density, distribution


def sigmoid(X):
    return 1 / (1 + np.exp(-X))


def tanh(X):
    return np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X**3))


def tanh_slope(X):
    return (1 + tanh(X) + X * (1 - tanh(X) ** 2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * X**2)) / 2


# name: the function and its slope, as a page writes them
FORMULAS = {
    "gelu": (lambda X: X * ndtr(X), lambda X: ndtr(X) + X * np.exp(-X * X / 2) / np.sqrt(2 * np.pi)),
    "gelu_tanh": (lambda X: X * (1 + tanh(X)) / 2, tanh_slope),
    "silu": (lambda X: X * sigmoid(X), lambda X: sigmoid(X) + X * sigmoid(X) * (1 - sigmoid(X))),
}
SHAPES = [(0, 3), (3, 0), (1,), (), (BLOCK,), (2, BLOCK - 1), (2, 3, BLOCK // 2 + 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-14), ("float32", 4e-6), ("float16", 6e-3)])
@pytest.mark.parametrize("name", FORMULAS)
def test_blocks_give_what_the_whole_array_gives(name, dtype, atol, shape, rng):
    X, dY = (np.asarray(2 * rng.standard_normal(shape), dtype) for _ in range(2))
    value, slope = FORMULAS[name]
    Y, vjp = getattr(an, name)(X)
    dX = vjp(dY)
    assert Y.dtype == dX.dtype == X.dtype and Y.shape == dX.shape == X.shape
    exact = X.astype(np.float64)
    compare(Y.astype(np.float64), value(exact), name=name, atol=atol)
    compare(dX.astype(np.float64), dY.astype(np.float64) * slope(exact), name=f"{name}'s vjp", atol=4 * atol)


@pytest.mark.parametrize("name", FORMULAS)
def test_the_order_in_memory_does_not_matter(name, rng):
    X, dY = rng.standard_normal((2, 7, 5))
    Y, vjp = getattr(an, name)(X.T)
    assert (Y == getattr(an, name)(X)[0].T).all() and Y.any()
    assert (vjp(dY.T) == getattr(an, name)(X)[1](dY).T).all()


def test_half_precision_is_rounded_once():
    X = np.arange(-8, 8, 2.0**-8, dtype=np.float16)
    for name in FORMULAS:
        exact = FORMULAS[name][0](X.astype(np.float64))
        off = np.abs(getattr(an, name)(X)[0].astype(np.float64) - exact)
        assert (off <= 0.502 * np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64) + 2e-7).all(), name


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_out_there_is_no_overflow(name, dtype):
    X = np.array([-np.finfo(dtype).max, -1e4, -100, 100, 1e4, np.finfo(dtype).max], dtype)
    Y, vjp = getattr(an, name)(X)
    np.testing.assert_allclose(Y, np.maximum(X, 0), atol=1e-40)
    np.testing.assert_allclose(vjp(np.full(6, 3, dtype)), [0, 0, 0, 3, 3, 3], atol=1e-30)


@pytest.mark.slow
def test_the_error_of_the_distribution_in_single_precision():
    """The bound that its docstring states, at six million numbers, and that tails keep their first digits."""
    x = np.concatenate([np.linspace(-14, 14, 6_000_001), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    P, exact = distribution(x).astype(np.float64), ndtr(x.astype(np.float64))
    assert 1e-8 < np.abs(P - exact).max() < 2e-7
    tail = (x > -4) & (x < 0)
    assert np.abs(P / exact - 1)[tail].max() < 5e-4
    assert np.abs(density(x) - np.exp(-(x.astype(np.float64) ** 2) / 2) / np.sqrt(2 * np.pi)).max() < 1e-7


@pytest.mark.slow
def test_no_other_polynomial_of_that_degree_is_much_better():
    """The coefficients found again: least squares, reweighted by its own errors (Lawson), of log-odds on 0 … 6."""
    x = 3 * (1 - np.cos(np.pi * (np.arange(2000) + 0.5) / 2000))
    powers = x[:, None] ** np.arange(1, 2 * len(LOG_ODDS), 2)
    odds, slope = log_ndtr(-x) - log_ndtr(x), np.maximum(x, 0.3) * ndtr(x) * ndtr(-x) + 1e-8

    def error(c):
        return np.abs(powers @ c - odds) * slope  # of x Φ(x), to first order

    weights, best = np.ones_like(x), np.inf
    for _ in range(300):
        rows = slope * np.sqrt(weights)
        scale = np.abs(powers * rows[:, None]).max(0)
        c = np.linalg.lstsq(powers * rows[:, None] / scale, odds * rows, rcond=None)[0] / scale
        best = min(best, error(c).max())
        weights *= error(c)
        weights /= weights.mean()
    assert 0 < error(np.array(LOG_ODDS)).max() < 1.1 * best


def peak(f):
    tracemalloc.start()
    try:
        result = f()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", FORMULAS)
def test_memory_is_that_of_the_result_and_a_few_blocks(name, rng):
    """Time is not the code's alone, but a second array of full size would show here, and costs time on any machine."""
    X, dY = (rng.standard_normal(64 * BLOCK).astype(np.float32) for _ in range(2))
    few = 8 * BLOCK * X.itemsize
    forward, (_, vjp) = peak(lambda: getattr(an, name)(X))
    backward, dX = peak(lambda: vjp(dY))
    assert X.nbytes <= forward < X.nbytes + few
    assert dX.nbytes <= backward < dX.nbytes + few
    assert bytes_held(vjp) == X.nbytes, "the vjp holds its argument alone"


def test_a_function_may_not_be_given_its_own_result_to_read(rng):
    """`out` is a block of the result: arguments stay as they are, also where the last block is short."""
    X = rng.standard_normal(BLOCK + 3)
    before = X.copy()

    def doubled(x, out):
        np.add(x, x, out)

    assert (blockwise(doubled, X) == 2 * before).all() and (X == before).all()


# linear maps


@pytest.mark.parametrize(("lead", "i", "o"), [((0, 3), 5, 2), ((2, 0), 5, 2), ((2, 3), 0, 4), ((2, 3), 5, 0)])
def test_a_linear_map_of_nothing(lead, i, o, rng):
    X, W, b, dY = (rng.standard_normal(shape) for shape in ((*lead, i), (i, o), (o,), (*lead, o)))
    Y, vjp = an.linear(X, W, b)
    compare(Y, X @ W + b, name="Y")
    dX, dW, db = vjp(dY)
    compare((dX, dW, db), (dY @ W.T, np.einsum("abi,abo->io", X, dY), dY.sum((0, 1))), name="cotangents")
    Y, vjp = an.affine(X, {"weight": W})
    compare(Y, X @ W, name="without a bias")
    compare(vjp(dY)[1]["weight"], dW, name="dW")


@pytest.mark.parametrize("activation", [an.gelu, an.gelu_tanh, an.silu, an.relu])
@pytest.mark.parametrize("network", [an.feed_forward, an.gated_feed_forward])
def test_a_feed_forward_network_of_an_empty_batch(network, activation, rng):
    names = ("gate", "up") if network is an.gated_feed_forward else ("up",)
    up = {name: {"weight": rng.standard_normal((5, 7)), "bias": rng.standard_normal(7)} for name in names}
    Y, vjp = network(np.zeros((0, 3, 5)), {**up, "down": {"weight": rng.standard_normal((7, 5))}}, activation)
    dX, dparams = vjp(np.zeros((0, 3, 5)))
    assert Y.shape == dX.shape == (0, 3, 5)
    assert dparams["up"]["weight"].shape == (5, 7) and not dparams["up"]["bias"].any(), "a sum of nothing is 0"


def test_the_bias_of_many_rows_in_half_precision():
    """A sum of ones in float16 would stop at 2048."""
    X, W, b = np.ones((5000, 1), np.float16), np.ones((1, 3), np.float16), np.zeros(3, np.float16)
    _, vjp = an.linear(X, W, b)
    db = vjp(np.ones((5000, 3), np.float16))[2]  # of several columns: NumPy sums a single one in float32
    assert db.dtype == np.float16 and (db == 5000).all()
