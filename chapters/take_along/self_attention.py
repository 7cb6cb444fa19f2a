import torch
from torch import nn


class SelfAttention(nn.Module):
    """One head of attention: X (..., n, d) asks itself, or asks `source` (..., m, d_s).

    Queries and keys have width d_k and values d_v; the output has the width d of X, so
    that it can be added to X. In the mask, True means: may look.
    """

    def __init__(self, d, d_k, d_v=None, d_source=None, bias=False):
        super().__init__()
        d_v, d_source = d_v or d_k, d_source or d
        self.query = nn.Linear(d, d_k, bias=bias)  # as what a row asks
        self.key = nn.Linear(d_source, d_k, bias=bias)  # as what a row is found
        self.value = nn.Linear(d_source, d_v, bias=bias)  # what a row hands over
        self.output = nn.Linear(d_v, d, bias=bias)

    def forward(self, X, source=None, mask=None):
        """The output (..., n, d) and the weights (..., n, m)."""
        Y = X if source is None else source
        Q, K, V = self.query(X), self.key(Y), self.value(Y)
        S = Q @ K.mT / Q.shape[-1] ** 0.5
        if mask is not None:
            S = S.masked_fill(~mask, -torch.inf)  # before the softmax
        P = S.softmax(dim=-1)
        return self.output(P @ V), P
