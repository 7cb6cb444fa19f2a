"""Causal linear attention: chunk=n is the parallel form, chunk=1 the recurrent one."""

import torch
import torch.nn.functional as F
from torch import nn


def phi(X):  # positive features, as many as components
    return F.elu(X) + 1


def linear_attention(Q, K, V, state=None, chunk=64):
    """Q, K (..., n, f), V (..., n, v), state (..., f, v + 1) -> O, state."""
    Q, K, V = phi(Q), phi(K), F.pad(V, (0, 1), value=1.0)  # the ones sum the weights
    if state is None:
        state = Q.new_zeros(*Q.shape[:-2], Q.shape[-1], V.shape[-1])
    out = []
    for q, k, v in zip(*(X.split(chunk, -2) for X in (Q, K, V)), strict=True):
        out.append(q @ state + (q @ k.mT).tril() @ v)  # before the chunk, and within it
        state = state + k.mT @ v
    U = torch.cat(out, -2)
    return U[..., :-1] / U[..., -1:], state


class LinearSelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, X, state=None):  # X (batch, n, d); keep the state to write on
        split = self.qkv(X).chunk(3, -1)
        Q, K, V = (Y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for Y in split)
        O, state = linear_attention(Q, K, V, state)
        return self.out(O.transpose(1, 2).flatten(2)), state
