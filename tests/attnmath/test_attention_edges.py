"""Attention and softmax at their edges: 16 bits, infinities, empty rows, and places where no value can be looked at."""

import inspect
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare

B, N, M, K, V = 11, 3, 5, 7, 2
FORMS = ("attention", "attention_fused", "attention_chunked")
ALLOWED = torch.tensor([[True, False, True, True, False], [False] * 5, [False, False, False, True, False]])


def arrays(rng, *shapes, scale=1.0, dtype=np.float64):
    return tuple((scale * rng.standard_normal(shape)).astype(dtype) for shape in shapes)


def tensors(rng, *shapes, **options):
    return tuple(map(torch.from_numpy, arrays(rng, *shapes, **options)))


@pytest.mark.parametrize("form", FORMS)
def test_scores_beyond_the_largest_float16_do_not_overflow(form, rng):
    """A dot product of 70000 or more, though every argument and the value are small."""
    Q, Ks, Vs, dO = arrays(rng, (N, K), (M, K), (M, V), (N, V), dtype=np.float16)
    Q, Ks = Q + np.float16(100), Ks / 4 + np.float16(100)
    exact, exact_vjp = an.attention(*(X.astype(np.float64) for X in (Q, Ks, Vs)))
    O, vjp = getattr(an, form)(Q, Ks, Vs)
    leaves = [torch.from_numpy(X).requires_grad_() for X in (Q, Ks, Vs)]
    twin = getattr(at, form)(*leaves)
    gradients = torch.autograd.grad(twin, leaves, torch.from_numpy(dO))
    assert O.dtype == np.float16 and twin.dtype == torch.float16
    compare(O, exact, name=form, atol=3e-3)
    compare(twin, exact, name=f"torch's {form}", atol=3e-3)
    for dX, by_torch, wanted in zip(vjp(dO), gradients, exact_vjp(dO.astype(np.float64)), strict=True):
        assert dX.dtype == np.float16 and by_torch.dtype == torch.float16
        tolerance = 3e-3 * np.abs(wanted).max()
        compare(dX, wanted, name=f"cotangent of {form}", atol=tolerance)
        compare(by_torch, wanted, name=f"gradient of torch's {form}", atol=3 * tolerance)  # kernels round in between


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_sums_do_not_stop_in_float16(world, rng):
    """70001 ones are more than float16 holds, and the same number of weights are less than its precision."""
    S = np.zeros((2, 70_001), np.float16)
    S = S if world is an else torch.from_numpy(S)
    values = [getattr(world, name)(S) for name in ("logsumexp", "log_softmax", "softmax_entropy")]
    for value, wanted in zip(values, (1, -1, 1), strict=True):
        value = value[0] if world is an else value
        assert str(value.dtype).endswith("float16")
        compare(np.asarray(value) / np.log(70_001), wanted * np.ones(value.shape), atol=1e-3)


