"""The results of the page on state spaces: discretisation, two forms, HiPPO's matrix and its eigenvectors."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import legendre
from scipy.linalg import expm

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

seeds = st.integers(0, 2**32 - 1)


def polynomial(n, z):
    """sqrt(2n + 1) times the n-th Legendre polynomial."""
    return np.sqrt(2 * n + 1) * legendre.legval(z, np.eye(n + 1)[n])


def projection(signal, n):
    """The n-th coefficient of a step function: an integral over each of its pieces, by Gauss's rule, exactly."""
    length = len(signal)
    nodes, weights = legendre.leggauss(n // 2 + 1)
    total = 0.0
    for j, height in enumerate(signal):
        x = (j + (nodes + 1) / 2) / length
        total += height * (weights / 2 * polynomial(n, 2 * x - 1)).sum() / length
    return total


@pytest.mark.claim("thm-hippo-legs", "eq:hippo-legs")
@pytest.mark.parametrize(("s", "length"), [(1, 3), (6, 1), (6, 2), (8, 30), (16, 100)])
def test_the_state_is_the_projection_of_the_past(s, length, rng):
    """For a signal that is constant between samples, LegS with exact steps in the logarithm of time: to rounding."""
    A, B = an.hippo_legs(s)
    signal = rng.standard_normal(length) + 1
    x = np.zeros((s, 1))
    x[0] = signal[0]
    for k in range(2, length + 1):
        a, b = an.discretise(A, B, float(np.log(k / (k - 1))), "zoh")
        x = a @ x + b * signal[k - 1]
    want = [projection(signal, n) for n in range(s)]
    assert np.abs(want).max() > 0.1
    compare(x[:, 0], want, name="coefficients", atol=1e-11)


@pytest.mark.claim("thm-hippo-legs")
def test_the_coefficients_are_the_best_ones(rng):
    """Among all polynomials of degree < s, on a fine grid: least squares finds the same."""
    s, grid = 5, (np.arange(4000) + 0.5) / 4000
    f = np.sin(7 * grid) + grid**3
    basis = np.stack([polynomial(n, 2 * grid - 1) for n in range(s)], -1)
    compare(np.linalg.lstsq(basis, f)[0], basis.T @ f / len(f), name="least squares", atol=1e-5)


@pytest.mark.claim("lem-legs-kernel")
def test_what_a_state_remembers_in_the_logarithm_of_time():
    A, B = an.hippo_legs(7)
    for tau in (0.0, 0.3, 2.0):
        want = [np.exp(-tau) * polynomial(n, 2 * np.exp(-tau) - 1) for n in range(7)]
        compare((expm(tau * A) @ B)[:, 0], want, name=f"tau = {tau}", atol=1e-10)


@pytest.mark.claim("prop-legs-eigenvectors", "pf:legs-eigenvectors")
@pytest.mark.parametrize("s", [1, 2, 5, 16])
def test_the_eigenvectors_of_legs_are_binomials(s):
    """In fractions: A = D M D^-1 with D = diag(sqrt(2n+1)), M has the entries -(2k+1), and M V = V diag(-1, -2, …)."""
    M = [[-Fraction(2 * k + 1) if n > k else -Fraction(n + 1) * (n == k) for k in range(s)] for n in range(s)]
    V = [
        [Fraction((-1) ** (n - k) * comb(n + k, n - k)) if n >= k else Fraction(0) for k in range(s)] for n in range(s)
    ]
    for n in range(s):
        for k in range(s):
            assert sum(M[n][j] * V[j][k] for j in range(s)) == -(k + 1) * V[n][k]
    A, B = an.hippo_legs(s)
    compare(A, B * np.array([[float(x) for x in row] for row in M]) / B.T, name="A", atol=1e-12)


@pytest.mark.claim("prop-legs-eigenvectors")
def test_no_lengths_of_the_eigenvectors_make_them_well_conditioned(rng):
    """8.3e10 at 16 states and unit length; the bound holds for any lengths, and grows with the Fibonacci numbers."""
    conditions, fibonacci = [], [1, 1]
    for s in range(2, 17):
        V = np.array([[(-1) ** (n - k) * comb(n + k, n - k) if n >= k else 0 for k in range(s)] for n in range(s)])
        V = an.hippo_legs(s)[1] * V
        bound = max(np.sqrt((2 * s - 1) / (2 * k + 1)) * comb(s - 1 + k, 2 * k) for k in range(s))
        for lengths in (np.linalg.norm(V, axis=0), np.ones(s), np.exp(3 * rng.standard_normal(s))):
            assert np.linalg.cond(V / lengths) > bound
        conditions.append(np.linalg.cond(V / np.linalg.norm(V, axis=0)))
        computed = np.linalg.cond(np.linalg.eig(an.hippo_legs(s)[0])[1])
        assert abs(computed / conditions[-1] - 1) < 1e-3
        while len(fibonacci) < 2 * s:
            fibonacci.append(sum(fibonacci[-2:]))
        assert (
            sum(comb(s - 1 + k, 2 * k) for k in range(s)) == fibonacci[2 * s - 2] and bound >= fibonacci[2 * s - 2] / s
        )
    assert 8.2e10 < conditions[-1] < 8.5e10 and 4.5e5 < bound < 4.7e5


@pytest.mark.claim("prop-legs-normal", "eq:legs-normal")
@pytest.mark.parametrize("s", [2, 8, 64])
def test_legs_is_normal_but_for_a_matrix_of_rank_one(s):
    A, B = an.hippo_legs(s)
    N = A + B @ B.T / 2
    compare(N @ N.T, N.T @ N, name="normal", atol=1e-9 * s**2)
    compare((N + N.T) / 2, -np.eye(s) / 2, name="symmetric part", atol=1e-11)
    values, V = np.linalg.eig(N)
    assert np.linalg.cond(V) < 1 + 1e-6
    compare(values.real, np.full(s, -0.5), name="real parts", atol=1e-10)
    eigenvalues, b = an.legs_diagonal(s)
    compare(np.sort(values.imag)[s // 2 :], eigenvalues[:, 1], name="frequencies", atol=1e-9)
    for tau in (0.1, 1.0):  # both members of each pair, read as they were written: B^T e^{tau N} B / 2
        pairs = eigenvalues[:, 0] + 1j * eigenvalues[:, 1]
        got = (b[:, 0] ** 2 * np.exp(tau * pairs)).sum().real
        compare(got, (B.T @ expm(tau * N) @ B / 2)[0, 0], name="kernel", atol=1e-8 * s**2)


@pytest.mark.claim("prop-recurrence-convolution", "eq:state-recurrence", "eq:state-convolution")
@settings(max_examples=15)
@given(seeds, st.integers(1, 5), st.integers(1, 40))
def test_a_recurrence_is_a_convolution(seed, s, n):
    """For any matrix, against the kernel C A^j B written out; and the library's two forms."""
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((s, s)) / s - np.eye(s), rng.standard_normal((s, 1))
    C, u = rng.standard_normal((1, s)), rng.standard_normal(n)
    a, b = an.discretise(A, B, 0.3, "bilinear")
    x, y = np.zeros((s, 1)), []
    for t in range(n):
        x = a @ x + b * u[t]
        y.append((C @ x)[0, 0])
    kernel = [(C @ np.linalg.matrix_power(a, j) @ b)[0, 0] for j in range(n)]
    compare(np.convolve(u, kernel)[:n], y, name="convolution", atol=1e-10)


def diagonal_less_rank_one(rng, s):
    """Pairs (1, s, 2) for `cauchy_kernel`, and the whole system of 2 s complex numbers written out."""
    A, P, B, C = rng.standard_normal((4, 1, s, 2))
    A[..., 0] = -np.exp(A[..., 0])
    A[..., 1] *= 3
    a, p, b, c = (np.concatenate([X @ [1, 1j], X @ [1, -1j]], -1)[0] for X in (A, P, B, C))
    return (A, P, B, C), (np.diag(a) - np.outer(p, p.conj()), b[:, None], c)


def powers(A, B, C, step, n):
    """C A^j B for j < n after the bilinear rule, one product after another."""
    I = np.eye(len(A))
    a, x = (np.linalg.solve(I - step / 2 * A, Y) for Y in (I + step / 2 * A, step * B))
    out = []
    for _ in range(n):
        out.append((C @ x)[0])
        x = a @ x
    return np.array(out)


@pytest.mark.claim("prop-cauchy-kernel", "eq:cauchy-kernel", "eq:cauchy-sum")
@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("s", "n", "step"), [(1, 1, 0.5), (3, 2, 0.1), (3, 17, 2.0), (4, 64, 0.3), (2, 500, 0.01)])
def test_four_cauchy_sums_are_the_kernel(world, s, n, step, rng):
    pairs, (A, B, C) = diagonal_less_rank_one(rng, s)
    want = powers(A, B, C, step, n)
    assert np.abs(want).max() > 1e-3 and np.abs(want.imag).max() < 1e-10
    give = (lambda X: X) if world is an else torch.from_numpy
    got = world.cauchy_kernel(*(give(X) for X in pairs), give(np.array([step])), n)
    assert got.shape == (n, 1)
    compare(got[:, 0], want.real, name="kernel", atol=1e-10, rtol=1e-10)


@pytest.mark.claim("prop-cauchy-kernel", "eq:legs-normal")
@pytest.mark.parametrize(("s", "n"), [(2, 9), (16, 200), (64, 301)])
def test_legs_keeps_its_correction_of_rank_one(s, n):
    """With P = B / sqrt 2 it is the kernel of LegS itself, with 64 states too; without P it is another one."""
    A, B = an.hippo_legs(s)
    want = powers(A, B, B[:, 0], 0.05, n)
    eigenvalues, b = (X[None] for X in an.legs_diagonal(s))
    step = np.array([0.05])
    compare(an.cauchy_kernel(eigenvalues, b / 2**0.5, b, b, step, n)[:, 0], want, name="LegS", atol=1e-10)
    diagonal = an.cauchy_kernel(eigenvalues, 0 * b, b, b, step, n)[:, 0]
    impulse = np.eye(1, n).T
    compare(diagonal, 2 * an.state_space(impulse, eigenvalues, b, b, step, method="bilinear")[0][:, 0], atol=1e-10)
    assert np.abs(diagonal - want).max() > 0.05


@pytest.mark.claim("prop-cauchy-kernel")
def test_its_denominators_are_nowhere_zero(rng):
    """At every root of unity, and with a huge P; every eigenvalue of the matrix has a negative real part."""
    for size in (0.1, 1.0, 30.0):
        (A, P, B, C), _ = diagonal_less_rank_one(rng, 3)
        a, p = (np.concatenate([X @ [1, 1j], X @ [1, -1j]], -1)[0] for X in (A, size * P))
        assert (np.linalg.eigvals(np.diag(a) - np.outer(p, p.conj())).real < 0).all()
        z = np.exp(2j * np.pi * np.arange(128) / 128)[:, None]
        D = 1 - z - 0.35 * (1 + z) * a
        assert np.abs(D).min() > 1e-3
        assert np.abs(1 + 0.35 * (1 + z[:, 0]) * (abs(p) ** 2 / D).sum(-1)).min() > 1e-3
        assert np.isfinite(an.cauchy_kernel(A, size * P, B, C, np.array([0.7]), 128)).all()


def test_the_cauchy_kernel_has_the_gradient_of_the_powers(rng):
    """By autograd, through the power of the matrix, against a finite difference in one direction."""
    pairs, _ = diagonal_less_rank_one(rng, 3)
    args = [torch.from_numpy(X).requires_grad_() for X in (*pairs, np.array([0.4]))]
    assert torch.autograd.gradcheck(lambda *args: at.cauchy_kernel(*args, 11), args)


@pytest.mark.claim("lem-discretised-stable", "eq:zero-order-hold", "eq:bilinear-step")
@settings(max_examples=40)
@given(st.floats(-20, 20), st.floats(-20, 20), st.floats(0.01, 5))
def test_what_decays_still_decays_in_steps(re, im, step):
    """The left half plane goes into the unit disc and nothing else does, in both ways; Euler's step leaves it."""
    A, B = np.array([[re, -im], [im, re]]), np.eye(2)
    if abs(re) < 1e-3:
        return
    held = np.abs(np.linalg.eigvals(an.discretise(A, B, step)[0])).max()
    assert (held < 1) == (re < 0)
    if abs(1 - step / 2 * complex(re, im)) > 1e-3:
        assert (np.abs(np.linalg.eigvals(an.discretise(A, B, step, "bilinear")[0])).max() < 1) == (re < 0)
    assert abs(1 + 3.0 * -1) > 1  # Euler's step of 3 for x' = -x


@pytest.mark.claim("eq:discretise-vjp", "eq:state-recurrence-vjp", "eq:state-convolution-vjp")
def test_the_two_forms_have_one_gradient(rng):
    from tests.attnmath.cases.state_space import system

    args = system(3, n=25)(rng)
    (Y, vjp), (_, other) = (an.state_space(*args, form=form) for form in ("recurrence", "convolution"))
    dY = rng.standard_normal(Y.shape)
    compare(other(dY), vjp(dY), name="cotangents", atol=1e-10)
