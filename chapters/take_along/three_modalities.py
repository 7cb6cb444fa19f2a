"""Streams of different rates in one Transformer: attention turns by the time."""

import torch
import torch.nn.functional as F
from torch import nn


def turned(x, times, speeds):
    """Turn pair f of each row by speeds[f] * time: x (b, heads, n, k), times (b, n)."""
    angle = times[:, None, :, None] * speeds  # (b, 1, n, k / 2)
    a, b, cos, sin = x[..., ::2], x[..., 1::2], angle.cos(), angle.sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class TimedBlock(nn.Module):
    """An encoder layer whose attention sees differences of times."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.qkv, self.output = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.think = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, times, speeds, there):
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (b, heads, n, k)
        q, k = turned(q, times, speeds), turned(k, times, speeds)
        mask = there[:, None, None]  # False hides the padding
        y = F.scaled_dot_product_attention(q, k, v, mask)
        x = x + self.output(y.transpose(1, 2).flatten(2))
        return x + self.think(self.norms[1](x))


class Fusion(nn.Module):
    """One sequence of all streams; `into` holds a module for each: rows to width d."""

    def __init__(self, into, d, heads, layers, speeds):
        super().__init__()
        self.into = nn.ModuleList(into)
        self.blocks = nn.ModuleList(TimedBlock(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.register_buffer("speeds", speeds)  # d / heads / 2 of them, 0 for content

    def forward(self, streams, times, there):  # lists, one entry for each stream
        rows = [into(X) for into, X in zip(self.into, streams, strict=True)]
        x = torch.cat(rows, 1)  # (b, n, d)
        times, there = torch.cat(times, 1), torch.cat(there, 1)  # one clock
        for block in self.blocks:
            x = block(x, times, self.speeds, there)
        return self.norm(x)
