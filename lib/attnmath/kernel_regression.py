"""Experiments with weighted averages: exact bias and variance, a contest on patients, features of finite relations."""

from functools import cache, partial
from math import comb

import numpy as np
from scipy.optimize import minimize
from scipy.special import factorial

from attnmath import _require
from attnmath.numpy.cores import recording
from attnmath.numpy.kernel_regression import leave_one_out, local_linear_attention
from attnmath.numpy.softmax import softmax
from attnmath.numpy.types import T

BANDWIDTHS = tuple(np.geomspace(0.5, 4, 13))  # in standard deviations of a measurement
WIDER = tuple(np.geomspace(2, 16, 4))  # of lines, which need more patients
NEIGHBOURS = tuple(range(1, 61))
STOPS = (1, 2, 5, 10, 40)  # steps after which the learning of scales may stop
PATIENTS = 221  # to learn from; the other half is predicted


def grid(n: int):
    """The middles of n equal parts of the interval from 0 to 1, as keys (n, 1)."""
    return ((np.arange(n) + 0.5) / n)[:, None]


def squared_distances(A, B):
    """The squared distance of each row of A from each row of B, (n, m)."""
    if A.shape[-1] <= 2:
        return ((A[:, None] - B) ** 2).sum(-1)
    return np.maximum((A * A).sum(-1, keepdims=True) - 2 * A @ T(B) + (B * B).sum(-1), 0)  # fast, to eight digits


def gaussian_weights(Q, K, bandwidth: float):
    r"""Weights of attention with the scores of a Gaussian kernel.

    .. math:: w_{ij} = \operatorname{softmax}_j(-\lVert q_i - k_j\rVert^2 / 2h^2)

    Parameters
    ----------
    Q, K : (n, d) and (m, d).
    bandwidth : h > 0.

    Returns
    -------
    P : (n, m), rows sum to 1.

    Examples
    --------
    >>> gaussian_weights(np.zeros((1, 1)), np.array([[-1.0], [0.0], [1.0]]), 1.0).round(3)
    array([[0.274, 0.452, 0.274]])
    """
    _require.positive("bandwidth", bandwidth)
    return softmax(-squared_distances(Q, K) / 2, temperature=bandwidth**2)[0]


def box_weights(Q, K, bandwidth: float):
    """Equal weights for the keys at most a bandwidth away, (n, m); a query with no such key is an error.

    Examples
    --------
    >>> box_weights(np.zeros((1, 1)), np.array([[-1.0], [0.5], [3.0]]), 1.0)
    array([[0.5, 0.5, 0. ]])
    """
    _require.positive("bandwidth", bandwidth)
    near = squared_distances(Q, K) <= bandwidth**2 * (1 + 1e-12)
    return softmax(np.where(near, 0.0, -np.inf))[0]


def line_weights(Q, K, bandwidth: float, ridge: float = 1e-6):
    """The weights of `local_linear_attention`, (n, m): rows sum to 1, and some weights may be negative.

    Examples
    --------
    >>> line_weights(np.zeros((1, 1)), np.array([[0.0], [1.0], [2.0]]), 1.0).round(2)
    array([[ 0.93,  0.13, -0.07]])
    """
    seen = {}
    core = partial(local_linear_attention, bandwidth=bandwidth, ridge=ridge)
    recording(core, seen)(Q, K, np.zeros((len(K), 1)))
    return seen["weights"]


def bias_and_variance(P, Q, K, f, noise: float):
    r"""The mean error of a weighted average of noisy values, and its variance, both exact.

    .. math:: b_i = \sum_j P_{ij}\,(f(k_j) - f(q_i)),\qquad \sigma^2 \sum_j P_{ij}^2

    Parameters
    ----------
    P : (n, m) weights that do not depend on the values; rows sum to 1.
    Q, K : (n, 1) and (m, 1).
    f : the true function, of arrays.
    noise : sigma >= 0, the standard deviation of the noise of one value.

    Returns
    -------
    bias, variance : (n,) each. The expected squared error is the square of the one plus the other.

    Examples
    --------
    >>> P, K = np.array([[0.5, 0.5]]), np.array([[0.0], [1.0]])
    >>> [float(x[0]) for x in bias_and_variance(P, np.zeros((1, 1)), K, lambda x: 3 * x, noise=2.0)]
    [1.5, 2.0]
    """
    _require.nonnegative("noise", noise)
    return P @ f(K[:, 0]) - f(Q[:, 0]), noise**2 * (P * P).sum(-1)  # eq:bias-variance


