"""Attention equals ONNX's operator Attention in its node cases: bounded scores, windows, groups of heads, caches."""

from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import layouts
from attnmath.check import compare

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
AFTER_SOFTMAX = 3  # the value of `qk_matmul_output_mode` with which the operator also hands out the weights


@pytest.fixture(scope="module")
def cases():
    """The node cases of the operator: name -> (options, inputs by their slots, outputs by their slots)."""
    from onnx.backend.test.case.node import attention
    from onnx.helper import get_attribute_value

    found = {}

    def note(node, inputs, outputs, name, **_):
        slots = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
        given, left = {}, list(inputs)
        for slot, filled in zip(slots, node.input, strict=False):
            if filled:
                given[slot] = left.pop(0)
        wanted = dict(zip((slot for slot in node.output if slot), outputs, strict=True))
        assert not left
        found[name] = {a.name: get_attribute_value(a) for a in node.attribute}, given, wanted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "expect", note)
        np.random.seed(2)  # noqa: NPY002  (its cases are drawn by NumPy's global generator)
        for member in vars(attention.Attention).values():
            if isinstance(member, staticmethod):
                member.__func__()
    return found


def apart(X, heads):
    """(b, n, h k) to (b, h, n, k)."""
    return X.reshape(*X.shape[:2], heads, -1).swapaxes(1, 2)


def seen(options, n, m, first):
    """Which of m keys the queries at positions first, first + 1, … may see, from the library's own layouts."""
    left, right = options.get("left_window_size", -1), options.get("right_window_size", -1)
    i, j = np.arange(first, first + n)[:, None], np.arange(m)
    square = max(n, m) + abs(first)
    before, behind = (layouts.window(square if w < 0 else w, causal=True) for w in (left, right))
    allowed = before.pairs(i, j, square, square) | behind.pairs(j, i, square, square)
    if options.get("is_causal"):
        allowed &= layouts.causal().pairs(i, j, square, square)
    return allowed


def problem(options, given):
    """Queries, keys and values of as many heads, the mask, and the bias or None."""
    Q, K, V = (given[slot] for slot in "QKV")
    if Q.ndim == 3:
        groups = options["kv_num_heads"]
        Q, K, V = apart(Q, options["q_num_heads"]), apart(K, groups), apart(V, groups)
    first = 0
    if "past_key" in given:
        first = given["past_key"].shape[2]
        K, V = (np.concatenate((given[f"past_{part}"], X), 2) for part, X in (("key", K), ("value", V)))
    present, (n, m) = (K, V), (Q.shape[2], K.shape[2])
    mask = np.array(seen(options, n, m, first))
    if "nonpad_kv_seqlen" in given:
        lengths = given["nonpad_kv_seqlen"].tolist()
        mask = [seen(options, n, m, length - n) & (np.arange(m) < length) for length in lengths]
        mask = np.stack(mask)[:, None]
    bias = given.get("attn_mask")
    if bias is not None:
        short = m - bias.shape[-1]
        fill = False if bias.dtype == bool else -np.inf
        bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, short)], constant_values=fill)
        if bias.dtype == bool:
            mask, bias = mask & bias, None
        else:
            mask, bias = mask & ~np.isneginf(bias), np.where(np.isneginf(bias), 0, bias).astype(np.float64)
    times = Q.shape[1] // K.shape[1]
    Q, K, V = (X.astype(np.float64) for X in (Q, an.share_heads(K, times), an.share_heads(V, times)))
    return Q, K, V, mask, bias, present


def value(world, f, *arrays, bias=None, **options):
    """What a function of one of the two worlds says, as an array."""
    lift = torch.from_numpy if world is at else np.asarray
    *arrays, bias = (None if X is None else lift(np.ascontiguousarray(X)) for X in (*arrays, bias))
    given = options if bias is None else options | {"bias": bias}
    Y = getattr(world, f)(*arrays, **given)
    return Y.numpy() if world is at else Y[0]


def precision(X):
    return {2: 1e-2 if str(X.dtype) == "bfloat16" else 2e-3}.get(X.dtype.itemsize, 2e-6)


@WORLDS
@pytest.mark.parametrize("form", ["attention", "attention_fused"])
def test_the_operator_of_onnx(world, form, cases):
    """Every case of the operator: the outputs, the keys and values that it passes on, and the weights where it says."""
    for name, (options, given, wanted) in cases.items():
        Q, K, V, mask, bias, present = problem(options, given)
        settings = {"scale": options.get("scale"), "softcap": options.get("softcap"), "empty_rows": "zero"}
        want, near = wanted["Y"], precision(wanted["Y"])
        O = value(world, form, Q, K, V, mask, bias=bias, **settings)
        O = O.swapaxes(1, 2).reshape(want.shape) if want.ndim == 3 else O
        compare(O, want.astype(np.float64), name=name, atol=near, rtol=near)
        for slot, X in zip(("present_key", "present_value"), present, strict=True):
            if slot in wanted:
                compare(X, wanted[slot], name=f"{name}: {slot}", atol=0.0, rtol=0.0)
        if options.get("qk_matmul_output_mode") == AFTER_SOFTMAX:
            P = value(world, "attention_weights", Q, K, mask, bias=bias, **settings)
            weights = wanted["qk_matmul_output"].astype(np.float64)
            compare(P, weights, name=f"{name}: weights", atol=max(near, 2e-3), rtol=near)


@pytest.mark.parametrize(
    ("words", "count"), [(("softcap",), 10), (("window",), 11), (("softcap", "neginf"), 2), (("3d", "softcap"), 3)]
)
def test_the_cases_hold_what_they_are_read_for(cases, words, count):
    """The pinned package has them; one that loses them would leave nothing to compare with."""
    assert sum(all(word in name for word in words) for name in cases) >= count


@WORLDS
@pytest.mark.parametrize("core", ["block_sparse_attention", "tiled_attention", "windowed"])
@pytest.mark.parametrize("name", ["test_attention_local_window", "test_attention_3d_local_window"])
def test_windows_without_a_written_mask(world, core, name, cases):
    """The cores that compute a window only; the queries that the case lacks are zero, and cut away again."""
    options, given, wanted = cases[name]
    Q, K, V, *_ = problem(options, given)
    n, m, width = Q.shape[2], K.shape[2], options["left_window_size"]
    Q = np.pad(Q, [(0, 0), (0, 0), (0, m - n), (0, 0)])
    layout = layouts.window(width, causal=True)
    attend, rest = {
        "block_sparse_attention": (partial(world.block_sparse_attention, layout=layout, size=2), ()),
        "tiled_attention": (partial(world.tiled_attention, tile=2), (layout,)),
        "windowed": (world.windowed(world.attention, width), (world.causal_mask(m),)),
    }[core]
    lift = torch.from_numpy if world is at else np.asarray
    O = attend(*map(lift, (Q, K, V)), *rest)
    O = (O.numpy() if world is at else O[0])[:, :, :n]
    want = wanted["Y"]
    compare(O.swapaxes(1, 2).reshape(want.shape) if want.ndim == 3 else O, want, name=name, atol=2e-6, rtol=2e-6)
