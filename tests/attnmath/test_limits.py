"""The tools of the page on limits: messages and their bits, layers by hand, bounds, and what they refuse."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import logsumexp

import attnmath.numpy as an
from attnmath import limits
from attnmath.check import compare


@pytest.mark.parametrize("cut", [1, 4, 8])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_two_summaries_merge_to_pytorchs_attention(cut, size, rng):
    S, V = size * rng.standard_normal((3, 9)), rng.standard_normal((3, 9, 4))
    parts = [limits.summarise(S[:, part], V[:, part]) for part in (slice(cut), slice(cut, 9))]
    L, o = limits.merge(*parts)
    Q, K = torch.from_numpy(S[:, None]), torch.eye(9, dtype=torch.float64).expand(3, 9, 9)
    compare(o, F.scaled_dot_product_attention(Q, K, torch.from_numpy(V), scale=1.0)[:, 0], atol=1e-12)
    compare(L, logsumexp(S, axis=-1), atol=1e-10)
    compare(parts[0][0], logsumexp(S[:, :cut], axis=-1), atol=1e-10)


def test_a_message_is_as_long_as_it_says_and_as_exact_as_its_bits(rng):
    L, o = rng.uniform(-5, 5, 200), rng.uniform(-2, 2, (200, 7))
    for precision in (1, 3, 10, 40):
        message = limits.send((L, o), precision, (5.0, 2.0))
        assert message.bits == limits.summary_bits(200, 7, precision) == 1600 * precision
        assert 0 <= message.codes.min() and message.codes.max() < 2**precision
        for found, true, size in zip(message.open(), (L, o), (5.0, 2.0), strict=True):
            worst, allowed = abs(found - true).max(), size / (2**precision - 1)
            assert 0.9 * allowed < worst <= allowed * (1 + 1e-9)
    ends = limits.send((np.array([-5.0, 5.0]), np.array([[2.0], [-2.0]])), 4, (5.0, 2.0)).open()
    compare(np.concatenate([ends[0], ends[1][:, 0]]), [-5.0, 5.0, 2.0, -2.0])


def test_bits_are_logarithms_of_counts():
    for n, m in ((2, 2), (3, 5), (4, 3)):
        tables = len(list(itertools.product(range(m), repeat=n)))
        assert limits.table_bits(n, m) == pytest.approx(math.log2(tables), rel=1e-12)
    for bits in (0, 1, 2, 3, 384, 12672, 198144):
        n = limits.largest_table(bits)
        assert limits.table_bits(n) <= bits < limits.table_bits(n + 1)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_the_two_layers_are_those_of_the_equation(n, rng):
    """The circuits of the equation, from the matrices of the library's heads."""
    params, beta = limits.composing_layers(n, 7.0), 7.0
    X = params["embeddings"]["word"][None] + params["embeddings"]["position"][:, None]
    u = limits.clock(n)
    for i, (asks, keys, out) in enumerate((((0, 2), (2, 4), (6, 8)), ((6, 8), (4, 6), (8, 10)))):
        own = {name: leaf["weight"] for name, leaf in params["layers"][str(i)]["attention"].items()}
        QK = own["query"] @ own["key"].T / math.sqrt(own["query"].shape[-1])
        want = np.zeros((10, 10))
        want[slice(*asks), slice(*keys)] = beta * np.eye(2)
        compare(QK, want, atol=1e-12)
        want = np.zeros((10, 10))
        want[0:2, slice(*out)] = np.eye(2)
        compare(own["value"] @ own["output"], want)
    for place in range(2 * n + 1):
        marks = np.zeros(8)
        marks[0:2], marks[2:4] = (u[place], 0) if place < n else (0, u[place - n] if place < 2 * n else 0)
        compare(X[place], np.concatenate([u, np.tile(marks, (n, 1))], 1))


def test_the_parities_are_those_of_counting(rng):
    for n in (1, 2, 9, 64):
        bits = rng.integers(0, 2, (50, n))
        signs = (-1.0) ** bits.sum(-1)
        compare(limits.faint_parity(bits), signs / (n + 1) ** 2, atol=1e-15)
        z = limits.sharp_parity(bits, 3.0)
        m, places = bits.sum(-1)[:, None], np.arange(n + 1)
        weights = np.exp(-3.0 * (m - places) ** 2)
        compare(z, (weights * (-1.0) ** places).sum(-1) / weights.sum(-1), atol=1e-12)
    compare(limits.faint_parity([1, 1, 0]), 1 / 16)


