import math

import torch
import torch.nn.functional as F
from torch import nn


class S4D(nn.Module):
    """A residual block, rows (..., n, d) to rows: one state space for each channel."""

    def __init__(self, d, states=16, shortest=1e-3, longest=1e-1):
        super().__init__()
        steps = torch.empty(d).uniform_(math.log(shortest), math.log(longest))
        self.log_step = nn.Parameter(steps)  # how much time a row takes
        waves = math.pi * torch.arange(states).float()
        self.frequency = nn.Parameter(waves.repeat(d, 1))  # (d, states)
        self.log_decay = nn.Parameter(torch.full((d, states), math.log(0.5)))
        self.read = nn.Parameter(torch.randn(d, states, 2) * (2 / states) ** 0.5)
        self.skip = nn.Parameter(torch.ones(d))
        self.norm, self.mix = nn.LayerNorm(d), nn.Linear(d, 2 * d)

    def discretise(self):  # zero-order hold with B = 1; (d, states) each, complex
        A = torch.complex(-self.log_decay.exp(), self.frequency)
        kept = torch.exp(self.log_step.exp()[:, None] * A)  # of a state, in one step
        return kept, (kept - 1) / A * torch.view_as_complex(self.read)

    def leave(self, X, Y, U):  # from the channels back to the rows
        return X + F.glu(self.mix(F.gelu(Y + self.skip * U)), -1)

    def forward(self, X):  # all rows at once, to train: a convolution
        U, n = self.norm(X), X.shape[-2]
        kept, shown = self.discretise()
        powers = kept.log()[..., None] * torch.arange(n, device=X.device)
        kernel = (shown[..., None] * powers.exp()).sum(1).real  # (d, n)
        spectrum = torch.fft.rfft(U.mT, 2 * n) * torch.fft.rfft(kernel, 2 * n)
        Y = torch.fft.irfft(spectrum, 2 * n)[..., :n]  # n zeros: nothing wraps round
        return self.leave(X, Y.mT, U)

    def step(self, x, state=0):  # one row (..., d), to write; state (..., d, states)
        u = self.norm(x)
        kept, shown = self.discretise()
        state = kept * state + u[..., None]
        return self.leave(x, (shown * state).sum(-1).real, u), state
