"""A pre-norm Transformer with a padded source."""

from tests.take_along.params import affine, norm, scattered


def example(own):
    import torch

    model = scattered(own.Transformer(11, 12, 3, 20, 2, 8)).eval()
    return model, (torch.tensor([[3, 1, 4, 1], [5, 9, 0, 0]]), torch.tensor([[2, 6, 5], [3, 5, 8]]))


def own_attention(module):
    import torch.nn as nn

    maps = {}
    for name, W, b in zip(
        ("query", "key", "value"), module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3), strict=True
    ):
        maps[name] = {"weight": W.detach().T, "bias": b.detach()}
    assert isinstance(module.out_proj, nn.Linear)
    return maps | {"output": affine(module.out_proj)}


def own_layer(layer):
    tree = {"attention": own_attention(layer.attend), "attention_norm": norm(layer.norms[0])}
    if layer.look is not None:
        tree |= {"cross_attention": own_attention(layer.look), "cross_attention_norm": norm(layer.norms[2])}
    network = {"up": affine(layer.network[0]), "down": affine(layer.network[2])}
    return tree | {"feed_forward": network, "feed_forward_norm": norm(layer.norms[1])}


def stack(layers, last):
    return {"layers": {str(i): own_layer(layer) for i, layer in enumerate(layers)}, "norm": norm(last)}


def library(own, model, arguments):
    from functools import partial

    import attnmath.torch as at

    source, target = arguments
    first = partial(at.sublayer, norm_first=True)
    known = (source != 0)[:, None, None]
    M = at.encoder(model.embed(source), stack(model.encoder, model.norm_source), 3, known, join=first)
    X, causal = model.embed(target), at.causal_mask(3)
    X = at.decoder(X, M, stack(model.decoder, model.norm), 3, causal, known, join=first)
    return at.linear(X, *affine(model.head).values())
