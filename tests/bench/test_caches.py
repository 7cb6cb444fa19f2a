"""Writing with a cache of keys and values: paged, rounded and windowed caches beside the plain one, on one thread."""

from functools import partial

import numpy as np
import pytest
from timing import ratio_of_times

import attnmath.numpy as an
from attnmath.cache import KeyValueCache
from attnmath.caches import BlockPool, PagedCache, QuantisedCache, SinkCache
from attnmath.check import compare

TEXT, WRITTEN, HEADS, WIDTH = 4096, 32, 4, 64
SIZES = {"text": TEXT, "written": WRITTEN, "heads": HEADS, "width": WIDTH}


def plain():
    return KeyValueCache()


def paged():
    return PagedCache(BlockPool(16, (TEXT + WRITTEN) // 16 + 1))


# Paging and rounding save memory and not time: no kernel here reads pages or bits, so each token copies all rows.
CACHES = {
    "paged": (paged, 10.0),
    "4 bits": (partial(QuantisedCache, an, 4), 20.0),
    "4 sinks and a window of 128": (partial(SinkCache, 4, 128), 1.0),
}


def write(make):
    """A text, then token after token: each adds its row to the cache and attends to all."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, HEADS, TEXT + WRITTEN, WIDTH)).astype(np.float32)

    def run():
        cache, outputs = make(), []
        cache.append(*rows[1:, :, :TEXT])
        for t in range(TEXT, TEXT + WRITTEN):
            K, V = cache.append(*rows[1:, :, t : t + 1])
            outputs.append(an.attention_fused(rows[0, :, t : t + 1], K, V)[0])
        return np.concatenate(outputs, -2)

    return run


@pytest.mark.parametrize("kind", CACHES)
def test_against_the_plain_cache(benchmark, ratios, kind):
    make, goal = CACHES[kind]
    ours, theirs = write(make), write(plain)
    if kind == "paged":
        compare(ours(), theirs(), name="what is timed", atol=1e-6)
    name = f"NumPy, writing with a cache: {kind} / plain"
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, goal, SIZES, 5) <= goal
