"""Memories that decay and correct: references that nobody here wrote, equal forms, work and memory, bad input."""

from contextlib import redirect_stdout
from functools import partial
from io import StringIO

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from attnmath.count import bytes_held
from tests.attnmath.cases.fast_weights import written_out
from tests.attnmath.test_references import Wide

H, LENGTH, K, V = 2, 21, 5, 3
FORMS = ("fast_weights", "fast_weights_recurrent")
WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def problem(rng, *gates, lead=(2, H), n=LENGTH, k=K, v=V, low=0.3):
    """Queries, keys of length 1, values, and the named gates."""
    Q, keys, values = (rng.standard_normal((*lead, n, width)) for width in (k, k, v))
    drawn = {
        "decay": rng.uniform(low, 1, (*lead, n, 1)),
        "decays": rng.uniform(low, 1, (*lead, n, k)),
        "beta": rng.uniform(0.1, 1, (*lead, n, 1)),
        "state": rng.standard_normal((*lead, k, v)),
    }
    options = {"decay" if name == "decays" else name: drawn[name] for name in gates}
    return (Q, keys / np.linalg.norm(keys, axis=-1, keepdims=True), values), options


def torch_of(arrays):
    if isinstance(arrays, dict):
        return {name: torch.tensor(X, requires_grad=True) for name, X in arrays.items()}
    return [torch.tensor(X, requires_grad=True) for X in arrays]


GATES = [(), ("decay",), ("decays",), ("beta",), ("decay", "beta"), ("decays", "beta", "state")]


# Qwen3-Next's gated delta rule, value and gradients.


