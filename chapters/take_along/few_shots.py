"""Attention that learns in context: each layer is a step of gradient descent."""

import torch
from torch import nn


def context(X, y, question):
    """Rows (x, y) of n examples and a row (x, 0) that asks: (b, n + 1, d + 1)."""
    asked = torch.cat([question, torch.zeros_like(question[:, :1])], -1)
    return torch.cat([torch.cat([X, y[..., None]], -1), asked[:, None]], 1)


class Layer(nn.Module):
    """Mean attention: all rows look at the examples, with no softmax."""

    def __init__(self, d, rate=1.0):
        super().__init__()
        see = torch.diag(torch.cat([torch.ones(d), torch.zeros(1)]))  # x, and not y
        step = torch.zeros(d + 1, d + 1)
        step[d, d] = -rate  # downhill
        self.query, self.key = nn.Parameter(see), nn.Parameter(see.clone())
        self.value, self.output = nn.Parameter(step), nn.Parameter(torch.eye(d + 1))

    def forward(self, E):
        shown = E[:, :-1]  # the question is no key: it has no y
        scores = E @ self.query @ (shown @ self.key).mT  # (b, n + 1, n)
        read = scores @ (shown @ self.value) / shown.shape[1]
        return E + read @ self.output


class InContext(nn.Module):
    """Answers y at the question, from the examples alone. It may be trained further."""

    def __init__(self, d, layers, rate):
        super().__init__()
        self.layers = nn.Sequential(*(Layer(d, rate) for _ in range(layers)))

    def forward(self, X, y, question):  # (b, n, d), (b, n), (b, d) -> (b,)
        return -self.layers(context(X, y, question))[:, -1, -1]
