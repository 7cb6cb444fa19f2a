"""A small GPT, step 2 of 12: queries, keys and values of the same rows."""

import torch
from torch import nn


def attention(Q, K, V):
    S = Q @ K.mT / Q.shape[-1] ** 0.5  # scores: row i belongs to query i
    return S.softmax(dim=-1) @ V


class SelfAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d)
        self.value = nn.Linear(d, d)

    def forward(self, X):
        Q, K, V = self.query(X), self.key(X), self.value(X)
        return attention(Q, K, V)


if __name__ == "__main__":
    torch.manual_seed(0)
    print(SelfAttention(4)(torch.randn(3, 4)))
