"""Modules that hold a tree of parameters, and the passage of trees between the two worlds."""

import math

import numpy as np
import torch
from torch import nn

from attnmath.tree import map_tree


class ParamTree(nn.Module):
    """A module whose ``state_dict`` is a tree of shapes filled with parameters.

    Matrices start uniform in ±sqrt(3 / rows), variance 1 / rows; ``gain`` vectors start at 1, other vectors at 0.
    ``tree()`` gives the parameters as the nested dict that the functions take.
    """

    def __init__(self, shapes: dict):
        super().__init__()
        for name, shape in shapes.items():
            if isinstance(shape, dict):
                self.add_module(name, ParamTree(shape))
            else:
                self.register_parameter(name, nn.Parameter(_initial(name, shape)))

    def tree(self) -> dict:
        """The parameters as a nested dict."""
        return dict(self.named_parameters(recurse=False)) | {
            name: child.tree() for name, child in self.named_children()
        }


def _initial(name, shape):
    if len(shape) == 1:
        return torch.ones(shape) if name == "gain" else torch.zeros(shape)
    bound = math.sqrt(3 / shape[0])
    return torch.empty(shape).uniform_(-bound, bound)


def from_numpy(tree: dict, **options) -> dict:
    """A tree of arrays as a tree of tensors that own their memory; options go to ``Tensor.to``."""
    return map_tree(lambda X: torch.from_numpy(np.array(X)).to(**options), tree)


def to_numpy(tree: dict) -> dict:
    """A tree of tensors as a tree of arrays that own their memory."""
    return map_tree(lambda X: X.detach().cpu().numpy().copy(), tree)
