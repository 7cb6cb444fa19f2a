"""A step of training of models of pictures, as ratios to those of `transformers` in the same run, on one thread.

Ours is converted from theirs, so that both have the same parameters, and they must give the same losses.
"""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from timing import ratio_of_times
from transformers import CLIPConfig, CLIPModel, ViTConfig, ViTForImageClassification

import attnmath.torch as at
from attnmath.check import compare
from attnmath.tree import flatten, map_tree

BATCH, LR = 32, 1e-4
BODY = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
PICTURE = {"image_size": 32, "patch_size": 4, "num_channels": 3}
TEXT = {"vocab_size": 1000, "max_position_embeddings": 32, "eos_token_id": 999}


def vit():
    model = ViTForImageClassification(ViTConfig(**BODY, **PICTURE, num_labels=10))
    X, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    return model, (X,), lambda: model(X).logits, lambda logits: F.cross_entropy(logits, y)


def clip():
    towers = {"text_config": BODY | TEXT, "vision_config": BODY | PICTURE}
    model = CLIPModel(CLIPConfig(**towers, projection_dim=64))
    X, ids = torch.randn(BATCH, 3, 32, 32), torch.randint(900, (BATCH, 16))
    ids[:, -1] = TEXT["eos_token_id"]
    pairs = torch.arange(BATCH)

    def loss(scores):
        return (F.cross_entropy(scores, pairs) + F.cross_entropy(scores.T, pairs)) / 2

    return model, (X, ids), lambda: model(input_ids=ids, pixel_values=X).logits_per_image, loss


def step_of(forward, loss_of, leaves):
    optimiser = torch.optim.AdamW(leaves, lr=LR, fused=True)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(forward())
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


@pytest.mark.parametrize("make", [vit, clip])
def test_step(benchmark, ratios, make):
    torch.manual_seed(0)
    model, inputs, theirs, loss = make()
    converted = at.load_hf(model)
    params = map_tree(lambda W: W.detach().clone().requires_grad_(), converted.params)
    ours = step_of(partial(converted, *inputs, params=params), loss, list(flatten(params).values()))
    theirs = step_of(theirs, loss, list(model.parameters()))
    for _ in range(3):
        compare(np.float64(ours()), np.float64(theirs()), name="loss", atol=1e-4)
    sizes = {"batch": BATCH, "d": 128, "layers": 4, "patches": 64}
    name = f"torch training step / transformers' {type(model).__name__}"
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, 1.0, sizes) <= 1.0
