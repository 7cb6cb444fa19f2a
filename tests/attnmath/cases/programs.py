"""The joint of compiled programs: a sub-layer and its input, added."""

import torch.nn.functional as F

from attnmath import shapes
from tests.attnmath.cases.case import FF, B, Case, D, N, tree


def joined(world, X, network):
    """The joint around a network; its cotangents in the order of the arguments."""
    y = world.bare_sublayer(X, lambda Z: world.feed_forward(Z, network), {})
    if not isinstance(y, tuple):
        return y

    def in_order(dY):
        dX, dnothing, dnetwork = y[1](dY)
        assert dnothing == {}
        return dX, dnetwork

    return y[0], in_order


def by_hand(X, p):
    """The network written out, and its input added."""
    return X + F.gelu(X @ p["up"]["weight"] + p["up"]["bias"]) @ p["down"]["weight"] + p["down"]["bias"]


CASES = [
    Case("bare_sublayer", "plain", tree((B, N, D), shapes.feed_forward_shapes(D, FF)), joined, by_hand),
    Case("bare_sublayer", "one-row", tree((1, D), shapes.feed_forward_shapes(D, FF)), joined, by_hand),
    Case("bare_sublayer", "no-batch", tree((0, N, D), shapes.feed_forward_shapes(D, FF)), joined, by_hand),
]
