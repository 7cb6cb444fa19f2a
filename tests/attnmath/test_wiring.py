"""New rooms need no edit: an attention, a network and a joint of one's own, in every model of both worlds."""

import importlib
import inspect
import pkgutil
from functools import partial

import numpy as np
import pytest
import torch

import attnmath
import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import check_vjp, compare
from attnmath.tree import flatten, map_tree, unflatten

TOKENS, D, HEADS, F, LAYERS, LENGTH = 11, 12, 3, 7, 2, 9
MOST = 5  # keyword-only options of one function


def public_functions():
    for module in pkgutil.walk_packages(attnmath.__path__, "attnmath."):
        for name, thing in vars(importlib.import_module(module.name)).items():
            own = getattr(thing, "__module__", None) == module.name and not name.startswith("_")
            if own and (inspect.isfunction(thing) or inspect.isclass(thing)):
                yield f"{module.name}.{name}", thing


def keyword_only(thing):
    try:
        return [p.name for p in inspect.signature(thing).parameters.values() if p.kind is p.KEYWORD_ONLY]
    except (TypeError, ValueError):  # a class without a signature of its own
        return []


def test_no_function_has_more_than_five_options():
    counts = {name: keyword_only(thing) for name, thing in public_functions()}
    assert len(counts) > 200 and {"bias", "drop", "scale"} < set(counts["attnmath.numpy.attention.attention"])
    assert {name: options for name, options in counts.items() if len(options) > MOST} == {}


# An attention, a network and a joint that the library does not have, each in both worlds.


def plus_one(Q, K, V, mask=True):
    """Softmax off by one: a key of score 0 and value 0 that every query sees."""
    c = Q.shape[-1] ** -0.5
    S = np.where(mask, c * Q @ K.swapaxes(-1, -2), -np.inf)
    top = np.maximum(S.max(-1, keepdims=True), 0)
    E = np.exp(S - top)
    P = E / (E.sum(-1, keepdims=True) + np.exp(-top))

    def vjp(dO):
        dP = dO @ V.swapaxes(-1, -2)
        dS = P * (dP - (P * dP).sum(-1, keepdims=True))
        return c * dS @ K, c * dS.swapaxes(-1, -2) @ Q, P.swapaxes(-1, -2) @ dO

    return P @ V, vjp


def plus_one_torch(Q, K, V, mask=True):
    S = (Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5).masked_fill(~torch.as_tensor(mask), -torch.inf)
    sink = torch.cat([S, torch.zeros_like(S[..., :1])], -1).softmax(-1)
    return sink[..., :-1] @ V


def bend_shapes(d, f):
    return {"into": (d, f), "back": (f, d), "slope": (f,)}


@shapes.declares(bend_shapes)
def bend(X, params):
    """A network with a learned slope on the negative side, and names of its own for its parameters."""
    H, slope = X @ params["into"], params["slope"]
    A = np.where(H > 0, H, slope * H)

    def vjp(dY):
        dA = dY @ params["back"].T
        rows = [Z.reshape(-1, Z.shape[-1]) for Z in (X, H, A, dA, dY)]
        dH = dA * np.where(H > 0, 1, slope)
        dslope = (rows[3] * np.minimum(rows[1], 0)).sum(0)
        dinto = rows[0].T @ dH.reshape(rows[1].shape)
        return dH @ params["into"].T, {"into": dinto, "back": rows[2].T @ rows[4], "slope": dslope}

    return A @ params["back"], vjp


@shapes.declares(bend_shapes)
def bend_torch(X, params):
    H = X @ params["into"]
    return torch.where(H > 0, H, params["slope"] * H) @ params["back"]


def sandwich_shapes(d):
    return {"before": {"gain": (d,)}, "after": {"gain": (d,)}}


@shapes.declares(sandwich_shapes)
def sandwich(X, f, params):
    """A norm before the sub-layer and one after it, as in Gemma 2."""
    N, before_vjp = an.rms_norm(X, params["before"]["gain"])
    Z, f_vjp = f(N)
    Y, after_vjp = an.rms_norm(Z, params["after"]["gain"])

    def vjp(dY):
        dZ, dafter = after_vjp(dY)
        dN, *rest = f_vjp(dZ)
        dX, dbefore = before_vjp(dN)
        return dY + dX, {"before": {"gain": dbefore}, "after": {"gain": dafter}}, *rest

    return X + Y, vjp


