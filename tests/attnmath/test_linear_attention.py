"""Linear attention: ONNX's operator, three equal forms, linear work, masks that can be honoured, and whole models."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from attnmath.count import bytes_held
from attnmath.tree import flatten, unflatten
from tests.attnmath.refusals import check_refused

FORMS = ("parallel", "recurrent", "chunked")
LINEAR = [form for form in FORMS if form != "parallel"]


def as_it_is(X):
    return X, lambda dX: dX


def both_ways(world, Q, K, V, dO, **options):
    """Value and cotangents in either world."""
    if world is an:
        O, vjp = an.linear_attention(Q, K, V, **options)
        return O, *vjp(dO)
    leaves = [torch.from_numpy(X).requires_grad_() for X in (Q, K, V)]
    O = at.linear_attention(*leaves, **options)
    return O, *torch.autograd.grad(O, leaves, torch.from_numpy(dO))


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_three_forms_are_equal(world, causal, normalise, rng):
    """To 1e-12 relatively, with chunks that divide, that do not, of one key and of more keys than there are."""
    n, m = 67, 101
    Q, K, V, dO = (rng.standard_normal(s) for s in ((2, n, 5), (2, m, 5), (2, m, 3), (2, n, 3)))
    V = abs(V)  # positive sums, so that every entry can be compared relatively
    run = partial(both_ways, world, Q, K, V, dO, causal=causal, normalise=normalise)
    want = run(form="parallel")
    tries = {"recurrent": run(form="recurrent")} | {f"chunks of {c}": run(chunk=c) for c in (1, 16, 34, 67, 500)}
    for name, got in tries.items():
        compare(got[0], want[0], name=name, atol=0.0, rtol=1e-12)
        compare(got[1:], want[1:], name=f"{name}, gradients", atol=1e-11, rtol=1e-10)


def onnx_linear(query, key, value, past, heads, key_heads, monkeypatch):
    """ONNX's reference operator in float64: its module's float32 is lifted."""
    from onnx.backend.test.case.node.linear_attention import _compute
    from onnx.reference.ops import op_linear_attention

    class Wide:
        float32 = np.float64

        def __getattr__(self, name):
            return getattr(np, name)

    monkeypatch.setattr(op_linear_attention, "np", Wide())
    sizes = {"q_num_heads": heads, "kv_num_heads": key_heads}
    return _compute(query, key, value, past, update_rule="linear", **sizes)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_the_operator_of_onnx(form, key_heads, rng, monkeypatch):
    """Its rule "linear" is the causal sum without normalisation; a state from before is earlier keys."""
    heads, before, t, k, v = 4, 6, 9, 5, 3
    Q = rng.standard_normal((2, t, heads * k))
    K, V = (rng.standard_normal((2, before + t, key_heads * width)) for width in (k, v))
    options = {"causal": True, "chunk": 4, "form": form, "normalise": False}
    ours = an.grouped(partial(an.linear_attention, feature=as_it_is, **options))
    k_heads, v_heads = (an.split_heads(X, key_heads) for X in (K, V))
    O, _ = ours(an.split_heads(Q, heads) / k**0.5, k_heads, v_heads)
    past = k_heads[..., :before, :].swapaxes(-1, -2) @ v_heads[..., :before, :]
    theirs, _ = onnx_linear(Q, K[:, before:], V[:, before:], past, heads, key_heads, monkeypatch)
    compare(an.merge_heads(O), theirs, name="ONNX", atol=1e-10, rtol=1e-10)
    twin = at.grouped(partial(at.linear_attention, feature=lambda X: X, **options))
    heads_of = [torch.from_numpy(X) for X in (an.split_heads(Q, heads) / k**0.5, k_heads, v_heads)]
    compare(at.merge_heads(twin(*heads_of)), theirs, name="ONNX, the twin", atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("case", ["linear", "linear_t1_no_past"])
def test_the_node_cases_of_onnx(case, rng):
    """As its files have them, in float32."""
    from onnx.backend.test.case.node import linear_attention as cases

    seen = []
    expect, cases.expect = cases.expect, lambda node, inputs, outputs, **_: seen.append((inputs, outputs))
    try:
        getattr(cases.LinearAttention, f"export_{case}")()
    finally:
        cases.expect = expect
    ((Q, K, V, *_), (O, state)), heads = seen[0], 4
    Q, K, V = (an.split_heads(X, heads) for X in (Q, K, V))
    ours, _ = an.linear_attention(Q, K, V, causal=True, feature=as_it_is, normalise=False)
    compare(an.merge_heads(ours) / Q.shape[-1] ** 0.5, O, name=case, atol=1e-6)
    compare(K.swapaxes(-1, -2) @ V, state, name="its state", atol=1e-6)


def products(n, form, causal):
    """Floating-point operations in products of PyTorch's forward pass."""
    X = torch.ones(n, 8, dtype=torch.float64)
    with FlopCounterMode(display=False) as counter:
        at.linear_attention(X, X, X, causal=causal, form=form, chunk=16, feature=lambda X: X, normalise=False)
    return counter.get_total_flops()


