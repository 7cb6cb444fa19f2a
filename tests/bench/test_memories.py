"""Memories that decay and correct: the delta rule beside linear attention, growth, and what else one would run."""

from functools import partial

import numpy as np
import pytest
import torch
from timing import ratio_of_times

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

HEADS, WIDTH = 8, 64
SIZES = {"heads": HEADS, "width": WIDTH}


def draw(n, heads=HEADS):
    """Queries, keys of length 1 and values in float32, and the gates of the gated delta rule."""
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((3, heads, n, WIDTH), np.float32)
    K /= np.linalg.norm(K, axis=-1, keepdims=True)
    beta, decay = rng.random((2, heads, n, 1), np.float32)
    return (Q, K, V), {"beta": 0.1 + 0.9 * beta, "decay": 0.9 + 0.1 * decay}


def both_ways(inputs, gates):
    O, vjp = an.fast_weights(*inputs, **gates)
    return vjp(O)


PASSES = {"forward": lambda inputs, gates: an.fast_weights(*inputs, **gates), "forward and backward": both_ways}


@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("passes", PASSES)
def test_delta_rule_beside_linear_attention(benchmark, ratios, passes, heads):
    inputs, gates = draw(16384, heads)
    ours, plain = (partial(PASSES[passes], inputs, options) for options in ({"beta": gates["beta"]}, {}))
    name, goal = f"NumPy delta rule / linear attention, chunks of 64, {passes}", 3.0
    assert (
        ratio_of_times(benchmark, ratios, name, ours, plain, goal, {"n": 16384} | SIZES | {"heads": heads}, 4) <= goal
    )


def each_component(decay):
    """A decay for each component of the keys, as gated linear attention has it."""
    return np.sqrt(decay) * (0.95 + 0.05 * np.random.default_rng(1).random((*decay.shape[:-1], WIDTH), np.float32))


@pytest.mark.parametrize("gates", [(), ("beta",), ("decay",), ("decay", "beta"), ("wide decay",)], ids="-".join)
def test_growth_is_linear(benchmark, ratios, gates):
    """With 4 heads: an array of 32 MiB or more is mapped and zeroed anew at each call, and shorter texts go free."""
    timed, heads = [], 4
    for n in (16384, 4096):
        inputs, options = draw(n, heads)
        if gates == ("wide decay",):
            options = {"decay": each_component(options["decay"])}
        else:
            options = {name: options[name] for name in gates}
        timed.append(partial(an.fast_weights, *inputs, **options))
    name, goal = f"NumPy fast_weights ({', '.join(gates) or 'no gates'}), 16,384 / 4,096 keys", 4.6
    assert ratio_of_times(benchmark, ratios, name, *timed, goal, SIZES | {"heads": heads}, 6) <= goal


def test_against_softmax_attention(benchmark, ratios):
    """From 2,048 keys on the gated delta rule is faster than our own softmax attention without a mask."""
    inputs, gates = draw(2048)
    ours, fused = partial(an.fast_weights, *inputs, **gates), partial(an.attention_fused, *inputs)
    name, goal = "NumPy gated delta rule / NumPy attention_fused", 1.0
    assert ratio_of_times(benchmark, ratios, name, ours, fused, goal, {"n": 2048} | SIZES, 5) <= goal


def test_torch_against_transformers(benchmark, ratios):
    """The gated delta rule as Qwen3-Next has it in PyTorch, the same chunks of 64."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    inputs, gates = draw(4096)
    Q, K, V = (torch.from_numpy(X)[None] for X in inputs)
    beta, decay = (torch.from_numpy(gates[name])[None] for name in ("beta", "decay"))
    rows = [X.transpose(1, 2).contiguous() for X in (Q, K, V, decay.log(), beta)]
    rows[3:] = [X[..., 0] for X in rows[3:]]
    theirs = partial(torch_chunk_gated_delta_rule, *rows)
    ours = partial(at.fast_weights, Q, K, V, decay=decay, beta=beta, scale=None)
    with torch.no_grad():
        compare(ours(), theirs()[0].transpose(1, 2), name="what is timed", atol=1e-4)
        name, goal = "torch gated delta rule / transformers, Qwen3-Next", 1.1
        assert ratio_of_times(benchmark, ratios, name, ours, theirs, goal, {"n": 4096} | SIZES, 5) <= goal
