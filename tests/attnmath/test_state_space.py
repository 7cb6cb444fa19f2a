"""State spaces: scipy's discretisation and simulation, two forms that are equal, and bad input in one sentence."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.signal import cont2discrete, dlsim, lsim

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare
from tests.attnmath.cases.state_space import system

METHODS = ("zoh", "bilinear")


def dense(A, B, C):
    """One channel's real system of two numbers a state: matrices for scipy."""
    s = len(A)
    big, write, read = np.zeros((2 * s, 2 * s)), np.zeros((2 * s, 1)), np.zeros((1, 2 * s))
    for j, ((re, im), b, (c, d)) in enumerate(zip(A, B, C, strict=True)):
        big[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = [[re, -im], [im, re]]
        write[2 * j : 2 * j + 2, 0] = b
        read[0, 2 * j : 2 * j + 2] = c, -d
    return big, write, read


def scipys(U, A, B, C, step, method):
    """`scipy.signal` on each channel; its output at t reads the state before the input at t, so it is one row late."""
    columns = []
    for j in range(U.shape[1]):
        a, b, c = dense(A[j], B[j], C[j])
        discrete = cont2discrete((a, b, c, np.zeros((1, 1))), step[j], method)
        if method == "bilinear":  # scipy's C and state are transformed; its A and B, with our C, are ours
            discrete = (*an.discretise(a, b, step[j], method), c, np.zeros((1, 1)), step[j])
        late = dlsim(discrete, np.append(U[:, j], 0.0))[1]
        columns.append(late[1:, 0])
    return np.stack(columns, -1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["recurrence", "convolution"])
def test_scipy_simulates_the_same(form, method, rng):
    U, A, B, C, step = system(n=97)(rng)
    Y, _ = an.state_space(U, A, B, C, step, method=method, form=form)
    assert np.abs(Y).max() > 1
    compare(Y, scipys(U, A, B, C, step, method), name=form, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_scipy_discretises_the_same(world, rng):
    A, B = rng.standard_normal((5, 5)) - 2 * np.eye(5), rng.standard_normal((5, 2))
    C, D = np.eye(5), np.zeros((5, 2))
    give = (lambda X: X) if world is an else torch.from_numpy
    for method in METHODS:
        a, b = world.discretise(give(A), give(B), 0.3, method)
        theirs_a, theirs_b, *_ = cont2discrete((A, B, C, D), 0.3, method)
        compare(a, theirs_a, name=f"{method}: A", atol=1e-10)
        compare(b, theirs_b, name=f"{method}: B", atol=1e-10)
    singular = np.zeros((2, 2))
    _, b = world.discretise(give(singular), give(B[:2]), 0.3, "zoh")
    compare(b, 0.3 * B[:2], name="a matrix without an inverse", atol=1e-12)


def test_a_held_input_is_simulated_exactly(rng):
    """The zero-order hold is no approximation for an input that is constant between samples: lsim, finely."""
    U, A, B, C, step = system(n=12)(rng)
    Y, _ = an.state_space(U, A, B, C, step)
    a, b, c = dense(A[0], B[0], C[0])
    fine = np.linspace(0, 12 * step[0], 12 * 200 + 1)
    held = np.repeat(U[:, 0], 200)
    late = lsim((a, b, c, np.zeros((1, 1))), np.append(held, 0.0), fine, interp=False)[1]
    compare(late[200::200], Y[:, 0], name="lsim at the ends of the steps", atol=1e-9)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("method", METHODS)
def test_both_forms_are_equal_for_a_long_signal(world, method, rng):
    args = system(2, n=1500, rate=0.02)(rng)
    if world is an:
        (Y, vjp), (Z, other) = (an.state_space(*args, method=method, form=f) for f in ("recurrence", "convolution"))
        dY = rng.standard_normal(Y.shape)
        for got, want in zip(other(dY), vjp(dY), strict=True):
            assert np.abs(want).max() > 1
            compare(got / np.abs(want).max(), want / np.abs(want).max(), name="cotangents", atol=1e-10)
    else:
        args = [torch.from_numpy(X) for X in args]
        Y, Z = (at.state_space(*args, method=method, form=f) for f in ("recurrence", "convolution"))
    assert abs(Y[..., 700:, :]).max() > 1
    compare(Z, Y, name="convolution", atol=1e-10, rtol=1e-10)


def test_hippo_is_the_same_in_both_worlds():
    compare(at.hippo_legs(9), an.hippo_legs(9), name="LegS")
    compare(at.legs_diagonal(8), an.legs_diagonal(8), name="its normal part", atol=1e-11)


U, A, B, STEP = np.ones((5, 3)), np.full((3, 2, 2), -0.5), np.ones((3, 2, 2)), np.ones(3)
GROWS = A.copy()
GROWS[1, 0, 0] = 0.25
SPOILT = U.copy()
SPOILT[3, 1] = np.nan
BAD = [
    ((U, A, B, B, -STEP), {}, r"step holds -1; positive numbers are expected, such as softplus or exp"),
    ((U, A, B, B, 0 * STEP), {}, r"step holds 0; positive"),
    ((U, A, B, B, np.nan * STEP), {}, r"step holds nan; positive"),
    ((U, GROWS, B, B, STEP), {}, r"A holds 0\.25; it must be <= 0, or the state grows without bound: give -exp"),
    ((SPOILT, A, B, B, STEP), {}, r"U holds nan; the state would be NaN from there on"),
    ((U, A, B, np.nan * B, STEP), {}, r"C holds nan"),
    ((U, A[..., 0], B, B, STEP), {}, r"A has shape \(3, 2\); expected \(d, s, 2\)"),
    ((U, A, B[..., :1], B, STEP), {}, r"B has shape \(3, 2, 1\); its last axis holds real and imaginary part"),
    ((U[:, :2], A, B, B, STEP), {}, r"A has shape \(3, 2, 2\), expected \(d, s, 2\) with d = 2"),
    ((U[:0], A, B, B, STEP), {}, r"U has shape \(0, 3\): its axis -2 is empty; at least one step is needed"),
    ((U, A, B, B, STEP), {"method": "euler"}, r"method is 'euler'; expected one of 'zoh', 'bilinear'"),
    ((U, A, B, B, STEP), {"form": "scan"}, r"form is 'scan'; expected one of 'recurrence', 'convolution'"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("args", "options", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_one_sentence(world, args, options, message, as_users_call):
    args = [torch.from_numpy(X) for X in args] if world is at else args
    with pytest.raises(ValueError, match=message) as caught:
        world.state_space(*args, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_bad_systems_get_one_sentence(world, as_users_call):
    give = (lambda X: X) if world is an else torch.from_numpy
    square, write = give(-np.eye(2)), give(np.ones((2, 1)))
    pairs, one = give(-np.ones((1, 3, 2))), give(np.ones(1))
    still = give(np.array([[[-1.0, 0.0], [0.0, 2.0]]]))
    for call, message in (
        (partial(world.cauchy_kernel, pairs, pairs, pairs, pairs, one, 0), r"n is 0; it must be an integer >= 1"),
        (partial(world.cauchy_kernel, pairs, pairs, pairs, pairs, -one, 4), r"step holds -1; positive"),
        (partial(world.cauchy_kernel, still, still, still, still, one, 4), r"A holds 0; it must be < 0, or the kernel"),
        (partial(world.cauchy_kernel, pairs, still, pairs, pairs, one, 4), r"P has shape \(1, 2, 2\), expected"),
        (partial(world.cauchy_kernel, *[pairs[..., :1]] * 4, one, 4), r"A has shape \(1, 3, 1\); its last axis"),
        (partial(world.discretise, square, write, 0.0), r"step is 0\.0; it must be > 0"),
        (partial(world.discretise, square, write, 1.0, "euler"), "method is 'euler'"),
        (partial(world.discretise, square, give(np.ones((3, 1))), 1.0), r"B has shape \(3, 1\), expected \(s, i\)"),
        (partial(world.hippo_legs, 0), r"s is 0; it must be an integer >= 1"),
        (partial(world.legs_diagonal, 3), r"s is 3; it must be an even number >= 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.slow
def test_values_that_cannot_be_looked_at_are_let_pass():
    args = [torch.from_numpy(X).to("meta") for X in (U, A, B, B, STEP)]
    assert at.state_space(*args).shape == U.shape
    assert at.state_space(*args, form="recurrence").shape == U.shape
