"""ViT: hidden states, logits and gradients are those of `transformers`."""

import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from tests.attnmath.converted import check_both_worlds, check_unlifted, randomised

PICTURES = dict(image_size=8, num_channels=3, num_labels=7, layer_norm_eps=1e-3)
SMALL = dict(hidden_size=6, num_attention_heads=2, intermediate_size=17, num_hidden_layers=2, patch_size=2)
BARE = dict(hidden_size=15, num_attention_heads=5, intermediate_size=7, num_hidden_layers=3, patch_size=4)
SIZES = {
    "hidden states": ("ViTModel", SMALL | {"hidden_act": "gelu_new"}),
    "classes": ("ViTForImageClassification", SMALL | {"hidden_act": "gelu_new"}),
    "no bias": ("ViTForImageClassification", BARE | {"qkv_bias": False}),
}
KINDS = pytest.mark.parametrize("kind", SIZES)


def small(kind):
    import transformers

    name, sizes = SIZES[kind]
    more = {"add_pooling_layer": False} if name == "ViTModel" else {}
    return randomised(getattr(transformers, name)(transformers.ViTConfig(**PICTURES, **sizes), **more))


def value(output):
    return output.logits if hasattr(output, "logits") else output.last_hidden_state


@KINDS
def test_value_and_gradients(kind, rng):
    model, pictures = small(kind), rng.standard_normal((3, 3, 8, 8))
    converted, given = at.load_hf(model), torch.from_numpy(pictures)

    def by_hand(params):
        Z, vjp = converted(pictures, params=params, world=an)
        return Z, lambda dZ: vjp(dZ)[1]

    ours = lambda params: converted(given, params=params)  # noqa: E731
    check_both_worlds(kind, model, lambda: value(model(given)), ours, by_hand, converted.params)


@KINDS
def test_single_precision(kind, rng):
    model, given = small(kind).float(), torch.from_numpy(rng.standard_normal((3, 3, 8, 8))).float()
    with torch.no_grad():
        check_unlifted(kind, lambda: value(model(given)), lambda: at.load_hf(model)(given))