@pytest.mark.claim("prop-three-forms", "errata-linear-cost")
def test_work_is_counted():
    """4 n f v without a mask; with one, 2 c n (f + v) for what is within chunks besides."""
    for n in (64, 256):
        assert products(n, "parallel", False) == 2 * n * n * (8 + 8)
        assert products(n, "chunked", False) == 4 * n * 8 * 8
        assert products(n, "chunked", True) == 4 * n * 8 * 8 + 2 * 16 * n * (8 + 8)


@pytest.mark.parametrize("form", LINEAR)
def test_memory_grows_with_the_rows(form, rng):
    """No pass holds a state for each row, and none an n x m product."""
    peaks, held = {}, {}
    for n in (256, 1024):
        X = rng.standard_normal((n, 48))
        tracemalloc.start()
        O, vjp = an.linear_attention(X, X, X, causal=True, form=form)
        vjp(O)
        peaks[n], held[n] = tracemalloc.get_traced_memory()[1], bytes_held(vjp)
        tracemalloc.stop()
    states = 1024 * 48 * 49 * 8
    assert peaks[1024] < 0.5 * states and peaks[1024] < 4.2 * peaks[256]
    assert held[1024] < 8 * 1024 * 49 * 8


MASKS = {
    "keys": np.arange(7) % 3 > 0,
    "keys with rows": np.broadcast_to(np.arange(7) % 3 > 0, (4, 7)),
    "causal": an.causal_mask(4, 7),
    "causal and keys": an.causal_mask(4, 7) & (np.arange(7) != 1),
}


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("form", LINEAR)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_masks_that_sums_honour(world, form, mask, causal, rng):
    """What a mask says is what the parallel form does, which looks at every pair."""
    Q, K, V = (rng.standard_normal(s) for s in ((2, 4, 3), (2, 7, 3), (2, 7, 2)))
    mask, both = MASKS[mask], MASKS[mask] & (an.causal_mask(4, 7) | (not causal))
    args = [Q, K, V, mask] if world is an else list(map(torch.from_numpy, (Q, K, V, mask.copy())))
    O = world.linear_attention(*args, causal=causal, form=form, chunk=3)
    want, _ = an.linear_attention(Q, K, V, both, form="parallel")
    compare(O[0] if world is an else O, want, name="masked", atol=1e-13)
    whole, _ = an.linear_attention(Q, K, V, form="parallel")
    assert abs(whole - want).max() > 1e-3


Z = np.zeros
QKV = (np.ones((4, 3)), np.ones((7, 3)), np.ones((7, 2)))
WINDOW = an.window_mask(4, 1, 7)
NEITHER = r"mask is neither a mask of keys \(equal rows\), nor causal, nor both together.*form='parallel'"


def only_rises(X):
    return X.clip(0), lambda dF: dF


