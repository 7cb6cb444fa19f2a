"""Self-attention with distances and a bandwidth for each head, plain and under a causal mask."""

import torch

CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()


def layer_of(own):
    torch.manual_seed(0)
    layer = own.MetricSelfAttention(12, 3)
    with torch.no_grad():
        layer.log_sigma.add_(torch.tensor([-0.5, 0.0, 0.7])[:, None, None])
    return layer


def example(own):
    layer, X = layer_of(own), 2 * torch.randn(2, 5, 12)
    return lambda X: (layer(X).detach(), layer(X, CAUSAL).detach()), (X,)


def library(own, function, arguments):
    import attnmath.torch as at

    (X,), layer = arguments, layer_of(own)
    Q, K, V = (f(X).unflatten(-1, (3, 4)).transpose(1, 2) for f in (layer.query, layer.key, layer.value))
    sigma, found = layer.log_sigma.exp().flatten(), []
    for mask in (True, CAUSAL):
        O = at.metric_attention(Q, K, V, sigma, mask)
        found.append(layer.out(O.transpose(1, 2).flatten(2)))
    return found
