import math

import torch


@torch.no_grad()
def moved_by_one(model, X, draw, row=-1, tries=8):
    """How far one row of a model's output moves if one other row of the input changes.

    model: (b, n, d) -> (b, n, e); X: (n, d); draw(count) gives new rows (count, d).
    Returns (n,): the largest change for each place that was exchanged, over all tries.
    """
    n = len(X)
    before = model(X[None])[0, row]
    most = []
    for k in range(n):
        Y = X.expand(tries, n, -1).clone()
        Y[:, k] = draw(tries)
        most.append((model(Y)[:, row] - before).norm(dim=-1).max())
    found = torch.stack(most)
    found[row] = 0.0  # its own change goes straight through the residual connection
    return found


def longest(W):
    """The largest factor by which a matrix stretches a row."""
    return torch.linalg.matrix_norm(W, 2).item()


def bound(layers, n, radius, stretch=1.0):
    """A limit for moved_by_one: attention to n rows, residual connections, no norm.

    layers: for each one its heads, pairs (W_QK, W_OV) with scores x W_QK y and values
    x W_OV; radius: the longest row that goes in; stretch: the Lipschitz constant of
    what follows a layer. It falls like 1 / n; its constant grows fast with the depth.
    """
    moved, R = 0.0, radius
    for heads in layers:
        a = max(longest(QK) for QK, _ in heads)
        b = sum(longest(OV) for _, OV in heads)
        fresh = 4 * b * R * math.exp(2 * a * R * R) / n  # the exchanged row itself
        moved = stretch * ((1 + b + 2 * a * b * R * R) * moved + fresh)
        R = stretch * (1 + b) * R
    return moved
