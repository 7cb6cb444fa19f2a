"""A closed gate changes nothing and can open; a text without pictures is read as before; who sees which picture."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from attnmath.flamingo_shapes import gated_cross_attention_shapes
from attnmath.tree import flatten, map_tree

seeds = st.integers(0, 2**32 - 1)
D, E, F, HEADS, N, M, WORDS = 6, 5, 11, 2, 7, 4, 13
NORMS = ("cross_attention_norm", "feed_forward_norm")


def layer(rng, gate=None, gates=1):
    """Random parameters of a gated layer, with both gates set to a number if one is given."""
    params = shapes.random_tree(gated_cross_attention_shapes(D, F, E, heads=HEADS, gates=gates), rng, 0.5)
    for name in NORMS if gate is not None else ():
        params[name]["gate"] = np.full(gates, float(gate))
    return params


def model(rng, gate=None):
    language = shapes.decoder_only_shapes(WORDS, D, F, 2, N, heads=HEADS) | {"norm": shapes.norm_shapes(D)}
    params = shapes.random_tree(language, rng, 0.5)
    return params | {"gated": {name: layer(rng, gate) for name in params["layers"]}}


def language_alone(params):
    return {name: part for name, part in params.items() if name != "gated"}


def decoder_only(world, ids, params, **options):
    join = partial(world.sublayer, norm_first=True)
    return world.decoder_only(ids, language_alone(params), HEADS, join=join, **options)


@pytest.mark.claim("thm-closed-gate", "eq:gated-sublayer", "eq:gated-sublayer-vjp")
@settings(max_examples=15)
@given(seeds, st.sampled_from([1, D]))
def test_a_closed_gate_passes_rows_and_cotangents_bit_for_bit_and_only_the_gate_learns(seed, gates):
    rng = np.random.default_rng(seed)
    params, X, memory = layer(rng, 0.0, gates), 10 * rng.standard_normal((3, N, D)), rng.standard_normal((3, M, E))
    Y, vjp = an.gated_cross_attention(X, memory, params, HEADS)
    assert np.array_equal(Y, X), "every number is the same"
    dY = rng.standard_normal(X.shape)
    dX, dmemory, dparams = vjp(dY)
    assert np.array_equal(dX, dY) and not dmemory.any()
    for name, gradient in flatten(dparams).items():
        assert gradient.any() == name.endswith("norm.gate"), name
    Z, _ = an.layer_norm(X, *params["cross_attention_norm"]["norm"].values())
    seen, _ = an.multi_head_attention(Z, memory, memory, params["cross_attention"], HEADS)
    want = (dY * seen).sum((0, 1)) if gates == D else [(dY * seen).sum()]
    compare(dparams["cross_attention_norm"]["gate"], want, name="the gate's gradient", atol=1e-10)


@pytest.mark.claim("thm-closed-gate")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_model_with_closed_gates_is_the_language_model_bit_for_bit(dtype, rng):
    params, ids = at.from_numpy(model(rng, 0.0), dtype=dtype), torch.from_numpy(rng.integers(WORDS, size=(3, N)))
    memory = torch.from_numpy(100 * rng.standard_normal((3, M, E))).to(dtype)
    alone = decoder_only(at, ids, params)
    assert at.flamingo(ids, memory, params, HEADS).equal(alone)
    params["gated"]["1"]["cross_attention_norm"]["gate"] += 0.5
    assert not at.flamingo(ids, memory, params, HEADS).equal(alone), "an open gate lets something through"


@pytest.mark.claim("thm-closed-gate")
def test_with_the_output_closed_too_nothing_can_ever_open(rng):
    params, ids = model(rng, 0.0), rng.integers(WORDS, size=(3, N))
    memory = rng.standard_normal((3, M, E))
    for own in params["gated"].values():
        for part, name in (("cross_attention", "output"), ("feed_forward", "down")):
            own[part][name] = map_tree(np.zeros_like, own[part][name])
    Z, vjp = an.flamingo(ids, memory, params, HEADS)
    dmemory, dparams = vjp(rng.standard_normal(Z.shape))
    assert not dmemory.any() and not any(X.any() for X in flatten(dparams["gated"]).values())
    leaves = map_tree(torch.Tensor.requires_grad_, at.from_numpy(params))
    flat = list(flatten(leaves["gated"]).values())
    optimiser = torch.optim.Adam(flat, 0.1)
    before = [X.detach().clone() for X in flat]
    for _ in range(3):
        loss = at.cross_entropy(at.flamingo(torch.from_numpy(ids), torch.from_numpy(memory), leaves, HEADS), ids_(ids))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert all(a.equal(b) for a, b in zip(before, flat, strict=True)), "three steps of Adam changed nothing"
    params["gated"]["0"]["cross_attention"]["output"]["weight"][0, 0] = 1e-3
    _, vjp = an.flamingo(ids, memory, params, HEADS)
    dgate = vjp(rng.standard_normal(Z.shape))[1]["gated"]["0"]["cross_attention_norm"]["gate"]
    assert dgate.any(), "one weight is enough to open the gate"
    params["gated"]["1"]["feed_forward"]["down"]["bias"][0] = 1e-3
    dgate = an.flamingo(ids, memory, params, HEADS)[1](rng.standard_normal(Z.shape))[1]["gated"]["1"]
    assert dgate["feed_forward_norm"]["gate"].any(), "and so is one number of the bias"


def ids_(ids):
    return torch.from_numpy(np.roll(ids, -1, -1))


@pytest.mark.claim("thm-closed-gate")
def test_a_closed_gate_opens_in_two_steps(rng):
    """First the gates move, then the rest; plain gradient descent."""
    params, ids = at.from_numpy(model(rng, 0.0)), torch.from_numpy(rng.integers(WORDS, size=(3, N)))
    memory = torch.from_numpy(rng.standard_normal((3, M, E)))
    leaves = map_tree(torch.Tensor.requires_grad_, params)["gated"]
    flat, moved = flatten(leaves), []
    for _ in range(2):
        loss = at.cross_entropy(at.flamingo(ids, memory, params, HEADS), ids.roll(-1, -1))
        gradients = torch.autograd.grad(loss, list(flat.values()))
        moved.append({name for name, g in zip(flat, gradients, strict=True) if g.any()})
        with torch.no_grad():
            for X, g in zip(flat.values(), gradients, strict=True):
                X -= 0.5 * g
    assert moved[0] == {name for name in flat if name.endswith("norm.gate")}
    assert moved[1] == set(flat)


@pytest.mark.claim("eq:gated-sublayer-vjp")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gate_that_is_wide_open_never_learns(dtype, rng):
    params = map_tree(lambda X: X.astype(dtype), layer(rng, 20.0))
    X, memory = (rng.standard_normal(shape).astype(dtype) for shape in ((3, N, D), (3, M, E)))
    Y, vjp = an.gated_cross_attention(X, memory, params, HEADS)
    dparams = vjp(rng.standard_normal(Y.shape).astype(dtype))[2]
    assert all(not dparams[name]["gate"].any() for name in NORMS)
    Z, _ = an.layer_norm(X, *params["cross_attention_norm"]["norm"].values())
    A = X + an.multi_head_attention(Z, memory, memory, params["cross_attention"], HEADS)[0]
    Z, _ = an.layer_norm(A, *params["feed_forward_norm"]["norm"].values())
    compare(Y, A + an.feed_forward(Z, params["feed_forward"])[0], name="a plain layer", atol=0.0)


@pytest.mark.claim("prop-language-kept", "eq:flamingo")
def test_without_pictures_the_language_model_is_what_it_was_whatever_the_gates_are(rng):
    params, ids = model(rng), rng.integers(WORDS, size=(3, N))
    for text, world in ((ids, an), (torch.from_numpy(ids), at)):
        own = params if world is an else at.from_numpy(params)
        Z, want = world.flamingo(text, None, own, HEADS), decoder_only(world, text, own)
        Z, want = (Z[0], want[0]) if world is an else (Z.numpy(), want.numpy())
        assert np.array_equal(Z, want)
    dparams = an.flamingo(ids, None, params, HEADS)[1](rng.standard_normal((3, N, WORDS)))
    assert dparams[0] is None and "gated" not in dparams[1]
    memory = rng.standard_normal((3, M, E))
    assert np.abs(an.flamingo(ids, memory, params, HEADS)[0] - Z).max() > 0.1, "with a picture it is another"


@pytest.mark.claim("eq:picture-mask")
@settings(max_examples=20)
@given(seeds, st.integers(1, 9), st.integers(1, 3), st.booleans())
def test_a_word_sees_the_last_picture_or_all_before_it(seed, n, rows, last):
    marks = np.random.default_rng(seed).random((2, n)) < 0.4
    pictures = max(1, int(marks.sum(-1).max()))
    want = np.zeros((2, n, pictures * rows), bool)
    for b in range(2):
        where = np.flatnonzero(marks[b])
        for i in range(n):
            so_far = [j for j, place in enumerate(where) if place <= i]
            for j in so_far[-1:] if last else so_far:
                want[b, i, j * rows : (j + 1) * rows] = True
    compare(an.picture_mask(marks, pictures, rows, last=last), want, atol=0.0)
    twin = at.picture_mask(torch.from_numpy(marks), pictures, rows, last=last)
    compare(twin.numpy(), want, atol=0.0)


@pytest.mark.claim("prop-last-picture", "eq:gated-cross-attention")
def test_a_gated_layer_lets_a_word_see_its_last_picture_and_no_other(rng):
    marks = np.array([[False, True, False, False, True, False, False]])
    params, X, memory = layer(rng), rng.standard_normal((1, N, D)), rng.standard_normal((1, 2 * M, E))
    look = lambda memory, last: an.gated_cross_attention(  # noqa: E731
        X, memory, params, HEADS, an.picture_mask(marks, 2, M, last=last)[:, None]
    )[0]
    other = memory.copy()
    other[:, :M] += rng.standard_normal((1, M, E))  # the first picture is another
    for last in (True, False):
        changed = np.abs(look(memory, last) - look(other, last)).max(-1)[0] > 1e-6
        assert changed.tolist() == [False, True, True, True, *(3 * [not last])]
    before = {"cross_attention_norm": params["cross_attention_norm"] | {"gate": np.zeros(1)}}
    compare(look(memory, True)[:, 0], an.gated_cross_attention(X, memory, params | before, HEADS)[0][:, 0], atol=1e-12)


@pytest.mark.claim("prop-last-picture")
def test_what_went_before_reaches_a_later_caption_through_the_words(rng):
    params, ids = model(rng), rng.integers(WORDS, size=(1, N))
    marks = np.array([[True, False, False, False, True, False, False]])
    memory = rng.standard_normal((1, 2 * M, E))
    other = memory.copy()
    other[:, :M] += rng.standard_normal((1, M, E))
    mask = an.picture_mask(marks, 2, M)[:, None]
    Z, W = (an.flamingo(ids, given, params, HEADS, mask)[0] for given in (memory, other))
    assert (np.abs(Z - W).max(-1) > 1e-4).all(), "the second layer's words have read words that saw the first picture"
    one = params | {"gated": {"1": params["gated"]["1"]}}  # only in front of the last layer
    one = one | {"layers": {"0": params["layers"]["0"], "1": params["layers"]["1"]}}
    silent = map_tree(np.zeros_like, one["layers"]["1"]["attention"])
    one["layers"]["1"] = one["layers"]["1"] | {"attention": silent}
    Z, W = (an.flamingo(ids, given, one, HEADS, mask)[0] for given in (memory, other))
    changed = np.abs(Z - W).max(-1)[0] > 1e-6
    assert changed.tolist() == [True] * 4 + [False] * 3, "without words that read words it does not"


@pytest.mark.claim("lem-clock")
@settings(max_examples=15)
@given(seeds)
def test_rows_that_carry_their_time_align_by_the_difference_of_times(seed):
    rng = np.random.default_rng(seed)
    pairs = 5
    a, frequencies = rng.standard_normal(2 * pairs), rng.uniform(1e-4, 1e-2, pairs)
    t, s = rng.integers(0, 5000, 4), rng.integers(0, 5000, 9)
    clock = lambda places: an.rotary(  # noqa: E731
        np.tile(a, (len(places), 1)), places=places, frequencies=frequencies
    )[0]
    S = clock(t) @ clock(s).T
    lengths = a[::2] ** 2 + a[1::2] ** 2
    want = (lengths * np.cos(frequencies * (t[:, None] - s)[..., None])).sum(-1)
    compare(S, want, name="the clock", atol=1e-9)
    compare(clock(t + 777) @ clock(s + 777).T, S, name="a film that begins later", atol=1e-9)
    assert S.max() <= lengths.sum() + 1e-9
    compare(np.diagonal(clock(t) @ clock(t).T), np.full(4, lengths.sum()), name="equal times", atol=1e-9)
