"""Gated layers against those of `transformers`' Idefics, input that does not fit, and the module's start."""

import re
from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from attnmath.flamingo_shapes import flamingo_shapes, gated_cross_attention_shapes
from attnmath.tree import flatten, map_tree
from tests.attnmath.converted import Wide, check_both_worlds, check_unlifted, randomised

D, E, F, HEADS, N, M, B = 6, 5, 17, 2, 7, 4, 3
MARKS = np.array([[False, True, False, False, True, False, False]] * (B - 1) + [[False] * N])  # the last text has none


def leaf(module):
    return {"weight": module.weight.T}


def from_idefics(layer):
    """The parameters of a gated layer of Idefics as ours."""
    own = layer.cross_attn
    across = {name: leaf(getattr(own, f"{name[0]}_proj")) for name in ("query", "key", "value", "output")}
    if own.qk_layer_norms:
        across |= {f"{name}_norm": {"gain": getattr(own, f"{name[0]}_layer_norm").weight} for name in ("query", "key")}
    joints = {
        "cross_attention_norm": (layer.input_layernorm, layer.alpha_cross_attn),
        "feed_forward_norm": (layer.post_attention_layernorm, layer.alpha_dense),
    }
    network = {name: leaf(getattr(layer.mlp, f"{name}_proj")) for name in ("gate", "up", "down")}
    params = {"cross_attention": across, "feed_forward": network}
    return params | {
        name: {"norm": {"gain": norm.weight}, "gate": gate.flatten()} for name, (norm, gate) in joints.items()
    }


def options(world, qk_norm, eps):
    norm = partial(world.rms_norm, eps=eps)
    attention = partial(world.multi_head_attention, norm=norm) if qk_norm else world.multi_head_attention
    return {"norm": norm, "feed_forward": world.gated_feed_forward, "attention": attention}


@pytest.mark.slow
@pytest.mark.parametrize("last", [True, False], ids=["last picture", "all pictures"])
@pytest.mark.parametrize("qk_norm", [False, True], ids=["plain", "normed queries"])
@pytest.mark.parametrize("kind", ["float", "vector"])
def test_idefics(kind, qk_norm, last, rng, monkeypatch):
    from transformers import IdeficsConfig
    from transformers.models.idefics import modeling_idefics

    sizes = dict(hidden_size=D, num_attention_heads=HEADS, intermediate_size=F, vision_config={"embed_dim": E})
    settings = IdeficsConfig(
        **sizes, alpha_type=kind, qk_layer_norms=qk_norm, rms_norm_eps=1e-3, attn_implementation="eager"
    )
    model = randomised(modeling_idefics.IdeficsGatedCrossAttentionLayer(settings, layer_idx=0))
    X, memory = rng.standard_normal((B, N, D)), rng.standard_normal((B, 2 * M, E))
    mask = an.picture_mask(MARKS, 2, M, last=last)[:, None]
    given = [torch.from_numpy(A) for A in (X, memory, mask)]
    added = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~given[2], -1e30)
    theirs = lambda: model(  # noqa: E731
        given[0], None, given[1], image_attention_mask=added, cross_attention_gate=given[2][:, 0].any(-1).double()
    )
    ours = lambda params: at.gated_cross_attention(  # noqa: E731
        given[0], given[1], params, HEADS, given[2], **options(at, qk_norm, 1e-3)
    )
    params = from_idefics(model)
    check_unlifted("with upstream's casts to float32", theirs, lambda: ours(params))
    monkeypatch.setattr(modeling_idefics, "torch", Wide("torch"))

    def by_hand(params):
        Y, vjp = an.gated_cross_attention(X, memory, params, HEADS, mask, **options(an, qk_norm, 1e-3))
        return Y, lambda dY: vjp(dY)[2]

    check_both_worlds(f"Idefics {kind}", model, theirs, ours, by_hand, params)