@shapes.declares(sandwich_shapes)
def sandwich_torch(X, f, params):
    return X + at.rms_norm(f(at.rms_norm(X, params["before"]["gain"])), params["after"]["gain"])


PARTS = {
    an: {"attend": plus_one, "feed_forward": bend, "join": sandwich},
    at: {"attend": plus_one_torch, "feed_forward": bend_torch, "join": sandwich_torch},
}
SIZES = {"heads": HEADS, "norm": an.rms_norm, "feed_forward": bend, "join": sandwich}
MODELS = {
    "decoder_only": shapes.decoder_only_shapes(TOKENS, D, F, LAYERS, LENGTH, **SIZES),
    "transformer": shapes.transformer_shapes(TOKENS, D, F, LAYERS, LENGTH, **SIZES),
    "bert": shapes.bert_shapes(TOKENS, LENGTH, 1, D, F, LAYERS, feed_forward=bend, join=sandwich),
}


def run(world, model, params, ids, **options):
    """One of the models with the three new parts; returns the value, or value and vjp."""
    more = {} if model == "bert" else {"norm": world.rms_norm}
    inputs = ids if model == "transformer" else ids[:1]
    return getattr(world, model)(*inputs, params, HEADS, **PARTS[world], **more, **options)


@pytest.fixture
def ids(rng):
    return rng.integers(0, TOKENS, (2, 4, LENGTH))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_model_takes_new_parts(model, ids, rng):
    """Both worlds agree, values and gradients, and by hand with a finite difference."""
    params = shapes.random_tree(MODELS[model], rng, 0.5)
    Y, vjp = run(an, model, params, ids)
    dY = rng.standard_normal(Y.shape)
    leaves = {path: torch.tensor(leaf, requires_grad=True) for path, leaf in flatten(params).items()}
    twin = run(at, model, unflatten(leaves), torch.from_numpy(ids))
    compare(twin, Y, name="twin", atol=1e-11)
    grads = torch.autograd.grad(twin, list(leaves.values()), torch.from_numpy(dY))
    compare(flatten(vjp(dY)), dict(zip(leaves, grads, strict=True)), name="gradient", atol=1e-10)
    check_vjp(lambda p: run(an, model, p, ids), params, rng=rng)


def test_every_new_part_is_used(ids, rng):
    """Without one of them the model computes something else."""
    params = shapes.random_tree(MODELS["decoder_only"], rng, 0.5)
    Y, _ = run(an, "decoder_only", params, ids)
    plain, _ = an.decoder_only(ids[0], params, HEADS, **PARTS[an] | {"attend": an.attention}, norm=an.rms_norm)
    assert np.abs(Y - plain).max() > 1e-2
    for name in ("feed_forward", "join"):
        with pytest.raises(ValueError, match="which nothing reads"):  # the library's own have other parameters
            an.decoder_only(ids[0], params, HEADS, **{k: v for k, v in PARTS[an].items() if k != name})


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_new_parts_are_cached_and_recorded(world, ids, rng):
    params = shapes.random_tree(MODELS["decoder_only"], rng, 0.5)
    params, text = (params, ids) if world is an else (at.from_numpy(params), torch.from_numpy(ids))
    value = (lambda y: y[0]) if world is an else (lambda y: y.detach())
    record, cache, pieces = {}, {}, []
    whole = value(run(world, "decoder_only", params, text, record=record))
    for a, b in ((0, 4), (4, 5), (5, LENGTH)):
        pieces.append(np.asarray(value(run(world, "decoder_only", params, text[..., a:b], cache=cache))))
    compare(np.concatenate(pieces, 1), whole, name="in pieces", atol=1e-11)
    P = np.asarray(record["layers"]["1"]["attention"]["weights"])
    left = 1 - P.sum(-1)  # what the key that is not there receives
    assert P.shape == (4, HEADS, LENGTH, LENGTH) and 0 < left.min() < left.max() < 1
    assert not np.triu(P, 1).any()


