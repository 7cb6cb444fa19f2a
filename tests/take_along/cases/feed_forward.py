"""All three networks on the same rows."""

from tests.take_along.params import affine, scattered


def example(own):
    import torch

    nets = own.FeedForward(6), own.FeedForward(6, approximate="tanh"), own.GatedFeedForward(6)
    nets = [scattered(net) for net in nets]

    def all_three(X):
        return tuple(net(X) for net in nets)

    all_three.networks = nets
    return all_three, (torch.randn(2, 3, 6),)


def library(own, function, arguments):
    import attnmath.torch as at

    *plain, gated = function.networks
    assert gated.up.weight.shape == (16, 6)
    bert, gpt2 = ({"up": affine(net.up), "down": affine(net.down)} for net in plain)
    gated = {name: affine(getattr(gated, name)) for name in ("gate", "up", "down")}
    X = arguments[0]
    return at.feed_forward(X, bert), at.feed_forward(X, gpt2, at.gelu_tanh), at.gated_feed_forward(X, gated)
