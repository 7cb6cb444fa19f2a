"""The results of the pages on the cost of self-attention and on the layers it is compared with."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import count
from attnmath.check import check_vjp, compare

sizes, small = st.integers(1, 5000), st.integers(1, 40)
few = settings(max_examples=25)


def counted(f, *args):
    with FlopCounterMode(display=False) as counter:
        f(*args)
    return counter.get_total_flops()


def leaves(n, d, k, v):
    return [torch.zeros(shape, requires_grad=True) for shape in ((n, d), (d, k), (d, k), (d, v))]


def bounds(n, d, k, v):
    """What the time of self-attention lies between, by prop-time."""
    unit = n * (n + d) * (k + v)
    return 2 * unit, 5 * unit


@pytest.mark.claim("prop-time")
def test_the_constants_of_the_time_cannot_be_better():
    n = 10**6  # long texts of width 1 attain both, in the limit
    least, most = bounds(n, 1, 1, 1)
    products = count.self_attention_flops(n, 1, 1, 1)
    assert (products / least, (products + 6 * n * n) / most) == pytest.approx((1, 1), rel=1e-3)


@pytest.mark.claim("prop-time", "eq:self-attention-flops")
@given(sizes, sizes, sizes, sizes)
def test_time_is_of_the_stated_order_and_the_square_leads_beyond_the_border(n, d, k, v):
    products = count.self_attention_flops(n, d, k, v)
    least, most = bounds(n, d, k, v)
    assert least <= products <= products + 6 * n * n <= most
    square = count.attention_flops(n, n, k, v)
    assert (square > products - square) == (n * (k + v) > d * (2 * k + v))
    if n <= d:
        assert square < products - square
    if n >= 2 * d:
        assert square > products - square


@pytest.mark.claim("prop-time", "eq:self-attention-flops")
@few
@given(small, small, small, small)
def test_the_instrument_counts_the_products_of_the_layer(n, d, k, v):
    assert counted(at.self_attention, *leaves(n, d, k, v)) == count.self_attention_flops(n, d, k, v)


@pytest.mark.claim("lem-backward-twice")
@few
@given(small, small, small, small, st.booleans())
def test_the_way_back_costs_twice_the_way_there(n, d, k, v, through_X):
    X, *W = leaves(n, d, k, v)
    O = at.self_attention(X.requires_grad_(through_X), *W)
    expected = 2 * count.self_attention_flops(n, d, k, v) - (not through_X) * 2 * n * d * (2 * k + v)
    assert counted(O.backward, torch.ones_like(O)) == expected


def in_blocks(X, *W):
    """The layer with its attention in blocks."""
    O, attention_vjp = an.attention_chunked(*(X @ w for w in W), chunk=4)

    def vjp(dO):
        dY = attention_vjp(dO)
        return sum(dy @ w.T for dy, w in zip(dY, W, strict=True)), *(X.T @ dy for dy in dY)

    return O, vjp


@pytest.mark.claim("prop-space")
@few
@given(st.integers(-4, 4), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_the_plain_layer_holds_its_weights_and_the_layer_in_blocks_does_not(beyond, d, k, v):
    n = max(1, d + 2 * k + v + beyond)
    rng = np.random.default_rng([n, d, k, v])
    args = [rng.standard_normal(shape) for shape in ((n, d), (d, k), (d, k), (d, v))]
    (O, vjp), (_, vjp_blocks) = an.self_attention(*args), in_blocks(*args)
    parameters, rest = d * (2 * k + v), n * d + 2 * n * k + n * v
    assert count.bytes_held(vjp) == 8 * (parameters + rest + n * n)
    assert count.bytes_held(vjp_blocks) == 8 * (parameters + rest + n * v + 2 * n)
    assert (n * n > rest) == (beyond > 0)
    dO = rng.standard_normal(O.shape)
    compare(vjp_blocks(dO), vjp(dO), name="gradients in blocks", atol=1e-10)


@pytest.mark.claim("lem-cheaper-layer", "eq:rnn-flops", "eq:conv-flops")
@few
@given(small, st.integers(1, 24), st.integers(1, 9))
def test_which_layer_is_cheaper(n, d, r):
    zeros = torch.zeros
    cell, h = torch.nn.LSTMCell(d, d), zeros(1, d)
    attention = counted(at.self_attention, *leaves(n, d, d, d))
    recurrent = counted(at.rnn, zeros(n, d), zeros(d), zeros(d, d), zeros(d, d), zeros(d))
    convolution = counted(at.causal_conv, zeros(n, d), zeros(r, d, d), zeros(d))
    lstm = n * counted(cell, h, (h, h))
    assert recurrent == count.rnn_flops(n, d, d) and convolution == count.conv_flops(n, r, d, d)
    assert attention > recurrent and lstm == 4 * recurrent
    assert (attention < lstm) == (2 * n < 5 * d)
    assert (attention < convolution) == (2 * n < (r - 3) * d)


@pytest.mark.claim("lem-cheaper-layer")
@pytest.mark.parametrize("d", [2, 6, 10])
def test_the_borders_between_cheaper_and_dearer(d):
    cell, h = torch.nn.LSTMCell(d, d), torch.zeros(1, d)
    lstm, widths = counted(cell, h, (h, h)), (4, 5, 8)
    borders = [5 * d // 2, *((r - 3) * d // 2 for r in widths)]  # d is even: whole numbers, where the costs are equal
    for border, r in zip(borders, (None, *widths), strict=True):
        for n in (border - 1, border, border + 1):
            if n < 1:
                continue
            other = n * lstm if r is None else counted(at.causal_conv, *map(torch.zeros, ((n, d), (r, d, d), (d,))))
            attention = counted(at.self_attention, *leaves(n, d, d, d))
            assert (attention < other, attention == other) == (n < border, n == border)


@pytest.mark.claim("eq:rnn-flops", "eq:conv-flops")
@few
@given(small, small, small, st.integers(1, 9))
def test_counts_with_different_widths(n, d, o, r):
    zeros = torch.zeros
    assert counted(at.causal_conv, zeros(n, d), zeros(r, d, o), zeros(o)) == count.conv_flops(n, r, d, o)
    recurrent = counted(at.rnn, zeros(n, d), zeros(o), zeros(d, o), zeros(o, o), zeros(o))
    assert recurrent == count.rnn_flops(n, d, o)


@pytest.mark.claim("eq:causal-conv", "eq:causal-conv-vjp")
@pytest.mark.parametrize(("r", "dilation"), [(1, 1), (3, 1), (2, 3), (4, 5)])
def test_convolution_by_its_sum_and_by_torch(rng, r, dilation):
    X, W, b = (rng.standard_normal(shape) for shape in ((11, 3), (r, 3, 5), (5,)))
    Y, vjp = an.causal_conv(X, W, b, dilation)
    want = [b + sum(X[t - s * dilation] @ W[s] for s in range(r) if t >= s * dilation) for t in range(11)]
    compare(Y, np.array(want), name="the sum")
    x, w, c = (torch.from_numpy(a.copy()).requires_grad_() for a in (X, W, b))
    padded = F.pad(x.T, ((r - 1) * dilation, 0))[None]
    own = F.conv1d(padded, w.flip(0).permute(2, 1, 0), c, dilation=dilation)[0].T
    compare(Y, own, name="against F.conv1d")
    dY = rng.standard_normal(Y.shape)
    compare(vjp(dY), torch.autograd.grad(own, (x, w, c), torch.from_numpy(dY)), name="gradients", atol=1e-11)
    check_vjp(partial(an.causal_conv, dilation=dilation), X, W, b, rng=rng)


def jacobian_of_last(weights, dilations, n, d):
    """dy_n/dx_{n-t} of a stack of convolutions, t = 0 … n-1: (n, d in, d out)."""
    X, vjps = np.random.default_rng(n).standard_normal((d, n, d)), []
    for W, dilation in zip(weights, dilations, strict=True):
        X, vjp = an.causal_conv(X, W, np.zeros(d), dilation)
        vjps.append(vjp)
    dX = np.zeros((d, n, d))
    dX[:, -1] = np.eye(d)  # one cotangent per component of the output
    for vjp in reversed(vjps):
        dX = vjp(dX)[0]
    return dX.transpose(1, 2, 0)[::-1]


@pytest.mark.claim("lem-receptive-field")
@few
@given(st.integers(2, 4), st.lists(st.integers(1, 7), min_size=1, max_size=3))
def test_a_stack_reads_the_offsets_of_its_paths_and_no_others(r, dilations):
    d, n = 2, 2 + (r - 1) * sum(dilations)
    rng = np.random.default_rng([r, *dilations])
    J = jacobian_of_last(rng.standard_normal((len(dilations), r, d, d)), dilations, n, d)
    offsets = {
        sum(s * delta for s, delta in zip(path, dilations, strict=True))
        for path in product(range(r), repeat=len(dilations))
    }
    assert set(np.flatnonzero(J.any((1, 2)))) == offsets
    assert len(offsets) <= r ** len(dilations)


@pytest.mark.claim("lem-receptive-field")
@pytest.mark.parametrize(("r", "L"), [(2, 1), (2, 4), (3, 3), (4, 2), (5, 2)])
def test_dilations_by_powers_give_each_position_one_path(rng, r, L):
    d, n = 3, r**L + 2
    W = rng.standard_normal((L, r, d, d))
    J = jacobian_of_last(W, [r**l for l in range(L)], n, d)
    assert not J[r**L :].any()
    for t in range(r**L):
        digits = [t // r**l % r for l in range(L)]
        path = np.linalg.multi_dot([np.eye(d), *(W[l, digits[l]] for l in range(L))])
        compare(J[t], path, name=f"the only path to offset {t}", atol=1e-10)


@pytest.mark.claim("lem-receptive-field")
@few
@given(st.integers(2, 5), st.integers(2, 40))
def test_layers_needed(r, n):
    def reached(dilations):
        rng = np.random.default_rng([r, n])
        J = jacobian_of_last(rng.standard_normal((len(dilations), r, 2, 2)), dilations, n, 2)
        return J.any((1, 2)).all()

    contiguous = -(-(n - 1) // (r - 1))
    assert reached([1] * contiguous) and (contiguous == 1 or not reached([1] * (contiguous - 1)))
    dilated = next(L for L in range(1, 9) if r**L >= n)
    powers = [r**l for l in range(dilated)]
    assert reached(powers) and (dilated == 1 or not reached(powers[:-1]))


@pytest.mark.slow
@pytest.mark.claim("lem-shared-gradient")
@few
@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_gradient_between_positions_is_a_weight_times_content(n, d, k, v, masked):
    rng = np.random.default_rng([n, d, k, v])
    X, Wq, Wk, Wv = (2 * rng.standard_normal(shape) for shape in ((n, d), (d, k), (d, k), (d, v)))
    mask = (rng.random((n, n)) < 0.6) | np.eye(n, dtype=bool) if masked else True
    O, _ = an.self_attention(X, Wq, Wk, Wv, mask)
    P, _ = an.attention_weights(X @ Wq, X @ Wk, mask)
    V = X @ Wv
    D = max(np.linalg.norm(V - row, axis=-1).max() for row in V)
    for i in range(n):
        _, vjps = an.self_attention(np.tile(X, (v, 1, 1)), Wq, Wk, Wv, mask)
        dO = np.zeros((v, n, v))
        dO[:, i] = np.eye(v)
        J = vjps(dO)[0].transpose(1, 2, 0)  # (n, d in, v out)
        push = Wk @ (X[i] @ Wq) / np.sqrt(k)
        others = [j for j in range(n) if j != i]
        for j in others:
            compare(J[j], P[i, j] * (Wv + np.outer(push, V[j] - O[i])), name="Jacobian", atol=1e-9)
        total = np.linalg.norm(J[others], 2, axis=(1, 2)).sum()
        assert total <= np.linalg.norm(Wv, 2) + D * np.linalg.norm(push) + 1e-9


@pytest.mark.claim("rem-parallel-scan")
@given(st.integers(1, 70))
def test_linear_recurrence_by_doubling(n):
    rng = np.random.default_rng(n)
    a, x = rng.standard_normal((2, n, 3))
    h = x.copy()
    for t in range(1, n):
        h[t] += a[t] * h[t - 1]
    A, H, rounds = a.copy(), x.copy(), 0
    while (span := 2**rounds) < n:
        H[span:], A[span:] = A[span:] * H[:-span] + H[span:], A[span:] * A[:-span]
        rounds += 1
    compare(H, h, name="the scan", atol=1e-9, rtol=1e-9)
    assert 2**rounds >= n and (rounds == 0 or 2 ** (rounds - 1) < n)