@pytest.fixture(params=["in float64", "as it is"])
def qwen(request, monkeypatch):
    """The module, and how near to it we come: upstream computes in float32 whatever it is given."""
    from transformers.models.qwen3_next import modeling_qwen3_next as module

    if request.param == "in float64":
        monkeypatch.setattr(module, "torch", Wide("torch"))
    return module, 1e-10 if request.param == "in float64" else 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("theirs", ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"])
def test_gated_delta_rule_is_that_of_qwen3_next(theirs, qwen, rng):
    """Outputs, last memory and all gradients; upstream's chunks have 8 keys and ours 5."""
    module, near = qwen
    (Q, keys, values), gates = problem(rng, "decay", "beta", "state")
    leaves, options = torch_of((Q, keys, values)), torch_of(gates)
    inputs = [X.transpose(1, 2) for X in leaves]  # (b, n, h, k)
    g, b = (options[name][..., 0].transpose(1, 2) for name in ("decay", "beta"))
    O, S = getattr(module, theirs)(
        *inputs, g=g.log(), beta=b, chunk_size=8, initial_state=options["state"], output_final_state=True
    )
    O = O.transpose(1, 2)
    dO = rng.standard_normal(O.shape)
    all_leaves = [*leaves, *options.values()]
    want = torch.autograd.grad(O, all_leaves, torch.from_numpy(dO).to(O.dtype), retain_graph=True)
    for form in FORMS:
        ours, vjp = getattr(an, form)(Q, keys, values, **gates, chunk=5, scale=None)
        twin = getattr(at, form)(*leaves, **options, chunk=5, scale=None)
        compare(ours, O.double(), name=form, atol=near, rtol=near)
        compare(twin, O.double(), name=f"torch's {form}", atol=near, rtol=near)
        compare(vjp(dO), want, name=f"gradients of {form}", atol=10 * near, rtol=10 * near)
    compare(an.fast_weights_state(keys, values, **gates, chunk=5)[0], S.double(), name="memory", atol=near, rtol=near)


# ONNX's operator LinearAttention: its node cases.


def onnx_cases():
    """What each of the operator's cases feeds and expects, with its attributes."""
    from onnx.backend.test.case.node import linear_attention

    found = []

    def note(operator, inputs, outputs, name, **_):
        attributes = {a.name: a.s.decode() if a.s else a.i if a.i else a.f for a in operator.attribute}
        left, rest = list(inputs), {}
        for slot, given in zip(("query", "key", "value", "past_state", "decay", "beta"), operator.input, strict=False):
            if given:
                rest[slot] = left.pop(0)
        assert not left
        found.append((name, rest, attributes, outputs))

    original = linear_attention.expect
    linear_attention.expect = note
    try:
        with redirect_stdout(StringIO()):
            np.random.seed(0)  # noqa: NPY002
            for member in vars(linear_attention.LinearAttention).values():
                if isinstance(member, staticmethod):
                    member.__func__()
    finally:
        linear_attention.expect = original
    return found


def unpack(X, heads):
    return X.reshape(*X.shape[:2], heads, -1).swapaxes(1, 2).astype(np.float64)


@pytest.mark.slow
def test_node_cases_of_onnx():
    """Every case of the operator, in both worlds and both forms: outputs and the memory after the last key."""
    cases, rules = onnx_cases(), set()
    for name, given, attributes, (output, present) in cases:
        groups, heads = attributes["kv_num_heads"], attributes["q_num_heads"]
        rules.add(attributes.get("update_rule", "gated_delta"))
        Q, keys, values = (
            unpack(given[part], count) for part, count in (("query", heads), ("key", groups), ("value", groups))
        )
        options = {}
        if "decay" in given:
            options["decay"] = np.exp(unpack(given["decay"], groups))
        if "beta" in given:
            b = given["beta"].astype(np.float64)
            options["beta"] = np.broadcast_to(b, (*b.shape[:2], groups)).swapaxes(1, 2)[..., None]
        if "past_state" in given:
            options["state"] = given["past_state"].astype(np.float64)
        near = 2e-3 if output.dtype == np.float16 else 2e-6
        S, _ = an.fast_weights_state(keys, values, **options)
        compare(S, present.astype(np.float64), name=f"{name}: memory", atol=near, rtol=near)
        times = heads // groups
        shared = [an.share_heads(X, times) for X in (keys, values)]
        options = {key: an.share_heads(X, times) for key, X in options.items()}
        scale = attributes.get("scale") or None
        for form in FORMS:
            O, _ = getattr(an, form)(Q, *shared, **options, chunk=3, scale=scale)
            twin = getattr(at, form)(
                *map(torch.from_numpy, (Q, *shared)),
                **{key: torch.from_numpy(X.copy()) for key, X in options.items()},
                chunk=3,
                scale=scale,
            )
            packed = O.swapaxes(1, 2).reshape(output.shape)
            compare(packed, output.astype(np.float64), name=f"{name}, {form}", atol=near, rtol=near)
            compare(twin, O, name=f"{name}, {form} of torch", atol=1e-12, rtol=1e-10)
    assert len(cases) >= 14 and rules == {"linear", "gated", "delta", "gated_delta"}


# The forms are equal.


def relative(got, want):
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize("gates", GATES, ids="-".join)
def test_forms_are_equal_to_rounding(gates, rng):
    """Key by key, in chunks that divide and that do not, and in one piece: 1e-12 of the largest entry."""
    inputs, options = problem(rng, *gates, n=130, k=16, v=16, low=0.8)
    O, vjp = an.fast_weights_recurrent(*inputs, **options, chunk=12)
    dO = rng.standard_normal(O.shape)
    cotangents = vjp(dO)
    assert len(cotangents) == 3 + len(options)
    for chunk in (1, 13, 64, 130, 1000):
        O_chunk, vjp_chunk = an.fast_weights(*inputs, **options, chunk=chunk)
        assert relative(O_chunk, O) < 1e-12, chunk
        for got, want in zip(vjp_chunk(dO), cotangents, strict=True):
            assert relative(got, want) < 1e-11, chunk
    twin = at.fast_weights(*map(torch.from_numpy, inputs), **{k: torch.from_numpy(X) for k, X in options.items()})
    assert relative(twin.numpy(), O) < 1e-12


def test_gates_that_are_shut_and_open(rng):
    """Decays of exactly 0 and 1, steps of 0 and 2: values and gradients of both forms, and of autograd."""
    (Q, keys, values), _ = problem(rng)
    for width in (1, K):
        decay = rng.choice([0.0, 0.5, 1.0], (2, H, LENGTH, width))
        beta = rng.choice([0.0, 1.0, 2.0], (2, H, LENGTH, 1))
        leaves = torch_of((Q, keys, values, decay, beta))
        want = written_out(*leaves[:3], decay=leaves[3], beta=leaves[4])
        dO = rng.standard_normal(want.shape)
        gradients = torch.autograd.grad(want, leaves, torch.from_numpy(dO))
        for form in FORMS:
            O, vjp = getattr(an, form)(Q, keys, values, decay=decay, beta=beta, chunk=8)
            compare(O, want, name=form, atol=1e-11)
            compare(vjp(dO), gradients, name=f"gradients of {form}", atol=1e-10)
            twin = getattr(at, form)(*leaves[:3], decay=leaves[3], beta=leaves[4], chunk=8)
            compare(twin, want, name=f"torch's {form}", atol=1e-11)
            theirs = torch.autograd.grad(twin, leaves, torch.from_numpy(dO))
            compare(theirs, gradients, name=f"gradients of torch's {form}", atol=1e-10)


def test_a_text_in_pieces_is_the_text(rng):
    """Writing on from a memory gives the rows of the whole, whatever the pieces; a decoder keeps nothing else."""
    (Q, keys, values), options = problem(rng, "decays", "beta")
    O, _ = an.fast_weights(Q, keys, values, **options)
    state, pieces = None, []
    for a, b in ((0, 9), (9, 10), (10, 11), (11, LENGTH)):
        part = [X[..., a:b, :] for X in (Q, keys, values)]
        gates = {name: X[..., a:b, :] for name, X in options.items()} | {"state": state}
        pieces.append(an.fast_weights(*part, **gates)[0])
        state, _ = an.fast_weights_state(*part[1:], **gates)
    compare(np.concatenate(pieces, -2), O, name="in pieces", atol=1e-12)
    last, _ = an.fast_weights(Q[..., -4:, :], keys, values, **options)
    compare(last, O[..., -4:, :], name="the last four queries", atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_hidden_key_is_as_if_it_were_not_there(form, rng):
    (Q, keys, values), options = problem(rng, "decays", "beta", lead=(H,))
    kept = rng.random(LENGTH) < 0.6
    kept[-1] = True
    masks = np.tri(LENGTH, dtype=bool) & kept, np.broadcast_to(kept, (1, LENGTH))
    without, _ = getattr(an, form)(
        *(X[..., kept, :] for X in (Q, keys, values)), **{name: X[..., kept, :] for name, X in options.items()}
    )
    for mask in masks:
        O, vjp = getattr(an, form)(Q, keys, values, mask, **options, chunk=4)
        compare(O[..., kept, :], without, name="the others", atol=1e-12)
        dK, dV, ddecay, dbeta = vjp(rng.standard_normal(O.shape))[1:]
        for dX in (dK, dV, ddecay, dbeta):
            assert not dX[..., ~kept, :].any() and np.abs(dX[..., kept, :]).max() > 0.1


# In models, and what it takes.


@pytest.mark.parametrize("form", FORMS)
def test_a_decoder_takes_it_without_an_edit(form, rng):
    """Retention in every layer, both worlds; the model writes in pieces with a cache as it writes in one."""
    decays = an.retention_decays(3)
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 2, 9), rng, 0.5)
    ids = rng.integers(0, 11, (4, 9))
    Y, vjp = an.decoder_only(ids, params, 3, attend=partial(getattr(an, form), decay=decays, chunk=4))
    twin = partial(getattr(at, form), decay=at.retention_decays(3), chunk=4)
    Z = at.decoder_only(torch.from_numpy(ids), at.from_numpy(params), 3, attend=twin)
    compare(Z, Y, name="twin", atol=1e-11)
    moved = ids.copy()
    moved[:, -1] = (ids[:, -1] + 1) % 11
    later, _ = an.decoder_only(moved, params, 3, attend=partial(getattr(an, form), decay=decays, chunk=4))
    compare(later[:, :-1], Y[:, :-1], name="earlier rows", atol=1e-12)
    assert np.abs(later[:, -1] - Y[:, -1]).max() > 1e-3 and vjp(Y)["embeddings"]["word"].any()


