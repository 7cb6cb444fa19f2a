"""State spaces that do not change in time: discretised, run as a recurrence or as a convolution; HiPPO's matrix."""

from math import factorial

import numpy as np
from jaxtyping import Float
from scipy.linalg import expm

from attnmath import _require
from attnmath._require import state_space as require
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, Vjp, differentiable, sum_to

METHODS = ("zoh", "bilinear")
TERMS = 14  # of a power series at |z| < 1/2: the next one is below 1e-16


def discretise(
    A: Float[Array, "s s"], B: Float[Array, "s i"], step: float, method: str = "zoh"
) -> tuple[Float[Array, "s s"], Float[Array, "s i"]]:
    r"""A continuous system, whatever its matrix, as a recurrence for samples that lie a step apart.

    .. math:: \bar A = e^{\Delta A},\quad \bar B = \int_0^\Delta e^{tA}\,dt\;B \qquad\text{or}\qquad
              \bar A = (I - \tfrac\Delta2 A)^{-1}(I + \tfrac\Delta2 A),\quad \bar B = (I - \tfrac\Delta2 A)^{-1}\Delta B

    Parameters
    ----------
    A : (s, s) of x' = A x + B u.
    B : (s, i).
    step : :math:`\Delta > 0`, in the unit of time.
    method : ``"zoh"`` holds each input until the next one; ``"bilinear"`` takes the mean of a step's two ends.

    Returns
    -------
    A', B' : (s, s) and (s, i) of x_t = A' x_{t-1} + B' u_t.

    Raises
    ------
    ValueError
        If the shapes do not agree, the step is not positive, or the method is another.

    References
    ----------
    Gu, Goel and Ré (2022), equation 3, for the second; `scipy.signal.cont2discrete` for both. Chapter 7.

    Examples
    --------
    >>> a, b = discretise(np.array([[-1.0]]), np.array([[1.0]]), 0.5, "bilinear")
    >>> print(a[0, 0].round(4), b[0, 0].round(4))
    0.6 0.4
    """
    s = _require.shapes(A=(A, "s s"), B=(B, "s i"))["s"]
    _require.positive("step", step)
    _require.choice("method", method, METHODS)
    if method == "zoh":
        both = np.concatenate([A, B], 1)
        E = expm(step * np.concatenate([both, np.zeros_like(both, shape=(B.shape[1], both.shape[1]))]))
        return E[:s, :s], E[:s, s:]
    I = np.eye(s, dtype=A.dtype)
    right = np.concatenate([I + step / 2 * A, step * B], 1)
    both = np.linalg.solve(I - step / 2 * A, right)
    return both[:, :s], both[:, s:]


def hippo_legs(s: int) -> tuple[Float[Array, "s s"], Float[Array, "s 1"]]:
    r"""The system whose state holds the Legendre coefficients of all that it has seen.

    .. math:: A_{nk} = -\begin{cases}\sqrt{(2n+1)(2k+1)} & n>k\\ n+1 & n=k\\ 0 & n<k\end{cases},
              \qquad B_n = \sqrt{2n+1}

    Parameters
    ----------
    s : coefficients, at least 1; n and k count from 0.

    Returns
    -------
    A, B : (s, s) and (s, 1), of t x'(t) = A x(t) + B u(t).

    Raises
    ------
    ValueError
        If s is not a positive integer.

    References
    ----------
    Gu et al. (2020), theorem 2, whose A is ours with the other sign. Chapter 7, eq:hippo-legs.

    Examples
    --------
    >>> hippo_legs(2)[0].round(4)
    array([[-1.    , -0.    ],
           [-1.7321, -2.    ]])
    """
    _require.count("s", s)
    B = np.sqrt(2 * np.arange(s) + 1.0)[:, None]
    return -np.tril(B * B.T, -1) - np.diag(np.arange(s) + 1.0), B  # eq:hippo-legs


