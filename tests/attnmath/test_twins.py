"""Four witnesses for every component: by hand = the twin's autograd = torch's own function = a finite difference."""

import inspect
import re
import subprocess
import sys
import typing

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare
from attnmath.tree import map_tree
from tests.attnmath import witnesses
from tests.attnmath.cases import CASES, HELPERS

NAMES = [case.id for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_twin_and_torch_agree_forward_and_backward(case, rng):
    witnesses.check_agreement(case, rng)


SMOOTH = [case for case in CASES if case.circumstance not in witnesses.NO_DIFFERENCE]


@pytest.mark.slow
@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.id)
def test_finite_difference(case, rng):
    witnesses.check_finite_difference(case, rng)


# Squares of the largest inputs lie beyond float16's largest number, 65504.
PRECISIONS = [(case, "float32") for case in CASES] + [
    (case, "float16") for case in CASES if case.circumstance not in ("huge", "wide-range")
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "dtype"), PRECISIONS, ids=lambda value: getattr(value, "id", value))
def test_precision_is_kept(case, dtype, rng):
    """The value has the arguments' precision, in both worlds, and differs from float64's by rounding only."""
    args = case.args(rng)
    low = [map_tree(lambda X: X.astype(dtype), arg) for arg in args]
    exact, _ = case.call(an, *[map_tree(lambda X: X.astype(np.float64), arg) for arg in low])
    y, vjp = case.call(an, *low)
    twin = case.call(at, *[map_tree(torch.from_numpy, arg) for arg in low])
    tolerance = {"float32": 2e-5, "float16": 2e-2}[dtype] * max(1.0, float(np.abs(exact).max(initial=0)))
    if case.circumstance == "huge" and case.function == "attention":
        tolerance = 2e-3  # scores near 1e4 carry an error of 1e-3 in float32
    assert y.dtype == np.dtype(dtype) and twin.dtype == getattr(torch, dtype)
    compare(y, exact, name=f"{case.function} in {dtype}", atol=tolerance, rtol=0.0)
    compare(twin, exact, name=f"torch's {case.function} in {dtype}", atol=tolerance, rtol=0.0)
    cotangents = vjp(rng.standard_normal(y.shape).astype(dtype))
    for cotangent in cotangents if isinstance(cotangents, tuple) else (cotangents,):
        map_tree(lambda X: _has_dtype(X, dtype), cotangent)


def _has_dtype(X, dtype):
    assert X.dtype == np.dtype(dtype)


def test_every_component_has_a_case():
    components = {name for name in an.__all__} - HELPERS
    assert components == {case.function for case in CASES}


def shape_string(annotation):
    """An annotation without the name of the array type, and of NumPy's pair of value and vjp the value."""
    value = typing.get_args(annotation)[0] if typing.get_origin(annotation) is tuple else annotation
    value = re.sub(r"[\w.]*Generator", "Generator", str(value))
    return re.sub(r"ndarray|Tensor", "Array", value.replace("numpy.", "").replace("torch.", ""))


@pytest.mark.parametrize("component", an.__all__)
def test_worlds_have_the_same_arguments_and_shape_strings(component):
    ours, twin = (inspect.signature(inspect.unwrap(getattr(world, component))) for world in (an, at))
    assert list(ours.parameters) == list(twin.parameters)
    for a, b in zip(ours.parameters.values(), twin.parameters.values(), strict=True):
        assert shape_string(a.annotation) == shape_string(b.annotation), a.name
        assert a.default == b.default or (callable(a.default) and a.default.__name__ == b.default.__name__), a.name
    assert shape_string(ours.return_annotation) == shape_string(twin.return_annotation)


@pytest.mark.parametrize("empty_rows", ["error", "zero"])
@pytest.mark.parametrize("mask", [True, "masked"])
def test_fused_attention_equals_plain(mask, empty_rows, rng):
    from tests.attnmath.cases.case import B, K, M, N, V
    from tests.attnmath.cases.chapters_1_to_6 import MASK

    Q, Ks, Vs = (torch.from_numpy(rng.standard_normal(s)).requires_grad_() for s in ((B, N, K), (B, M, K), (B, M, V)))
    allowed = True if mask is True else torch.from_numpy(MASK)
    dO = torch.from_numpy(rng.standard_normal((B, N, V)))
    plain = at.attention(Q, Ks, Vs, allowed, empty_rows=empty_rows)
    fused = at.attention_fused(Q, Ks, Vs, allowed, empty_rows=empty_rows)
    compare(fused, plain, name="fused attention")
    compare(torch.autograd.grad(fused, (Q, Ks, Vs), dO), torch.autograd.grad(plain, (Q, Ks, Vs), dO), name="gradients")


COMPILED = """
import torch, attnmath.torch as at
torch.manual_seed(0)
Q, K, V = (torch.randn(s, dtype=torch.float64) for s in ((3, 7), (5, 7), (5, 2)))
mask = torch.ones(3, 5, dtype=torch.bool).tril(2)
for name in ("attention", "attention_fused", "attention_chunked"):
    f = getattr(at, name)
    torch.testing.assert_close(torch.compile(f, fullgraph=True, backend="eager")(Q, K, V, mask), f(Q, K, V, mask))
layer = at.EncoderLayer(6, 2, 11)
X = torch.randn(2, 5, 6)
torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="eager")(X), layer(X))
print("one graph each")
"""


@pytest.mark.slow
def test_one_graph_under_compile():
    """No value is looked at on the way, so that torch.compile gets the whole function.

    In a process of its own, because here the shape checks of jaxtyping stand in the way.
    """
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.stdout == "one graph each\n", done.stderr


def test_autocast_keeps_the_value(rng):
    from tests.attnmath.cases.case import K, M, N, V

    Q, Ks, Vs = (torch.from_numpy(rng.standard_normal(s)).float() for s in ((N, K), (M, K), (M, V)))
    exact = at.attention(Q, Ks, Vs)
    with torch.autocast("cpu", torch.bfloat16):
        low = at.attention(Q, Ks, Vs)
    assert low.dtype == torch.bfloat16
    compare(low, exact, name="attention under autocast", atol=5e-2, rtol=0.0)


def test_modules_are_thin_shells(rng):
    """A module computes its function of its own tree, and its state_dict has the tree's keys."""
    from attnmath.tree import flatten

    torch.manual_seed(1)
    ids = torch.tensor([[1, 2, 6]])
    X = torch.from_numpy(rng.standard_normal((2, 5, 6))).float()
    pairs = [
        (at.LayerNorm(6), lambda m: m(X), lambda p: at.layer_norm(X, p["gain"], p["bias"])),
        (at.FeedForward(6, 11), lambda m: m(X), lambda p: at.feed_forward(X, p)),
        (at.MultiHeadAttention(6, 3), lambda m: m(X, X, X), lambda p: at.multi_head_attention(X, X, X, p, 3)),
        (at.EncoderLayer(6, 3, 11), lambda m: m(X), lambda p: at.encoder_layer(X, p, 3)),
        (
            at.Bert(7, 5, 1, 6, 3, 11, 2),
            lambda m: m(ids),
            lambda p: at.bert(ids, p, 3),
        ),
    ]
    for module, forward, function in pairs:
        assert set(module.state_dict()) == set(flatten(module.tree()))
        copy = at.from_numpy(at.to_numpy(module.tree()))
        compare(forward(module), function(copy), name=type(module).__name__, atol=1e-6)
