"""A Vision Transformer with a class token, for pictures with any number of channels."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Self-attention and a small network, each behind a norm and added to its input."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.qkv, self.output = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.think = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):  # (b, n, d)
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (b, heads, n, d / heads)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.output(y)
        return x + self.think(self.norms[1](x))


class ViT(nn.Module):
    """Pictures (b, channels, side, side) to the scores of the classes (b, classes)."""

    def __init__(self, side, patch, channels, classes, d=64, heads=4, layers=2):
        super().__init__()
        self.patch = nn.Conv2d(channels, d, patch, stride=patch)  # one matrix for all
        self.first = nn.Parameter(torch.zeros(1, 1, d))  # the class token
        places = 1 + (side // patch) ** 2
        self.position = nn.Parameter(0.02 * torch.randn(1, places, d))
        self.blocks = nn.Sequential(*(Block(d, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)  # (b, patches, d), row by row
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])  # the class token's row
