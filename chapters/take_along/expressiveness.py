import numpy as np


def shared_directions(A, B):
    """How much of the subspace of A lies in that of B: mean squared cosine, 0 to 1.

    A (d, k), B (d, l): columns span what a head reads (W_q, W_k) or writes (W_o.T).
    Two random subspaces share k / d on average: compare with that.
    """
    U, V = np.linalg.qr(A)[0], np.linalg.qr(B)[0]
    return float(((U.T @ V) ** 2).sum() / U.shape[1])


def overlaps(W, heads):
    """The share for each pair of heads. W (d, heads * k): columns side by side."""
    parts = np.split(np.asarray(W, float), heads, axis=1)
    return np.array([[shared_directions(A, B) for B in parts] for A in parts])


def blind_directions(*maps):
    """Unit vectors, as rows, that no map reads: a head with these maps ignores them."""
    stacked = np.concatenate([np.asarray(W, float) for W in maps], axis=1)  # (d, all)
    U, sizes, _ = np.linalg.svd(stacked, full_matrices=True)
    rank = int((sizes > 1e-10 * sizes[0]).sum())
    return U[:, rank:].T
