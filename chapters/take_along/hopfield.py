import math

import torch
from torch import nn


class Memory(nn.Module):
    """Stores patterns, the rows of a matrix, and completes cues. A step is attention.

    Patterns lose their mean and get the length 1: a long pattern would be heard louder
    than the others. A large `beta` recalls one pattern, a small one averages.
    """

    def __init__(self, patterns, beta=None, steps=3):
        super().__init__()
        self.register_buffer("middle", patterns.mean(0))
        self.register_buffer("patterns", patterns)  # (N, d), what is given back
        keys = nn.functional.normalize(patterns - self.middle, dim=-1)
        self.register_buffer("keys", keys)
        self.beta, self.steps = beta or self.recalling(), steps

    def recalling(self, error=0.01):
        """A beta at which each stored pattern keeps 1 - error of its own weight:
        (N - 1) exp(-beta gap) <= error, where gap is the least k.k - k.k' of two."""
        G = self.keys @ self.keys.T
        gap = 1 - (G - 2 * torch.eye(len(G))).max().item()
        return math.log((len(G) - 1) / error) / gap

    def weights(self, x):
        return (self.beta * x @ self.keys.T).softmax(-1)  # (..., N)

    def energy(self, x):
        """What each step lowers by at least half the square of its length."""
        high = (self.beta * x @ self.keys.T).logsumexp(-1) / self.beta
        return 0.5 * (x * x).sum(-1) - high

    def forward(self, cue, known=None):
        """cue (..., d), known: True where one is given -> a pattern (..., d)."""
        x = cue - self.middle
        x = nn.functional.normalize(x if known is None else x * known, dim=-1)
        for _ in range(self.steps - 1):
            x = self.weights(x) @ self.keys  # falls towards a stored pattern
        return self.weights(x) @ self.patterns
