"""State spaces that do not change in time, against the matrix exponential of the real system."""

from functools import partial

import numpy as np
import torch

from tests.attnmath.cases.case import B, Case, M, V

S = 3  # states of a channel

HELPERS = {
    "cauchy_kernel",  # another way to the kernel of a recurrence: tests/theorems/test_state_space.py compares them
    "discretise",  # two matrices at once, of a system with any matrix: scipy and torch say what they are
    "hippo_legs",  # two constants
    "legs_diagonal",  # two constants
}


def system(*lead, n=M, rate=1.0, frequency=2.0, step=0.5):
    """Draws inputs, eigenvalues with negative real parts, what writes and reads the states, and steps."""

    def draw(rng):
        A = rng.standard_normal((V, S, 2))
        A[..., 0] = -rate * np.exp(A[..., 0])
        A[..., 1] *= frequency
        others = (rng.standard_normal((V, S, 2)) for _ in "BC")
        return rng.standard_normal((*lead, n, V)), A, *others, step * np.exp(0.3 * rng.standard_normal(V))

    return draw


def still(rng):
    """Eigenvalues of 0 and near it, where the quotient in the zero-order hold has no digits."""
    U, A, *others = system(B)(rng)
    A[:, 0], A[:, 1] = 0, (-1e-9, 1e-8)
    return U, A, *others


def real_block(a):
    """A complex number as the matrix that multiplies by it: (..., 2) to (..., 2, 2)."""
    re, im = a.unbind(-1)
    return torch.stack([torch.stack([re, -im], -1), torch.stack([im, re], -1)], -2)


def textbook(U, A, B, C, step, method="zoh"):
    """The real system of two numbers a state, discretised by the exponential of one matrix, or by solving."""
    blocks, I = real_block(A) * step[:, None, None, None], torch.eye(2, dtype=A.dtype)
    if method == "zoh":
        top = torch.cat([blocks, (B * step[:, None, None])[..., None]], -1)
        both = torch.linalg.matrix_exp(torch.cat([top, torch.zeros_like(top[..., :1, :])], -2))
        E, F = both[..., :2, :2], both[..., :2, 2:]
    else:
        E = torch.linalg.solve(I - blocks / 2, I + blocks / 2)
        F = torch.linalg.solve(I - blocks / 2, (B * step[:, None, None])[..., None])
    read = torch.stack([C[..., 0], -C[..., 1]], -1)
    x, Y = torch.zeros_like(B)[..., None], []
    for u in U.unbind(-2):
        x = E @ x + F * u[..., None, None, None]
        Y.append((x[..., 0] * read).sum((-1, -2)))
    return torch.stack(Y, -2)


def call(world, *args, **options):
    return world.state_space(*args, **options)


CASES = [
    Case("state_space", "zero-order hold", system(B), call, textbook),
    Case(
        "state_space",
        "bilinear",
        system(B),
        partial(call, method="bilinear"),
        partial(textbook, method="bilinear"),
    ),
    Case("state_space", "recurrence", system(B), partial(call, form="recurrence"), textbook),
    Case(
        "state_space",
        "bilinear recurrence",
        system(B),
        partial(call, method="bilinear", form="recurrence"),
        partial(textbook, method="bilinear"),
    ),
    Case("state_space", "kink", still, call, textbook),
    Case("state_space", "one step", system(n=1), call, textbook),
    Case("state_space", "no-batch", system(0), partial(call, form="recurrence"), textbook),
    Case("state_space", "huge", system(B, rate=1e4, step=1.0), call, textbook),
]