def best_risk(n: int, at: float, f, noise: float, weights=box_weights):
    """The least expected squared error at a place over 60 bandwidths, with n keys on the grid; and the bandwidth."""
    K, Q = grid(n), np.array([[at]])
    found = []
    for h in np.geomspace(1 / n, 1, 60):
        bias, variance = bias_and_variance(weights(Q, K, h), Q, K, f, noise)
        found.append((float(bias[0] ** 2 + variance[0]), float(h)))
    return min(found)


def slope(numbers, values):
    """The exponent of the power law that fits best: the slope of a line on logarithmic axes."""
    return float(np.polyfit(np.log(numbers), np.log(values), 1)[0])


@cache
def patients():
    """Ten measurements of 442 patients, divided by their spread, and the progress of their disease a year later."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return X / X.std(0), y[:, None]


def root_mean_square(R):
    """The root of the mean of squares."""
    return float(np.sqrt((R * R).mean()))


def choose(X, Y, bandwidths, weights=gaussian_weights):
    """The bandwidth with the least error when each value is predicted from the others, and all the errors."""
    errors = [root_mean_square(leave_one_out(weights(X, X, h), Y)[0]) for h in bandwidths]
    return bandwidths[int(np.argmin(errors))], errors


def scales_loss(log_scales, X, Y):
    r"""The leave-one-out error of Gaussian attention with one scale for each component, and its gradient.

    .. math:: \frac1n \sum_i R_i^2,\qquad S_{ij} = -\tfrac12 \sum_c a_c^2\,(x_{ic} - x_{jc})^2

    Parameters
    ----------
    log_scales : (d,), the logarithms of a, one over the bandwidth of each component.
    X, Y : (n, d) and (n, 1).

    Returns
    -------
    loss, gradient : a number, and (d,).

    References
    ----------
    Weinberger and Tesauro (2007), whose matrix A is diagonal here.

    Examples
    --------
    >>> X, Y = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [1.0], [2.0]])
    >>> float(scales_loss(np.zeros(1), X, Y)[0].round(3))
    0.932
    """
    Z = X * np.exp(log_scales)
    S = np.where(np.eye(len(X), dtype=bool), -np.inf, -squared_distances(Z, Z) / 2)  # no row sees its own value
    P, softmax_vjp = softmax(S)
    R = Y - P @ Y
    dS = softmax_vjp(-2 / R.size * R @ T(Y))
    dS = dS + T(dS)
    dZ = dS @ Z - dS.sum(-1, keepdims=True) * Z
    return (R * R).mean(), (dZ * Z).sum(0)


def learned_scales(X, Y, bandwidth: float, steps: int = 40):
    """Scales (d,) that lower `scales_loss`, found by SciPy's L-BFGS-B from one bandwidth for all components."""
    unit = float((Y * Y).mean())

    def scaled(a):
        loss, gradient = scales_loss(a, X, Y)
        return loss / unit, gradient / unit

    start, bounds = np.full(X.shape[1], -np.log(bandwidth)), [(-5, 3)] * X.shape[1]
    found = minimize(scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return np.exp(found.x)


def nearest(Q, K, Y, count: int):
    """The mean value of the nearest keys."""
    order = np.argsort(squared_distances(Q, K), -1, kind="stable")[:, :count]
    return Y[order].mean(1)


def contest(seed: int) -> dict:
    """Ways to predict half of the patients from the other half: the error of each, what was tried and what was chosen.

    All choices are made on the half that is learned from, by leaving one out. ``inside`` is the learned scales' error
    there, and ``stopped`` their error on the other half if a third of the first one chooses when the learning stops.
    ``displacement`` is the straight line's slope times the displacement of attention's average key (its root mean
    square), and ``corrected`` the error of attention from which this is subtracted.
    """
    X, Y = patients()
    order = np.random.default_rng(seed).permutation(len(X))
    A, B, Ya, Yb = X[order[:PATIENTS]], X[order[PATIENTS:]], Y[order[:PATIENTS]], Y[order[PATIENTS:]]
    h, narrow_errors = choose(A, Ya, BANDWIDTHS)
    wide, wide_errors = choose(A, Ya, WIDER, partial(line_weights, ridge=1e-3))
    a = learned_scales(A, Ya, h)
    others = squared_distances(A, A) + np.diag(np.full(len(A), np.inf))
    ranked = Ya[np.argsort(others, -1)[:, : NEIGHBOURS[-1]], 0].cumsum(-1) / np.arange(1, NEIGHBOURS[-1] + 1)
    near_errors = np.sqrt(((ranked - Ya) ** 2).mean(0))
    k = NEIGHBOURS[int(near_errors.argmin())]
    ones = [np.concatenate([np.ones((len(Z), 1)), Z], -1) for Z in (A, B)]
    answers = {
        "mean of all": np.full_like(Yb, Ya.mean()),
        "nearest neighbours": nearest(B, A, Ya, k),
        "attention": gaussian_weights(B, A, h) @ Ya,
        "ten learned scales": gaussian_weights(B * a, A * a, 1.0) @ Ya,
        "attention with lines": line_weights(B, A, wide, 1e-3) @ Ya,
        "one straight line": ones[1] @ np.linalg.lstsq(ones[0], Ya, rcond=None)[0],
    }
    inside = root_mean_square(leave_one_out(gaussian_weights(A * a, A * a, 1.0), Ya)[0])
    displaced = (gaussian_weights(B, A, h) @ A - B) @ np.linalg.lstsq(ones[0], Ya, rcond=None)[0][1:]
    return {
        "errors": {name: root_mean_square(got - Yb) for name, got in answers.items()},
        "chosen": {"bandwidth": float(h), "neighbours": k, "line bandwidth": float(wide)},
        "tried": {
            "nearest neighbours": [({"neighbours": n}, float(e)) for n, e in zip(NEIGHBOURS, near_errors, strict=True)],
            "attention": [({"bandwidth": b}, e) for b, e in zip(BANDWIDTHS, narrow_errors, strict=True)],
            "attention with lines": [({"bandwidth": b}, e) for b, e in zip(WIDER, wide_errors, strict=True)],
        },
        "inside": inside,
        "stopped": _stopped_early(A, Ya, B, Yb, h),
        "displacement": root_mean_square(displaced),
        "corrected": root_mean_square(answers["attention"] - displaced - Yb),
    }


def _stopped_early(A, Ya, B, Yb, bandwidth):
    """The error on B of scales that were learned for as many steps as were best for a third of A."""
    cut = 2 * len(A) // 3
    scales = [learned_scales(A[:cut], Ya[:cut], bandwidth, steps) for steps in STOPS]
    guesses = [gaussian_weights(A[cut:] * a, A[:cut] * a, 1.0) @ Ya[:cut] for a in scales]
    steps = STOPS[int(np.argmin([root_mean_square(guess - Ya[cut:]) for guess in guesses]))]
    a = learned_scales(A, Ya, bandwidth, steps)
    return root_mean_square(gaussian_weights(B * a, A * a, 1.0) @ Ya - Yb)


def relation_features(R, width: int | None = None):
    r"""Features of finitely many things whose dot products are a relation, or come as near as the width allows.

    .. math:: R_{ij} = \phi(i) \cdot \psi(j)

    Parameters
    ----------
    R : (n, m), what each thing i has to do with each thing j.
    width : how many features; None takes the rank of R, which is the least that is exact.

    Returns
    -------
    phi, psi : (n, w) and (m, w).

    Raises
    ------
    ValueError
        If R is no matrix of floats, or the width no integer >= 1.

    References
    ----------
    Altabaa and Lafferty (2024), for relations on infinite sets. Chapter 9, thm-relation-width.

    Examples
    --------
    >>> phi, psi = relation_features(np.tril(np.ones((4, 4)), -1))  # "i is larger than j"
    >>> phi.shape, np.abs(phi @ psi.T - np.tril(np.ones((4, 4)), -1)).max() < 1e-12
    ((4, 3), np.True_)
    """
    _require.shapes(R=(R, "n m"))
    if width is not None:
        _require.count("width", width)
    U, s, Vt = np.linalg.svd(R, full_matrices=False)
    w = max(1, np.linalg.matrix_rank(R)) if width is None else width
    return U[:, :w] * np.sqrt(s[:w]), Vt[:w].T * np.sqrt(s[:w])


def taylor(t, degree: int):
    """Taylor's polynomial of the exponential, of a degree, at the numbers t."""
    return np.polynomial.polynomial.polyval(t, 1 / factorial(np.arange(degree + 1)))


def degree_needed(t, tolerance: float, most: int = 200):
    """The least even degree at which Taylor's polynomial is within a relative tolerance at all the numbers t.

    Examples
    --------
    >>> degree_needed(np.array([-1.0, 1.0]), 0.1)
    4
    """
    for degree in range(2, most + 1, 2):
        if (np.abs(taylor(t, degree) * np.exp(-t) - 1) <= tolerance).all():
            return degree
    raise ValueError(f"no degree up to {most} comes within {tolerance}; the largest number is {np.abs(t).max():.4g}")


def monomial_count(width: int, degree: int) -> int:
    """How many monomials of so many variables there are up to a degree: the length of Taylor's features."""
    return comb(width + degree, degree)
