"""The results of the page on the cost of training: counted by formula and by torch's instrument, and weighed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import count, shapes
from attnmath.tree import flatten, map_tree

few = settings(max_examples=12, deadline=None)
sizes = st.integers(1, 3000)


def counted(f, *args):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        out = f(*args)
    return counter.get_total_flops(), out


def tree(d, f, L, t, heads, key_heads, *, gated, tie):
    parts = {"feed_forward": an.gated_feed_forward} if gated else {}
    return shapes.decoder_only_shapes(t, d, f, L, tie=tie, heads=heads, key_heads=key_heads, **parts)


@pytest.mark.claim("eq:transformer-parameters")
@given(
    st.integers(1, 4), st.integers(1, 30), st.integers(1, 4), st.integers(1, 30), st.booleans(), st.sampled_from([1, 2])
)
def test_the_parameters_are_the_matrices_of_the_tree(k, f, L, t, gated, share):
    heads, d = 2, 2 * k
    leaves = flatten(tree(d, f, L, t, heads, heads // share, gated=gated, tie=False))
    matrices = [shape for name, shape in leaves.items() if len(shape) == 2 and not name.startswith("embeddings")]
    options = dict(key_width=d // share, gated=gated)
    assert count.transformer_parameters(d, f, L, t, **options) == sum(map(math.prod, matrices))


@pytest.mark.claim("lem-six-per-weight", "eq:transformer-flops", "eq:training-flops")
@few
@given(
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(1, 2),
    st.integers(2, 20),
    st.integers(1, 9),
    st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 1)]),
    st.booleans(),
    st.booleans(),
)
def test_the_instrument_counts_six_for_each_weight_and_token(k, f, L, t, n, grouped, gated, tie):
    (heads, key_heads), rng = grouped, np.random.default_rng(n)
    d = heads * k
    whole = shapes.random_tree(tree(d, f, L, t, heads, key_heads, gated=gated, tie=tie), rng)
    params = map_tree(lambda A: torch.tensor(A, requires_grad=True), whole)
    kind = {"feed_forward": at.gated_feed_forward} if gated else {}
    ids = torch.from_numpy(rng.integers(0, t, (3, n)))
    forward, Z = counted(lambda: at.decoder_only(ids, params, heads, **kind))
    backward, _ = counted(Z.sum().backward)
    options = dict(key_width=key_heads * k, gated=gated)
    assert forward == 3 * count.transformer_flops(n, d, f, L, t, **options)
    assert forward + backward == 3 * count.training_flops(n, d, f, L, t, **options)
    N = count.transformer_parameters(d, f, L, t, **options)
    assert count.training_flops(n, d, f, L, t, **options) == 6 * n * N + 12 * n * n * d * L
    pairs = np.tri(n, dtype=bool).sum()
    assert count.transformer_flops(n, d, f, L, t, causal=True, **options) == 2 * n * N + 4 * pairs * d * L


@pytest.mark.claim("lem-six-per-weight")
def test_frozen_embeddings_save_the_first_projections():
    d, f, L, t, n, rng = 6, 10, 2, 11, 5, np.random.default_rng(0)
    whole = shapes.random_tree(shapes.decoder_only_shapes(t, d, f, L, tie=False), rng)
    params = map_tree(lambda A: torch.tensor(A, requires_grad=True), whole)
    params["embeddings"] = map_tree(torch.Tensor.detach, params["embeddings"])
    forward, Z = counted(lambda: at.decoder_only(torch.from_numpy(rng.integers(0, t, (n,))), params, 2))
    backward, _ = counted(Z.sum().backward)
    assert backward == 2 * forward - 3 * 2 * n * d * d


@pytest.mark.claim("lem-attention-border", "eq:transformer-parameters", "eq:training-flops")
@given(sizes, sizes, sizes, st.integers(1, 99), st.integers(0, 60_000), sizes, st.booleans())
def test_attention_overtakes_the_weights_at_the_stated_length(n, d, f, L, t, e, gated):
    size = dict(d=d, f=f, layers=L, vocabulary=t, key_width=e, gated=gated)
    N = count.transformer_parameters(**size)
    c = 3 if gated else 2
    assert math.isclose(N / (2 * d * L), d + e + c * f / 2 + t / (2 * L))
    for whole in (count.transformer_flops, count.training_flops):
        weights = (6 if whole is count.training_flops else 2) * n * N
        total = whole(n, **size)
        assert (total - weights > weights) == (2 * d * L * n > N)
        border = N / (2 * d * L)
        assert math.isclose((total - weights) / total, n / (n + border), rel_tol=1e-9)
        assert (whole(n, causal=True, **size) - weights > weights) == (d * L * (n + 1) > N)


@pytest.mark.claim("lem-attention-border")
@given(st.integers(1, 400), st.integers(1, 9))
def test_the_table_of_borders(third, L):
    d = 3 * third
    for f, gated, multiple in ((4 * d, False, 6), (4 * d, True, 8), (8 * d // 3, True, 6)):
        for causal, last in ((False, multiple * d), (True, 2 * multiple * d - 1)):
            for n in (last, last + 1):
                whole = count.training_flops(n, d, f, L, gated=gated, causal=causal)
                weights = 6 * n * count.transformer_parameters(d, f, L, gated=gated)
                assert (whole > 2 * weights) == (n > last)


@pytest.mark.claim("eq:training-bytes")
def test_a_parameter_is_sixteen_bytes(rng):
    master = map_tree(np.float32, shapes.random_tree(shapes.decoder_only_shapes(17, 6, 10, 2), rng, 0.1))
    copy = map_tree(np.float16, master)
    Z, vjp = an.decoder_only(rng.integers(0, 17, (2, 5)), copy, 2)
    grads = vjp(np.ones_like(Z))
    wide, _ = an.unscale(grads, 1.0)
    _, state = an.adam(master, wide, an.adam_state(master), 1e-3)
    held = [A.nbytes for part in (copy, grads, master, state["first"], state["second"]) for A in flatten(part).values()]
    assert sum(held) == count.training_bytes(sum(A.size for A in flatten(master).values()))


@pytest.mark.claim("eq:transformer-parameters", "eq:training-flops")
def test_published_numbers():
    gpt3 = count.transformer_parameters(12_288, 4 * 12_288, 96, 50_257)
    assert round(gpt3 / 1e9, 1) == 174.6 and f"{6 * gpt3 * 300e9:.3g}" == "3.14e+23"
    llama = count.transformer_parameters(4096, 11_008, 32, 32_000, gated=True)
    assert llama + 32_000 * 4096 + 65 * 4096 == 6_738_415_616