def test_a_module_begins_closed_and_its_gates_alone_have_a_gradient(rng):
    torch.manual_seed(0)
    module = at.GatedCrossAttention(D, HEADS, F, E).double()
    X, memory = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((B, N, D), (B, M, E)))
    Y = module(X, memory)
    assert Y.equal(X)
    (Y * torch.from_numpy(rng.standard_normal(Y.shape))).sum().backward()
    for name, P in module.named_parameters():
        assert bool(P.grad.any()) == name.endswith("norm.gate"), name
    assert module.get_parameter("cross_attention.output.weight").any(), "what is behind the gate is not zero"
    with torch.no_grad():
        module.get_parameter("cross_attention_norm.gate").fill_(0.3)
    mask = at.picture_mask(torch.from_numpy(MARKS[:, :N]), 2, M // 2)[:, None]
    look = module(X, memory, mask)
    assert look[2].equal(X[2]) and not look[0, 1:].equal(X[0, 1:]) and look[:, 0].equal(X[:, 0])


def test_a_record_holds_the_weights_of_each_gated_layer(rng):
    language = shapes.decoder_only_shapes(11, D, F, 3, N, heads=HEADS)
    sizes = flamingo_shapes(language, gated_cross_attention_shapes(D, F, E, heads=HEADS), [0, 2])
    params, ids = shapes.random_tree(sizes, rng, 0.5), rng.integers(11, size=(B, N))
    memory, mask = rng.standard_normal((B, 2 * M, E)), an.picture_mask(MARKS, 2, M)[:, None]
    record, twins = {}, {}
    Z, _ = an.flamingo(ids, memory, params, HEADS, mask, record=record)
    compare(Z, an.flamingo(ids, memory, params, HEADS, mask)[0], name="recorded or not", atol=1e-12)
    given = [torch.from_numpy(A) for A in (ids, memory, mask)]
    at.flamingo(*given[:2], at.from_numpy(params), HEADS, given[2], record=twins)
    assert list(record["gated"]) == list(twins["gated"]) == ["0", "2"]
    for name, own in record["gated"].items():
        P = own["weights"]
        compare(P.sum(-1), np.broadcast_to(1.0 * mask.any(-1), P.shape[:-1]), name="rows", atol=1e-12)
        assert not P[~np.broadcast_to(mask, P.shape)].any()
        compare(twins["gated"][name]["weights"], P, name="twin", atol=1e-12)


X0, M0, IDS = np.zeros((2, 3, D)), np.zeros((2, 4, E)), np.zeros((2, 3), int)
PARAMS = map_tree(
    lambda A: 0.1 + A, shapes.random_tree(gated_cross_attention_shapes(D, F, E), np.random.default_rng(0))
)
MODEL = shapes.random_tree(
    flamingo_shapes(shapes.decoder_only_shapes(7, D, F, 1, 5), gated_cross_attention_shapes(D, F, E)),
    np.random.default_rng(0),
)


def with_gate(gate):
    joint = PARAMS["cross_attention_norm"] | {"gate": gate}
    return PARAMS | {"cross_attention_norm": joint}


BAD = [
    (
        "picture_mask",
        (np.zeros((2, 3)), 1),
        {},
        r"marks has shape \(2, 3\) and dtype .*float64; expected booleans .* ids ==",
    ),
    ("picture_mask", (np.ones(3, bool), 2), {}, r"a text marks 3 pictures, but pictures = 2; give the features"),
    ("picture_mask", (np.ones(3, bool), 0), {}, r"pictures is 0; it must be an integer >= 1"),
    ("picture_mask", (np.ones(1, bool), 1, 0), {}, r"rows is 0; it must be an integer >= 1"),
    (
        "gated_cross_attention",
        (X0, M0, with_gate(np.zeros(2)), 2),
        {},
        r"gate has shape \(2,\); expected \(1,\).*\(6,\)",
    ),
    ("gated_cross_attention", (X0, M0, with_gate(np.zeros(())), 2), {}, r"gate has shape \(\); expected \(1,\)"),
    ("gated_cross_attention", (X0, M0, with_gate(np.zeros(1, np.float32)), 2), {}, r"gate has dtype (torch\.)?float32"),
    (
        "gated_cross_attention",
        (X0, M0, PARAMS | {"feed_forward_norm": {"norm": PARAMS["feed_forward_norm"]["norm"]}}, 2),
        {},
        r"params of the joint .*gate",
    ),
    ("gated_cross_attention", (X0, M0[:1, :, :4], PARAMS, 2), {}, r"4.*5|5.*4"),
    ("gated_cross_attention", (X0, M0, PARAMS, 4), {}, r"heads"),
    ("gated_cross_attention", (X0, M0, PARAMS, 2, np.ones((3, 5), bool)), {}, r"mask has shape \(3, 5\)"),
    ("flamingo", (X0, M0, MODEL, 2), {}, r"ids has dtype (torch\.)?float64; token ids are integers"),
    ("flamingo", (IDS + 7, M0, MODEL, 2), {}, r"ids\[0, 0\] = 7 is outside the vocabulary of 7 tokens"),
    (
        "flamingo",
        (IDS, M0, MODEL | {"gated": {"1": PARAMS}}, 2),
        {},
        r"params\['gated'\] has the layers '1', which the language model has not; its layers are '0'",
    ),
    ("flamingo", (IDS, M0, {k: v for k, v in MODEL.items() if k != "gated"}, 2), {}, r"gated"),
    ("flamingo", (IDS, M0[:, :0], MODEL, 2), {}, r"empty|key"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("name", "args", "keywords", "message"), BAD)
def test_bad_input_is_named(name, args, keywords, message, world, as_users_call):
    if world is at:
        give = lambda A: map_tree(torch.from_numpy, A) if isinstance(A, dict) else A  # noqa: E731
        args = [torch.from_numpy(A) if isinstance(A, np.ndarray) else give(A) for A in args]
    with pytest.raises(ValueError, match=message) as caught:
        getattr(world, name)(*args, **keywords)
    assert len(str(caught.value).splitlines()) == 1 and not re.search(r"\bnan\b", str(caught.value))


def test_float16_gates_are_summed_in_float32():
    norm = {"gain": np.ones(2, np.float16), "bias": np.zeros(2, np.float16)}
    X = np.tile(np.array([1.0, 3.0], np.float16), (5000, 1))
    params = {"norm": norm, "gate": np.zeros(1, np.float16)}
    _, vjp = an.gated_sublayer(X, lambda Z: (np.ones_like(Z), lambda dF: (dF,)), params)
    compare(vjp(np.ones_like(X))[1]["gate"], [10_000.0], atol=10.0)


def test_shapes_follow_from_the_parts():
    own = shapes.of(partial(an.gated_cross_attention, norm=an.rms_norm, feed_forward=an.gated_feed_forward), D, F, E)
    names = set(flatten(own))
    assert not any("bias" in name for name in names) and "feed_forward.gate.weight" in names
    assert own["cross_attention"]["key"] == {"weight": (E, D)} == own["cross_attention"]["value"]
    assert set(flamingo_shapes(shapes.decoder_only_shapes(7, D, F, 3), own)["gated"]) == {"0", "1", "2"}
