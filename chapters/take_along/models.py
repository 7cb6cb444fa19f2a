import torch
import torch.nn.functional as F
from torch import nn


def turn(X, base=10_000.0):  # rotary positions; X (b, heads, n, k)
    n, k = X.shape[-2:]
    slow = base ** (-torch.arange(0, k, 2, device=X.device) / k)
    angles = torch.arange(n, device=X.device)[:, None] * slow
    cos, sin, a, b = angles.cos(), angles.sin(), X[..., 0::2], X[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, d, heads, f):
        super().__init__()
        self.heads, self.norm1, self.norm2 = (
            heads,
            nn.RMSNorm(d, 1e-6),
            nn.RMSNorm(d, 1e-6),
        )
        maps = [(d, d)] * 4 + [(d, f), (d, f), (f, d)]
        made = [nn.Linear(*size, bias=False) for size in maps]
        self.query, self.key, self.value, self.out, self.gate, self.up, self.down = made

    def forward(self, X):  # (b, n, d)
        Z = self.norm1(X)
        maps = self.query, self.key, self.value
        Q, K, V = (f(Z).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in maps)
        H = F.scaled_dot_product_attention(turn(Q), turn(K), V, is_causal=True)
        X = X + self.out(H.transpose(1, 2).flatten(2))
        Z = self.norm2(X)
        return X + self.down(F.silu(self.gate(Z)) * self.up(Z))


class Llama(nn.Module):
    """A decoder in the manner of Llama: rotary, RMSNorm before, SwiGLU, no biases."""

    def __init__(self, tokens, d=64, heads=4, layers=2, f=176):
        super().__init__()
        self.word, self.norm = nn.Embedding(tokens, d), nn.RMSNorm(d, 1e-6)
        self.blocks = nn.Sequential(*(Block(d, heads, f) for _ in range(layers)))
        self.head = nn.Linear(d, tokens, bias=False)

    def forward(self, ids):  # (b, n) to logits (b, n, tokens)
        return self.head(self.norm(self.blocks(self.word(ids))))
