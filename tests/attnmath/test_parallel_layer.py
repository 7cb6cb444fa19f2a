"""A layer with its two halves side by side: transformers' Phi, what it shares with a serial layer, bad input."""

from functools import partial

import numpy as np
import pytest
import torch
from transformers.models.phi import modeling_phi

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare
from attnmath.parallel_shapes import parallel_layer_shapes
from attnmath.shapes import encoder_layer_shapes, random_tree
from attnmath.tree import flatten
from tests.attnmath.converted import check_unlifted, wide  # noqa: F401 (a fixture)

FAMILIES = ("phi",)
D, HEADS, FF, N = 12, 3, 20, 7


def phi():
    torch.manual_seed(3)
    config = modeling_phi.PhiConfig(
        hidden_size=D, num_attention_heads=HEADS, intermediate_size=FF, num_hidden_layers=1, attn_implementation="eager"
    )
    layer = modeling_phi.PhiDecoderLayer(config, 0).double().eval()
    for leaf in layer.parameters():
        torch.nn.init.normal_(leaf, std=0.5)
    return layer


def of_phi(layer):
    attention, network = layer.self_attn, layer.mlp
    owners = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "dense"}

    def linear(module):
        return {"weight": module.weight.T, "bias": module.bias}

    return {
        "norm": {"gain": layer.input_layernorm.weight, "bias": layer.input_layernorm.bias},
        "attention": {ours: linear(getattr(attention, theirs)) for ours, theirs in owners.items()},
        "feed_forward": {"up": linear(network.fc1), "down": linear(network.fc2)},
    }


def both():
    """Phi's layer and input, and what it and ours make of it, without rotary angles (cosines 1, sines 0)."""
    layer, X = phi(), torch.randn(2, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    width = layer.self_attn.rotary_ndims
    still = torch.ones(2, N, width, dtype=torch.float64), torch.zeros(2, N, width, dtype=torch.float64)
    future = torch.zeros(N, N, dtype=torch.float64).masked_fill(~torch.ones(N, N, dtype=torch.bool).tril(), -torch.inf)
    theirs = layer(X.clone(), attention_mask=future[None, None], position_embeddings=still)
    feed_forward = partial(at.feed_forward, activation=at.gelu_tanh)
    return layer, X, theirs, at.parallel_layer(X, of_phi(layer), HEADS, at.causal_mask(N), feed_forward=feed_forward)


def test_is_transformers_phi_layer_with_its_casts():
    _, _, theirs, ours = both()
    check_unlifted("Phi's layer", lambda: theirs.detach(), lambda: ours.detach())


@pytest.mark.usefixtures("wide")
def test_is_transformers_phi_layer():
    """Only the order of the two halves is in question."""
    layer, X, theirs, ours = both()
    params = of_phi(layer)
    compare(ours, theirs.detach(), name="Phi's layer", atol=1e-10)
    up = torch.randn(2, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    wanted = torch.autograd.grad((theirs * up).sum(), list(layer.parameters()))
    by_name = dict(zip((name for name, _ in layer.named_parameters()), wanted, strict=True))
    world = partial(an.feed_forward, activation=an.gelu_tanh)
    _, vjp = an.parallel_layer(
        X.numpy(), at.to_numpy(params), HEADS, an.causal_mask(N), feed_forward=world, attend=an.attention
    )
    _, grads, *_ = vjp(up.numpy())
    compare(grads["norm"]["gain"], by_name["input_layernorm.weight"].numpy(), name="the norm's gain", atol=1e-9)
    compare(grads["attention"]["query"]["weight"], by_name["self_attn.q_proj.weight"].numpy().T, atol=1e-9)
    compare(grads["feed_forward"]["up"]["weight"], by_name["mlp.fc1.weight"].numpy().T, atol=1e-9)


def test_has_one_norm_less_than_a_serial_layer():
    def numbers(shapes):
        return sum(int(np.prod(shape)) for shape in flatten(shapes).values())

    assert numbers(encoder_layer_shapes(D, FF)) - numbers(parallel_layer_shapes(D, FF)) == 2 * D
    assert parallel_layer_shapes(D, FF, norm=an.rms_norm)["norm"] == {"gain": (D,)}


def test_a_missing_branch_is_named():
    params = random_tree(parallel_layer_shapes(D, FF), np.random.default_rng(0))
    with pytest.raises(ValueError, match="norm"):
        an.parallel_layer(np.ones((N, D)), {k: v for k, v in params.items() if k != "norm"}, HEADS)
