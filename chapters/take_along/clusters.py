import numpy as np


def unit(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def velocity(X, beta, causal=False):
    """How tokens X (n, d) of length 1 move on the sphere: to what they attend to."""
    S = beta * X @ X.T
    S = np.where(np.tri(len(X), dtype=bool) | (not causal), S, -np.inf)
    P = np.exp(S - S.max(-1, keepdims=True))
    O = P / P.sum(-1, keepdims=True) @ X
    return O - (X * O).sum(-1, keepdims=True) * X  # no part leaves the sphere


def simulate(X, beta, step=0.5, layers=100, causal=False):
    """The path (layers + 1, n, d): a layer is a step of Euler's method and a norm."""
    path = [unit(X)]
    for _ in range(layers):
        path.append(unit(path[-1] + step * velocity(path[-1], beta, causal)))
    return np.stack(path)


def places(X, cosine=0.99):
    """How many clusters: tokens belong together if a chain of near ones joins them."""
    near, left, count = X @ X.T >= cosine, set(range(len(X))), 0
    while left:
        count, grow = count + 1, [left.pop()]
        while grow:
            found = left & set(np.flatnonzero(near[grow.pop()]))
            left -= found
            grow += found
    return count


def wait(cosine, beta, n=2, end=0.99, points=200_000):
    """The time until n equal clusters with this cosine have the cosine `end`."""
    g = np.linspace(cosine, end, points)
    time = (np.exp(beta * (1 - g)) + n - 1) / (2 * (1 - g) * (1 + (n - 1) * g))
    return float(((time[1:] + time[:-1]) / 2 * np.diff(g)).sum())
