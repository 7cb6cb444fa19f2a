"""Rotary beyond the trained length: equal to `transformers` and ONNX; a cache that forgets; bad input."""

from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.caches import SinkCache
from attnmath.check import compare
from tests.attnmath.converted import check_unlifted
from tests.attnmath.test_references import Wide

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def as_world(world, X):
    return torch.from_numpy(X) if world is at else X


@pytest.fixture
def rope(monkeypatch):
    """The frequencies of `transformers`, in float64."""
    from transformers import modeling_rope_utils

    monkeypatch.setattr(modeling_rope_utils, "torch", Wide("torch"))
    return modeling_rope_utils.ROPE_INIT_FUNCTIONS


def config(k, trained, base, **scaling):
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=2 * k,
        num_attention_heads=2,
        max_position_embeddings=trained,
        rope_parameters={"rope_theta": base} | scaling,
    )


SIZES = pytest.mark.parametrize(
    ("k", "trained", "base"), [(64, 2048, 1e4), (128, 4096, 5e5), (16, 512, 1e3), (8, 32, 1e4), (16, 4096, 1e2)]
)


@pytest.mark.slow
@WORLDS
@SIZES
@pytest.mark.parametrize("factor", [1.5, 4.0, 16.0])
def test_the_frequencies_of_transformers(world, k, trained, base, factor, rope):
    own = world.rotary_frequencies(k, base=base)
    theirs, attention = rope["linear"](config(k, trained, base, rope_type="linear", factor=factor))
    compare(world.interpolated_frequencies(own, factor), theirs, name="linear", atol=0.0, rtol=1e-10)
    assert attention == 1.0
    for n in (trained // 2, trained, 3 * trained):
        theirs, _ = rope["dynamic"](config(k, trained, base, rope_type="dynamic", factor=factor), seq_len=n)
        mine = world.ntk_frequencies(own, world.dynamic_factor(n, trained, factor))
        compare(mine, theirs, name=f"dynamic at {n}", atol=0.0, rtol=1e-10)
    for turns in ({}, {"beta_fast": 8.0, "beta_slow": 2.0}):
        theirs, attention = rope["yarn"](
            config(k, trained, base, rope_type="yarn", factor=factor, original_max_position_embeddings=trained, **turns)
        )
        ends = dict(zip(("fast", "slow"), turns.values(), strict=False))
        mine = world.yarn_frequencies(own, factor, trained, **ends, ramp="index")
        compare(mine, theirs, name="yarn", atol=0.0, rtol=1e-10)
        compare(world.yarn_temperature(factor), attention, name="temperature", atol=1e-12)


@pytest.mark.slow
@WORLDS
def test_turned_queries_equal_those_of_llama_with_yarn(world, rope, rng):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    k, trained, factor, n = 64, 512, 4.0, 9
    theirs = LlamaRotaryEmbedding(
        config(k, trained, 1e4, rope_type="yarn", factor=factor, original_max_position_embeddings=trained)
    )
    X = rng.standard_normal((2, 3, n, k))
    angles = 1000 + torch.arange(n)[:, None] * 1.0
    angles = (angles * theirs.inv_freq).repeat(1, 2)[None]
    cos, sin = (f(angles) * theirs.attention_scaling for f in (torch.cos, torch.sin))
    want = apply_rotary_pos_emb(torch.from_numpy(X), torch.from_numpy(X), cos, sin)[0]
    frequencies = world.yarn_frequencies(world.rotary_frequencies(k), factor, trained, ramp="index")
    Y = world.rotary(as_world(world, X), frequencies=frequencies, start=1000, pairing="half")
    Y = Y if world is at else Y[0]
    compare(world.yarn_temperature(factor) * Y, want, atol=1e-10, rtol=1e-10)


@pytest.mark.slow
@WORLDS
def test_turned_queries_of_llama_with_its_casts(world, rng):
    """Its angles are products in float32, whose error grows with the position; here near the start."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    k, trained, factor, n = 64, 512, 4.0, 9
    settings = config(k, trained, 1e4, rope_type="yarn", factor=factor, original_max_position_embeddings=trained)
    X = rng.standard_normal((2, 3, n, k))
    x = torch.from_numpy(X)
    cos, sin = LlamaRotaryEmbedding(settings)(x, torch.arange(n)[None])
    frequencies = world.yarn_frequencies(world.rotary_frequencies(k), factor, trained, ramp="index")
    Y = world.rotary(as_world(world, X), frequencies=frequencies, pairing="half")
    Y = world.yarn_temperature(factor) * torch.as_tensor(Y if world is at else Y[0].copy())
    check_unlifted("Llama with YaRN", lambda: apply_rotary_pos_emb(x, x, cos, sin)[0], lambda: Y)


def onnx_cases(monkeypatch):
    """The node cases of the operator RotaryEmbedding: (name, options, inputs, output)."""
    from onnx.backend.test.case.node import rotaryembedding

    cases = []

    def note(node, inputs, outputs, name, **_):
        cases.append((name, {a.name: a.i for a in node.attribute}, inputs, outputs[0]))

    monkeypatch.setattr(rotaryembedding, "expect", note)
    np.random.seed(1)  # noqa: NPY002  (its cases are drawn by NumPy's global generator)
    operator = rotaryembedding.RotaryEmbedding
    for export in sorted(name for name in dir(operator) if name.startswith("export_")):
        getattr(operator, export)()
    return cases


@WORLDS
def test_the_operator_of_onnx(world, monkeypatch):
    """Its cosines and sines are given, and of any size: an angle and a length for each pair and row."""
    cases = onnx_cases(monkeypatch)
    assert len(cases) >= 7
    for name, options, (X, cos, sin, *ids), want in cases:
        heads = options.get("num_heads", 0)
        Y = X.reshape(*X.shape[:2], heads, -1).swapaxes(1, 2) if heads else X
        if ids:
            cos, sin = cos[ids[0]], sin[ids[0]]
        pairing = "interleaved" if options.get("interleaved") else "half"
        width = 2 * cos.shape[-1]
        got = Y.copy()
        for b, p in np.ndindex(cos.shape[:2]):
            angle, length = np.arctan2(sin[b, p], cos[b, p]), np.hypot(sin[b, p], cos[b, p])
            row = world.rotary(
                as_world(world, Y[b, :, p : p + 1, :width].copy()),
                frequencies=as_world(world, angle),
                start=1,
                pairing=pairing,
            )
            row = row.numpy() if world is at else row[0]
            length = np.repeat(length, 2) if pairing == "interleaved" else np.tile(length, 2)
            got[b, :, p, :width] = row[:, 0] * length
        compare(got.swapaxes(1, 2).reshape(want.shape) if heads else got, want, name=name, atol=1e-6)


@WORLDS
def test_a_core_that_turns_equals_heads_that_are_turned(world, rng):
    params = as_tree(world, shapes.random_tree(shapes.attention_shapes(12, 3, 1), rng, 0.4))
    X = as_world(world, rng.standard_normal((2, 7, 12)))
    turn = partial(world.rotary, pairing="half", base=30.0)
    call = partial(world.multi_head_attention, X, X, X, params, 3, world.causal_mask(7))
    outside, inside = call(turn=turn), call(attend=partial(world.turned_attention, turn=turn))
    compare(*((inside, outside) if world is at else (inside[0], outside[0])), name="the same")
    plain = call() if world is at else call()[0]
    assert abs(np.asarray(plain) - np.asarray(inside if world is at else inside[0])).max() > 1e-2


def as_tree(world, tree):
    return at.from_numpy(tree) if world is at else tree


@WORLDS
@pytest.mark.claim("lem-sink-distance", "eq:turned-attention")
def test_decoding_with_sinks_is_attention_to_the_first_and_the_last_rows(world, rng):
    """Row p sees the sinks and the rows p - width to p, at the places that they have among themselves."""
    sinks, width, n = 2, 3, 11
    Q, K, V = rng.standard_normal((3, 2, n, 6))
    attend = world.cached(
        partial(world.turned_attention, turn=partial(world.rotary, base=7.0)), SinkCache(sinks, width)
    )
    for p in range(n):
        O = attend(*(as_world(world, X[:, p : p + 1].copy()) for X in (Q, K, V)))
        O = O.numpy() if world is at else O[0]
        rows = sorted({*range(min(sinks, p)), *range(max(0, p - width), p + 1)})
        place, omega = np.arange(len(rows)), 7.0 ** (-np.arange(0, 6, 2) / 6)
        q, k = (X[..., ::2] + 1j * X[..., 1::2] for X in (Q[:, p], K[:, rows]))
        S = (q[:, None] * k.conj() * np.exp(1j * omega * (len(rows) - 1 - place)[:, None])).sum(-1).real / 6**0.5
        P = np.exp(S) / np.exp(S).sum(-1, keepdims=True)
        compare(O[:, 0], (P[..., None] * V[:, rows]).sum(-2), name=f"row {p}")
        assert attend.start <= sinks + width and len(rows) <= sinks + width + 1


@WORLDS
def test_a_sink_cache_goes_into_a_model_without_an_edit(world, rng):
    """As long as nothing is forgotten a model says what it says of the whole text; later it stays as it is."""
    params = as_tree(world, shapes.random_tree(shapes.decoder_only_shapes(11, 12, 17, layers=2, heads=3), rng, 0.5))
    ids = as_world(world, rng.integers(0, 11, (2, 9)))
    call = partial(world.decoder_only, params=params, heads=3, attend=partial(world.turned_attention))
    whole = call(ids) if world is at else call(ids)[0]
    for sinks, width, agree in ((2, 7, 9), (1, 3, 4)):
        cache = {"layers": {str(i): {"attention": SinkCache(sinks, width)} for i in range(2)}}
        with torch.no_grad():
            rows = [call(ids[:, p : p + 1], cache=cache) for p in range(9)]
        rows = np.concatenate([np.asarray(row if world is at else row[0]) for row in rows], -2)
        compare(rows[:, :agree], np.asarray(whole)[:, :agree], name="while nothing is forgotten", atol=1e-10)
        assert cache["layers"]["1"]["attention"].length == min(9, sinks + width)
    assert abs(rows[:, 5:] - np.asarray(whole)[:, 5:]).max() > 1e-3


def test_what_was_seen_is_not_overwritten(rng):
    cache, rows = SinkCache(1, 2), rng.standard_normal((6, 1, 1, 4))
    seen = [cache.append(row, row)[0] for row in rows]
    for p, K in enumerate(seen):
        compare(K[0], rows[sorted({*range(min(1, p)), *range(max(0, p - 2), p + 1)}), 0, 0], name=f"row {p}")


BAD = [
    ("rotary", (np.zeros((3, 6)),), {"frequencies": np.ones(2)}, r"frequencies has shape \(2,\); expected \(3,\), one"),
    ("rotary", (np.zeros((3, 6)),), {"frequencies": np.ones(3, int)}, r"frequencies has dtype (torch\.)?int64"),
    ("rotary_frequencies", (7,), {}, r"k is 7; it must be an even number"),
    ("rotary_frequencies", (8,), {"base": 0.0}, r"base is 0\.0; it must be > 0"),
    ("interpolated_frequencies", (np.ones((2, 2)), 2.0), {}, r"frequencies has shape \(2, 2\); expected \(r,\)"),
    ("interpolated_frequencies", (np.ones(2), 0.5), {}, r"factor is 0\.5; it must be >= 1: how many times longer"),
    ("interpolated_frequencies", (np.ones(2), float("nan")), {}, r"factor is nan; it must be >= 1"),
    ("ntk_frequencies", (np.ones(1), 2.0), {}, r"frequencies has shape \(1,\); expected \(r,\) with r >= 2"),
    ("yarn_frequencies", (np.ones(2), 2.0, 0), {}, r"trained is 0; it must be an integer >= 1"),
    ("yarn_frequencies", (np.ones(2), 2.0, 8), {"slow": 32.0}, r"slow is 32\.0 and fast 32\.0; .* slow < fast"),
    ("yarn_frequencies", (np.ones(2), 2.0, 8), {"ramp": "log"}, r"ramp is 'log'; expected one of 'turns', 'index'"),
    ("yarn_temperature", (0.0,), {}, r"factor is 0\.0; it must be >= 1"),
    ("yarn_temperature", ("4",), {}, r"factor is '4'; it must be >= 1"),
    ("dynamic_factor", (0, 8), {}, r"n is 0; it must be an integer >= 1"),
    ("dynamic_factor", (8, 8, 0.0), {}, r"factor is 0\.0; it must be >= 1"),
    ("turned_attention", (np.zeros((3, 4)), np.zeros((5, 6)), np.zeros((5, 2))), {}, r"K has shape \(5, 6\)"),
]


@WORLDS
@pytest.mark.parametrize(("component", "args", "options", "message"), BAD, ids=lambda value: str(value)[:20])
def test_bad_input(world, component, args, options, message):
    from jaxtyping import config as jaxtyping_config

    def convert(X):
        return as_world(world, X) if isinstance(X, np.ndarray) else X

    jaxtyping_config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValueError, match=message):
            getattr(world, component)(*map(convert, args), **{name: convert(X) for name, X in options.items()})
    finally:
        jaxtyping_config.update("jaxtyping_disable", False)


def test_bad_caches():
    for sizes in ((-1, 2), (1, -2)):
        with pytest.raises(ValueError, match=r"is -\d; it must be >= 0"):
            SinkCache(*sizes)
