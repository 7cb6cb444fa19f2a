"""A small GPT, step 4 of 12: several heads."""

import torch
from torch import nn


def attention(Q, K, V, mask):
    S = Q @ K.mT / Q.shape[-1] ** 0.5  # scores: row i belongs to query i
    S = S.masked_fill(~mask, -torch.inf)  # True: may attend
    return S.softmax(dim=-1) @ V


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d)
        self.value, self.output = nn.Linear(d, d), nn.Linear(d, d)

    def split(self, A):  # (..., n, d) becomes (..., heads, n, d / heads)
        return A.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, X):
        Q, K, V = self.query(X), self.key(X), self.value(X)
        n = X.shape[-2]
        mask = torch.ones(n, n, dtype=torch.bool).tril()  # nobody sees the future
        heads = attention(self.split(Q), self.split(K), self.split(V), mask)
        return self.output(heads.transpose(-3, -2).flatten(-2))  # side by side again


if __name__ == "__main__":
    torch.manual_seed(0)
    print(SelfAttention(4, heads=2)(torch.randn(3, 4)))
