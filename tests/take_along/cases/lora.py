"""A small network, adapted, and the same with its layers merged."""

from tests.take_along.params import scattered


def example(own):
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(9, 16), nn.GELU(), nn.Linear(16, 5))
    own.add_lora(model, r=3, alpha=2.0)
    return scattered(model), (torch.randn(4, 9),)


def library(own, model, arguments):
    import attnmath.numpy as an

    X = arguments[0].numpy()
    for i in (0, 2):
        layer = model[i]
        W, b = (P.detach().numpy() for P in (layer.linear.weight, layer.linear.bias))
        A, B = layer.A.detach().numpy(), layer.B.detach().numpy()
        X = an.lora_linear(X, W.T, b, A, B, alpha=2.0)[0]
        X = an.gelu(X)[0] if i == 0 else X
    own.merge_lora(model)
    assert all(not isinstance(part, own.LoRA) for part in model.modules())
    assert abs(model(arguments[0]).detach().numpy() - X).max() < 1e-4
    return X
