"""The results of the pages on the architecture and on the models built from it."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import check_vjp, compare
from attnmath.tree import add

seeds = st.integers(0, 2**32 - 1)
TOKENS, D, HEADS, F, POSITIONS = 17, 6, 3, 11, 8


def model(rng, **options):
    """An encoder-decoder of two layers each whose scores and gains are lively."""
    tree = shapes.transformer_shapes(TOKENS, D, F, 2, POSITIONS, norm=an.layer_norm, **options)
    return shapes.random_tree(tree, rng, 0.8)


def texts(rng, m, n):
    return rng.integers(TOKENS, size=m), rng.integers(TOKENS, size=n)


@pytest.mark.slow
@pytest.mark.claim("lem-who-sees-whom", "eq:decoder-self", "eq:decoder-cross")
@settings(max_examples=3)
@given(seeds, st.booleans())
def test_no_row_depends_on_later_tokens_and_every_row_on_the_rest(seed, norm_first):
    """What must not move is equal up to rounding, what may move moves."""
    rng = np.random.default_rng(seed)
    params, (source, target) = model(rng), texts(rng, 3, 3)

    def logits(source, target):
        return an.transformer(source, target, params, HEADS, join=partial(an.sublayer, norm_first=norm_first))[0]

    Z, ids = logits(source, target), (torch.from_numpy(source), torch.from_numpy(target))
    twin = at.transformer(*ids, at.from_numpy(params), HEADS, join=partial(at.sublayer, norm_first=norm_first))
    compare(twin, Z, name="twin", atol=1e-10)
    sources, targets = (np.tile(text, (3, 1)) for text in (source, target))
    one_by_one = (1 + rng.integers(TOKENS - 1, size=3)) * np.eye(3, dtype=int)  # text j has another token j
    for j, moved in enumerate(logits(sources, (targets + one_by_one) % TOKENS)):
        compare(moved[:j], Z[:j], name=f"rows before {j}", atol=1e-11)
        assert (np.abs(moved[j:] - Z[j:]).max(-1) > 1e-9).all(), "the row itself and those after it see the token"
    moved = logits((sources + one_by_one) % TOKENS, targets)
    assert (np.abs(moved - Z).max(-1) > 1e-9).all(), "every row sees every source token"
    compare(logits(source, target[:2]), Z[:2], name="a prefix", atol=1e-12)


@pytest.mark.slow
@pytest.mark.claim("lem-bag-of-source")
@settings(max_examples=3)
@given(seeds)
def test_without_positions_the_source_is_a_bag(seed):
    rng = np.random.default_rng(seed)
    params, (source, target) = model(rng, source_vocabulary=TOKENS), texts(rng, 6, 4)
    source = rng.permutation(TOKENS)[:6]  # distinct, so that an order matters if any does
    mask = np.array([True, True, False, True, True, True])
    order = np.roll(np.arange(6), 1 + rng.integers(5))
    bag = params | {"source_embeddings": {"word": params["source_embeddings"]["word"]}}
    Z, _ = an.transformer(source, target, bag, HEADS, mask)
    compare(an.transformer(source[order], target, bag, HEADS, mask[order])[0], Z, name="a bag", atol=1e-10)
    ordered, _ = an.transformer(source, target, params, HEADS, mask)
    assert np.abs(an.transformer(source[order], target, params, HEADS, mask[order])[0] - ordered).max() > 1e-6


@pytest.mark.claim("lem-decoder-is-encoder", "eq:decoder-feed-forward")
@settings(max_examples=3)
@given(seeds, st.booleans())
def test_a_decoder_without_memory_is_an_encoder_with_a_causal_mask(seed, norm_first):
    rng = np.random.default_rng(seed)
    params = shapes.random_tree(shapes.encoder_shapes(D, F, 2), rng, 0.7)
    X, dY = rng.standard_normal((2, 2, 5, D))
    mask = an.causal_mask(5)
    Y, vjp = an.encoder(X, params, HEADS, mask, join=partial(an.sublayer, norm_first=norm_first))
    same, same_vjp = an.decoder(X, None, params, HEADS, mask, join=partial(an.sublayer, norm_first=norm_first))
    compare(same, Y, name="value", atol=1e-13)
    dX, dmemory, dparams = same_vjp(dY)
    assert dmemory is None
    compare((dX, dparams), vjp(dY), name="cotangents", atol=1e-11)
    unmasked, _ = an.encoder(X, params, HEADS, join=partial(an.sublayer, norm_first=norm_first))
    assert np.abs(unmasked - Y).max() > 1e-3, "the mask matters"


@pytest.mark.claim("lem-tied-gradient", "eq:lm-head")
@settings(max_examples=3)
@given(seeds)
def test_a_tied_table_receives_the_sum(seed):
    rng = np.random.default_rng(seed)
    tied = shapes.random_tree(shapes.decoder_only_shapes(TOKENS, D, F, 1, POSITIONS), rng, 0.6)
    untied = tied | {"head": {"weight": tied["embeddings"]["word"].T.copy()}}
    text = rng.integers(TOKENS, size=6)
    wanted = np.eye(TOKENS)[text[1:]]

    def parts(params):
        Z, vjp = an.decoder_only(text[:-1], params, HEADS)
        logP, logP_vjp = an.log_softmax(Z)
        return np.exp(logP), vjp(logP_vjp(-wanted))

    P, one = parts(tied)
    _, two = parts(untied)
    lookup, head = two["embeddings"]["word"], two["head"]["weight"].T
    compare(one["embeddings"]["word"], lookup + head, name="tied", atol=1e-11)
    compare(one["layers"], two["layers"], name="the rest is unchanged", atol=1e-11)
    absent = np.setdiff1d(np.arange(TOKENS), text[:-1])
    assert not lookup[absent].any() and (np.abs(lookup[text[:-1]]).max(-1) > 0).all()
    stack = {"layers": tied["layers"]}
    X, _ = an.token_embedding(text[:-1], tied["embeddings"])
    H, _ = an.decoder(X, None, stack, HEADS, an.causal_mask(5))
    by_formula = np.stack([((P[:, v] - wanted[:, v])[:, None] * H).sum(0) for v in range(TOKENS)])
    compare(head, by_formula, name="the head's part for cross-entropy", atol=1e-11)
    check_vjp(lambda p: an.decoder_only(text[:-1], p, HEADS), tied, rng=rng)


@pytest.mark.slow
def test_relative_bias_of_a_stack_receives_the_sum_over_its_layers(rng):
    """One table for all layers: equal to the layers called one by one, each with the bias, cotangents added."""
    params = shapes.random_tree(shapes.encoder_shapes(D, F, 3), rng, 0.6)
    table = rng.standard_normal((8, HEADS))
    relative = partial(an.relative_bias, distance=5)
    X, dY = rng.standard_normal((2, 2, 7, D))
    Y, vjp = an.encoder(X, params | {"relative": table}, HEADS, relative=relative)
    bias, bias_vjp = an.relative_bias(table, 7, 7, 5)
    Z, vjps = X, []
    for i in "012":
        Z, layer_vjp = an.encoder_layer(Z, params["layers"][i], HEADS, attend=partial(an.attention_fused, bias=bias))
        vjps.append(layer_vjp)
    compare(Y, Z, name="value", atol=1e-12)
    dZ, dbias = dY, []
    for layer_vjp in reversed(vjps):
        dZ, _, d = layer_vjp(dZ)
        dbias.append(d)
    dX, dparams = vjp(dY)
    compare(dX, dZ, name="dX", atol=1e-11)
    compare(dparams["relative"], bias_vjp(add(*dbias)), name="dtable", atol=1e-11)
    check_vjp(lambda *a: an.encoder(*a, HEADS, relative=relative), X, params | {"relative": table}, rng=rng)


def test_the_layer_holds_as_many_parameters_as_the_formula_says():
    from attnmath.tree import flatten

    def size(tree):
        return sum(int(np.prod(shape)) for shape in flatten(tree).values())

    for d in (3, 8, 512):
        assert size(shapes.encoder_layer_shapes(d, 4 * d)) == 12 * d**2 + 13 * d
        assert size(shapes.decoder_layer_shapes(d, 4 * d)) == 16 * d**2 + 19 * d
