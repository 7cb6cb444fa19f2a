"""Both networks on the same rows."""

from tests.take_along.params import affine, scattered


def example(own):
    import torch

    plain, gated = scattered(own.FeedForward(6)), scattered(own.GatedFeedForward(6))

    def both(X):
        return plain(X), gated(X)

    both.networks = plain, gated
    return both, (torch.randn(2, 3, 6),)


def library(own, function, arguments):
    import attnmath.torch as at

    plain, gated = function.networks
    assert gated.up.weight.shape == (16, 6)
    plain = {"up": affine(plain.up), "down": affine(plain.down)}
    gated = {name: affine(getattr(gated, name)) for name in ("gate", "up", "down")}
    return at.feed_forward(*arguments, plain), at.gated_feed_forward(*arguments, gated)
