"""State spaces: S4's kernel beside its rivals, convolution beside recurrence, and torch beside the usual formulas."""

from functools import partial

import numpy as np
import pytest
import torch
from timing import ratio_of_times

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

N, CHANNELS, STATES = 4096, 16, 32


def stepwise(a, x, c, n):
    """C A^j B, one product of a matrix and a vector after another."""
    out = np.empty(n)
    for j in range(n):
        out[j] = c @ x
        x = a @ x
    return out


def doubling(a, x, c, n):
    """The same work in products of matrices: all columns so far times the power of as many steps."""
    X = x[:, None]
    while X.shape[1] < n:
        X, a = np.concatenate([X, a @ X], 1), a @ a
    return c @ X[:, :n]


RIVALS = {"step by step": (stepwise, 0.6), "doubling": (doubling, None)}  # it need not win against the second


@pytest.mark.parametrize("rival", RIVALS)
def test_s4s_kernel(benchmark, ratios, rival):
    """LegS with 64 states."""
    n, s, (theirs, goal) = 16384, 64, RIVALS[rival]
    A, B = an.hippo_legs(s)
    a, x = an.discretise(A, B, 0.01, "bilinear")
    eigenvalues, b = (X[None] for X in an.legs_diagonal(s))
    ours = partial(an.cauchy_kernel, eigenvalues, b / 2**0.5, b, b, np.array([0.01]), n)
    theirs = partial(theirs, a, x[:, 0], B[:, 0], n)
    compare(ours()[:, 0], theirs(), name="what is timed", atol=1e-10)
    name = f"NumPy cauchy_kernel / {rival}"
    ratio = ratio_of_times(benchmark, ratios, name, ours, theirs, goal, {"n": n, "states": s})
    assert goal is None or ratio <= goal


def system():
    rng = np.random.default_rng(0)
    A, B, C = rng.standard_normal((3, CHANNELS, STATES, 2))
    A[..., 0] = -np.exp(A[..., 0])
    return rng.standard_normal((N, CHANNELS)), A, B, C, np.full(CHANNELS, 0.01)


SIZES = {"n": N, "channels": CHANNELS, "states": STATES}


def both_ways(args, form):
    Y, vjp = an.state_space(*args, form=form)
    return vjp(Y)


def test_convolution_beside_recurrence(benchmark, ratios):
    """Forward and backward; the convolution has no loop over the rows."""
    ours, theirs = (partial(both_ways, system(), form) for form in ("convolution", "recurrence"))
    name = "NumPy state_space, convolution / recurrence"
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, 1.0, SIZES, 4) <= 1.0


def s4d(u, A, B, C, step):
    """The diagonal layer as it is usually written: a Vandermonde product, then two Fourier transforms."""
    a, b, c = (torch.view_as_complex(X) for X in (A, B, C))
    E = step[:, None] * a
    weights = c * b * (E.exp() - 1) / a
    K = torch.einsum("ds,dsn->dn", weights, torch.exp(E[..., None] * torch.arange(len(u)))).real
    spectrum = torch.fft.rfft(u.T, n=2 * len(u)) * torch.fft.rfft(K, n=2 * len(u))
    return torch.fft.irfft(spectrum, n=2 * len(u))[:, : len(u)].T


def test_torch_against_the_usual_formula(benchmark, ratios):
    args = [torch.from_numpy(X) for X in system()]
    compare(at.state_space(*args), s4d(*args), name="what is timed", atol=1e-8)
    name, ours, theirs = "torch state_space / S4D by its formula", partial(at.state_space, *args), partial(s4d, *args)
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, 1.1, SIZES) <= 1.1


def naive_scan(U, step, A, B, C):
    """Mamba's reference: every factor written out, then a loop over the rows."""
    E = torch.exp(step[..., None] * A)
    F = step[..., None] * B[..., None, :] * U[..., None]
    x, Y = torch.zeros_like(E[..., 0, :, :]), []
    for t in range(U.shape[-2]):
        x = E[..., t, :, :] * x + F[..., t, :, :]
        Y.append((x * C[..., t, None, :]).sum(-1))
    return torch.stack(Y, -2)


def test_torch_scan_against_the_usual_loop(benchmark, ratios):
    """The selective scan of Mamba, whose states are never all written out at once in ours."""
    rng = np.random.default_rng(0)
    n, d, s = 1024, 64, 16
    U, step = rng.standard_normal((n, d)), 0.1 * rng.random((n, d))
    A, B, C = -np.exp(rng.standard_normal((d, s))), rng.standard_normal((n, s)), rng.standard_normal((n, s))
    args = [torch.from_numpy(X) for X in (U, step, A, B, C)]
    ours, theirs = partial(at.selective_scan, *args), partial(naive_scan, *args)
    compare(ours(), theirs(), name="what is timed", atol=1e-10)
    name, sizes = "torch selective_scan / Mamba's reference loop", {"n": n, "channels": d, "states": s}
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, 1.1, sizes) <= 1.1


def scan_of(n, rng):
    U, step = rng.standard_normal((n, 16)), 0.1 * rng.random((n, 16))
    return partial(an.selective_scan, U, step, -np.ones((16, 8)), *rng.standard_normal((2, n, 8)))


def dual_of(n, rng):
    Q, K, V = rng.standard_normal((3, 4, n, 64)).astype(np.float32)
    return partial(an.state_space_dual, Q, K, V, decay=-0.1 * rng.random((4, n), np.float32), chunk=64)


def convolution_of(n, rng):
    _, *rest = system()
    return partial(an.state_space, rng.standard_normal((n, CHANNELS)), *rest)


GROWING = {
    "selective_scan": (scan_of, {"channels": 16, "states": 8}),
    "state_space_dual": (dual_of, {"heads": 4, "width": 64}),
    "state_space": (convolution_of, {"channels": CHANNELS, "states": STATES}),
}


@pytest.mark.parametrize("name", GROWING)
def test_growth_is_linear(benchmark, ratios, name):
    """Four times the length takes at most 4.6 times the time, the logarithm of the transforms included."""
    make, sizes = GROWING[name]
    timed = [make(n, np.random.default_rng(0)) for n in (16384, 4096)]
    title = f"NumPy {name}, 16,384 / 4,096 rows"
    assert ratio_of_times(benchmark, ratios, title, *timed, 4.6, sizes, 4) <= 4.6
