import torch
import torch.nn.functional as F
from torch import nn


class CachedAttention(nn.Module):
    """Causal attention with fewer heads of keys than of queries, and a cache."""

    def __init__(self, d, heads, groups, longest, batch=1):
        super().__init__()
        self.sizes = (heads, groups, d // heads)  # heads is a multiple of groups
        self.query = nn.Linear(d, d, bias=False)
        self.key = nn.Linear(d, groups * self.sizes[2], bias=False)
        self.value = nn.Linear(d, groups * self.sizes[2], bias=False)
        self.output = nn.Linear(d, d, bias=False)
        room = torch.empty(2, batch, groups, longest, self.sizes[2])
        self.register_buffer("kept", room, persistent=False)

    def split(self, A):  # (batch, n, heads * k) to (batch, heads, n, k)
        return A.unflatten(-1, (-1, self.sizes[2])).transpose(1, 2)

    def forward(self, X, start=0):  # X: (batch, n, d), the rows from position start on
        heads, groups, _ = self.sizes
        end = start + X.shape[1]
        q = turn(self.split(self.query(X)), start)
        self.kept[0, :, :, start:end] = turn(self.split(self.key(X)), start)
        self.kept[1, :, :, start:end] = self.split(self.value(X))
        k, v = (A[:, :, :end].repeat_interleave(heads // groups, 1) for A in self.kept)
        where = torch.arange(end, device=X.device)
        seen = where[start:, None] >= where
        O = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.output(O.transpose(1, 2).flatten(2))


def turn(A, start, base=10000.0):
    """Rotary positions: components 2i and 2i + 1 of row p turn by p / base^(2i/k)."""
    n, k = A.shape[-2:]
    numbers = torch.arange(max(start + n, k), device=A.device, dtype=A.dtype)
    angle = numbers[start : start + n, None] * base ** (-numbers[:k:2] / k)
    a, b, cos, sin = A[..., 0::2], A[..., 1::2], angle.cos(), angle.sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
