import torch
from torch import nn


@torch.no_grad()
def cosine(X):
    """The mean cosine of two tokens of X (..., n, d); at 1 all are one token."""
    U, n = nn.functional.normalize(X, dim=-1), X.shape[-2]
    return (((U.sum(-2) ** 2).sum(-1) - n) / (n * (n - 1))).mean()


@torch.no_grad()
def spectral_norm(W, steps=100):
    """The largest factor by which the matrix W lengthens a row, by power iteration."""
    x = torch.ones(W.shape[0], dtype=W.dtype, device=W.device)
    x = x + torch.arange(len(x), dtype=W.dtype, device=W.device) / len(x)
    for _ in range(steps):
        x = nn.functional.normalize(W @ (x @ W), dim=0)
    return (x @ W).norm()


class NormedAttention(nn.Module):
    """Multi-head attention with normed queries and keys, which bounds its scores."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d)
        self.value, self.output = nn.Linear(d, d), nn.Linear(d, d)
        k = d // heads
        self.norm_query, self.norm_key = (
            nn.RMSNorm(k, eps=1e-6),
            nn.RMSNorm(k, eps=1e-6),
        )

    def split(self, X):  # (..., n, d) -> (..., heads, n, d / heads)
        return X.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def scores(self, X):
        Q = self.norm_query(self.split(self.query(X)))
        K = self.norm_key(self.split(self.key(X)))
        return Q @ K.mT / Q.shape[-1] ** 0.5

    def bound(self):
        """No score is larger: a normed row is at most sqrt(k) times its gain long."""
        g, h = self.norm_query.weight, self.norm_key.weight
        return g.abs().max() * h.abs().max() * len(g) ** 0.5

    def forward(self, X):
        O = self.scores(X).softmax(-1) @ self.split(self.value(X))
        return self.output(O.transpose(-2, -3).flatten(-2))
