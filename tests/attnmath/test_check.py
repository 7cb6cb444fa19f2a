"""The helpers that check everything else are checked first: each must fail where it should."""

import ast
import inspect
import pickle
import textwrap

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import count, viz
from attnmath.check import Mismatch, check_vjp, compare

A = np.arange(6.0).reshape(2, 3) + 1


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (A + 1e-9, A, "differs in 6 of 6 entries"),
        (None, A, "is None: a return is missing"),
        (A[0], A, r"has shape \(3,\); expected \(2, 3\)"),
        (A * np.nan, A, "is nan in 6 of 6 entries, first at"),
        (3 * A, A, "every entry is 3 times what it should be"),
        (A @ A.T + [[0, 1], [0, 0]], A @ A.T + [[0, 0], [1, 0]], "is transposed"),
        ("text", A, "numbers are expected"),
        ((A,), (A, A), "is 1 values; expected 2 values"),
        ({"a": A}, {"b": A}, r"expected a dict with the keys \['b'\]"),
        ({"a": {"b": A + 1}}, {"a": {"b": A}}, r"result\['a'\]\['b'\] differs"),
        (np.zeros(3), np.ones(3), "result is 0 everywhere, and should not be"),
        (1e-9 * A, A, "every entry is 1e-09 times"),
        (np.array([1.0, np.inf]), np.array([1.0, 2.0]), "most at"),
        (5.0, -np.inf, "is 5; expected -inf"),
        (np.inf, -np.inf, "is inf; expected -inf"),
        (np.array([1.0, 2.0]), np.array([1.0, np.inf]), "differs in 1 of 2 entries"),
        (np.array([True, False]), np.array([True, True]), "differs in 1 of 2 entries"),
        (torch.ones(2), torch.zeros(2), "differs in 2 of 2 entries"),
    ],
)
def test_compare_fails_with_a_diagnosis(got, want, message):
    with pytest.raises(AssertionError, match=message):
        compare(got, want)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (A, A),
        (A.tolist(), A),
        (torch.from_numpy(A), A),
        (torch.ones(2, dtype=torch.bfloat16), np.ones(2)),
        (np.array([np.inf, -np.inf]), np.array([np.inf, -np.inf])),
        ({"a": (A, [1.0])}, {"a": (A, [1.0])}),
        (np.zeros((0, 3)), np.zeros((0, 3))),
    ],
)
def test_compare_passes_what_is_equal(got, want):
    compare(got, want)
    with pytest.raises(AssertionError):
        compare(got, {"another": 1})


def test_compare_names_a_known_mistake():
    S = np.log(A)
    wrong = np.exp(S) / np.exp(S).sum(0)
    sentence = "your weights sum to 1 over the queries, axis -2; normalise over the keys"
    with pytest.raises(AssertionError, match=f"^P: {sentence}$") as raised:
        compare(wrong, an.softmax(S)[0], name="P", mistakes={"the sign is wrong": -wrong, sentence: wrong})
    assert type(raised.value) is Mismatch and raised.value.name == "P" and raised.value.mistake == sentence
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.name, again.mistake) == (f"P: {sentence}", "P", sentence)


def test_an_unknown_mistake_has_no_sentence():
    with pytest.raises(Mismatch, match="every entry is 3 times") as raised:
        compare(3 * A, A, name="scores", mistakes={"the sign is wrong": -A})
    assert raised.value.mistake == "" and raised.value.name == "scores"


