"""How the linear cores grow, and from which length they are faster than softmax attention: one head of width 64."""

from functools import partial

import numpy as np
import pytest
import torch
from timing import ratio_of_times

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

rng = np.random.default_rng(0)
DIRECTIONS = an.draw_directions(64, 64, rng).astype(np.float32)
CORES = {
    "linear_attention": an.linear_attention,
    "linear_attention, causal": partial(an.linear_attention, causal=True),
    "performer_attention": partial(an.performer_attention, directions=DIRECTIONS),
    "performer_attention, causal": partial(an.performer_attention, directions=DIRECTIONS, causal=True),
}
FASTER_FROM = 1024  # the length that the page states; performer_attention with as many directions as the width


def inputs(n):
    return rng.standard_normal((3, 1, n, 64)).astype(np.float32)


@pytest.mark.parametrize("name", CORES)
def test_linear_growth(benchmark, ratios, name):
    """Four times the length takes at most 4.6 times the time."""
    long, short = (partial(CORES[name], *inputs(n)) for n in (16384, 4096))
    title, sizes = f"NumPy {name}, n = 16384 / n = 4096", {"heads": 1, "k": 64}
    assert ratio_of_times(benchmark, ratios, title, long, short, 4.6, sizes) <= 4.6


@pytest.mark.parametrize("name", CORES)
def test_faster_than_softmax(benchmark, ratios, name):
    """From the stated length, with the same mask."""
    QKV = inputs(FASTER_FROM)
    options = {"mask": an.causal_mask(FASTER_FROM)} if "causal" in name else {}
    softmax = partial(an.attention_fused, *QKV, **options)
    title, sizes = f"NumPy {name} / attention_fused", {"heads": 1, "n": FASTER_FROM, "k": 64}
    assert ratio_of_times(benchmark, ratios, title, partial(CORES[name], *QKV), softmax, 1.0, sizes) <= 1.0


def katharopoulos(Q, K, V):
    """The formula as it is usually written: two products by einsum."""
    Q, K = (torch.nn.functional.elu(X) + 1 for X in (Q, K))
    state = torch.einsum("bnf,bnv->bfv", K, V)
    z = 1 / torch.einsum("bnf,bf->bn", Q, K.sum(1))
    return torch.einsum("bnf,bfv,bn->bnv", Q, state, z)


def test_torch_against_the_usual_formula(benchmark, ratios):
    """Within 1.1 of it; the check for sums of 0 included."""
    X = torch.from_numpy(inputs(4096)[:, [0] * 8])
    compare(at.linear_attention(*X), katharopoulos(*X), name="what is timed", atol=1e-5)
    title, sizes = "torch linear_attention / einsum", {"heads": 8, "n": 4096, "k": 64}
    ours, theirs = partial(at.linear_attention, *X), partial(katharopoulos, *X)
    assert ratio_of_times(benchmark, ratios, title, ours, theirs, 1.1, sizes) <= 1.1


def test_torch_performer_against_its_kernel(benchmark, ratios):
    """As many directions as the width, against PyTorch's softmax attention, from the length that the page states."""
    X = [torch.from_numpy(A) for A in inputs(FASTER_FROM)]
    ours = partial(at.performer_attention, *X, directions=torch.from_numpy(DIRECTIONS))
    theirs = partial(torch.nn.functional.scaled_dot_product_attention, *X)
    title, sizes = "torch performer_attention / its SDPA", {"heads": 1, "n": FASTER_FROM, "k": 64}
    assert ratio_of_times(benchmark, ratios, title, ours, theirs, 1.1, sizes) <= 1.1


def test_torch_tiled_against_its_kernel(benchmark, ratios):
    """A loop over tiles that can be read, beside the kernel that does the same in C++."""
    X = [torch.from_numpy(A) for A in inputs(4096)]
    ours, theirs = partial(at.tiled_attention, *X), partial(torch.nn.functional.scaled_dot_product_attention, *X)
    compare(ours(), theirs(), name="what is timed", atol=1e-5)
    title, sizes = "torch tiled_attention / its SDPA", {"heads": 1, "n": 4096, "k": 64}
    assert ratio_of_times(benchmark, ratios, title, ours, theirs, 1.1, sizes, 4) <= 1.1
