"""LoRA: train a thin addition to frozen linear layers, then merge it into them."""

import torch
from torch import nn


class LoRA(nn.Module):
    """A frozen linear layer plus s (x A) B, of which only the thin A and B learn."""

    def __init__(self, linear, r=4, alpha=4.0):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        W = linear.weight  # (out, in)
        A = torch.randn(W.shape[1], r, device=W.device, dtype=W.dtype)
        self.A = nn.Parameter(A / W.shape[1] ** 0.5)
        self.B = nn.Parameter(A.new_zeros(r, W.shape[0]))  # no change at the start
        self.s = alpha / r

    def forward(self, x):  # (..., in) -> (..., out)
        return self.linear(x) + self.s * (x @ self.A) @ self.B

    @torch.no_grad()
    def merged(self):
        """The linear layer alone, which now computes the same sum."""
        self.linear.weight += self.s * (self.A @ self.B).T
        return self.linear


def replace(model, kind, new):
    """Put new(name, layer) in the place of every layer of a kind."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, kind):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, new(name, layer))


def add_lora(model, r=4, alpha=4.0, wanted=lambda name: True):
    """Freeze the model, wrap its linear layers, and return what is to be trained."""

    def wrap(name, linear):
        return LoRA(linear, r, alpha) if wanted(name) else linear

    replace(model.requires_grad_(False), nn.Linear, wrap)
    return [P for P in model.parameters() if P.requires_grad]


def merge_lora(model):
    """Put plain linear layers back: nothing is left that costs time."""
    replace(model, LoRA, lambda name, layer: layer.merged())
