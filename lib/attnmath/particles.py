"""Points that move on a sphere with a given velocity: their paths, their energy, their clusters, and how long it takes.

A velocity is ``flow(X) -> F`` for points X (..., n, d) of length 1, such as
``lambda X: sphere_attention_flow(X, beta=4.0)[0]``.
"""

from collections.abc import Callable

import numpy as np

from attnmath import _require


def on_sphere(rng, *shape: int):
    """Points drawn uniformly from the unit sphere.

    Parameters
    ----------
    rng : NumPy's generator.
    shape : (..., n, d), at least d.

    Returns
    -------
    X : of that shape, rows of length 1.

    Examples
    --------
    >>> X = on_sphere(np.random.default_rng(0), 5, 3)
    >>> np.linalg.norm(X, axis=-1).round(12)
    array([1., 1., 1., 1., 1.])
    """
    return unit(rng.standard_normal(shape))


def unit(X):
    """Rows divided by their lengths.

    Examples
    --------
    >>> unit(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def euler(flow: Callable, X, step: float):
    r"""One step of Euler's method, put back on the sphere: a residual connection and a norm of length.

    .. math:: x_i' = \frac{x_i + h F_i}{\lVert x_i + h F_i\rVert}

    Parameters
    ----------
    flow : the velocity, ``flow(X) -> F``.
    X : (..., n, d), rows of length 1.
    step : h.

    Examples
    --------
    >>> euler(lambda X: np.array([[0.0, 0.75]]), np.array([[1.0, 0.0]]), 1.0)
    array([[0.8, 0.6]])
    """
    return unit(X + step * flow(X))  # eq:euler-step


def runge_kutta(flow: Callable, X, step: float):
    """One step of the classical method of fourth order, put back on the sphere.

    Parameters
    ----------
    flow, X, step : as in `euler`. The velocity is also asked for at points near the sphere.

    Examples
    --------
    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> X = runge_kutta(lambda X: X @ turn, np.array([[1.0, 0.0]]), 0.5)
    >>> float(abs(np.arctan2(X[0, 1], X[0, 0]) - 0.5).round(3))
    0.0
    """
    a = flow(X)
    b = flow(X + step / 2 * a)
    c = flow(X + step / 2 * b)
    d = flow(X + step * c)
    return unit(X + step / 6 * (a + 2 * b + 2 * c + d))


def integrate(flow: Callable, X, step: float, steps: int, *, method: Callable = runge_kutta, every: int = 1):
    """The path of points on the sphere.

    Parameters
    ----------
    flow : the velocity, ``flow(X) -> F``.
    X : (..., n, d) where they start, rows of length 1.
    step : time of one step, > 0.
    steps : how many.
    method : `runge_kutta`, or `euler`.
    every : keep each so manieth.

    Returns
    -------
    times : (steps // every + 1,), from 0.
    path : (steps // every + 1, ..., n, d).

    Raises
    ------
    ValueError
        If a row has not the length 1, the step is not positive, or a number of steps is not a count.

    Examples
    --------
    >>> from attnmath.numpy.clusters import sphere_attention_flow
    >>> flow = lambda X: sphere_attention_flow(X, beta=1.0)[0]
    >>> times, path = integrate(flow, np.eye(2), 0.5, 20, every=10)
    >>> (path[:, 0] * path[:, 1]).sum(-1).round(4)  # the cosine of two tokens at the times 0, 5 and 10
    array([0.    , 0.9998, 1.    ])
    """
    _on_sphere(X)
    _require.positive("step", step)
    _require.count("steps", steps)
    _require.count("every", every)
    path = [X]
    for count in range(1, steps + 1):
        X = method(flow, X, step)
        if count % every == 0:
            path.append(X)
    return step * every * np.arange(len(path)), np.stack(path)


def energy(X, beta: float):
    r"""How near to each other the points are, in the energy of which self-attention climbs the slope.

    .. math:: E = \frac1{2\beta}\sum_{i,j} e^{\beta\langle x_i, x_j\rangle}

    Parameters
    ----------
    X : (..., n, d).
    beta : other than 0.

    Returns
    -------
    E : (...,).

    Raises
    ------
    ValueError
        If beta is 0.

    References
    ----------
    Geshkovski et al. (2025), without their factor 1 / n^2. Chapter 9, eq:particle-energy.

    Examples
    --------
    >>> float(energy(np.array([[1.0, 0.0], [0.0, 1.0]]), 1.0).round(4))  # (2 e + 2) / 2
    3.7183
    """
    if not beta:
        raise ValueError("beta is 0; the energy needs another one")
    return np.exp(beta * X @ np.swapaxes(X, -1, -2)).sum((-1, -2)) / (2 * beta)  # eq:particle-energy


def cluster_count(X, cosine: float = 0.99):
    """How many groups the points form, if those belong together whose cosine is large, and all who are joined by such.

    Parameters
    ----------
    X : (n, d), rows of length 1.
    cosine : from which on two points are neighbours.

    Examples
    --------
    >>> angles = np.radians([0, 5, 10, 90, 95])
    >>> cluster_count(np.stack([np.cos(angles), np.sin(angles)], -1))
    2
    """
    from scipy.sparse.csgraph import connected_components

    _require.shapes(X=(X, "n d"))
    return int(connected_components(X @ X.T >= cosine, directed=False)[0])


def time_to_one(flow: Callable, X, *, cosine: float = 0.99, step: float = 0.25, limit: float = 200.0):
    """When all points of a set are neighbours of each other for the first time.

    Parameters
    ----------
    flow : the velocity, for sets of any number.
    X : (b, n, d), b sets of points of length 1.
    cosine : the smallest between two points of a cluster.
    step : of `runge_kutta`; times are multiples of it.
    limit : where the search ends.

    Returns
    -------
    times : (b,), infinite for a set that takes longer than the limit.

    Raises
    ------
    ValueError
        If a row has not the length 1 or the step is not positive.

    Examples
    --------
    >>> from attnmath.numpy.clusters import sphere_attention_flow
    >>> time_to_one(lambda X: sphere_attention_flow(X, beta=1.0)[0], np.eye(3)[None])
    array([3.25])
    """
    _on_sphere(X)
    _require.positive("step", step)
    times, left = np.full(len(X), np.inf), np.arange(len(X))
    for count in range(int(limit / step) + 1):
        done = (X @ np.swapaxes(X, -1, -2)).min((-1, -2)) >= cosine
        times[left[done]] = count * step
        X, left = X[~done], left[~done]
        if not len(left):
            break
        X = runge_kutta(flow, X, step)
    return times


def equal_angles(cosine, n: int, beta: float):
    r"""How fast the cosine grows if all pairs of n tokens have the same.

    .. math:: \dot\gamma = \frac{2\,(1-\gamma)\,(1+(n-1)\gamma)}{e^{\beta(1-\gamma)}+n-1}

    Parameters
    ----------
    cosine : gamma, from -1 / (n - 1) to 1; a number or an array.
    n : tokens, or clusters of equal size.
    beta : the inverse temperature.

    References
    ----------
    Geshkovski et al. (2025), section 6, for tokens in high dimension. Chapter 9, eq:equal-angles.

    Examples
    --------
    >>> float(equal_angles(0.0, 2, 0.0))
    1.0
    """
    grow = 2 * (1 - cosine) * (1 + (n - 1) * cosine)
    return grow / (np.exp(beta * (1 - cosine)) + n - 1)  # eq:equal-angles


def equal_angle_time(n: int, beta: float, *, start: float = 0.0, end: float = 0.99) -> float:
    r"""How long tokens with equal angles take from one cosine to another.

    .. math:: T = \int_{\gamma_0}^{\gamma_1} \frac{d\gamma}{\dot\gamma}

    Parameters
    ----------
    n, beta : as in `equal_angles`.
    start, end : the cosines, -1 / (n - 1) < start <= end < 1.

    Raises
    ------
    ValueError
        If the cosines are not in that order.

    Examples
    --------
    >>> round(equal_angle_time(2, 0.0), 4)  # artanh 0.99
    2.6467
    """
    from scipy.integrate import quad

    if n < 2 or not -1 / (n - 1) < start <= end < 1:
        raise ValueError(f"n is {n}, start {start}, end {end}; -1 / (n - 1) < start <= end < 1 is needed, and n >= 2")
    return quad(lambda c: 1 / equal_angles(c, n, beta), start, end, epsabs=0, epsrel=1e-10, limit=200)[0]


def _on_sphere(X):
    _require.shapes(X=(X, "... n d"))
    off = abs(np.linalg.norm(X, axis=-1) - 1)
    if (off > 1e-6).any():
        raise ValueError(f"a row of X has a length that is not 1, by {off.max():.1e}; divide the rows by their lengths")
