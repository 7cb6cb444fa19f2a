"""The results of the page on cost: where the quadratic term takes over, and exact attention in linear memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import count
from attnmath.check import compare

sizes = st.integers(1, 5000)


@pytest.mark.claim("lem-crossover", "eq:attention-flops", "eq:projection-flops")
@given(sizes, sizes, sizes, sizes)
def test_attention_costs_more_than_the_projections_from_twice_the_width(n, d, k, v):
    attention, projections = count.attention_flops(n, n, k, v), count.projection_flops(n, d, k, v)
    assert (attention > projections) == (n > 2 * d)
    assert 2 * d * attention == n * projections


@pytest.mark.claim("lem-online-softmax", "eq:online-max", "eq:online-sum", "eq:online-output")
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 12), st.sampled_from([1.0, 1e2, 1e4]), st.booleans())
def test_blocks_of_any_size_give_the_same_output(n, m, chunk, scale, ordered):
    rng = np.random.default_rng(n + 31 * m)
    Q, K, V = rng.standard_normal((n, 3)), scale * rng.standard_normal((m, 3)), rng.standard_normal((m, 2))
    if ordered:  # scores of the first query increase, so that every block brings a new maximum
        K = K[np.argsort(K @ Q[0])]
    mask = rng.random((n, m)) < 0.7
    mask[:, -1] = True  # some rows see nothing before the last block
    want, _ = an.attention(Q, K, V, mask)
    got, _ = an.attention_chunked(Q, K, V, mask, chunk=chunk)
    compare(got, want, name="output in blocks", atol=1e-9)


@pytest.mark.claim("lem-online-softmax", "eq:online-vjp")
def test_memory_is_linear_and_the_gradient_exact(rng):
    held, peak = [], []
    for n in (512, 1024, 2048):
        Q, K, V, dO = rng.standard_normal((4, n, 4))
        tracemalloc.start()
        _, vjp = an.attention_chunked(Q, K, V, chunk=32)
        cotangents = vjp(dO)
        peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        held.append(count.bytes_held(vjp))
    assert max(held[2] / held[1], held[1] / held[0], peak[2] / peak[1], peak[1] / peak[0]) < 2.2
    assert peak[2] < count.attention_bytes(2048, 2048, itemsize=8) / 8
    compare(cotangents, an.attention(Q, K, V)[1](dO), name="gradients in blocks", atol=1e-10)