def test_what_is_kept_for_the_gradient_grows_with_the_text_alone(rng):
    """Beside the arrays that were given, one memory a chunk: twice the text, twice the bytes, and no square."""
    held = []
    for n in (512, 1024, 2048):
        inputs, options = problem(rng, "decay", "beta", lead=(1,), n=n, k=16, v=16)
        held.append(bytes_held(an.fast_weights(*inputs, **options)[1]))
        assert held[-1] < 8 * n * (16 * 5 + 10), "inputs, outputs, and n / 64 memories of 16 x 16"
    assert abs(held[1] / held[0] - 2) < 0.05 and abs(held[2] / held[1] - 2) < 0.05


@pytest.mark.parametrize("form", FORMS)
def test_gradients_sample_by_sample(form, rng):
    """vmap of grad is the loop over the samples, although no gate can be looked at; and meta tensors have shapes."""
    (Q, keys, values), gates = problem(rng, "decays", "beta", lead=(3,), n=9)
    arrays = [torch.from_numpy(array) for array in (Q, keys, values, gates["decay"], gates["beta"])]
    mask = torch.ones(9, 9, dtype=torch.bool).tril()

    def loss(Q, K, V, decay, beta):
        O = getattr(at, form)(Q, K, V, mask, decay=decay, beta=beta, chunk=4)
        return (O * torch.linspace(0.3, 1.7, O.numel()).reshape(O.shape)).sum()

    gradient = torch.func.grad(loss, argnums=(0, 1, 2, 3, 4))
    samples = torch.func.vmap(gradient)(*arrays)
    for i in range(3):
        compare(tuple(X[i] for X in samples), gradient(*(X[i] for X in arrays)), name=f"sample {i}", atol=1e-10)
    meta = [X.to("meta") for X in arrays]
    assert getattr(at, form)(*meta[:3], decay=meta[3], beta=meta[4]).shape == (3, 9, V)


