"""Softmax attention in linear time by positive random features (Performer)."""

import torch


def directions(r, d):
    """r normal vectors of width d, at right angles in blocks of d."""
    blocks = [torch.linalg.qr(torch.randn(d, d)).Q for _ in range(-(-r // d))]
    lengths = torch.randn(r, d).norm(dim=-1, keepdim=True)
    return torch.cat(blocks)[:r] * lengths


def measured_shift(Q, K):
    """What to add to all keys of a head, (..., 1, d), from sample texts of some words.

    It leaves the softmax as it is and centres query + key where the weight is.
    """
    P = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    return -(Q + P @ K).mean(-2, keepdim=True)


def performer(Q, K, V, W, shift=0.0, keys=None, causal=False, chunk=64):
    """Q, K (..., n, d); V (..., n, v); W (r, d); keys (..., n), False is padding."""
    Q, K = (X / X.shape[-1] ** 0.25 for X in (Q, K + shift))
    A, B = Q @ W.mT, K @ W.mT - K.square().sum(-1, keepdim=True) / 2
    if keys is not None:
        B = B.masked_fill(~keys[..., None], -torch.inf)
    top = B.amax(-2, keepdim=True).detach()  # one number for each feature, the same
    A = A + top  # for all keys: what is taken from keys is given back to queries
    F = (A - A.amax(-1, keepdim=True).detach()).exp()  # (..., n, r)
    G, V = (B - top).exp(), torch.cat([V, torch.ones_like(V[..., :1])], -1)
    if not causal:
        U = F @ (G.mT @ V)
        return U[..., :-1] / U[..., -1:]
    state, out = torch.zeros_like(G[..., :1, :].mT @ V[..., :1, :]), []
    for f, g, v in zip(*(X.split(chunk, -2) for X in (F, G, V)), strict=True):
        out.append(f @ state + (f @ g.mT).tril() @ v)
        state = state + g.mT @ v
    U = torch.cat(out, -2)
    return U[..., :-1] / U[..., -1:]
