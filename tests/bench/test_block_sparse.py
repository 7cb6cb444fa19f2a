"""How the time of block-sparse attention falls with the share of tiles, against our fused attention, in both worlds."""

from functools import partial

import numpy as np
import pytest
import torch
from timing import ratio_of_times

import attnmath.numpy as an
import attnmath.torch as at

TOKENS, BLOCK, WIDTH = 4096, 64, 64
SLACK = 1.5  # times the density


@pytest.mark.parametrize("world", ["numpy", "torch"])
@pytest.mark.parametrize("passes", ["forward", "both"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.5])
def test_the_time_falls_with_the_density(benchmark, ratios, share, heads, passes, world):
    rng = np.random.default_rng(0)
    Q, K, V, dO = rng.standard_normal((4, heads, TOKENS, WIDTH)).astype(np.float32)
    count = TOKENS // BLOCK
    tiles = rng.random((count, count)) < share
    tiles[np.arange(count), rng.integers(0, count, count)] = True
    density = float(tiles.mean())
    at_hand = an if world == "numpy" else at
    cores = partial(at_hand.block_sparse_attention, layout=tiles, size=BLOCK), at_hand.attention_fused

    def by_hand(core):
        O, vjp = core(Q, K, V)
        return O if passes == "forward" else vjp(dO)

    def by_autograd(core):
        leaves = [torch.from_numpy(X).requires_grad_(passes == "both") for X in (Q, K, V)]
        O = core(*leaves)
        return O if passes == "forward" else torch.autograd.grad(O, leaves, torch.from_numpy(dO))

    name = f"block-sparse, {share:.0%} of the tiles, {passes}" + (", torch" if world == "torch" else "")
    sizes = {"n": TOKENS, "block": BLOCK, "heads": heads, "density": round(density, 3)}
    ours, full = (partial(by_hand if world == "numpy" else by_autograd, core) for core in cores)
    goal = SLACK * density
    assert ratio_of_times(benchmark, ratios, name, ours, full, goal, sizes, 5) <= goal
