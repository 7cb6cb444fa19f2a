"""State spaces that do not change in time: discretised, run as a recurrence or as a convolution; HiPPO's matrix."""

from math import factorial, pi

import torch
from jaxtyping import Float

from attnmath import _require
from attnmath._require import state_space as require
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.types import Array

METHODS = ("zoh", "bilinear")
TERMS = 14


def discretise(
    A: Float[Array, "s s"], B: Float[Array, "s i"], step: float, method: str = "zoh"
) -> tuple[Float[Array, "s s"], Float[Array, "s i"]]:
    r"""A continuous system, whatever its matrix, as a recurrence for samples that lie a step apart.

    .. math:: \bar A = e^{\Delta A},\quad \bar B = \int_0^\Delta e^{tA}\,dt\;B \qquad\text{or}\qquad
              \bar A = (I - \tfrac\Delta2 A)^{-1}(I + \tfrac\Delta2 A),\quad \bar B = (I - \tfrac\Delta2 A)^{-1}\Delta B

    Parameters, errors and source as in `attnmath.numpy.state_space.discretise`.

    Examples
    --------
    >>> a, b = discretise(torch.tensor([[-1.0]]), torch.tensor([[1.0]]), 0.5, "bilinear")
    >>> a, b
    (tensor([[0.6000]]), tensor([[0.4000]]))
    """
    s = _require.shapes(A=(A, "s s"), B=(B, "s i"))["s"]
    _require.positive("step", step)
    _require.choice("method", method, METHODS)
    if method == "zoh":
        both = torch.cat([A, B], 1)
        E = torch.linalg.matrix_exp(step * torch.cat([both, both.new_zeros(B.shape[1], both.shape[1])]))
        return E[:s, :s], E[:s, s:]
    I = torch.eye(s, dtype=A.dtype, device=A.device)
    both = torch.linalg.solve(I - step / 2 * A, torch.cat([I + step / 2 * A, step * B], 1))
    return both[:, :s], both[:, s:]


def hippo_legs(s: int) -> tuple[Float[Array, "s s"], Float[Array, "s 1"]]:
    r"""The system whose state holds the Legendre coefficients of all that it has seen; float64, on the CPU.

    .. math:: A_{nk} = -\begin{cases}\sqrt{(2n+1)(2k+1)} & n>k\\ n+1 & n=k\\ 0 & n<k\end{cases},
              \qquad B_n = \sqrt{2n+1}

    Parameters, errors and source as in `attnmath.numpy.state_space.hippo_legs`.

    Examples
    --------
    >>> hippo_legs(2)[1].ravel()
    tensor([1.0000, 1.7321], dtype=torch.float64)
    """
    _require.count("s", s)
    n = torch.arange(s, dtype=torch.float64)
    B = (2 * n + 1).sqrt()[:, None]
    return -(B * B.T).tril(-1) - torch.diag(n + 1), B  # eq:hippo-legs


