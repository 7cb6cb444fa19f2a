import torch
from torch import nn


class Dropout(nn.Module):
    """Each entry is 0 with probability p, and divided by 1 - p otherwise.

    front: how many axes in front have masks of their own; None for all. front=1 drops
    whole examples: "drop path", for the output of a sublayer.
    """

    def __init__(self, p, front=None):
        super().__init__()
        self.p, self.front = p, front

    def forward(self, X):
        if not self.training or self.p == 0:
            return X
        front = X.dim() if self.front is None else self.front
        shape = X.shape[:front] + (1,) * (X.dim() - front)
        keep = torch.rand(shape, device=X.device) >= self.p
        return torch.where(keep, X / (1 - self.p), 0)


class Attention(nn.Module):
    """Attention whose weights are dropped in training, and only there."""

    def __init__(self, p=0.1):
        super().__init__()
        self.drop = Dropout(p)

    def forward(self, Q, K, V, mask=None):  # (..., n, k), (..., m, k), (..., m, v)
        S = Q @ K.mT / Q.shape[-1] ** 0.5
        if mask is not None:
            S = S.masked_fill(~mask, -torch.inf)
        return self.drop(S.softmax(-1)) @ V
