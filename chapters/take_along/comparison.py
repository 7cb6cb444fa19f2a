import torch
from torch import nn
from torch.nn import functional as F


class Recurrent(nn.Module):  # n steps that wait for each other, memory of one state
    def __init__(self, d):
        super().__init__()
        self.cell = nn.RNNCell(d, d)

    def forward(self, X):  # X: (b, n, d), as for the other two
        h, H = torch.zeros_like(X[:, 0]), []
        for x in X.unbind(dim=1):
            h = self.cell(x, h)
            H.append(h)
        return torch.stack(H, dim=1)


class Convolution(nn.Module):  # r positions a layer, dilation of them apart
    def __init__(self, d, r=3, dilation=1):
        super().__init__()
        self.past = (r - 1) * dilation
        self.conv = nn.Conv1d(d, d, r, dilation=dilation)

    def forward(self, X):
        return self.conv(F.pad(X.mT, (self.past, 0))).mT  # it may not look ahead


class Attention(nn.Module):  # every earlier position in one step, n * n weights
    def __init__(self, d):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))

    def forward(self, X):
        Q, K, V = self.query(X), self.key(X), self.value(X)
        return F.scaled_dot_product_attention(Q, K, V, is_causal=True)


def arriving(layer, X):
    """How much of a gradient at the last output reaches each input: (n,)."""
    X = X.detach().requires_grad_()
    Y = layer(X)[:, -1]
    (dX,) = torch.autograd.grad(Y, X, torch.ones_like(Y))
    return dX.norm(dim=-1).mean(dim=0)
