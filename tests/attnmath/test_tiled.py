"""Attention in tiles: equal to what others wrote, no n x m array in either pass, no work where nothing may be seen."""

import subprocess
import sys
import tracemalloc
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import count, shapes
from attnmath.check import compare
from attnmath.layouts import causal, everything, global_tokens, window
from attnmath.tiles import Layout
from attnmath.tree import map_tree
from tests.attnmath.flex import flex_both_ways

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
LAYOUTS = pytest.mark.parametrize("layout", [everything(), causal(), window(9), window(3) | global_tokens(2)], ids=repr)


def heads(rng, n=70, m=90, lead=(2, 3), k=8, v=5):
    return [rng.standard_normal((*lead, *shape)) for shape in ((n, k), (m, k), (m, v), (n, v))]


def both_ways(world, Q, K, V, dO, mask=True, **options):
    """Value and the three cotangents, as arrays."""
    if world is an:
        O, vjp = an.tiled_attention(Q, K, V, mask, **options)
        return O, *vjp(dO)
    leaves = [torch.from_numpy(X).requires_grad_() for X in (Q, K, V)]
    mask = torch.tensor(mask) if isinstance(mask, np.ndarray) else mask
    O = at.tiled_attention(*leaves, mask, **options)
    return O.detach().numpy(), *(dX.numpy() for dX in torch.autograd.grad(O, leaves, torch.from_numpy(dO)))