def test_cotangents_of_softmax_do_not_stop_in_float16(rng):
    """Each of 4999 scores takes part in the correction by the row's mean, though each term is tiny."""
    S = np.zeros(4999, np.float16)
    dP = (1000 + rng.standard_normal(4999)).astype(np.float16)
    exact = an.softmax(S.astype(np.float64))[1](dP.astype(np.float64))
    compare(an.softmax(S)[1](dP), exact, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_logsumexp_of_infinity_is_infinity(dtype):
    S = torch.tensor([[np.inf, 1000, -np.inf], [np.inf, np.inf, 2], [1, 2, 3], [-np.inf] * 3], dtype=dtype)
    S.requires_grad_()
    dL = torch.tensor([2.0, 3.0, 5.0, 7.0], dtype=dtype)
    L, vjp = an.logsumexp(S.detach().numpy())
    assert L[:2].tolist() == [np.inf] * 2 and L[3] == -np.inf
    compare(L, torch.logsumexp(S, -1), name="by hand", atol=1e-2 if dtype == torch.float16 else 1e-12)
    compare(at.logsumexp(S), torch.logsumexp(S, -1), name="the twin")
    dS = vjp(dL.numpy())
    (twin,) = torch.autograd.grad(at.logsumexp(S), S, dL)
    for slopes in (dS, twin.numpy()):  # the slope at infinity is nan, beside it 0
        assert np.isnan(slopes).tolist() == [[True, False, False], [True, True, False], [False] * 3, [False] * 3]
        compare(slopes[[0, 0, 1], [1, 2, 2]], np.zeros(3))
    compare(dS[2:], twin[2:], atol=1e-2 if dtype == torch.float16 else 1e-12)
    assert dS[2].min() > 0.4


COMPILED = """
import torch, attnmath.torch as at
torch.manual_seed(0)
nan_free = lambda X: not X.isnan().any()
Q, K, V = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((3, 7), (5, 7), (5, 2)))
mask = torch.tensor([[True, False, True, True, False], [False] * 5, [False, False, False, True, False]])
wanted = at.attention(Q, K, V, mask, empty_rows="zero")
slopes = torch.autograd.grad(wanted, (Q, K, V), wanted.detach() + 1)
for name in ("attention", "attention_fused", "attention_chunked"):
    O = torch.compile(getattr(at, name), fullgraph=True, backend="BACKEND")(Q, K, V, mask)
    torch.testing.assert_close(O, wanted)
    torch.testing.assert_close(torch.autograd.grad(O, (Q, K, V), wanted.detach() + 1), slopes)
S = torch.randn(3, 5, dtype=torch.float64).masked_fill(~mask, -torch.inf).requires_grad_()
rows = [0, 2]
for name, empty in (("softmax", 0.0), ("log_softmax", -torch.inf), ("softmax_entropy", 0.0)):
    f = getattr(at, name)
    Y = torch.compile(f, fullgraph=True, backend="BACKEND")(S)
    assert (Y[1] == empty).all(), (name, Y[1])
    torch.testing.assert_close(Y[rows], f(S[rows]))
    (dS,) = torch.autograd.grad(Y[rows].masked_fill(torch.isneginf(Y[rows]), 0).square().sum(), S)
    assert nan_free(dS) and (dS[1] == 0).all() and dS[0].abs().max() > 1e-3, (name, dS)
mask = torch.compile(at.padding_mask, fullgraph=True, backend="BACKEND")(torch.tensor([1, 3]), 4)
assert mask.int().sum((1, 2)).tolist() == [1, 3]
print("zeros")
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_empty_rows_give_zeros_in_a_compiled_function(backend):
    """In a process of its own, because here the shape checks of jaxtyping stand in the way."""
    code = COMPILED.replace("BACKEND", backend)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "zeros\n", done.stderr


OPTIONS = {
    "plain": {},
    "masked": {"mask": ALLOWED | torch.tensor([False, True, False, False, False])},
    "causal": {"mask": torch.ones(N, M).tril(M - N).bool()},
    "capped": {"softcap": 0.7, "scale": 1.0},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_each_sample_are_those_of_a_loop(form, options, rng):
    if form == "attention_chunked":
        options = {name: value for name, value in options.items() if name == "mask"} | {"chunk": 2}
    f = partial(getattr(at, form), **options)
    inputs = tensors(rng, (B, N, K), (B, M, K), (B, M, V))
    dO = torch.from_numpy(rng.standard_normal((N, V)))
    slopes = torch.func.grad(lambda *sample: (f(*sample) * dO).sum(), argnums=(0, 1, 2))
    at_once = torch.func.vmap(slopes)(*inputs)
    samples = zip(*inputs, strict=True)
    one_by_one = tuple(torch.stack(dX) for dX in zip(*(slopes(*sample) for sample in samples), strict=True))
    compare(at_once, one_by_one, name=f"per-sample gradients of {form}")


@pytest.mark.parametrize("form", ["attention", "attention_fused"])
def test_a_mask_of_each_sample_under_vmap(form, rng):
    """A batched mask cannot be looked at: an empty row gives zeros, as where that is asked for."""
    inputs = tensors(rng, (B, N, K), (B, M, K), (B, M, V))
    masks = torch.from_numpy(rng.random((B, N, M)) < 0.3)
    empty = ~masks.any(-1)
    assert 0 < empty.sum() < B * N
    O = torch.func.vmap(getattr(at, form))(*inputs, masks)
    compare(O, at.attention(*inputs, masks, empty_rows="zero"), name=form)
    assert (O[empty] == 0).all()


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "log_softmax", "softmax_entropy"])
def test_gradients_of_each_row_of_scores_are_those_of_a_loop(name, rng):
    (S,) = tensors(rng, (B, M))
    slope = torch.func.grad(lambda row: getattr(at, name)(row).pow(3).sum())
    compare(torch.func.vmap(slope)(S), torch.stack([slope(row) for row in S]), name=name)


def in_float32(rng):
    Q, Ks, Vs, bias = tensors(rng, (B, N, K), (B, M, K), (B, M, V), (N, M), dtype=np.float32)
    bottom = ALLOWED | ~ALLOWED.any(-1, keepdim=True)
    own = bottom[:, :N] | torch.eye(N).bool()
    return {
        "softmax": lambda: at.softmax(bias),
        "log_softmax": lambda: at.log_softmax(bias),
        "softmax_entropy": lambda: at.softmax_entropy(bias),
        "logsumexp": lambda: at.logsumexp(bias),
        "weights": lambda: at.attention_weights(Q, Ks, bottom, bias=bias),
        "plain": lambda: at.attention(Q, Ks, Vs, bottom, bias=bias, softcap=2.0),
        "fused": lambda: at.attention_fused(Q, Ks, Vs, bottom, bias=bias),
        "fused causal": lambda: at.attention_fused(Q, Ks[:, :N], Vs[:, :N], at.causal_mask(N)),
        "chunked": lambda: at.attention_chunked(Q, Ks, Vs, bottom),
        "general": lambda: at.general_attention(Q, Ks, Vs, at.dot_score, mask=bottom),
        "shaped": lambda: at.shaped_attention(Q, Ks[:, :N], Vs[:, :N], own),
    }


@pytest.mark.parametrize("name", in_float32(np.random.default_rng(0)))
def test_a_graph_is_recorded_and_shapes_are_inferred(name, rng):
    """make_fx records one graph, whose values are right; the meta device and fake tensors know the shape."""
    compute = in_float32(rng)[name]
    wanted = compute()
    cells = [cell for cell in compute.__closure__ if isinstance(cell.cell_contents, torch.Tensor)]
    inputs = [cell.cell_contents for cell in cells]

    def of_inputs(*tensors):
        for cell, X in zip(cells, tensors, strict=True):
            cell.cell_contents = X
        return compute()

    compare(make_fx(of_inputs)(*inputs)(*inputs), wanted, name=name, atol=1e-6, rtol=1e-6)
    compare(of_inputs(*inputs), wanted, name=name)
    with FakeTensorMode() as mode:
        fake = of_inputs(*map(mode.from_tensor, inputs))
    assert fake.shape == wanted.shape and fake.dtype == wanted.dtype
    if name not in ("fused causal", "chunked"):  # their own tensors are made where the inputs are not
        meta = of_inputs(*(X.to("meta") for X in inputs))
        assert meta.is_meta and meta.shape == wanted.shape and meta.dtype == wanted.dtype


MIXED = [(torch.float32, torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32, torch.bfloat16)]


@pytest.mark.parametrize("kinds", MIXED, ids=str)
@pytest.mark.parametrize("form", ["attention", "attention_fused", "attention_weights"])
def test_autocast_casts_as_for_torchs_own(form, kinds, rng):
    """Rotation returns float32, a linear map bfloat16, and a bias is float32. The result is rounded once."""
    Q, Ks, Vs = (X.to(kind) for X, kind in zip(tensors(rng, (N, K), (M, K), (M, M)), kinds, strict=True))
    bias = torch.from_numpy(rng.standard_normal((N, M))).float()
    Vs = torch.eye(M, dtype=Vs.dtype) if form == "attention_weights" else Vs
    with torch.autocast("cpu", torch.bfloat16):
        own = torch.nn.functional.scaled_dot_product_attention(Q, Ks, Vs, attn_mask=bias)
        ours = getattr(at, form)(Q, Ks, *([] if form == "attention_weights" else [Vs]), bias=bias)
    low = [X.bfloat16().double() for X in (Q, Ks, Vs, bias)]
    exact = at.attention(*low[:3], bias=low[3])
    assert ours.dtype == own.dtype == torch.bfloat16
    compare(ours, own, name=form, atol=2e-2)
    if form != "attention_fused":
        compare(ours, exact, name=form, atol=0.0, rtol=2**-8)  # half a step of bfloat16


def test_a_causal_mask_reaches_the_kernel_that_skips_it(rng, monkeypatch):
    Q, Ks, Vs = tensors(rng, (B, M, K), (B, M, K), (B, M, V))
    calls = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def listening(*args, **options):
        calls.append(options)
        return kernel(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", listening)
    at.attention_fused(Q, Ks, Vs, at.causal_mask(M))
    at.attention_fused(Q, Ks, Vs, at.window_mask(M, 2))
    assert [options.get("is_causal", False) for options in calls] == [True, False]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_a_window_of_the_last_queries_is_the_last_rows(world):
    """In a step of decoding the queries are the last of the keys' positions."""
    for n in range(1, 8):
        for width in range(9):
            whole, last = np.asarray(world.window_mask(7, width)), np.asarray(world.window_mask(n, width, 7))
            compare(last, whole[7 - n :])


def test_no_component_has_more_than_five_options():
    for name in (*FORMS, "attention_weights", "general_attention", "scaled_dot_score"):
        parameters = inspect.signature(getattr(an, name)).parameters.values()
        assert sum(p.kind is p.KEYWORD_ONLY for p in parameters) <= 5, name
