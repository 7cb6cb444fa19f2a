import torch
from torch import nn


class Experts(nn.Module):
    """Each token passes k of e networks. Returns the output and the balancing loss."""

    def __init__(self, d, f, e=8, k=2):
        super().__init__()
        self.k, self.router = k, nn.Linear(d, e, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, f), nn.GELU(), nn.Linear(f, d)) for _ in range(e)
        )

    def forward(self, X):  # (..., d)
        rows = X.reshape(-1, X.shape[-1])  # one row for each token
        P = self.router(rows).float().softmax(-1)  # (tokens, e)
        gates, chosen = P.topk(self.k)  # (tokens, k)
        if self.k > 1:  # alone the quotient would be 1, without a gradient
            gates = gates / gates.sum(-1, keepdim=True)
        Y = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            t, rank = torch.where(chosen == i)  # the tokens of this expert
            Y = Y.index_add(0, t, gates[t, rank, None].to(Y.dtype) * expert(rows[t]))
        return Y.reshape(X.shape), balance(P, chosen)


def balance(P, chosen):
    """e times the sum of load times mean probability; 1 if the load is even.

    Add about 0.01 of it to the loss. Watch the loads: the value alone can mislead.
    """
    e = P.shape[-1]
    load = torch.bincount(chosen.flatten(), minlength=e) / chosen.numel()
    return e * (load * P.mean(0)).sum()
