import torch
import torch.nn.functional as F
from torch import nn


class GroupedQueryAttention(nn.Module):
    """Causal self-attention whose query heads share key heads, with a cache."""

    def __init__(self, d, heads, key_heads):
        super().__init__()
        if d % heads or heads % key_heads:
            raise ValueError(f"{key_heads} must divide {heads}, and {heads} {d}")
        self.heads, self.key_heads, width = heads, key_heads, d // heads
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, key_heads * width)
        self.value = nn.Linear(d, key_heads * width)
        self.out = nn.Linear(d, d)

    def forward(self, X, cache=None):
        """X (b, n, d): the new rows. cache: what the last call returned."""
        Q = self.query(X).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        K, V = (  # (b, key_heads, n, width); Q has more heads
            f(X).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
            for f in (self.key, self.value)
        )
        if cache is not None:
            K, V = torch.cat([cache[0], K], 2), torch.cat([cache[1], V], 2)
        n, m, group = Q.shape[2], K.shape[2], self.heads // self.key_heads
        seen = torch.ones(n, m, dtype=torch.bool, device=X.device).tril(m - n)
        own = K.repeat_interleave(group, 1), V.repeat_interleave(group, 1)
        H = F.scaled_dot_product_attention(Q, *own, attn_mask=seen)
        return self.out(H.transpose(1, 2).flatten(2)), (K, V)