# Bad input: one line that names the argument and the cure, in both worlds.

X = np.ones
HALF = np.full((3, 1), 0.5)
SOME = np.tri(3, dtype=bool)
SOME[1, 0] = False
NAN = np.array([[0.5], [np.nan], [0.5]])
BAD = [
    ({"chunk": 0}, r"chunk is 0; it must be an integer >= 1"),
    ({"chunk": 2.5}, r"chunk is 2\.5; it must be an integer >= 1"),
    ({"decay": -0.1 * HALF}, r"decay holds -0\.05; it must be >= 0 and <= 1: .* sigmoid .* exponential of a log-decay"),
    ({"decay": 3 * HALF}, r"decay holds 1\.5; it must be >= 0 and <= 1"),
    ({"decay": NAN}, r"decay holds nan; it must be >= 0 and <= 1"),
    (
        {"decay": X((3, 2))},
        r"decay has shape \(3, 2\), which does not broadcast to \(3, 1\) or \(3, 4\), one row a key",
    ),
    ({"decay": X((2, 3, 1))}, r"decay has shape \(2, 3, 1\), which does not broadcast to"),
    ({"decay": X((3, 1), np.float32)}, r"decay has dtype (torch\.)?float32 but K has (torch\.)?float64"),
    ({"decay": 0.5}, r"decay is a float; an array \(or tensor\) of floats is expected"),
    ({"beta": 5 * HALF}, r"beta holds 2\.5; it must be >= 0 and <= 2: .* sigmoid"),
    ({"beta": -HALF}, r"beta holds -0\.5; it must be >= 0"),
    ({"beta": NAN}, r"beta holds nan; it must be >= 0"),
    ({"beta": X((3, 4))}, r"beta has shape \(3, 4\), which does not broadcast to \(3, 1\), one row a key"),
    ({"beta": X((3, 1), int)}, r"beta has dtype (torch\.)?int64; floats are expected"),
    ({"state": X((2, 4))}, r"state has shape \(2, 4\), which does not broadcast to \(4, 2\), \(…, k, v\)"),
    ({"mask": SOME}, r"mask hides a key from some of the queries that come after it: .* Pass True or a causal mask"),
    ({"mask": X((3, 3))}, r"mask has dtype (torch\.)?float64; masks are boolean"),
]


@WORLDS
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("options", "message"), BAD, ids=[f"{i}-{next(iter(o))}" for i, (o, _) in enumerate(BAD)])
def test_bad_input_is_named_in_one_line(world, form, options, message, as_users_call):
    inputs = [X((3, 4)), X((3, 4)), X((3, 2))]
    if world is at:
        inputs = [torch.from_numpy(array) for array in inputs]
        options = {k: torch.from_numpy(o) if isinstance(o, np.ndarray) else o for k, o in options.items()}
    with pytest.raises(ValueError, match=message) as error:
        getattr(world, form)(*inputs, **options)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@WORLDS
def test_more_queries_than_keys_are_refused(world):
    inputs = [X((4, 2)), X((3, 2)), X((3, 2))]
    inputs = inputs if world is an else [torch.from_numpy(array) for array in inputs]
    with pytest.raises(ValueError, match="n = 4 queries and m = 3 keys"):
        world.fast_weights(*inputs)
    with pytest.raises(ValueError, match="h is 0; it must be an integer >= 1"):
        world.retention_decays(0)