class Opaque:
    """As an object of another process: it has any plain attribute that is asked for, and refuses to be an array."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __array__(self, *args, **kwargs):
        raise TypeError("the answer returned an object of type Window; return numbers, arrays or tensors")


@pytest.mark.parametrize(
    ("want", "message"),
    [
        (A, "O is not an array: the answer returned an object of type Window; return"),
        (1.5, "O is not an array: the answer returned an object of type Window; return"),
        (
            (A, A),
            r"O is no plain value \(the answer returned an object of type Window; .*; expected 2 values in a tuple",
        ),
        (
            {"a": A},
            r"O is no plain value \(the answer returned an object of type Window; .* a dict with the keys \['a'\]",
        ),
    ],
)
def test_compare_says_what_an_opaque_object_is(want, message):
    with pytest.raises(Mismatch, match=message):
        compare(Opaque(), want, name="O", mistakes={"nothing": 0 * A})
    with pytest.raises(Mismatch, match=r"O\[0\] is not an array: the answer returned an object of type Window"):
        compare((Opaque(), A), (A, A), name="O")


def test_compare_refuses_a_mistake_that_is_right():
    with pytest.raises(ValueError, match="gives the right value"):
        compare(A, A, mistakes={"no mistake at all": A.copy()})


def softmax_without_row_correction(S):
    P, _ = an.softmax(S)
    return P, lambda dP: P * dP


def test_check_vjp_sees_a_missing_row_correction_and_ones_would_not(rng):
    S = rng.standard_normal((3, 5))
    check_vjp(an.softmax, S, rng=rng)
    with pytest.raises(AssertionError, match="cotangent of argument 0"):
        check_vjp(softmax_without_row_correction, S, rng=rng)
    # the reason: with a cotangent of ones the true cotangent is 0 whatever the scores are
    assert np.abs(an.softmax(S)[1](np.ones((3, 5)))).max() < 1e-15


@pytest.mark.parametrize(
    ("vjp", "message"),
    [
        (lambda dy: (dy, dy), "2 cotangents for 1 arguments"),
        (lambda dy: dy.sum(), r"shape \(\); expected \(2, 3\)"),
        (lambda dy: 2.001 * dy, "cotangent of argument 0"),
    ],
)
def test_check_vjp_refuses(vjp, message, rng):
    with pytest.raises(AssertionError, match=message):
        check_vjp(lambda x: (2 * x, vjp), A, rng=rng)


def test_check_vjp_needs_float64(rng):
    with pytest.raises(ValueError, match="argument 0 is not a float64 array"):
        check_vjp(an.gelu, A.astype(np.float32), rng=rng)


def test_bytes_held_counts_each_array_once_and_whole():
    big = np.zeros((100, 8))
    view = big[:3]
    assert count.bytes_held(lambda: (big, view)) == 6400
    assert count.bytes_held(lambda: [view, {"a": big[0]}]) == 6400
    assert count.bytes_held(lambda: None) == 0


@pytest.mark.claim("eq:attention-bytes")
def test_bytes_of_attention_by_formula_and_by_weighing(rng):
    Q, K, V = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 64, 8), (4, 96, 8), (4, 96, 8)))
    _, vjp = an.attention(Q, K, V)
    inputs = Q.nbytes + K.nbytes + V.nbytes
    assert count.bytes_held(vjp) - inputs == count.attention_bytes(64, 96, heads=4)


@pytest.mark.claim("eq:attention-flops", "eq:projection-flops")
def test_flops_by_formula_and_by_instrument():
    from torch.utils.flop_counter import FlopCounterMode

    n, m, k, v, d = 3, 5, 7, 2, 11
    with FlopCounterMode(display=False) as counter:
        at.attention(torch.zeros(n, k), torch.zeros(m, k), torch.zeros(m, v))
    assert counter.get_total_flops() == count.attention_flops(n, m, k, v)
    rows = torch.zeros(n, d)
    with FlopCounterMode(display=False) as counter:
        for width in (k, k, v):
            at.linear(rows, torch.zeros(d, width), torch.zeros(width))
        at.linear(torch.zeros(n, v), torch.zeros(v, d), torch.zeros(d))
    assert counter.get_total_flops() == count.projection_flops(n, d, k, v)


def test_attention_map_refuses_labels_that_do_not_fit():
    viz.style()
    with pytest.raises(ValueError, match=r"P has shape \(2, 3\); expected \(3, 3\)"):
        viz.attention_map(A / 10, "abc", "abc")


@pytest.mark.parametrize("f", [an.softmax, an.attention, an.multi_head_attention, at.EncoderLayer, count.bytes_held])
def test_source_is_shown_as_a_page_needs_it(f):
    """Without decorators, docstring and checks, in lines that fit; and everything else is there."""
    shown = viz.show_source(f).data
    assert shown.startswith(("def ", "class ")) and f.__name__ in shown.split("(")[0]
    assert max(map(len, shown.splitlines())) <= viz.WIDTH
    whole = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(f)))).body[0]

    class Shown(ast.NodeTransformer):
        def visit_Expr(self, node):
            kept = not ast.unparse(node).startswith(("_require.", "wiring.", "'", '"'))
            return node if kept else None

        def visit_If(self, node):
            return node if self.generic_visit(node).body else None

    whole.decorator_list = []
    assert ast.dump(ast.parse(shown).body[0]) == ast.dump(Shown().visit(whole))
    assert shown.count("# eq:") == inspect.getsource(inspect.unwrap(f)).count("# eq:")
