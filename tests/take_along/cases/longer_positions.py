"""Stretched rotary attention, and 20 rows through a cache of 3 first and 6 last, against the library."""

import torch


def example(own):
    def both(Q, K, V):
        omega = own.yarn(own.frequencies(8), 4.0, 32, fast=2)
        cache = own.SinkCache(omega, sinks=3, width=6)
        scale = own.yarn_scale(8, 4.0)
        rows = [cache.attend(*(X[..., i : i + 1, :] for X in (Q, K, V)), scale=scale) for i in range(20)]
        return own.rotate(Q, own.ntk(own.frequencies(8), 4.0), 5), torch.cat(rows, -2)

    return both, tuple(torch.randn(3, 2, 20, 8).double())


def library(own, function, arguments):
    from functools import partial

    import attnmath.torch as at
    from attnmath.caches import SinkCache

    Q, K, V = arguments
    turn = partial(at.rotary, frequencies=at.yarn_frequencies(at.rotary_frequencies(8), 4.0, 32, fast=2.0))
    hot = partial(at.attention_fused, scale=at.yarn_temperature(4.0) ** 2 / 8**0.5)
    attend = at.cached(partial(at.turned_attention, turn=turn, attend=hot), SinkCache(3, 6))
    rows = [attend(*(X[..., i : i + 1, :] for X in (Q, K, V))) for i in range(20)]
    stretched = at.ntk_frequencies(at.rotary_frequencies(8), 4.0)
    return at.rotary(Q, frequencies=stretched, start=5), torch.cat(rows, -2)
