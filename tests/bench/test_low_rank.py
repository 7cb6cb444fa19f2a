"""Attention to r slots: time grows with the length, not its square; and the torch half against the kernel alone."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from timing import ratio_of_times

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

SLOTS, WIDTH = 128, 64


def inputs(n):
    """Queries, keys, values, two projections and a cotangent, in float32."""
    rng = np.random.default_rng(0)
    shapes = [(n, WIDTH)] * 3 + [(SLOTS, n)] * 2 + [(n, WIDTH)]
    *given, dO = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return [*given[:3], *(X / np.float32(n**0.5) for X in given[3:])], dO


def both_passes(n):
    given, dO = inputs(n)
    return lambda: an.linformer_attention(*given)[1](dO)


@pytest.mark.parametrize("passes", ["forward", "both"])
def test_time_grows_with_the_length(benchmark, ratios, passes):
    short, long = (
        both_passes(n) if passes == "both" else partial(an.linformer_attention, *inputs(n)[0]) for n in (4096, 16384)
    )
    name, sizes = "NumPy linformer_attention, n = 16384 / n = 4096", {"slots": SLOTS, "k": WIDTH, "passes": passes}
    assert ratio_of_times(benchmark, ratios, name, long, short, 4.6, sizes) <= 4.6


@pytest.mark.parametrize("n", [1024, 4096])
def test_against_all_pairs(benchmark, ratios, n):
    """The work is n / (2 r) times less: 4 times at 1,024 and 16 times at 4,096."""
    given, _ = inputs(n)
    goal = {1024: 0.6, 4096: 0.2}[n]
    name, sizes = "NumPy linformer_attention / attention_fused", {"n": n, "slots": SLOTS, "k": WIDTH}
    ours, theirs = partial(an.linformer_attention, *given), partial(an.attention_fused, *given[:3])
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, goal, sizes) <= goal


@pytest.mark.parametrize("n", [4096, 16384])
def test_torch_against_the_kernel_on_slots(benchmark, ratios, n):
    Q, K, V, E, F_ = map(torch.from_numpy, inputs(n)[0])

    def public():
        return F.scaled_dot_product_attention(Q, E @ K, F_ @ V)

    ours = partial(at.linformer_attention, Q, K, V, E, F_)
    compare(ours(), public(), name="values", atol=1e-5)
    name, sizes = "torch linformer_attention / its kernel on slots", {"n": n, "slots": SLOTS, "k": WIDTH}
    assert ratio_of_times(benchmark, ratios, name, ours, public, 1.1, sizes, rounds=15) <= 1.1
