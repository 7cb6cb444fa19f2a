"""Logits of a small Llama with scattered weights."""

from tests.take_along.params import affine, attention, scattered


def example(own):
    import torch

    return scattered(own.Llama(11, 12, 3, 2, 20)).eval(), (torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]]),)


def gain(module):
    return {"gain": module.weight.detach()}


def library(own, model, arguments):
    from functools import partial

    import attnmath.torch as at

    def layer(block):
        return {
            "attention": attention(block, ("query", "key", "value", "out")),
            "attention_norm": gain(block.norm1),
            "feed_forward": {name: affine(getattr(block, name)) for name in ("gate", "up", "down")},
            "feed_forward_norm": gain(block.norm2),
        }

    params = {
        "embeddings": {"word": model.word.weight.detach()},
        "layers": {str(i): layer(block) for i, block in enumerate(model.blocks)},
        "norm": gain(model.norm),
        "head": affine(model.head),
    }
    parts = {
        "attention": partial(at.multi_head_attention, turn=at.rotary),
        "feed_forward": at.gated_feed_forward,
        "join": partial(at.sublayer, norm=at.rms_norm, norm_first=True),
    }
    return at.decoder_only(*arguments, params, 3, norm=at.rms_norm, **parts)
