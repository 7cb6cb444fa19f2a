import torch
from torch import nn


def sinusoids(n, d, base=10_000.0, start=0):
    """The rows for positions start ... start + n - 1, of even width d."""
    if d % 2:
        raise ValueError(f"width {d} is odd: a sine and a cosine make a pair")
    slow = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    places = torch.arange(start, start + n, dtype=torch.float64)
    angles = places[:, None] * slow  # (n, d / 2), exact also far out
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).float()


class WithPositions(nn.Module):
    """Words with their places, learned (as in BERT and GPT-2) or by the formula."""

    def __init__(self, tokens, d, longest=512, learned=True):
        super().__init__()
        self.word, self.longest = nn.Embedding(tokens, d), longest
        self.place = nn.Embedding(longest, d) if learned else None

    def forward(self, ids, start=0):  # (b, n); start: how many came before, in a cache
        n, X = ids.shape[-1], self.word(ids)
        if self.place is None:
            width = X.shape[-1]
            rows = sinusoids(n, width, start=start).to(X)
            return X * width**0.5 + rows  # words as long as the waves
        if start + n > self.longest:
            raise ValueError(f"{start + n} places; the table has {self.longest}")
        return X + self.place(torch.arange(start, start + n, device=ids.device))
