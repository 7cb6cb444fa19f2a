r"""How the loss falls with the size of a model and with the length of its text, and how to divide a budget.

The law is :math:`L(N,D)=E+AN^{-\alpha}+BD^{-\beta}` for N weights and D tokens. A budget is :math:`C=6ND` operations.
"""

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from attnmath import _require

Numbers = np.ndarray | float | int
GRID = ((-1.0, 0.0, 1.0), np.linspace(0, 15, 7), np.linspace(0, 15, 7), (0.1, 0.3, 0.5, 1.0), (0.1, 0.3, 0.5, 1.0))


class Law(NamedTuple):
    r"""The five numbers of a scaling law.

    Attributes
    ----------
    E : the loss that no size and no text can undercut.
    A, B : what smallness and shortness cost.
    alpha, beta : how fast both fall, > 0.
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float


HOFFMANN = Law(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)  # nats per token
BESIROGLU = Law(E=1.8172, A=482.01, B=2085.43, alpha=0.3478, beta=0.3658)


def loss(law: Law, N: Numbers, D: Numbers) -> Numbers:
    r"""The loss of a model with N weights that has read D tokens.

    .. math:: L(N, D) = E + A N^{-\alpha} + B D^{-\beta}

    Parameters
    ----------
    law : the five numbers.
    N, D : weights and tokens, > 0, numbers or arrays that broadcast.

    Returns
    -------
    L, in the unit in which the law was fitted.

    Raises
    ------
    ValueError
        If a number of the law, but E, or a size is not positive.

    References
    ----------
    Hoffmann et al. (2022), equation 2. Chapter 8, eq:scaling-law.

    Examples
    --------
    >>> round(loss(HOFFMANN, 70e9, 1.4e12), 3)
    1.937
    """
    _check(law)
    N, D = _sizes(N=N, D=D)
    return law.E + law.A * N**-law.alpha + law.B * D**-law.beta  # eq:scaling-law


def optimum(law: Law, flops: Numbers) -> tuple[Numbers, Numbers]:
    r"""The size and the text with the least loss for a budget.

    .. math::
        N^* = G\,(C/6)^{\beta/(\alpha+\beta)},\quad D^* = G^{-1}(C/6)^{\alpha/(\alpha+\beta)},\quad
        G = \Bigl(\frac{\alpha A}{\beta B}\Bigr)^{1/(\alpha+\beta)}

    Parameters
    ----------
    law : the five numbers; E does not matter.
    flops : C = 6 N D, > 0.

    Returns
    -------
    N*, D*.

    Raises
    ------
    ValueError
        As for `loss`.

    References
    ----------
    Hoffmann et al. (2022), equation 4. Chapter 8, eq:compute-optimum.

    Examples
    --------
    >>> [f"{x:.3g}" for x in optimum(Law(1.0, 8.0, 8.0, 0.5, 0.5), 6e8)]
    ['1e+04', '1e+04']
    """
    _check(law)
    pairs = _sizes(flops=flops)[0] / 6
    total = law.alpha + law.beta
    G = (law.alpha * law.A / (law.beta * law.B)) ** (1 / total)
    return G * pairs ** (law.beta / total), pairs ** (law.alpha / total) / G  # eq:compute-optimum


def least_loss(law: Law, flops: Numbers) -> Numbers:
    r"""The least loss that a budget can buy.

    .. math:: L^*(C) = E + \Bigl(1 + \frac\alpha\beta\Bigr) A\,G^{-\alpha}\,(C/6)^{-\alpha\beta/(\alpha+\beta)}

    Parameters
    ----------
    law, flops : as in `optimum`.

    Returns
    -------
    L*.

    References
    ----------
    Chapter 8, eq:least-loss.

    Examples
    --------
    >>> round(least_loss(Law(1.0, 8.0, 8.0, 0.5, 0.5), 6e8), 3)
    1.16
    """
    N, _ = optimum(law, flops)
    return law.E + (1 + law.alpha / law.beta) * law.A * N**-law.alpha  # eq:least-loss


def parabola(N: np.ndarray, losses: np.ndarray) -> tuple[float, float]:
    r"""The lowest point of an IsoFLOP curve, by the parabola through its runs.

    .. math:: L \approx p_0 + p_1 \log N + p_2 \log^2 N,\qquad \log N^* = -\frac{p_1}{2 p_2}

    Parameters
    ----------
    N : (r,) the sizes of runs that spent the same budget, three different ones at least.
    losses : (r,) their losses.

    Returns
    -------
    N*, and the loss there.

    Raises
    ------
    ValueError
        If there are fewer than three sizes, or the parabola has no lowest point.

    References
    ----------
    Hoffmann et al. (2022), section 3.2, approach 2. Chapter 8, eq:isoflop-parabola.

    Examples
    --------
    >>> N = np.array([1e3, 1e4, 1e5])
    >>> round(parabola(N, 2 + np.log10(N / 2e4) ** 2)[0])
    20000
    """
    N, losses = _runs(N=N, losses=losses)
    if len(np.unique(N)) < 3:
        raise ValueError(f"there are {len(np.unique(N))} sizes; a parabola needs three different ones at least")
    middle = np.log(N).mean()
    p2, p1, p0 = np.polyfit(np.log(N) - middle, losses, 2)
    if p2 <= 0:
        raise ValueError("the parabola has no lowest point; take sizes on both sides of the best one")
    return float(np.exp(middle - p1 / (2 * p2))), float(p0 - p1**2 / (4 * p2))  # eq:isoflop-parabola


def power_law(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    r"""The line of least squares through logarithms.

    .. math:: y \approx k\, x^a

    Parameters
    ----------
    x, y : (r,), > 0, two different x at least.

    Returns
    -------
    a, k.

    Raises
    ------
    ValueError
        If a number is not positive, or all x are equal.

    References
    ----------
    Chapter 8, pf:power-law.

    Examples
    --------
    >>> a, k = power_law(np.array([1.0, 4.0, 9.0]), np.array([2.0, 4.0, 6.0]))
    >>> print(f"{a:.3f} {k:.3f}")
    0.500 2.000
    """
    x, y = _runs(x=x, y=y)
    if len(np.unique(x)) < 2:
        raise ValueError("all x are equal; a power law needs two different ones at least")
    a, log_k = np.polyfit(np.log(x), np.log(y), 1)
    return float(a), float(np.exp(log_k))


# the fit -------------------------------------------------------------------------------------------------------------


def residuals_loss(
    theta: np.ndarray, N: np.ndarray, D: np.ndarray, losses: np.ndarray, delta: float = 1e-3
) -> tuple[Numbers, np.ndarray]:
    r"""What the fit makes small, and its gradient.

    .. math::
        \sum_r \operatorname{Huber}_\delta\bigl(\operatorname{LSE}(e,\, a-\alpha\log N_r,\, b-\beta\log D_r)
        - \log L_r\bigr)

    Parameters
    ----------
    theta : (..., 5), the numbers e = log E, a = log A, b = log B, alpha and beta.
    N, D, losses : (r,) of the runs.
    delta : where Huber's function turns from a parabola into a line, > 0.

    Returns
    -------
    The sum, (...), and its gradient, (..., 5).

    References
    ----------
    Hoffmann et al. (2022), equation 3. Huber (1964). Chapter 8, eq:scaling-fit and eq:scaling-fit-vjp.

    Examples
    --------
    >>> N, D = np.array([1e4, 1e5]), np.array([1e6, 1e5])
    >>> theta = np.array([0.0, 1.0, 2.0, 0.3, 0.3])
    >>> value, gradient = residuals_loss(theta, N, D, loss(Law(1.0, np.e, np.e**2, 0.3, 0.3), N, D))
    >>> print(f"{value:.1f} {abs(gradient).max():.1f}")
    0.0 0.0
    """
    e, a, b, alpha, beta = np.moveaxis(np.asarray(theta, float)[..., None], -2, 0)
    terms = np.stack(np.broadcast_arrays(e, a - alpha * np.log(N), b - beta * np.log(D)))
    highest = terms.max(0)
    shares = np.exp(terms - highest)
    R = highest + np.log(shares.sum(0)) - np.log(losses)
    huber = np.where(abs(R) <= delta, R**2 / 2, delta * (abs(R) - delta / 2))  # eq:scaling-fit
    P = shares / shares.sum(0) * np.clip(R, -delta, delta)
    by_term = [P[0], P[1], P[2], -P[1] * np.log(N), -P[2] * np.log(D)]  # eq:scaling-fit-vjp
    return huber.sum(-1), np.stack([part.sum(-1) for part in by_term], -1)


def fit(
    N: np.ndarray,
    D: np.ndarray,
    losses: np.ndarray,
    *,
    delta: float = 1e-3,
    starts: Iterable[np.ndarray] | int = 8,
    factor: float | None = None,
) -> Law:
    r"""The law of some runs: the least sum of Huber's function of the errors in log L, from several beginnings.

    Parameters
    ----------
    N, D, losses : (r,), sizes, tokens and losses of the runs, > 0; six runs at least.
    delta : as in `residuals_loss`.
    starts : beginnings (5,) for L-BFGS, or how many of the best points of a grid to take.
    factor : what the sum is multiplied by, by default 1 / delta². L-BFGS stops when a step gains little *in absolute
        terms* once the value is below 1; the sum itself is so small that it would stop at once.

    Returns
    -------
    The law with the least sum.

    Raises
    ------
    ValueError
        If there are fewer than six runs, or a number is not positive.

    References
    ----------
    Hoffmann et al. (2022), section 3.3; for the factor Besiroglu et al. (2024). Chapter 8, eq:scaling-fit.

    Examples
    --------
    >>> N, D = map(np.ravel, np.meshgrid([1e4, 1e5, 1e6], [1e5, 1e6, 1e7]))
    >>> found = fit(N, D, loss(Law(1.5, 40.0, 90.0, 0.35, 0.3), N, D))
    >>> print(*[f"{x:.3g}" for x in found])
    1.5 40 90 0.35 0.3
    """
    N, D, losses = _runs(N=N, D=D, losses=losses)
    _require.positive("delta", delta)
    if len(N) < 6:
        raise ValueError(f"there are {len(N)} runs; five numbers need six at least")
    if isinstance(starts, int):
        grid = np.array(list(product(*GRID)))
        starts = grid[np.argsort(residuals_loss(grid, N, D, losses, delta)[0], kind="stable")[:starts]]
    factor = delta**-2 if factor is None else factor

    def value(theta):
        own, gradient = residuals_loss(theta, N, D, losses, delta)
        return factor * own, factor * gradient

    options = {"maxiter": 2000, "maxfun": 4000}
    found = [minimize(value, start, jac=True, method="L-BFGS-B", options=options) for start in starts]
    return from_logs(min(found, key=lambda one: one.fun).x)


def from_logs(theta: np.ndarray) -> Law:
    """The law with the parameters e = log E, a = log A, b = log B, alpha, beta.

    Examples
    --------
    >>> from_logs(np.array([0.0, 0.0, 0.0, 0.3, 0.2]))
    Law(E=1.0, A=1.0, B=1.0, alpha=0.3, beta=0.2)
    """
    return Law(*map(float, [*np.exp(theta[:3]), *theta[3:]]))


def logs(law: Law) -> np.ndarray:
    """The parameters of `from_logs`."""
    return np.array([*np.log(law[:3]), *law[3:]])


def bootstrap(
    N: np.ndarray, D: np.ndarray, losses: np.ndarray, rng: np.random.Generator, times: int = 200, *, delta: float = 1e-3
) -> list[Law]:
    """Fit again and again to runs that are drawn with repetition, each fit from the one to all runs.

    Parameters
    ----------
    N, D, losses, delta : as in `fit`.
    rng : where the draws come from.
    times : how many fits.

    Returns
    -------
    The laws. The middle 80 % of a number that is computed from each are an interval for it.

    Raises
    ------
    ValueError
        As for `fit`.

    References
    ----------
    Efron (1979); for this use Hoffmann et al. (2022), section 3.3. Chapter 8, sec-scaling-bootstrap.

    Examples
    --------
    >>> N, D = map(np.ravel, np.meshgrid([1e4, 1e5, 1e6], [1e5, 1e6, 1e7]))
    >>> laws = bootstrap(N, D, loss(Law(1.5, 40.0, 90.0, 0.35, 0.3), N, D), np.random.default_rng(0), times=3)
    >>> print(*[f"{law.alpha:.2f}" for law in laws])
    0.35 0.35 0.35
    """
    _require.count("times", times)
    whole = logs(fit(N, D, losses, delta=delta))
    draws = rng.integers(0, len(N), (times, len(N)))
    return [fit(N[i], D[i], losses[i], delta=delta, starts=[whole]) for i in draws]


def _check(law):
    for name in ("A", "B", "alpha", "beta"):
        _require.positive(name, getattr(law, name))


def _sizes(**named):
    arrays = {name: np.asarray(x, float) for name, x in named.items()}
    for name, x in arrays.items():
        good = np.isfinite(x) & (x > 0)
        if not good.all():
            raise ValueError(f"{name} holds {x[~good].flat[0]}; all must be finite and > 0")
    return [x if x.ndim else float(x) for x in arrays.values()]


def _runs(**named):
    lengths = {name: np.shape(x) for name, x in named.items()}
    if len(set(lengths.values())) > 1 or any(len(shape) != 1 for shape in lengths.values()):
        raise ValueError(f"the shapes are {lengths}; give one number for each run")
    return _sizes(**named)
