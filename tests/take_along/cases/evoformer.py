"""A layer on two tables of six points whose pairs are not symmetric."""

import torch


def example(own):
    layer = own.PairLayer(8, heads=2, f=12)
    for P in layer.parameters():
        torch.nn.init.normal_(P, std=0.4)
    return layer, (torch.randn(2, 6, 6, 8),)


def library(own, layer, arguments):
    import attnmath.torch as at

    def affine(f):
        return {"weight": f.weight.T} | ({} if f.bias is None else {"bias": f.bias})

    def halves(f):
        pairs = zip(f.weight.chunk(2), f.bias.chunk(2), strict=True)
        return ({"weight": W.T, "bias": b} for W, b in pairs)

    def norm(f):
        return {"gain": f.weight, "bias": f.bias}

    params, steps = {}, list(layer)
    for name, one in zip(("outgoing", "incoming"), steps[:2], strict=True):
        left, right = halves(one.sides)
        left_gate, right_gate = halves(one.gates)
        params[name] = {"left": left, "right": right, "left_gate": left_gate, "right_gate": right_gate}
        params[name] |= {"output": affine(one.output), "gate": affine(one.gate)}
        params[name] |= {"norm": norm(one.norm), "product_norm": norm(one.product_norm)}
    for name, one in zip(("starting", "ending"), steps[2:4], strict=True):
        weights = zip(("query", "key", "value"), one.qkv.weight.chunk(3), strict=True)
        params[name] = {key: {"weight": W.T} for key, W in weights}
        params[name] |= {"pair": affine(one.side), "norm": norm(one.norm), "gate": affine(one.gate)}
        params[name] |= {"output": affine(one.output)}
    mlp = steps[4]
    params["transition"] = {"norm": norm(mlp[0]), "up": affine(mlp[1]), "down": affine(mlp[3])}
    return at.pair_layer(*arguments, params, 2)
