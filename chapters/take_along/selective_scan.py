import math

import torch
import torch.nn.functional as F
from torch import nn


def scan(a, b):
    """All h_t = a_t h_(t-1) + b_t along the rows of (..., n, d, s), in log n rounds."""
    n, reach = a.shape[-3], 1
    while reach < n:  # each pair (a, b) stands for so many steps
        earlier = (0, 0, 0, 0, reach, 0)
        b = b + a * F.pad(b, earlier)[..., :n, :, :]
        a = a * F.pad(a, earlier, value=1.0)[..., :n, :, :]
        reach *= 2
    return b


class Mamba(nn.Module):
    """Rows (..., n, d) to rows, in place of attention and of the network after it."""

    def __init__(self, d, states=16, inner=None, rank=None, taps=4):
        super().__init__()
        inner, rank = inner or 2 * d, rank or -(-d // 16)
        self.into = nn.Linear(d, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, taps, groups=inner)
        self.sizes = rank, states, states
        self.select = nn.Linear(inner, sum(self.sizes), bias=False)
        self.step = nn.Linear(rank, inner)
        first = torch.empty(inner).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.step.bias.data = first.expm1().log()  # softplus of it is the first step
        rates = torch.arange(1.0, states + 1).log()
        self.log_rate = nn.Parameter(rates.repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, d, bias=False)

    def forward(self, X):
        U, gate = self.into(X).chunk(2, -1)  # (..., n, inner) each
        past = F.pad(U.mT, (self.conv.kernel_size[0] - 1, 0))  # causal
        U = F.silu(self.conv(past).mT)
        low, B, C = self.select(U).split(self.sizes, -1)  # each row chooses its own
        step = F.softplus(self.step(low))  # never negative
        kept = torch.exp(-step[..., None] * self.log_rate.exp())
        states = scan(kept, (step * U)[..., None] * B[..., None, :])
        Y = (states * C[..., None, :]).sum(-1) + self.skip * U
        return self.out(Y * F.silu(gate))
