"""A memory of fixed size that decays and replaces: the gated delta rule, in chunks."""

import torch
import torch.nn.functional as F
from torch import nn


def delta_rule(Q, K, V, decay, beta, state=None, chunk=64):
    """Q, K (..., n, k), keys of length 1; V (..., n, v); decay, beta (..., n, 1).

    Decay is above 0 and at most 1. Returns O (..., n, v), state (..., k, v).
    """
    S = torch.zeros_like(K[..., :1, :].mT @ V[..., :1, :]) if state is None else state
    out = []
    parts = (X.split(chunk, -2) for X in (Q, K, V, decay, beta))
    for q, k, v, a, b in zip(*parts, strict=True):
        w = a.log().cumsum(-2)  # logarithm of what the decays since the start leave
        left = (w - w.mT).tril().exp().tril()  # row i: what is left of write j
        L = (b * left * (k @ k.mT)).tril(-1)
        rest = b * (v - w.exp() * (k @ S))
        U = torch.linalg.solve_triangular(L, rest, upper=False, unitriangular=True)
        out.append(left * (q @ k.mT) @ U + w.exp() * (q @ S))
        end = w[..., -1:, :]
        S = end.exp() * S + ((end - w).exp() * k).mT @ U
    return torch.cat(out, -2), S


class DeltaMemory(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.gates = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, 2 * heads)
        nn.init.constant_(self.gates.bias[:heads], 4.0)  # keeps 98 % a token
        self.norm, self.out = nn.RMSNorm(d // heads), nn.Linear(d, d, bias=False)

    def forward(self, X, state=None):  # X (batch, n, d); keep the state to write on
        split = self.qkv(X).chunk(3, -1)
        Q, K, V = (Y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for Y in split)
        decay, beta = self.gates(X).sigmoid().mT[..., None].chunk(2, 1)
        Q, K = F.normalize(Q, dim=-1), F.normalize(K, dim=-1)
        O, state = delta_rule(Q, K, V, decay, beta, state)
        return self.out(self.norm(O).transpose(1, 2).flatten(2)), state
