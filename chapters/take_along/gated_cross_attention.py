"""A language model sees: gated cross-attention in front of its frozen layers."""

import torch
import torch.nn.functional as F
from torch import nn


class GatedCrossAttention(nn.Module):
    """Each word looks at the rows of a picture; closed gates change nothing."""

    def __init__(self, d, e, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.query, self.output = (nn.Linear(d, d, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(e, d, bias=False) for _ in range(2))
        self.think = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.gates = nn.Parameter(torch.zeros(2))  # tanh(0) = 0: closed, and can open

    def split(self, x):  # (b, n, d) -> (b, heads, n, d / heads)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def look(self, x, memory, mask):
        q, k, v = self.query(x), self.key(memory), self.value(memory)
        sees = mask.any(-1, keepdim=True)  # a word in front of all pictures sees none
        y = F.scaled_dot_product_attention(
            *map(self.split, (q, k, v)), attn_mask=(mask | ~sees)[:, None]
        )
        return self.output(y.transpose(1, 2).flatten(2)) * sees

    def forward(self, x, memory, mask):  # words (b, n, d), rows (b, m, e), (b, n, m)
        g, h = self.gates.tanh()
        x = x + g * self.look(self.norms[0](x), memory, mask)
        return x + h * self.think(self.norms[1](x))


class Seeing(nn.Module):
    """Frozen layers x -> layer(x), with a gated layer that learns in front of each."""

    def __init__(self, layers, d, e, heads):
        super().__init__()
        self.layers = layers.requires_grad_(False)
        self.gated = nn.ModuleList(GatedCrossAttention(d, e, heads) for _ in layers)

    def forward(self, x, memory, mask):
        for gated, layer in zip(self.gated, self.layers, strict=True):
            x = layer(gated(x, memory, mask))
        return x