REFUSED = [
    (lambda: limits.table_bits(0), "keys is 0; it must be an integer >= 1"),
    (lambda: limits.table_bits(3, 0), "values is 0"),
    (lambda: limits.summary_bits(1, 2, 0), "precision is 0"),
    (lambda: limits.largest_table(-1), "bits is -1; it must be >= 0"),
    (lambda: limits.summarise(np.zeros(0), np.zeros((0, 2))), "n >= 1"),
    (lambda: limits.summarise(np.zeros(3), np.zeros((2, 2))), r"S has shape \(3,\) and V \(2, 2\)"),
    (lambda: limits.send((np.zeros(1), np.full((1, 1), 3.0)), 4, (1.0, 2.0)), "agree on wider ones"),
    (lambda: limits.send((np.full(1, np.nan), np.zeros((1, 1))), 4, (1.0, 2.0)), "agree on wider ones"),
    (lambda: limits.send((np.zeros(1), np.zeros((1, 1))), 53, (1.0, 2.0)), "52 bits at most"),
    (lambda: limits.rounding_bound(0, (1.0, 1.0)), "precision is 0"),
    (lambda: limits.margin_bits(0.0, 1.0, (1.0, 1.0)), "lead is 0.0"),
    (lambda: limits.sharpness(1), "nothing to look up"),
    (lambda: limits.composing_layers(1), "nothing to look up"),
    (lambda: limits.composing_layers(3, 0.0), "scale is 0.0; it must be > 0"),
    (lambda: limits.sensitivity_bound(0, radius=1, scores=1, values=1), "n is 0"),
    (lambda: limits.sensitivity_bound(9, radius=0, scores=1, values=1), "radius is 0"),
    (lambda: limits.sensitivity_bound(9, radius=1, scores=-1, values=1), "scores is -1"),
    (lambda: limits.sensitivity_bound(9, radius=1, scores=1, values=1, slope=0.0), "slope is 0.0"),
    (lambda: limits.coin_floor(-1.0), "change is -1.0"),
    (lambda: limits.faint_parity([0, 2]), "zeros and ones"),
    (lambda: limits.faint_parity(np.zeros((2, 0))), "zeros and ones"),
    (lambda: limits.sharp_parity([0, 1], 0.0), "sharpness is 0.0"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_the_library_is_what_the_page_calls_a_layer(rng):
    """Rows without projections of their own: softmax of X A X^T, times X B, is the library's attention."""
    X, A, B = rng.standard_normal((5, 3)), rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    O, _ = an.attention(X @ A, X, X @ B, scale=1.0)
    L, o = limits.summarise(X @ A @ X.T, X @ B)
    compare(o, O, atol=1e-12)
    compare(L, logsumexp(X @ A @ X.T, axis=-1), atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_bound_has_a_closed_form_for_even_weights_and_for_two_layers(layers):
    b, R, c, n = 0.7, 1.3, 0.9, 40
    found = limits.sensitivity_bound(n, radius=R, scores=0.0, values=b, layers=layers, slope=c)
    assert found == pytest.approx(layers * 4 * b * R * c**layers * (1 + b) ** (layers - 1) / n, rel=1e-12)
    a, first = 0.3, c * 4 * b * R * math.exp(2 * 0.3 * R**2) / n
    wide = c * (1 + b) * R
    passed, fresh = (1 + b + 2 * a * b * wide**2) * first, 4 * b * wide * math.exp(2 * a * wide**2) / n
    two = limits.sensitivity_bound(n, radius=R, scores=a, values=b, layers=2, slope=c)
    assert two == pytest.approx(c * (passed + fresh), rel=1e-12)


def test_the_floor_falls_from_a_coins_loss_to_none():
    assert limits.coin_floor(0) == math.log(2)
    assert limits.coin_floor(9.2) == pytest.approx(0.01, abs=1e-4)
    assert limits.sharpness(4) == pytest.approx(2 * math.log(64))
    assert limits.sharpness(8) == pytest.approx(2 / (1 - 0.5**0.5) * math.log(128 / (1 - 0.5**0.5)))