def legs_diagonal(s: int) -> tuple[Float[Array, "p 2"], Float[Array, "p 2"]]:
    r"""The eigenvalues of the normal part of `hippo_legs`, one of each conjugate pair, and B in its eigenvectors.

    .. math:: A + \tfrac12 B B^\top = -\tfrac12 I + S,\quad S^\top = -S,\qquad
              \lambda_p = -\tfrac12 + i\omega_p,\quad b = \tfrac12 V^* B

    Parameters
    ----------
    s : size of the state, an even number; p = s / 2 pairs are left.

    Returns
    -------
    A, B : (p, 2) real and imaginary parts, by growing frequency. Both members of a pair together give twice the real
        part of one, and B has the factor 2 already: :math:`2 \cdot \tfrac12 V^* B`.

    Raises
    ------
    ValueError
        If s is not even and positive.

    References
    ----------
    Gu, Goel and Ré (2022), theorem 1; Gu et al. (2022), section 3.2, S4D-LegS. Chapter 7, eq:legs-normal.

    Examples
    --------
    >>> A, B = legs_diagonal(4)
    >>> A.round(3)
    array([[-0.5  ,  0.557],
           [-0.5  ,  4.603]])
    """
    _require.even("s", s)
    A, B = hippo_legs(s)
    S = A + B @ B.T / 2 + np.eye(s) / 2  # eq:legs-normal
    frequencies, V = np.linalg.eigh(-1j * S)
    V, b = V[:, s // 2 :], V[:, s // 2 :].conj().T @ B[:, 0]
    b = abs(b)  # an eigenvector times a phase is one too: this choice makes B real
    return np.stack([np.full(s // 2, -0.5), frequencies[s // 2 :]], -1), np.stack([b, np.zeros(s // 2)], -1)


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

    at all z with :math:`z^n = 1`, with :math:`w = \tfrac\Delta2(1+z)` and :math:`\tilde C = C(I-\bar A^n)`.

    Parameters
    ----------
    A : (d, s, 2) :math:`\Lambda`, one eigenvalue of each conjugate pair, the real parts < 0.
    P, B, C : (d, s, 2) in the same basis. The other halves are the conjugates, so a kernel is twice a real part.
    step : (d,) :math:`\Delta > 0` of each channel; the rule is the bilinear one.
    n : how many entries, at least 1.

    Returns
    -------
    K : (n, d).

    Raises
    ------
    ValueError
        If shapes disagree, a real part is not negative, a step is not positive, or n is not a positive integer.

    References
    ----------
    Gu, Goel and Ré (2022), theorem 3 and appendix C.3; the form with one P by Goel et al. (2022).
    LegS has A and B of `legs_diagonal` and :math:`P = B/\sqrt2`. Chapter 7, eq:cauchy-kernel.

    Examples
    --------
    >>> A, B = (X[None] for X in legs_diagonal(4))
    >>> cauchy_kernel(A, B / 2**0.5, B, B, np.array([0.1]), 3)[:, 0].round(4)
    array([ 1.0881,  0.3269, -0.0263])
    """
    _require.shapes(A=(A, "d s 2"), P=(P, "d s 2"), B=(B, "d s 2"), C=(C, "d s 2"), step=(step, "d"))
    require.pairs(A=A, P=P, B=B, C=C)
    require.steps(step)
    require.damped("A", A[..., 0])
    _require.count("n", n)
    a, p, b, c = (np.concatenate([X @ [1, 1j], X @ [1, -1j]], -1) for X in (A, P, B, C))
    h, I = step[:, None, None] / 2, np.eye(a.shape[-1])
    dense = a[..., None] * I - p[..., None] * p[:, None].conj()
    power = np.linalg.matrix_power(np.linalg.solve(I - h * dense, I + h * dense), n)
    c = c - (c[:, None] @ power)[:, 0]
    z = np.exp(-2j * np.pi * np.arange(n // 2 + 1) / n)[:, None]  # the other roots are conjugates
    w = h * (1 + z)
    right = np.stack([c * b, c * p, p.conj() * b, p.conj() * p], -1)
    cb, cp, pb, pp = np.moveaxis(1 / (1 - z - w * a[:, None]) @ right, -1, 0)  # eq:cauchy-sum
    w = w[..., 0]
    K = np.fft.irfft(2 * h[..., 0] * (cb - w * cp * pb / (1 + w * pp)), n)  # eq:cauchy-kernel
    return K.T.astype(A.dtype)


@differentiable
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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""A diagonal state space for each channel, one step after another or as one convolution.

    .. math:: x_t = \bar A x_{t-1} + \bar B u_t,\quad y_t = \operatorname{Re} \sum_s C_s x_{ts}
              \qquad\text{or}\qquad y = K * u,\quad K_j = \operatorname{Re} \sum_s C_s \bar A_s^j \bar B_s

    Parameters
    ----------
    U : (..., n, d) inputs, n >= 1.
    A : (d, s, 2) eigenvalues, real and imaginary parts, the real ones <= 0.
    B, C : (d, s, 2) what an input writes into the states, and how they are read.
    step : (d,) :math:`\Delta > 0` of each channel.
    method : ``"zoh"`` or ``"bilinear"``, as in `discretise`.
    form : ``"recurrence"`` takes n steps with a state of d s numbers; ``"convolution"`` works on all steps at once.

    Returns
    -------
    Y : (..., n, d), equal in both forms up to rounding; the state before the first input is 0.
    vjp : dY -> (dU, dA, dB, dC, dstep).

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no step, a real part is positive, a step is not positive, anything is
        NaN, or method or form is another.

    References
    ----------
    Gu, Goel and Ré (2022), equations 3 to 5; Gu et al. (2022), section 3. Chapter 7, eq:state-recurrence,
    eq:state-convolution.

    Examples
    --------
    >>> pair = np.array([[[1.0, 0.0]]])
    >>> U = np.array([[1.0], [0.0], [0.0], [2.0]])
    >>> Y, vjp = state_space(U, -pair, pair, pair, np.array([0.5]), method="bilinear")
    >>> Y[:, 0].round(4)
    array([0.4   , 0.24  , 0.144 , 0.8864])
    """
    n = _require.shapes(U=(U, "... n d"), A=(A, "d s 2"), B=(B, "d s 2"), C=(C, "d s 2"), step=(step, "d"))["n"]
    require.pairs(A=A, B=B, C=C)
    _require.nonempty("U", U.shape, -2, n, "step")
    _require.choice("method", method, METHODS)
    _require.choice("form", form, ("recurrence", "convolution"))
    require.steps(step)
    require.decays("A", A[..., 0])
    require.numbers(U=U, A=A, B=B, C=C)
    a, b, c = (P[..., 0] + 1j * P[..., 1] for P in (A, B, C))
    E, F, discrete_vjp = discretised(a, step[:, None], method)
    run = run_recurrence if form == "recurrence" else run_convolution
    Y, run_vjp = run(U, E, F * b, c)

    def vjp(dY):
        dU, dE, dFb, dc = run_vjp(dY)
        da, dstep = discrete_vjp(dE, dFb * b.conj())
        return dU, *(np.stack([g.real, g.imag], -1) for g in (da, dFb * F.conj(), dc)), dstep

    return Y, vjp


def discretised(a, step, method):
    """The factors of a state and of an input, and the vjp: (dE, dF) -> (da, dstep)."""
    z = step * a
    if method == "zoh":
        phi, slope = _phi(z)
        E, F = np.exp(z), step * phi  # eq:zero-order-hold
        dE_dz, dF_dz, dF_dstep = E, step * slope, phi
    else:
        w = 1 / (1 - z / 2)
        E, F = (1 + z / 2) * w, step * w  # eq:bilinear-step
        dE_dz, dF_dz, dF_dstep = w * w, step * w * w / 2, w

    def vjp(dE, dF):
        dz = dE * dE_dz.conj() + dF * dF_dz.conj()  # eq:discretise-vjp
        return step * dz, (dz * a.conj() + dF * dF_dstep.conj()).real.sum(-1)

    return E, F, vjp


def _phi(z):
    """(exp(z) - 1) / z and its derivative, by their power series where the quotients would cancel."""
    small = abs(z) < 0.5
    safe, tiny = np.where(small, 1, z), np.where(small, z, 0)
    value, slope = np.zeros_like(z), np.zeros_like(z)
    for k in range(TERMS, -1, -1):  # Horner's rule for the sum of z^k / (k + 1)!, and for its derivative
        slope = value + tiny * slope
        value = 1 / factorial(k + 1) + tiny * value
    phi = np.where(small, value, np.expm1(safe) / safe)
    return phi, np.where(small, slope, (np.exp(safe) - phi) / safe)


def run_recurrence(U, a, b, c):
    """One step after another, every state kept for the vjp."""
    x, X = np.zeros((*U.shape[:-2], *a.shape), a.dtype), []
    for t in range(U.shape[-2]):
        x = a * x + b * U[..., t, :, None]
        X.append(x)
    X = np.stack(X, -3)  # (..., n, d, s)
    Y = (c * X).sum(-1).real  # eq:state-recurrence

    def vjp(dY):
        g, G = np.zeros_like(x), np.empty_like(X)
        for t in reversed(range(U.shape[-2])):
            g = dY[..., t, :, None] * c.conj() + a.conj() * g  # eq:state-recurrence-vjp
            G[..., t, :, :] = g
        dU = (G * b.conj()).sum(-1).real
        da = sum_to(G[..., 1:, :, :] * X[..., :-1, :, :].conj(), a.shape)
        return dU, da, sum_to(G * U[..., None], a.shape), sum_to(dY[..., None] * X.conj(), a.shape)

    return Y, vjp


def run_convolution(U, a, b, c):
    """All steps at once: the kernel from the powers of a, the convolution by two Fourier transforms."""
    n = U.shape[-2]
    powers = np.cumprod(np.concatenate([np.ones_like(a)[None], np.broadcast_to(a, (n - 1, *a.shape))]), 0)
    K = (c * b * powers).sum(-1).real.astype(U.dtype)  # (n, d)
    Y = _convolve(U, K)  # eq:state-convolution

    def vjp(dY):
        dU = _convolve(dY[..., ::-1, :], K)[..., ::-1, :]
        dK = sum_to(_convolve(dY[..., ::-1, :], U)[..., ::-1, :], K.shape)[..., None]  # eq:state-convolution-vjp
        dcb = (dK * powers.conj()).sum(0)
        steps = np.arange(1, n)[:, None, None]
        da = (c * b).conj() * (dK[1:] * steps * powers[:-1].conj()).sum(0)
        return dU, da.astype(a.dtype), dcb * c.conj(), dcb * b.conj()

    return Y, vjp


def _convolve(X, K):
    """The first n entries of the convolution along the axis before the last, exact because of n zeros behind."""
    n = X.shape[-2]
    product = np.fft.rfft(X, 2 * n, axis=-2) * np.fft.rfft(K, 2 * n, axis=-2)
    return np.fft.irfft(product, 2 * n, axis=-2)[..., :n, :].astype(X.dtype)
