"""Layers that keep a state begin as the published programs draw them, or as the text asks."""

import math

import numpy as np
import pytest
import torch

from attnmath import memory_starts as starts
from attnmath import memory_tasks
from attnmath.check import compare
from attnmath.tree import flatten, unflatten


@pytest.mark.parametrize("layer", starts.LAYERS)
def test_the_layers_are_causal(layer):
    params = unflatten(starts.begin(layer, np.random.default_rng(1), 24))
    Z = torch.randn(2, 24, starts.D, generator=torch.Generator().manual_seed(0))
    moved = Z.clone()
    moved[:, 20:] += 1
    X, Y = (memory_tasks.mix(layer, rows, params) for rows in (Z, moved))
    compare(Y[:, :20], X[:, :20], name="the past", atol=1e-5)
    assert (Y[:, 20:] - X[:, 20:]).abs().max() > 1e-2


@pytest.mark.parametrize("layer", starts.LAYERS)
@pytest.mark.parametrize("start", starts.STARTS)
def test_the_first_steps_lie_where_they_are_said_to_lie(layer, start):
    drawn = [starts.begin(layer, np.random.default_rng(seed), 64, start) for seed in range(60)]
    assert all({k: tuple(X.shape) for k, X in one.items()} == flatten(starts.sizes(layer)) for one in drawn)
    z = torch.stack([one["step"] for one in drawn])
    steps = z.exp() if layer == "s4d" else z.exp().log1p()
    low, high = (0.64 / 64, 32 / 64) if (layer, start) == ("s4d", "adapted") else (1e-3, 1e-1)
    assert low < steps.min() < 1.3 * low and high / 1.3 < steps.max() < high
    assert abs(steps.log().mean() - math.log(low * high) / 2) < 0.35  # evenly in the logarithm
    if layer == "mamba2":
        rates = torch.stack([one["rate"] for one in drawn]).exp()
        if start == "published":
            assert 1 < rates.min() < 2 and 15 < rates.max() < 16
        else:
            compare(math.log(2) / (rates * steps), np.full((60, 2), 128.0), name="half-lives", rtol=1e-3)


def test_an_unknown_layer_or_start_is_refused():
    for call in (lambda: starts.sizes("s5"), lambda: starts.begin("s4d", np.random.default_rng(0), 8, "late")):
        with pytest.raises(ValueError, match="expected one of"):
            call()
