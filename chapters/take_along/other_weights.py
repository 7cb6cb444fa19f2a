import math

import torch
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention


class SinkAttention(nn.Module):
    """Self-attention in which a head may stay silent: one more key of value zero.

    Its score `sink`, a number for each head, is learned. At 0 this is softmax with a 1
    more in the denominator; far below 0 it is plain attention.
    """

    def __init__(self, d, heads, sink=0.0):
        super().__init__()
        self.heads, self.maps, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.sink = nn.Parameter(torch.full((heads,), sink))

    def gates(self, S):
        """What is left of softmax: scores (b, heads, n, m) -> (b, heads, n)."""
        return torch.sigmoid(S.logsumexp(-1) - self.sink[:, None])

    def forward(self, X, mask=None):  # (b, n, d); mask (n, n), True where it may look
        parts = self.maps(X).chunk(3, -1)
        Q, K, V = (Y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for Y in parts)
        K, V = (pad(Y, (0, 0, 0, 1)) for Y in (K, V))  # the last key is the sink
        n, m = Q.shape[-2], K.shape[-2]
        bias = X.new_zeros(n, m - 1)
        bias = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        sink = self.sink.to(X.dtype)[:, None, None].expand(-1, n, 1)
        bias = torch.cat([bias.expand(self.heads, -1, -1), sink], -1)
        O = scaled_dot_product_attention(Q, K, V, attn_mask=bias)
        return self.out(O.transpose(1, 2).flatten(2))


def sinkhorn(S, steps=20):
    """Weights of scores (..., n, m): rows sum to 1, columns to n / m. Never causal."""
    u, v = -S.logsumexp(-1, keepdim=True), 0.0
    for _ in range(steps):
        v = math.log(S.shape[-2] / S.shape[-1]) - (S + u).logsumexp(-2, keepdim=True)
        u = -(S + v).logsumexp(-1, keepdim=True)
    return (S + u + v).exp()
