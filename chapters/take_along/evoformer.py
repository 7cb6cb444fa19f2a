import torch
from torch import nn


class TriangleUpdate(nn.Module):
    """A pair receives the products of the other sides of its triangles, summed."""

    def __init__(self, c, outgoing=True):
        super().__init__()
        self.product = "bikc,bjkc->bijc" if outgoing else "bkic,bkjc->bijc"
        self.norm, self.product_norm = nn.LayerNorm(c), nn.LayerNorm(c)
        self.sides, self.gates = nn.Linear(c, 2 * c), nn.Linear(c, 2 * c)
        self.output, self.gate = nn.Linear(c, c), nn.Linear(c, c)

    def forward(self, Z):  # (b, n, n, c)
        N = self.norm(Z)
        A, B = (self.gates(N).sigmoid() * self.sides(N)).chunk(2, -1)
        S = self.product_norm(torch.einsum(self.product, A, B))
        return self.gate(N).sigmoid() * self.output(S)


class TriangleAttention(nn.Module):
    """The pair (i, j) attends to the pairs (i, k); the side (j, k) biases the score."""

    def __init__(self, c, heads, starting=True):
        super().__init__()
        self.heads, self.starting, self.norm = heads, starting, nn.LayerNorm(c)
        self.qkv, self.side = (nn.Linear(c, w, bias=False) for w in (3 * c, heads))
        self.gate, self.output = nn.Linear(c, c), nn.Linear(c, c)

    def forward(self, Z):  # (b, n, n, c)
        N = self.norm(Z if self.starting else Z.transpose(1, 2))
        QKV = self.qkv(N).unflatten(-1, (3, self.heads, -1))
        Q, K, V = QKV.permute(3, 0, 1, 4, 2, 5)  # each (b, n, heads, n, k)
        bias = self.side(N).permute(0, 3, 1, 2)[:, None]  # (b, 1, heads, n, n)
        O = nn.functional.scaled_dot_product_attention(Q, K, V, attn_mask=bias)
        O = self.output(self.gate(N).sigmoid() * O.transpose(2, 3).flatten(-2))
        return O if self.starting else O.transpose(1, 2)


class PairLayer(nn.Sequential):
    """The five steps of an Evoformer layer on its table of pairs, each added to it."""

    def __init__(self, c, heads, f):
        super().__init__(
            *(TriangleUpdate(c, outgoing) for outgoing in (True, False)),
            *(TriangleAttention(c, heads, starting) for starting in (True, False)),
            nn.Sequential(nn.LayerNorm(c), nn.Linear(c, f), nn.ReLU(), nn.Linear(f, c)),
        )

    def forward(self, Z):
        for step in self:
            Z = Z + step(Z)
        return Z
