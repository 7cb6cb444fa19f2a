import numpy as np


def predicted(theta, N, D):
    """log(E + A N^-alpha + B D^-beta), and its derivatives by theta."""
    e, a, b, alpha, beta = theta  # e, a, b: logarithms of E, A, B
    terms = np.stack([e + 0 * N, a - alpha * np.log(N), b - beta * np.log(D)])
    top = terms.max(0)
    total = top + np.log(np.exp(terms - top).sum(0))
    w = np.exp(terms - total)  # the shares of the three terms
    return total, np.stack([*w, -w[1] * np.log(N), -w[2] * np.log(D)], -1)


def huber(z, delta):
    return np.where(abs(z) <= delta, z**2 / 2, delta * (abs(z) - delta / 2)).sum()


def descend(theta, N, D, loss, delta, steps=500):
    """Damped Gauss-Newton steps; an error z above delta has the weight delta / z."""
    damping, z = 1e-2, predicted(theta, N, D)[0] - np.log(loss)
    for _ in range(steps):
        J = predicted(theta, N, D)[1]
        w = delta / np.maximum(abs(z), delta)
        H, g = J.T @ (w[:, None] * J), J.T @ (w * z)
        new = theta - np.linalg.solve(H + damping * np.diag(np.diag(H) + 1e-12), g)
        z_new = predicted(new, N, D)[0] - np.log(loss)
        if huber(z_new, delta) < huber(z, delta):
            theta, z, damping = new, z_new, max(damping / 3, 1e-12)
        else:
            damping *= 4
    return huber(z, delta), theta


def fit(N, D, loss, delta=1e-3):
    """E, A, B, alpha, beta of L = E + A / N^alpha + B / D^beta, for runs (r,)."""
    starts = [
        (np.log(loss.min() * share), 5.0, 7.0, alpha, beta)
        for share in (0.5, 0.9)
        for alpha in (0.3, 0.6)
        for beta in (0.2, 0.4, 0.7)
    ]
    found = (descend(np.array(x), N, D, loss, delta) for x in starts)
    best = min(found, key=lambda one: one[0])[1]
    return np.concatenate([np.exp(best[:3]), best[3:]])


def optimum(law, C):
    """The best number of weights and of tokens for C = 6 N D operations."""
    _, A, B, alpha, beta = law
    N = (alpha * A / (beta * B) * (C / 6) ** beta) ** (1 / (alpha + beta))
    return N, C / 6 / N
