"""Two gated layers in front of frozen ones; the first word stands in front of all pictures."""

from tests.take_along.params import affine, attention, norm, scattered


def example(own):
    import torch
    from torch import nn

    model = own.Seeing(nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), 8, 6, heads=2)
    mask = torch.ones(2, 5, 7, dtype=torch.bool)
    mask[:, 0], mask[1, :, 4:] = False, False
    return scattered(model), (torch.randn(2, 5, 8), torch.randn(2, 7, 6), mask)


def library(own, model, arguments):
    import attnmath.torch as at

    X, memory, mask = arguments
    for gated, layer in zip(model.gated, model.layers, strict=True):
        params = {
            "cross_attention": attention(gated),
            "feed_forward": {"up": affine(gated.think[0]), "down": affine(gated.think[2])},
        }
        names = ("cross_attention_norm", "feed_forward_norm")
        for name, own_norm, gate in zip(names, gated.norms, gated.gates.detach(), strict=True):
            params[name] = {"norm": norm(own_norm), "gate": gate[None]}
        X = layer(at.gated_cross_attention(X, memory, params, 2, mask[:, None])).detach()
    return X
