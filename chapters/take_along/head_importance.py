import torch
import torch.nn.functional as F
from torch import nn


class GatedHeads(nn.Module):
    """Multi-head self-attention with a gate on each head, 1 at first."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.gates = heads, nn.Parameter(torch.ones(heads))
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))
        self.out = nn.Linear(d, d)

    def forward(self, X):  # (b, n, d)
        maps = self.query, self.key, self.value
        Q, K, V = (f(X).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in maps)
        H = F.scaled_dot_product_attention(Q, K, V) * self.gates[:, None, None]
        return self.out(H.transpose(1, 2).flatten(2))


def importance(layers, losses):
    """|d loss / d gate|, a mean over losses: (number of layers, heads)."""
    gates, total = [layer.gates for layer in layers], 0
    for loss in losses:  # one for each batch or text
        slopes = torch.autograd.grad(loss, gates)
        total = total + torch.stack([slope.abs() for slope in slopes])
    return total / len(losses)


def close_least(layers, scores, count):
    """Close the gates of the least important heads; test the model again afterwards."""
    for index in scores.flatten().argsort()[:count].tolist():
        layer, head = divmod(index, scores.shape[1])
        layers[layer].gates.data[head] = 0
