"""How the time of block-sparse attention falls with the share of tiles, against our own fused attention."""

from functools import partial

import numpy as np
import pytest
from timing import ratio_of_times

import attnmath.numpy as an

TOKENS, BLOCK, WIDTH = 4096, 64, 64
SLACK = 1.5  # times the density


@pytest.mark.parametrize("passes", ["forward", "both"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.5])
def test_the_time_falls_with_the_density(benchmark, ratios, share, heads, passes):
    rng = np.random.default_rng(0)
    Q, K, V, dO = rng.standard_normal((4, heads, TOKENS, WIDTH)).astype(np.float32)
    count = TOKENS // BLOCK
    tiles = rng.random((count, count)) < share
    tiles[np.arange(count), rng.integers(0, count, count)] = True
    density = float(tiles.mean())
    cores = partial(an.block_sparse_attention, layout=tiles, size=BLOCK), an.attention_fused

    def run(core):
        O, vjp = core(Q, K, V)
        return O if passes == "forward" else vjp(dO)

    name = f"block-sparse, {share:.0%} of the tiles, {passes}"
    sizes = {"n": TOKENS, "block": BLOCK, "heads": heads, "density": round(density, 3)}
    ours, full = (partial(run, core) for core in cores)
    goal = SLACK * density
    assert ratio_of_times(benchmark, ratios, name, ours, full, goal, sizes, 5) <= goal
