import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    """Self-attention, or cross-attention if a second text is given."""

    def __init__(self, d, heads, dropout=0.0):
        super().__init__()
        if d % heads:
            raise ValueError(f"width {d} does not divide among {heads} heads")
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))
        self.out = nn.Linear(d, d)

    def split(self, X):  # (b, n, d) to (b, heads, n, d / heads)
        return X.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, X, other=None, mask=None, causal=False):
        """X (b, n, d); other (b, m, d); mask (b, m) or (b, 1, n, m), True: seen."""
        other = X if other is None else other
        if mask is not None and mask.ndim == 2:
            mask = mask[:, None, None]  # one row of keys for all heads and queries
        Q = self.split(self.query(X))
        K, V = self.split(self.key(other)), self.split(self.value(other))
        p = self.dropout if self.training else 0.0
        H = F.scaled_dot_product_attention(
            Q, K, V, attn_mask=mask, dropout_p=p, is_causal=causal
        )
        return self.out(H.transpose(1, 2).flatten(2))  # heads side by side, then mixed
