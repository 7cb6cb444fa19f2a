"""A layer of experts with its balancing loss, for one and for two experts for each token."""

import torch


def example(own):
    one, two = own.Experts(6, 11, 5, 1), own.Experts(6, 11, 5, 2)

    def both(X):
        with torch.no_grad():
            return one(X), two(X)

    both.layers = one, two
    return both, (torch.randn(2, 9, 6),)


def library(own, function, arguments):
    import attnmath.torch as at

    found = []
    for top, layer in zip((1, 2), function.layers, strict=True):
        maps = {
            str(i): {name: {"weight": f[at_].weight.T, "bias": f[at_].bias} for name, at_ in (("up", 0), ("down", 2))}
            for i, f in enumerate(layer.experts)
        }
        params, log = {"router": {"weight": layer.router.weight.T}, "experts": maps}, []
        options = {"expert": at.feed_forward, "renormalise": top > 1, "record": log}
        Y = at.mixture_of_experts(arguments[0], params, 5, top, **options)
        found.append((Y, at.load_balance(log[0]["scores"], top)))
    return found