BAD = [
    (QKV, {"mask": WINDOW}, NEITHER),
    (QKV, {"mask": WINDOW, "causal": True}, NEITHER),
    (QKV, {"mask": WINDOW, "form": "recurrent"}, NEITHER),
    (QKV, {"mask": an.causal_mask(4, 7)[::-1].copy()}, NEITHER),
    (QKV, {"form": "fast"}, r"form is 'fast'; expected one of 'parallel', 'recurrent', 'chunked'"),
    (QKV, {"chunk": 0}, r"chunk is 0; it must be > 0"),
    (QKV, {"chunk": 2.5}, r"chunk is 2\.5; it must be a whole number of keys"),
    (QKV, {"mask": Z(7)}, r"mask has dtype .*float64; masks are boolean"),
    (QKV, {"mask": Z((3, 7), bool)}, r"mask has shape \(3, 7\), which does not broadcast"),
    (QKV, {"mask": Z(7, bool)}, r"row \(0,\) has no weights: .*Let it see a key.*elu_plus_one.*normalise=False"),
    (QKV, {"mask": np.arange(7) > 5, "causal": True}, r"row \(0,\) has no weights"),
    ((np.ones((7, 3)), np.ones((4, 3)), np.ones((4, 2))), {"causal": True}, r"n = 7 queries and m = 4 keys"),
    ((np.ones((4, 3)), Z((0, 3)), Z((0, 2))), {}, r"K has shape \(0, 3\): its axis -2 is empty"),
    ((np.ones((4, 3)), np.ones((7, 2)), np.ones((7, 2))), {}, r"K has shape \(7, 2\), expected \(\.\.\., m, k\)"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, world, as_users_call):
    check_refused(world, "linear_attention", *BAD[row])


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_features_that_vanish_or_differ_are_named(world, as_users_call):
    Q, K, V = QKV if world is an else map(torch.from_numpy, QKV)
    rises = (lambda X: (X.clip(0), None)) if world is an else torch.relu
    with pytest.raises(ValueError, match=r"row \(0,\) has no weights: its features .* sum to 0"):
        world.linear_attention(-Q, K, V, feature=rises)
    wide = lambda X: X if len(X) == 4 else X[:, :2]  # noqa: E731
    with pytest.raises(ValueError, match=r"feature\(K\) has shape \(7, 2\), expected \(\.\.\., m, f\) with f = 3"):
        world.linear_attention(Q, K, V, feature=(lambda X: (wide(X), None)) if world is an else wide)


def test_small_features_are_not_rounded_away():
    """ELU + 1 as it is usually written rounds e^-40 to 0, and then the output is 0 / 0."""
    Q, K = torch.full((1, 2), 1.0), torch.tensor([[-40.0, -40.0], [-41.0, -41.0]])
    V = torch.tensor([[1.0], [2.0]])
    want = 1 + 1 / (1 + np.e)
    compare(at.linear_attention(Q, K, V), [[want]], atol=1e-6)
    compare(an.linear_attention(*(X.numpy() for X in (Q, K, V)))[0], [[want]], atol=1e-6)
    with pytest.raises(ValueError, match="has no weights"):
        at.linear_attention(Q, K, V, feature=lambda X: torch.nn.functional.elu(X) + 1)


def test_in_a_decoder_of_both_worlds(rng):
    """The model's own causal mask, without an edit; gradients too; and decoded in pieces from a cache."""
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 2, 9, heads=3), rng, 0.5)
    ids = rng.integers(0, 11, (4, 9))
    Y, vjp = an.decoder_only(ids, params, 3, attend=partial(an.linear_attention, chunk=4))
    leaves = {path: torch.tensor(leaf, requires_grad=True) for path, leaf in flatten(params).items()}
    twin = at.decoder_only(torch.from_numpy(ids), unflatten(leaves), 3, attend=partial(at.linear_attention, chunk=5))
    compare(twin, Y, name="twin", atol=1e-11)
    dY = rng.standard_normal(Y.shape)
    grads = torch.autograd.grad(twin, list(leaves.values()), torch.from_numpy(dY))
    compare(flatten(vjp(dY)), dict(zip(leaves, grads, strict=True)), name="gradient", atol=1e-10)
    pieces, cache = [], {}
    for a, b in ((0, 4), (4, 5), (5, 9)):
        pieces.append(an.decoder_only(ids[:, a:b], params, 3, attend=an.linear_attention, cache=cache)[0])
    compare(np.concatenate(pieces, 1), Y, name="in pieces", atol=1e-11)
    softmax, _ = an.decoder_only(ids, params, 3)
    assert abs(softmax - Y).max() > 1e-2


def test_padding_in_an_encoder(rng):
    """A padded text gives the rows of the text alone."""
    params = shapes.random_tree(shapes.encoder_shapes(12, 7, 2, heads=3), rng, 0.5)
    X = rng.standard_normal((2, 6, 12))
    mask = an.padding_mask(np.array([4, 6]))[:, None]
    Y, _ = an.encoder(X, params, 3, mask, attend=an.linear_attention)
    alone, _ = an.encoder(X[:1, :4], params, 3, attend=an.linear_attention)
    compare(Y[:1, :4], alone, name="padded", atol=1e-12)


CALLS = {
    "chunked": partial(at.linear_attention, causal=True, chunk=3),
    "recurrent": partial(at.linear_attention, mask=torch.arange(9) != 3, form="recurrent"),
    "performer": partial(at.performer_attention, directions=torch.ones(6, 4), causal=True, chunk=2),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_value_is_looked_at_while_a_graph_is_recorded(call, rng):
    """The graph of one input is right for another; and tensors without values pass."""
    drawn = [[torch.from_numpy(rng.random((2, n, 4))).float() for n in (5, 9, 9)] for _ in range(2)]
    graph = make_fx(call, tracing_mode="fake", _allow_non_fake_inputs=True)(*drawn[0])
    compare(graph(*drawn[1]), call(*drawn[1]), name="the graph", atol=1e-6)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert call(*map(mode.from_tensor, drawn[0])).shape == (2, 5, 4)


def test_a_mask_that_cannot_be_read_is_refused(rng):
    X = torch.from_numpy(rng.standard_normal((2, 4, 3)))

    def rows(X, mask, **options):
        return at.linear_attention(X, X, X, mask, **options)

    masks = torch.from_numpy(an.causal_mask(4)).expand(2, 4, 4).clone()
    with pytest.raises(ValueError, match=r"mask has a row for each query, .*causal=True and a mask of keys"):
        torch.func.vmap(rows)(X, masks)
    by_pairs = torch.func.vmap(partial(rows, form="parallel"))(X, masks)
    by_keys = torch.func.vmap(partial(rows, causal=True))(X, torch.ones(2, 1, 4, dtype=torch.bool))
    compare(by_keys, by_pairs, name="vmap", atol=1e-13)
