import math

import torch
from torch import nn


class Score(nn.Module):
    """Scores (..., n, m) of queries (..., n, d_q) and keys (..., m, d_k).

    kind: "dot" and "cosine" (d_q = d_k), "bilinear" or "additive" (hidden width a).
    """

    def __init__(self, kind, d_q, d_k, a=64):
        super().__init__()
        self.kind = kind
        if kind == "cosine":
            self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))  # is learned
        elif kind == "bilinear":
            self.W = nn.Parameter(torch.randn(d_q, d_k) / (d_q * d_k) ** 0.5)
        elif kind == "additive":
            self.query = nn.Linear(d_q, a)  # its bias matters: without it, s is odd
            self.key = nn.Linear(d_k, a, bias=False)
            self.w = nn.Linear(a, 1, bias=False)

    def forward(self, Q, K):
        if self.kind == "additive":  # a tanh for each pair and each hidden unit
            pairs = self.query(Q)[..., :, None, :] + self.key(K)[..., None, :, :]
            return self.w(torch.tanh(pairs)).squeeze(-1)
        if self.kind == "bilinear":
            return Q @ self.W @ K.mT
        if self.kind == "cosine":
            Q, K = (x / x.norm(dim=-1, keepdim=True).clamp_min(1e-8) for x in (Q, K))
            return self.log_scale.exp() * (Q @ K.mT)
        return Q @ K.mT / Q.shape[-1] ** 0.5  # the root of the number of terms
