import torch
from torch import nn
from torch.nn.functional import normalize


class SparseAutoencoder(nn.Module):
    """Writes vectors (..., d) as a centre plus at most k of many directions.

    Subtract the mean of your vectors and divide by one scale before.
    """

    def __init__(self, d, units, k):
        super().__init__()
        D = normalize(torch.randn(units, d), dim=-1)
        self.k, self.D = k, nn.Parameter(D)  # the directions, one row for each unit
        self.E = nn.Parameter(D.T.clone())  # the encoder starts as their transpose
        self.a, self.c = nn.Parameter(torch.zeros(units)), nn.Parameter(torch.zeros(d))

    def code(self, X):
        """How loudly each unit speaks: (..., d) -> (..., units), at most k of them."""
        R = torch.relu((X - self.c) @ self.E + self.a)
        return torch.where(R >= R.topk(self.k).values[..., -1:], R, 0)

    def forward(self, X):
        return self.c + self.code(X) @ normalize(self.D, dim=-1)  # rows of length 1


def train(model, X, steps=1500, batch=512, rate=3e-3):
    """One step: rebuild a batch of the rows X (n, d), and go down the squared error."""
    adam = torch.optim.Adam(model.parameters(), rate)
    plan = torch.optim.lr_scheduler.OneCycleLR(adam, rate, total_steps=steps)
    for _ in range(steps):
        some = X[torch.randint(len(X), (batch,))]
        loss = (model(some) - some).square().mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        plan.step()
    return model


@torch.no_grad()
def report(model, X):
    """On other rows than in training: variance explained, and share of dead units."""
    left = (model(X) - X).square().sum() / (X - X.mean(0)).square().sum()
    return 1 - left, (model.code(X) == 0).all(0).float().mean()
