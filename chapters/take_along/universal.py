import math

import torch
from torch import nn


class Steps(nn.Module):
    """A ReLU layer that is a staircase: heights[j] is added once z has passed edges[j].

    Below an edge it rises over the length `ramp`; two hidden units make one step.
    """

    def __init__(self, edges, heights, ramp):
        super().__init__()
        self.edges, self.ramp = nn.Parameter(edges), ramp
        self.heights = nn.Parameter(heights)  # (steps,)

    def forward(self, z):
        t = (z[..., None] - self.edges) / self.ramp
        return ((t + 1).relu() - t.relu()) @ self.heights


class Written(nn.Module):
    """A Transformer for two tokens in [0, 1] with weights written, not trained.

    It answers f(x, y), two numbers, by a table of M x M cells for each token: its error
    is at most f's largest change over half a cell, but for thin bands at cells' edges.
    """

    def __init__(self, f, M, band=1e-4):
        super().__init__()
        self.M, edges = M, torch.arange(1, 2 * M) / M
        edges[M - 1] = 1.75  # positions add 2 to the second token
        edges[M:] = edges[M:] + 1
        self.cell = Steps(edges, torch.ones(2 * M - 1), band / M)
        middles = (torch.arange(M) + 0.5) / M
        y, x = torch.meshgrid(middles, middles, indexing="ij")
        table = torch.cat([part.flatten() for part in f(x, y)])  # by context number
        self.first = table[:1]
        places = torch.arange(1, len(table)) - 0.25
        self.answer = Steps(places, table.diff(), 0.5)

    def forward(self, X):
        """X (b, 2) -> answers (b, 2)."""
        token = torch.arange(2)
        cell = self.cell(X + 2 * token)[..., None]  # count: 0 to M-1, M to 2M-1
        scores = math.log(4 * self.M) * cell.mT
        larger, smaller = (s.softmax(-1) @ cell for s in (scores, -scores))  # two heads
        context = self.M * (larger - self.M) + smaller  # the pair of cells, (b, 1, 1)
        return self.first + self.answer(context[..., 0] + self.M**2 * token)
