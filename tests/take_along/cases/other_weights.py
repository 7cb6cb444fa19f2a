"""A layer with learned sinks, its gates, and doubly stochastic weights."""

import torch

CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()


def layer_of(own):
    torch.manual_seed(0)
    layer = own.SinkAttention(12, 3)
    with torch.no_grad():
        layer.sink.copy_(torch.tensor([-1.0, 0.5, 2.0]))
    return layer


def example(own):
    layer, X, S = layer_of(own), 2 * torch.randn(2, 5, 12), torch.randn(2, 3, 5, 5)

    def outputs(X, S):
        found = layer(X), layer(X, CAUSAL), layer.gates(S), own.sinkhorn(S[..., :4, :], steps=5)
        return [Y.detach() for Y in found]

    return outputs, (X, S)


def library(own, function, arguments):
    import attnmath.torch as at

    (X, S), layer = arguments, layer_of(own)
    Q, K, V = (Y.unflatten(-1, (3, 4)).transpose(1, 2) for Y in layer.maps(X).chunk(3, -1))
    outputs = [at.sink_attention(Q, K, V, mask, sinks=layer.sink) for mask in (True, CAUSAL)]
    found = [layer.out(O.transpose(1, 2).flatten(2)) for O in outputs]
    return [*found, at.sink_weights(S, layer.sink).sum(-1), at.sinkhorn_weights(S[..., :4, :], steps=5)]
