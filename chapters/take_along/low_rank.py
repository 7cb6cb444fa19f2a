"""Linformer: each head attends to r learned mixtures of the words."""

import torch
import torch.nn.functional as F
from torch import nn


class Linformer(nn.Module):
    """Self-attention of texts of at most n words to r slots; not for causal models.

    All heads share the two mixing matrices. A padded word must be marked: it is
    mixed into a slot otherwise, and no mask can take it out again.
    """

    def __init__(self, n, r, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        block = torch.arange(n) * r // n == torch.arange(r)[:, None]  # neighbours
        start = block / block.sum(-1, keepdim=True)  # each slot begins as a mean
        self.E, self.F = nn.Parameter(start), nn.Parameter(start.clone())  # (r, n)

    def forward(self, X, words=None):  # X (batch, n, d); words (batch, n) of booleans
        n = X.shape[1]
        split = self.qkv(X).chunk(3, -1)
        Q, K, V = (Y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for Y in split)
        if words is not None:
            K, V = (Y * words[:, None, :, None] for Y in (K, V))
        K, V = self.E[:, :n] @ K, self.F[:, :n] @ V  # (batch, heads, r, d / heads)
        O = F.scaled_dot_product_attention(Q, K, V)
        return self.out(O.transpose(1, 2).flatten(2))
