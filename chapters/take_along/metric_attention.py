import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def metric_attention(Q, K, V, sigma, mask=None):
    """softmax(-|q - k|^2 / 2 sigma^2) V, as a dot product with a bias for each key.

    Q (..., n, d), K (..., m, d), V (..., m, v); sigma is a number or (heads, 1, 1);
    mask is True where a query may look, (..., n, m). Each query must see a key.
    """
    centre = K.mean(-2, keepdim=True)  # moves nothing, and keeps digits far from 0
    Q, K = (Q - centre) / sigma, (K - centre) / sigma
    bias = -0.5 * K.square().sum(-1).unsqueeze(-2)  # (..., 1, m): long keys pay
    bias = bias.expand(*Q.shape[:-1], K.shape[-2])
    if mask is not None:
        bias = bias.masked_fill(~mask, -torch.inf)
    return scaled_dot_product_attention(Q, K, V, attn_mask=bias, scale=1.0)


class MetricSelfAttention(nn.Module):
    """Self-attention with distances, and a bandwidth for each head that is learned.

    `tied`: one map for queries and keys. Then the distance is one between tokens, each
    token is nearest to itself, and the weights spread values as heat does.
    """

    def __init__(self, d, heads, tied=False):
        super().__init__()
        self.heads, width = heads, d // heads
        self.query, self.value, self.out = (nn.Linear(d, d) for _ in range(3))
        self.key = self.query if tied else nn.Linear(d, d)
        self.log_sigma = nn.Parameter(torch.full((heads, 1, 1), width**0.25).log())

    def forward(self, X, mask=None):  # (b, n, d) -> (b, n, d)
        maps = (self.query, self.key, self.value)
        Q, K, V = (f(X).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in maps)
        O = metric_attention(Q, K, V, self.log_sigma.exp(), mask)
        return self.out(O.transpose(1, 2).flatten(2))
