import math

import torch
from torch import nn


def rotary(X, start=0, base=10_000.0):
    """Turn the pairs (2 i, 2 i + 1) of rows X (..., n, k) by the rows' places."""
    n, k = X.shape[-2:]
    slow = base ** (-torch.arange(0, k, 2, device=X.device, dtype=torch.float64) / k)
    places = torch.arange(start, start + n, device=X.device, dtype=torch.float64)
    angles = places[:, None] * slow
    cos, sin, a, b = angles.cos(), angles.sin(), X[..., 0::2], X[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(X)


def distances(n, m):  # key minus query; the last query stands at the last key
    return torch.arange(m) - torch.arange(n)[:, None] - (m - n)


def alibi(heads, n, m):
    """A bias on scores (heads, n, m): straight lines. heads is a power of two."""
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
    return -slopes[:, None, None] * distances(n, m).abs()


class Buckets(nn.Module):
    """T5's bias: a learned number for each head and distance; far ones share."""

    def __init__(self, heads, count=32, farthest=128):
        super().__init__()
        self.table, self.farthest = nn.Embedding(count, heads), farthest

    def forward(self, n, m):  # both directions, so each has half of the buckets
        D, half = distances(n, m), self.table.num_embeddings // 2
        exact, far = half // 2, D.abs().clamp(min=1)
        ratio = torch.log(far / exact) / math.log(self.farthest / exact)
        grown = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
        bucket = torch.where(D.abs() < exact, D.abs(), grown) + half * (D > 0)
        return self.table(bucket).movedim(-1, 0)  # (heads, n, m), to be added