def legs_diagonal(s: int) -> tuple[Float[Array, "p 2"], Float[Array, "p 2"]]:
    r"""The eigenvalues of the normal part of `hippo_legs`, one of each conjugate pair, and B in its eigenvectors.

    .. math:: A + \tfrac12 B B^\top = -\tfrac12 I + S,\quad S^\top = -S,\qquad
              \lambda_p = -\tfrac12 + i\omega_p,\quad b = \tfrac12 V^* B

    Parameters, errors and source as in `attnmath.numpy.state_space.legs_diagonal`.

    Examples
    --------
    >>> legs_diagonal(4)[0][:, 1]
    tensor([0.5565, 4.6033], dtype=torch.float64)
    """
    _require.even("s", s)
    A, B = hippo_legs(s)
    S = A + B @ B.T / 2 + torch.eye(s, dtype=A.dtype) / 2  # eq:legs-normal
    frequencies, V = torch.linalg.eigh(-1j * S)
    b = (V[:, s // 2 :].mH @ B.to(V.dtype))[:, 0].abs()
    frequencies = frequencies[s // 2 :]
    return torch.stack([torch.full_like(b, -0.5), frequencies], -1), torch.stack([b, torch.zeros_like(b)], -1)


def cauchy_kernel(
    A: Float[Array, "d s 2"],
    P: Float[Array, "d s 2"],
    B: Float[Array, "d s 2"],
    C: Float[Array, "d s 2"],
    step: Float[Array, " d"],
    n: int,
) -> Float[Array, "n d"]:
    r"""The kernel of a state space whose matrix is diagonal less one of rank one, as S4 computes it.

    .. math:: K_j = C \bar A^j \bar B,\quad A = \Lambda - P P^*:\qquad \sum_{j<n} K_j z^j
              = \Delta\Bigl(\langle\tilde C,B\rangle - \frac{w\,\langle\tilde C,P\rangle\langle\bar P,B\rangle}
              {1+w\,\langle\bar P,P\rangle}\Bigr),\quad
              \langle x,y\rangle = \sum_s \frac{x_sy_s}{1-z-w\lambda_s}

    Parameters, errors and source as in `attnmath.numpy.state_space.cauchy_kernel`; numbers are looked at where they
    can be (`attnmath.torch.look.can_look`).

    Examples
    --------
    >>> A, B = (X[None] for X in legs_diagonal(4))
    >>> cauchy_kernel(A, B / 2**0.5, B, B, torch.tensor([0.1], dtype=A.dtype), 3)[:, 0]
    tensor([ 1.0881,  0.3269, -0.0263], dtype=torch.float64)
    """
    _require.shapes(A=(A, "d s 2"), P=(P, "d s 2"), B=(B, "d s 2"), C=(C, "d s 2"), step=(step, "d"))
    require.pairs(A=A, P=P, B=B, C=C)
    if can_look(A, step):
        require.steps(step)
        require.damped("A", A[..., 0])
    _require.count("n", n)
    halves = [torch.complex(X[..., 0], X[..., 1]) for X in (A, P, B, C)]
    a, p, b, c = (torch.cat([x, x.conj()], -1) for x in halves)
    h, I = step[:, None, None] / 2, torch.eye(a.shape[-1], dtype=A.dtype, device=A.device)
    dense = a[..., None] * I - p[..., None] * p[:, None].conj()
    power = torch.linalg.matrix_power(torch.linalg.solve(I - h * dense, I + h * dense), n)
    c = c - (c[:, None] @ power)[:, 0]
    angles = torch.arange(n // 2 + 1, dtype=A.dtype, device=A.device)[:, None] * (-2 * pi / n)
    z = torch.polar(torch.ones_like(angles), angles)  # the other roots are conjugates
    w = h * (1 + z)
    right = torch.stack([c * b, c * p, p.conj() * b, p.conj() * p], -1)
    cb, cp, pb, pp = (1 / (1 - z - w * a[:, None]) @ right).unbind(-1)  # eq:cauchy-sum
    w = w[..., 0]
    return torch.fft.irfft(2 * h[..., 0] * (cb - w * cp * pb / (1 + w * pp)), n).T  # eq:cauchy-kernel


@cast_by_autocast
@half_in_float32
def state_space(
    U: Float[Array, "... n d"],
    A: Float[Array, "d s 2"],
    B: Float[Array, "d s 2"],
    C: Float[Array, "d s 2"],
    step: Float[Array, " d"],
    *,
    method: str = "zoh",
    form: str = "convolution",
) -> Float[Array, "... n d"]:
    r"""A diagonal state space for each channel, one step after another or as one convolution.

    .. math:: x_t = \bar A x_{t-1} + \bar B u_t,\quad y_t = \operatorname{Re} \sum_s C_s x_{ts}
              \qquad\text{or}\qquad y = K * u,\quad K_j = \operatorname{Re} \sum_s C_s \bar A_s^j \bar B_s

    Parameters, errors and source as in `attnmath.numpy.state_space.state_space`; numbers are looked at where they can
    be (`attnmath.torch.look.can_look`).

    Examples
    --------
    >>> pair, U = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[1.0], [0.0], [0.0], [2.0]])
    >>> state_space(U, -pair, pair, pair, torch.tensor([0.5]), method="bilinear").ravel()
    tensor([0.4000, 0.2400, 0.1440, 0.8864])
    """
    n = _require.shapes(U=(U, "... n d"), A=(A, "d s 2"), B=(B, "d s 2"), C=(C, "d s 2"), step=(step, "d"))["n"]
    require.pairs(A=A, B=B, C=C)
    _require.nonempty("U", U.shape, -2, n, "step")
    _require.choice("method", method, METHODS)
    _require.choice("form", form, ("recurrence", "convolution"))
    if can_look(U, A, B, C, step):
        require.steps(step)
        require.decays("A", A[..., 0])
        require.numbers(U=U, A=A, B=B, C=C)
    a, b, c = (torch.complex(P[..., 0], P[..., 1]) for P in (A, B, C))
    E, F = discretised(a, step[:, None], method)
    return (run_recurrence if form == "recurrence" else run_convolution)(U, E, F * b, c)


def discretised(a, step, method):
    """The factors of a state and of an input."""
    z = step * a
    if method == "zoh":
        return torch.exp(z), step * _phi(z)  # eq:zero-order-hold
    w = 1 / (1 - z / 2)
    return (1 + z / 2) * w, step * w  # eq:bilinear-step


def _phi(z):
    """(exp(z) - 1) / z, by its power series where the quotient, or its derivative, would cancel."""
    small = z.abs() < 0.5
    safe, tiny = torch.where(small, 1, z), torch.where(small, z, 0)
    value = torch.zeros_like(z)
    for k in range(TERMS, -1, -1):
        value = 1 / factorial(k + 1) + tiny * value
    return torch.where(small, value, torch.expm1(safe) / safe)


def run_recurrence(U, a, b, c):
    x, Y = torch.zeros_like(a), []
    for u in U.unbind(-2):
        x = a * x + b * u[..., None]
        Y.append((c * x).sum(-1).real)  # eq:state-recurrence
    return torch.stack(Y, -2)


def run_convolution(U, a, b, c):
    n = U.shape[-2]
    factors = torch.cat([torch.ones_like(a)[..., None], a[..., None].expand(*a.shape, n - 1)], -1)
    K = torch.einsum("ds,dsn->nd", c * b, factors.cumprod(-1)).real
    product = torch.fft.rfft(U, 2 * n, dim=-2) * torch.fft.rfft(K, 2 * n, dim=-2)
    return torch.fft.irfft(product, 2 * n, dim=-2)[..., :n, :]  # eq:state-convolution
