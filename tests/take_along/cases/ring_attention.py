"""A ring of four processes, played by one, in zigzag order."""

import torch


def example(own):
    places = own.zigzag(24, 4)

    def whole(Q, K, V):
        parts = ([X[part] for part in places] for X in (Q, K, V))
        return own.ring(*parts, places)

    return whole, (torch.randn(24, 6), torch.randn(24, 6), torch.randn(24, 6))


def library(own, function, arguments):
    import attnmath.torch as at
    from attnmath import ring
    from attnmath.layouts import causal

    O = at.ring_attention(*arguments, causal(), processes=4, order="zigzag")
    return [O[torch.as_tensor(part)] for part in ring.places(24, 4, "zigzag")]
