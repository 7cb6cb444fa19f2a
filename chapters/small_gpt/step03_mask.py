"""A small GPT, step 3 of 12: nobody sees the future."""

import torch
from torch import nn


def attention(Q, K, V, mask):
    S = Q @ K.mT / Q.shape[-1] ** 0.5  # scores: row i belongs to query i
    S = S.masked_fill(~mask, -torch.inf)  # True: may attend
    return S.softmax(dim=-1) @ V


class SelfAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d)
        self.value = nn.Linear(d, d)

    def forward(self, X):
        Q, K, V = self.query(X), self.key(X), self.value(X)
        n = X.shape[-2]
        mask = torch.ones(n, n, dtype=torch.bool).tril()  # nobody sees the future
        return attention(Q, K, V, mask)


if __name__ == "__main__":
    torch.manual_seed(0)
    X, layer = torch.randn(3, 4), SelfAttention(4)
    print(layer(X)[:2] - layer(X[:2]))  # row 3 changes nothing before it
