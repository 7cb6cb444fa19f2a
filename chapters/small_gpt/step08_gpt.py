"""A small GPT, step 8 of 12: a GPT."""

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


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(d), SelfAttention(d, heads)
        self.norm2, self.up = nn.LayerNorm(d), nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, X):
        X = X + self.attention(self.norm1(X))
        return X + self.down(nn.functional.gelu(self.up(self.norm2(X))))


class Embedding(nn.Module):
    def __init__(self, tokens, length, d):
        super().__init__()
        self.word, self.place = nn.Embedding(tokens, d), nn.Embedding(length, d)

    def forward(self, ids):
        return self.word(ids) + self.place(torch.arange(ids.shape[-1]))


class GPT(nn.Module):
    def __init__(self, tokens, length, d=32, heads=4, layers=2):
        super().__init__()
        self.embedding = Embedding(tokens, length, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, tokens)

    def forward(self, ids):  # one row of logits for each place
        return self.out(self.norm(self.blocks(self.embedding(ids))))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = GPT(tokens=11, length=10)
    print(sum(W.numel() for W in model.parameters()), "parameters")
    print(model(torch.tensor([[3, 1, 4]])).shape)
