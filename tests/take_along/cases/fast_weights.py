"""A layer that reads 70 tokens and then 9 more from its state, against the library's memory token by token."""

import torch


def example(own):
    layer, X = own.DeltaMemory(12, 3).double(), torch.randn(2, 79, 12).double()

    def two_pieces(X):
        first, state = layer(X[:, :70])
        second, state = layer(X[:, 70:], state)
        return torch.cat([first, second], 1), state

    two_pieces.layer = layer
    return two_pieces, (X,)


def library(own, function, arguments):
    import attnmath.torch as at

    (X,), layer = arguments, function.layer
    Q, K, V = (at.split_heads(Y, 3) for Y in layer.qkv(X).chunk(3, -1))
    Q, K = (Y / Y.norm(dim=-1, keepdim=True) for Y in (Q, K))
    decay, beta = (g.transpose(1, 2)[..., None] for g in layer.gates(X).sigmoid().chunk(2, -1))
    O = at.fast_weights_recurrent(Q, K, V, decay=decay, beta=beta)
    O = O / (O.square().mean(-1, keepdim=True) + torch.finfo(O.dtype).eps).sqrt() * layer.norm.weight
    return layer.out(at.merge_heads(O)), at.fast_weights_state(K, V, decay=decay, beta=beta)
