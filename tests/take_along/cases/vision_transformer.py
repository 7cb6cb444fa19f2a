"""Colour pictures of 8 by 8 pixels in patches of 4 by 4."""

from tests.take_along.params import affine, norm, scattered


def example(own):
    import torch

    model = own.ViT(8, 4, 3, 5, d=12, heads=3, layers=2)
    return scattered(model), (torch.randn(2, 3, 8, 8),)


def tree(block):
    """An encoder layer's parameters."""
    maps = affine(block.qkv)
    parts = zip(("query", "key", "value"), maps["weight"].chunk(3, -1), maps["bias"].chunk(3), strict=True)
    attention = {name: {"weight": weight, "bias": bias} for name, weight, bias in parts}
    return {
        "attention": attention | {"output": affine(block.output)},
        "attention_norm": norm(block.norms[0]),
        "feed_forward": {"up": affine(block.think[0]), "down": affine(block.think[2])},
        "feed_forward_norm": norm(block.norms[1]),
    }


def library(own, model, arguments):
    from functools import partial

    import attnmath.torch as at

    params = {
        "embeddings": {
            "patch": {"weight": model.patch.weight.detach().flatten(1).T, "bias": model.patch.bias.detach()},
            "class": model.first.detach().flatten(),
            "position": model.position.detach()[0],
        },
        "layers": {str(i): tree(block) for i, block in enumerate(model.blocks)},
        "norm": norm(model.norm),
        "head": affine(model.head),
    }
    first = partial(at.sublayer, norm_first=True)
    return at.vision_transformer(arguments[0], params, 3, 4, join=first)
