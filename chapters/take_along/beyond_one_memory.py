"""Attention to the best few keys of a large store, with a bound on what was dropped."""

import torch


def search(Q, K, t, block=65_536):
    """The t best scores of each query, and where; the store is read in blocks."""
    best, where = None, None
    for start in range(0, len(K), block):
        S = Q @ K[start : start + block].T / Q.shape[-1] ** 0.5  # (n, block)
        at = torch.arange(start, start + S.shape[-1], device=K.device).expand_as(S)
        if best is not None:
            S, at = torch.cat([best, S], -1), torch.cat([where, at], -1)
        best, chosen = S.topk(min(t, S.shape[-1]), -1)
        where = at.gather(-1, chosen)
    return best, where


def retrieve(Q, K, V, t):
    """Q (n, k), K (m, k), V (m, v) -> O (n, v), and a bound (n,) on the dropped weight.

    The output is off by at most this bound times the range of the values.
    """
    scores, where = search(Q, K, t)
    P = scores.softmax(-1)  # (n, t)
    O = (P[..., None] * V[where]).sum(-2)
    dropped = len(K) - scores.shape[-1]
    rest = dropped * P[:, -1]  # no dropped key has more weight than the last one kept
    return O, rest / (1 + rest)


def next_token(Q, K, followed, model, weight=0.1, temperature=10.0, t=256):
    """Mix a model's (n, vocabulary) with the tokens that followed the nearest rows."""
    near = torch.cdist(Q, K).square().topk(min(t, len(K)), -1, largest=False)
    P = (-near.values / temperature).softmax(-1)
    store = torch.zeros_like(model).scatter_add(-1, followed[near.indices], P)
    return (1 - weight) * model + weight * store
