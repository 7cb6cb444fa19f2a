"""The names that signatures use."""

import torch

Array = torch.Tensor
Generator = torch.Generator


def T(X: Array) -> Array:
    """Swap the last two axes."""
    return X.transpose(-1, -2)
