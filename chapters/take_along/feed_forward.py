import torch.nn.functional as F
from torch import nn


class FeedForward(nn.Module):
    """Widen, bend, narrow; each row by itself. GPT-2 takes approximate="tanh"."""

    def __init__(self, d, f=None, dropout=0.0, approximate="none"):
        super().__init__()
        f = 4 * d if f is None else f
        self.up, self.down = nn.Linear(d, f), nn.Linear(f, d)
        self.drop, self.gelu = nn.Dropout(dropout), nn.GELU(approximate)

    def forward(self, X):  # (..., d)
        return self.down(self.drop(self.gelu(self.up(X))))


class GatedFeedForward(nn.Module):
    """SwiGLU, as in Llama: one half of the hidden layer opens and closes the other."""

    def __init__(self, d, f=None, multiple=8):
        super().__init__()
        if f is None:  # as many parameters as the plain network of width 4 d
            f = -(-8 * d // (3 * multiple)) * multiple  # rounded up
        self.gate, self.up = nn.Linear(d, f, bias=False), nn.Linear(d, f, bias=False)
        self.down = nn.Linear(f, d, bias=False)

    def forward(self, X):
        return self.down(F.silu(self.gate(X)) * self.up(X))
