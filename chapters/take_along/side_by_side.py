import torch
import torch.nn.functional as F
from torch import nn


class Softmax(nn.Module):  # a mixer: each row of (..., n, d) learns of earlier rows
    def __init__(self, d, heads=2):
        super().__init__()
        self.heads, self.into, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def mix(self, Q, K, V):  # (..., heads, n, d / heads) each
        return F.scaled_dot_product_attention(Q, K, V, is_causal=True)

    def forward(self, X):
        parts = self.into(X).unflatten(-1, (3, self.heads, -1)).transpose(-2, -4)
        return self.out(self.mix(*parts.unbind(-3)).transpose(-2, -3).flatten(-2))


class Linear(Softmax):  # another mixer: features in the place of the exponential
    def mix(self, Q, K, V):
        weights = ((F.elu(Q) + 1) @ (F.elu(K) + 1).mT).tril()
        return weights @ V / weights.sum(-1, keepdim=True)


class Model(nn.Module):  # mixers: one for each layer, such as [Softmax, Linear]
    def __init__(self, vocabulary, n, d, mixers):
        super().__init__()
        self.word, self.place = nn.Embedding(vocabulary, d), nn.Embedding(n, d)
        steps = [step for mixer in mixers for step in (mixer(d), mlp(d))]
        self.steps = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), s) for s in steps)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, vocabulary))

    def forward(self, ids):  # (..., n) to (..., n, vocabulary)
        X = self.word(ids) + self.place.weight[: ids.shape[-1]]
        for step in self.steps:
            X = X + step(X)
        return self.head(X)


def mlp(d):
    return nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))


def train(model, draw, steps, rate):  # draw() gives ids and targets, -1: not asked
    adam = torch.optim.Adam(model.parameters(), rate)
    for t in range(steps):
        adam.param_groups[0]["lr"] = (
            rate * min(8 * (t + 1), 2 * (steps - t), steps) / steps
        )
        ids, targets = draw()
        loss = F.cross_entropy(model(ids).mT, targets, ignore_index=-1)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return model