@pytest.mark.slow
def test_a_model_of_new_parts_learns_in_both_worlds(ids):
    """Twenty steps of gradient descent: the same losses, which fall."""
    rng = np.random.default_rng(1)
    params = shapes.random_tree(MODELS["decoder_only"], rng, 0.3)
    theirs = map_tree(lambda leaf: torch.tensor(leaf, requires_grad=True), params)
    losses = {"numpy": [], "torch": []}
    for _ in range(20):
        Z, vjp = run(an, "decoder_only", params, ids[..., :-1])
        loss, loss_vjp = an.cross_entropy(Z, ids[0, :, 1:])
        params = map_tree(lambda P, dP: P - 0.3 * dP, params, vjp(loss_vjp(1.0)))
        losses["numpy"].append(float(loss))
        Z = run(at, "decoder_only", theirs, torch.from_numpy(ids[..., :-1]))
        loss = at.cross_entropy(Z, torch.from_numpy(ids[0, :, 1:]))
        loss.backward()
        with torch.no_grad():
            for leaf in flatten(theirs).values():
                leaf -= 0.3 * leaf.grad
                leaf.grad = None
        losses["torch"].append(loss.item())
    compare(losses["numpy"], losses["torch"], name="losses", atol=1e-9)
    assert losses["numpy"][-1] < 0.9 * losses["numpy"][0]


# What a module is built of is what it computes.


def test_modules_honour_what_functions_take():
    X = torch.randn(2, 5, D, generator=torch.Generator().manual_seed(0))
    layer = at.EncoderLayer(D, HEADS, F, key_heads=1)
    assert layer.attention.key.weight.shape == (D, D // HEADS)
    compare(layer(X), at.encoder_layer(X, layer.tree(), HEADS), name="shared keys")
    normed = at.EncoderLayer(D, HEADS, F, attention=partial(at.multi_head_attention, norm=at.rms_norm))
    assert normed.attention.query_norm.gain.shape == (D // HEADS,)
    assert (normed(X) - at.EncoderLayer(D, HEADS, F)(X)).abs().max() > 1e-2
    gated = at.DecoderLayer(D, HEADS, F, feed_forward=at.gated_feed_forward)
    assert set(gated.tree()["feed_forward"]) == {"gate", "up", "down"}
    assert gated(X, X).shape == X.shape


def test_a_models_norm_is_one_thing(as_users_call):
    join = partial(at.sublayer, norm_first=True, norm=at.rms_norm)
    model = at.DecoderOnly(TOKENS, D, HEADS, F, LAYERS, norm=at.rms_norm, join=join)
    tree = model.tree()
    assert set(tree["norm"]) == set(tree["layers"]["1"]["feed_forward_norm"]) == {"gain"}
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    by_hand = at.decoder_only(ids, tree, HEADS, norm=at.rms_norm, join=join)
    compare(model(ids), by_hand, name="RMSNorm throughout")
    with pytest.raises(ValueError, match="norm is True; give the norm at the end as a function"):
        at.DecoderOnly(TOKENS, D, HEADS, F, LAYERS, norm=True)
    with pytest.raises(ValueError, match="relative positions need a table"):
        at.DecoderOnly(TOKENS, D, HEADS, F, LAYERS, relative=partial(at.relative_bias, distance=4))
    placed = at.DecoderOnly(TOKENS, D, HEADS, F, LAYERS, buckets=8)
    assert placed.relative.shape == (8, HEADS) and placed(ids).shape == (1, 5, TOKENS)


def test_layers_may_attend_in_different_ways(rng):
    """A list of cores, one for each layer: a window in the first, all keys in the second."""
    params = shapes.random_tree(shapes.encoder_shapes(D, F, 2, heads=HEADS), rng, 0.5)
    X = rng.standard_normal((3, LENGTH, D))
    cores = [an.windowed(an.attention_fused, 1), an.attention_fused]
    record = {}
    Y, _ = an.encoder(X, params, HEADS, attend=cores, record=record)
    first, second = (record["layers"][i]["attention"]["weights"] for i in "01")
    near = abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))) <= 1
    assert first.shape[-1] == LENGTH and not first[..., ~near].any() and (first[..., near] > 0).all()
    assert (second > 0).all()
    twins = [at.windowed(at.attention_fused, 1), at.attention_fused]
    twin = at.encoder(torch.from_numpy(X), at.from_numpy(params), HEADS, attend=twins)
    compare(twin, Y, name="twin", atol=1e-11)
    check_vjp(lambda X, p: an.encoder(X, p, HEADS, attend=cores), X, params, rng=rng)


def test_a_part_that_does_not_declare_its_parameters_is_named():
    with pytest.raises(ValueError, match="<lambda> does not say which parameters it takes: write @attnmath"):
        at.EncoderLayer(D, HEADS, F, feed_forward=lambda X, params: X)