@WORLDS
@LAYOUTS
@pytest.mark.parametrize("tile", [7, 64, 1000])
def test_layouts_equal_attention_with_a_mask(world, layout, tile, rng):
    Q, K, V, dO = heads(rng)
    leaves = [torch.from_numpy(X).requires_grad_() for X in (Q, K, V)]
    dense = F.scaled_dot_product_attention(*leaves, attn_mask=torch.from_numpy(layout.mask(70, 90)))
    want = (dense, *torch.autograd.grad(dense, leaves, torch.from_numpy(dO)))
    got = both_ways(world, Q, K, V, dO, layout, tile=tile)
    compare(got, want, name=f"{layout} in tiles of {tile}", atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@LAYOUTS
def test_layouts_equal_flex_attention(layout, rng):
    """PyTorch's FlexAttention, which takes the same rule as a function of two positions, and its own backward."""
    given = heads(rng)
    want = flex_both_ways(*given, layout.mask(70, 90))
    for world in (an, at):
        got = both_ways(world, *given, layout, tile=32)
        compare(got, want, name=f"{layout}, {world.__name__}", atol=1e-12)


@WORLDS
def test_a_mask_and_its_layout_are_one(world, rng):
    Q, K, V, dO = heads(rng)
    layout = window(20) & causal()
    by_layout, by_mask = (both_ways(world, Q, K, V, dO, m, tile=16) for m in (layout, layout.mask(70, 90)))
    compare(by_layout, by_mask, name="layout and mask", atol=0.0, rtol=0.0)
    want, vjp = an.attention_fused(Q, K, V, layout.mask(70, 90))
    compare(by_mask, (want, *vjp(dO)), name="mask in tiles", atol=1e-12)


@WORLDS
@pytest.mark.parametrize("as_array", [False, True])
def test_what_is_hidden_is_not_read(world, as_array, rng):
    """NaN in keys and values that a whole tile hides would spread if they were multiplied by 0."""
    Q, K, V, dO = heads(rng, 64, 64, ())
    V[40] = K[41] = np.nan  # in the tile 32 to 47, seen by queries from 32 on
    mask = causal().mask(64, 64) if as_array else causal()
    O, dQ, _, _ = both_ways(world, Q, K, V, dO, mask, tile=16)
    assert np.isfinite(O[:32]).all() and np.isfinite(dQ[:32]).all()
    assert np.isnan(O[41:]).all()
    full, *_ = both_ways(world, Q, K, V, dO, mask, tile=64)
    assert np.isnan(full[:32]).all(), "in one tile it is read, and the test can see it"


@pytest.mark.parametrize("layout", [causal(), window(9)], ids=repr)
def test_work_is_that_of_the_tiles_that_are_seen(layout, rng):
    Q, K, V = (torch.randn(96, 8, requires_grad=True) for _ in range(3))
    seen = int((layout.tiles(96, 96, 16) > 0).sum())
    assert seen < 25  # of 36
    with FlopCounterMode(display=False) as forward:
        O = at.tiled_attention(Q, K, V, layout, tile=16)
    with FlopCounterMode(display=False) as backward:
        O.sum().backward()
    one = count.attention_flops(16, 16, 8, 8)
    assert forward.get_total_flops() == seen * one
    assert backward.get_total_flops() == seen * one * 5 // 2  # five products of one size instead of two


class Asked:
    """A layout that notes which parts are asked of it, and refuses to write the whole mask down."""

    def __init__(self, layout):
        self.layout, self.parts = layout, []

    def mask(self, n, m):
        raise AssertionError("the whole mask was asked for")

    def part(self, rows, columns, n, m):
        self.parts.append((rows.start, columns.start))
        return self.layout.part(rows, columns, n, m)

    def tiles(self, n, m, size):
        return self.layout.tiles(n, m, size)


@WORLDS
def test_only_tiles_on_the_border_ask_for_booleans(world, rng):
    asked = Asked(causal())
    assert isinstance(asked, Layout) and not isinstance(causal().mask(2, 2), Layout)
    both_ways(world, *heads(rng, 64, 64, ()), mask=asked, tile=16)
    diagonal = [(i, i) for i in range(0, 64, 16)]
    assert sorted(asked.parts) == sorted(2 * diagonal)  # once forward, once backward


def test_both_passes_are_free_of_arrays_of_the_size_of_the_scores(rng):
    """NumPy: the peak grows like n, and lies far below one array of n x n."""
    peaks, held = [], []
    for n in (2048, 4096, 8192):
        Q, K, V, dO = (rng.standard_normal((n, 16)).astype(np.float32) for _ in range(4))
        tracemalloc.start()
        _, vjp = an.tiled_attention(Q, K, V, causal())
        forward = tracemalloc.get_traced_memory()[1]
        held.append(count.bytes_held(vjp))
        cotangents = vjp(dO)
        peaks.append((forward, tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
        assert all(np.abs(dX).max() > 0.1 for dX in cotangents)
    assert max(*peaks[-1]) < 8192**2 / 8, "an eighth of a byte for each score"
    for small, large in pairwise(peaks):
        assert large[0] < 2.2 * small[0] and large[1] < 2.2 * small[1]
    assert held[-1] == 8192 * (4 * 16 + 1) * 4 + 32 * 32  # Q, K, V, O and L; the kinds of the tiles


class Largest(TorchDispatchMode):
    """The most numbers in any tensor that an operation made."""

    most = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        for X in out if isinstance(out, tuple | list) else [out]:
            if isinstance(X, torch.Tensor):
                self.most = max(self.most, X.untyped_storage().nbytes() // X.element_size())
        return out


def test_no_tensor_is_of_the_size_of_the_scores():
    Q, K, V = (torch.randn(1024, 16, requires_grad=True) for _ in range(3))
    with Largest() as tiled:
        at.tiled_attention(Q, K, V, causal(), tile=64).square().sum().backward()
    assert tiled.most <= 1024 * 16
    with Largest() as plain:
        at.attention(Q, K, V, at.causal_mask(1024)).square().sum().backward()
    assert plain.most == 1024 * 1024, "what the test can see"


@pytest.mark.slow
def test_a_long_text_on_one_thread(rng):
    """n = 16,384, one head of width 64: the sizes that the page names; memory is asserted, the clock's time is not."""
    Q, K, V, dO = rng.standard_normal((4, 16384, 64)).astype(np.float32)
    tracemalloc.start()
    O, vjp = an.tiled_attention(Q, K, V, causal())
    forward = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    cotangents = vjp(dO)
    backward = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert forward < 10 * 2**20 and backward < 50 * 2**20
    assert all(np.isfinite(dX).all() and np.abs(dX).max() > 0.1 for dX in cotangents)
    theirs = F.scaled_dot_product_attention(*(torch.from_numpy(X)[None, None] for X in (Q, K, V)), is_causal=True)
    compare(O, theirs[0, 0], name="output", atol=1e-5)


@WORLDS
@pytest.mark.parametrize("as_array", [False, True])
def test_an_empty_row_is_named(world, as_array, as_users_call, rng):
    """The second query from the end of a window that no key reaches."""
    Q, K, V, dO = heads(rng, 40, 20, (2,))
    layout = causal()  # 40 queries stand 20 before the first of 20 keys
    mask = np.broadcast_to(layout.part(slice(0, 40), slice(0, 20), 40, 20), (2, 40, 20)) if as_array else layout
    with pytest.raises(ValueError, match=r"row \(0, 0\) may attend to no key.*pass empty_rows='zero'"):
        both_ways(world, Q, K, V, dO, mask, tile=16)
    O, dQ, dK, dV = both_ways(world, Q, K, V, dO, mask, tile=16, empty_rows="zero")
    assert not O[:, :20].any() and not dQ[:, :20].any() and np.isfinite(dK).all() and np.isfinite(dV).all()
    want, vjp = an.tiled_attention(Q[:, 20:], K, V, causal(), tile=7)
    compare((O[:, 20:], dQ[:, 20:], dK, dV), (want, *vjp(dO[:, 20:])), name="all other rows", atol=1e-12)


def test_the_row_that_is_named_lies_in_its_tile_and_head(as_users_call):
    allowed = np.ones((2, 3, 50, 20), bool)
    allowed[1, 2, 37] = False
    X = np.ones
    args = (X((2, 3, 50, 4)), X((2, 3, 20, 4)), X((2, 3, 20, 4)), allowed)
    twins = [torch.from_numpy(arg) for arg in args]
    for call in (partial(an.tiled_attention, *args), partial(at.tiled_attention, *twins)):
        with pytest.raises(ValueError, match=r"row \(1, 2, 37\) may attend to no key"):
            call(tile=16)


X = np.zeros
QKV = (X((3, 7)), X((5, 7)), X((5, 2)))
BAD = [
    (QKV, {"tile": 0}, r"tile is 0; it must be an integer >= 1"),
    (QKV, {"tile": 2.5}, r"tile is 2\.5; it must be an integer >= 1"),
    (QKV, {"scale": 0.0}, r"scale is 0\.0; it must be > 0"),
    (QKV, {"empty_rows": "nan"}, r"empty_rows is 'nan'; expected one of 'error', 'zero'"),
    ((*QKV, X((3, 5))), {}, r"mask has dtype (torch\.)?float64; masks are boolean"),
    ((*QKV, X((5, 3), bool)), {}, r"mask has shape .*5, 3.* does not broadcast to the scores' shape \(3, 5\)"),
    ((*QKV, "causal"), {}, r"mask has dtype str; masks are boolean"),
    ((*QKV, False), {}, r"row \(0,\) may attend to no key"),
    ((X((3, 7)), X((0, 7)), X((0, 2))), {}, r"K has shape \(0, 7\): its axis -2 is empty; at least one key"),
    ((X((3, 0)), X((5, 0)), X((5, 2))), {}, r"Q has shape \(3, 0\): its axis -1 is empty"),
    ((X((3, 7)), X((5, 6)), X((5, 2))), {}, r"K has shape \(5, 6\), expected .* k = 7"),
]


@WORLDS
@pytest.mark.parametrize(("args", "options", "message"), BAD)
def test_bad_input_gets_one_sentence(world, args, options, message, as_users_call):
    args = [torch.from_numpy(arg) if world is at and isinstance(arg, np.ndarray) else arg for arg in args]
    with pytest.raises(ValueError, match=message):
        world.tiled_attention(*args, **options)


def test_every_model_takes_it(rng):
    """As the core of a decoder, in both worlds, without an edit anywhere."""
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 2, 9), rng, 0.4)
    ids = rng.integers(0, 11, (2, 9))
    for world in (an, at):
        lift = torch.from_numpy if world is at else np.asarray
        tree = map_tree(lift, params)
        want, got = (
            world.decoder_only(lift(ids), tree, 3, attend=core)
            for core in (world.attention_fused, partial(world.tiled_attention, tile=4))
        )
        if world is an:
            dZ = rng.standard_normal(want[0].shape)
            compare(got[1](dZ), want[1](dZ), name="cotangents of a decoder in tiles", atol=1e-10)
            want, got = want[0], got[0]
        compare(got, want, name="a decoder in tiles", atol=1e-10)


def test_gradients_sample_by_sample_and_without_values(rng):
    X, M = torch.from_numpy(rng.standard_normal((3, 10, 4))), torch.from_numpy(rng.random((3, 10, 10)) < 0.6)
    M[..., 1] = True

    def loss(X, M):
        return (at.tiled_attention(X, X, X, M, tile=4) * torch.linspace(0.3, 1.7, 40).reshape(10, 4)).sum()

    samples = torch.func.vmap(torch.func.grad(loss))(X, M)
    compare(samples, torch.stack([torch.func.grad(loss)(*pair) for pair in zip(X, M, strict=True)]), atol=1e-12)
    nowhere = X[0].to("meta")
    assert at.tiled_attention(nowhere, nowhere, nowhere, M[0].to("meta"), tile=4).shape == (10, 4)


def test_a_gradient_of_a_gradient_is_refused(rng):
    X = torch.from_numpy(rng.standard_normal((5, 4))).requires_grad_()
    (dX,) = torch.autograd.grad(at.tiled_attention(X, X, X).square().sum(), X, create_graph=True)
    with pytest.raises(RuntimeError, match="no gradient of its gradient; use attention"):
        torch.autograd.grad(dX.sum(), X)


COMPILED = """
import torch, attnmath.torch as at
torch.manual_seed(0)
X, mask = torch.randn(9, 4, dtype=torch.float64, requires_grad=True), torch.ones(9, 9, dtype=torch.bool).tril()
f = lambda X: at.tiled_attention(X, X, X, mask, tile=5)
Y = torch.compile(f, fullgraph=True, backend="eager")(X)
torch.testing.assert_close(Y, f(X))
torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), X) for y in (Y, f(X))))
print("one graph")
"""


@pytest.mark.slow
def test_one_graph_under_compile():
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.stdout == "one graph\n", done.stderr
