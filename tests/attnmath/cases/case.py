"""What a row of cases is, and how its arguments are drawn.

Axis sizes all differ, and queries and keys differ in number, so that a swapped axis cannot pass unseen.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnmath import shapes

N, M, K, V, A, B = 3, 5, 7, 2, 11, 13  # queries, keys, key width, value width, hidden width, batch
D, HEADS, FF, TOKENS, POSITIONS = 6, 2, 17, 19, 8  # model width 2 heads x 3, feed-forward, vocabulary, positions


@dataclass(frozen=True)
class Case:
    """``call(world, *args)`` calls the component in a world with differentiable args; ``reference(*tensors)`` is
    torch's own. ``function`` is the component's name in both worlds."""

    function: str
    circumstance: str
    args: Callable
    call: Callable
    reference: Callable
    vjp_atol: float = 1e-12

    @property
    def id(self):
        return f"{self.function}-{self.circumstance}"


def const(world, array):
    """A constant in the given world."""
    return torch.from_numpy(array) if world.__name__.endswith("torch") else array


def normal(*shape, scale=1.0):
    """Draws an argument of one array."""
    return lambda rng: (scale * rng.standard_normal(shape),)


def draw(*shape_list):
    """Draws one array per shape."""
    return lambda rng: tuple(rng.standard_normal(shape) for shape in shape_list)


def tree(*parts):
    """Draws arrays for shapes and trees for shape trees; scaled so that tanh and softmax are in their lively range."""
    return lambda rng: tuple(
        shapes.random_tree(part, rng, 0.4) if isinstance(part, dict) else rng.standard_normal(part) for part in parts
    )
