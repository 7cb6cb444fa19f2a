"""The results of the pages on many heads and on their cost: two forms, one function; what is equal and what is not."""

import weakref
from functools import partial, reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import count, shapes
from attnmath.check import check_vjp, compare
from attnmath.numpy.multi_head import merge_heads, split_heads

seeds = st.integers(0, 2**32 - 1)
small = st.integers(1, 4)


def layer(rng, heads, k=3, v=2, d=5):
    """Random parameters, inputs for cross-attention (two texts, 4 queries, 7 keys) and a mask of its own per head."""
    params = shapes.random_tree(shapes.attention_shapes(d, heads, k=k, v=v), rng, 0.6)
    Q, K, V = (rng.standard_normal((2, rows, d)) for rows in (4, 7, 7))
    mask = rng.random((2, heads, 4, 7)) < 0.7
    mask[..., 2] = True
    return params, Q, K, V, mask


def blocks(params, name, heads):
    """The weights and biases of one projection, head by head."""
    return zip(np.split(params[name]["weight"], heads, 1), np.split(params[name]["bias"], heads), strict=True)


@pytest.mark.claim("lem-concat-is-sum", "eq:head", "eq:multi-head", "eq:multi-head-sum", "eq:multi-head-vjp")
@settings(max_examples=12)
@given(seeds, small, small, small)
def test_concatenation_and_sum_are_one_function(seed, heads, k, v):
    """Both library forms, against the definition written out with each head's own small matrices."""
    rng = np.random.default_rng(seed)
    params, Q, K, V, mask = layer(rng, heads, k, v)
    by_definition = params["output"]["bias"]
    parts = [blocks(params, name, heads) for name in ("query", "key", "value")]
    Wo = np.split(params["output"]["weight"], heads)
    for i, ((Wq, bq), (Wk, bk), (Wv, bv)) in enumerate(zip(*parts, strict=True)):
        S = np.einsum("bnk,bmk->bnm", Q @ Wq + bq, K @ Wk + bk) / np.sqrt(k)
        E = np.exp(S - S.max()) * mask[:, i]
        by_definition = by_definition + np.einsum("bnm,bmv,vd->bnd", E / E.sum(-1, keepdims=True), V @ Wv + bv, Wo[i])
    O, vjp = an.multi_head_attention(Q, K, V, params, heads, mask)
    O_sum, vjp_sum = an.multi_head_sum(Q, K, V, params, heads, mask)
    compare(O, by_definition, name="concatenation", atol=1e-10)
    compare(O_sum, by_definition, name="sum", atol=1e-10)
    dO = rng.standard_normal(O.shape)
    compare(vjp(dO), vjp_sum(dO), name="cotangents", atol=1e-9)
    theirs = at.multi_head_sum(*map(torch.from_numpy, (Q, K, V)), at.from_numpy(params), heads, torch.from_numpy(mask))
    compare(theirs, by_definition, name="sum in PyTorch", atol=1e-10)


@pytest.mark.claim("eq:multi-head-vjp")
@pytest.mark.parametrize("f", [an.multi_head_attention, an.multi_head_sum])
def test_cotangents_of_many_heads(f, rng):
    params, Q, K, V, mask = layer(rng, 3)
    check_vjp(lambda Q, K, V, params: f(Q, K, V, params, 3, mask), Q, K, V, params, rng=rng)


@pytest.mark.claim("lem-split-merge")
@settings(max_examples=12)
@given(seeds, small, small)
def test_splitting_and_merging_are_inverse_and_adjoint(seed, heads, k):
    rng = np.random.default_rng(seed)
    X, dY = rng.standard_normal((2, 5, heads * k)), rng.standard_normal((2, heads, 5, k))
    Y = split_heads(X, heads)
    for i in range(heads):  # head i owns the columns i k, ..., (i + 1) k - 1, position by position
        compare(Y[:, i], X[..., i * k : (i + 1) * k], name=f"head {i}", atol=0.0, rtol=0.0)
    compare(merge_heads(Y), X, name="there and back", atol=0.0, rtol=0.0)
    compare((dY * Y).sum(), (merge_heads(dY) * X).sum(), name="<dY, split X>", atol=1e-11)


@pytest.mark.claim("lem-head-permutation")
@settings(max_examples=10)
@given(seeds, st.permutations(range(3)))
def test_heads_have_no_order(seed, order):
    rng = np.random.default_rng(seed)
    params, Q, K, V, mask = layer(rng, 3)
    O, _ = an.multi_head_attention(Q, K, V, params, 3, mask)
    rows = np.split(params["output"]["weight"], 3)
    moved = {"output": {**params["output"], "weight": np.concatenate([rows[i] for i in order])}}
    for name in ("query", "key", "value"):
        parts = list(blocks(params, name, 3))
        moved[name] = {
            "weight": np.concatenate([parts[i][0] for i in order], 1),
            "bias": np.concatenate([parts[i][1] for i in order]),
        }
    compare(an.multi_head_attention(Q, K, V, moved, 3, mask[:, order])[0], O, name="heads reordered", atol=1e-10)
    forgotten = an.multi_head_attention(Q, K, V, {**moved, "output": params["output"]}, 3, mask[:, order])[0]
    assert np.allclose(forgotten, O, atol=1e-6) == (list(order) == [0, 1, 2]), "the rows of W_o must move along"


def matrix_flops(f):
    with FlopCounterMode(display=False) as counter:
        f()
    return counter.get_total_flops()


@pytest.mark.slow
@pytest.mark.claim("prop-multi-head-cost", "eq:multi-head-flops", "errata-heads-not-free")
@pytest.mark.parametrize(("n", "d"), [(5, 12), (48, 24)])
def test_matrix_work_does_not_depend_on_the_number_of_heads(n, d, rng):
    """Counted by PyTorch and by formula; exponentials and held weights are h times those of one head."""
    X, tree = rng.standard_normal((n, d)), shapes.random_tree(shapes.attention_shapes(d), rng)
    held = {}
    for heads in (1, 2, 3, 6, 12):
        params = at.from_numpy(tree)
        x = torch.from_numpy(X)
        work = matrix_flops(lambda h=heads, x=x, p=params: at.multi_head_attention(x, x, x, p, h, attend=at.attention))
        assert work == count.multi_head_flops(n, d, heads, d // heads, d // heads) == 8 * n * d**2 + 4 * n**2 * d
        record = {}
        an.multi_head_attention(X, X, X, tree, heads, attend=an.recording(an.attention, record))
        held[heads] = count.bytes_held(an.multi_head_sum(X, X, X, tree, heads)[1])  # plain attention in each head
        assert record["weights"].size == count.exponentials(n, n, heads) == heads * n * n
        assert held[heads] - held[1] == (heads - 1) * n * n * 8


@pytest.mark.claim("eq:multi-head-flops")
@given(*[st.integers(1, 300)] * 5)
def test_the_formula_adds_its_parts(n, d, heads, k, v):
    by_hand = sum(2 * n * d * (k + k + v) + 2 * n * n * (k + v) + 2 * n * v * d for _ in range(heads))
    assert count.multi_head_flops(n, d, heads, k, v) == by_hand


@pytest.mark.claim("lem-checkpoint")
def test_a_checkpoint_changes_nothing_but_the_cost(rng):
    calls = []

    def counting(*args):
        calls.append(len(args))
        return an.multi_head_sum(*args)

    params, Q, K, V, mask = layer(rng, 3)
    O, vjp = an.multi_head_sum(Q, K, V, params, 3, mask)
    light, light_vjp = an.checkpoint(counting)(Q, K, V, params, 3, mask)
    assert len(calls) == 1 and np.array_equal(light, O)
    for _ in range(2):
        dO = rng.standard_normal(O.shape)
        compare(light_vjp(dO), vjp(dO), name="cotangents", atol=0.0, rtol=0.0)
    assert len(calls) == 3, "one more run for each backward pass"
    leaves = [leaf for part in params.values() for leaf in part.values()]
    arguments = [Q, K, V, *leaves, mask]
    assert count.bytes_held(light_vjp) == sum(A.nbytes for A in arguments) < count.bytes_held(vjp)


@pytest.mark.claim("lem-checkpoint")
def test_a_training_step_with_a_checkpoint_takes_four_thirds(rng):
    module = at.MultiHeadAttention(12, heads=3).double()
    X, dO = (torch.from_numpy(rng.standard_normal((2, 7, 12))) for _ in range(2))
    X.requires_grad_()

    def f(X):
        return module(X, X, X, attend=at.attention)

    forward, plain = matrix_flops(lambda: f(X)), matrix_flops(lambda: f(X).backward(dO))
    gradients = torch.autograd.grad(f(X), [X, *module.parameters()], dO, allow_unused=True)
    light = torch.autograd.grad(at.checkpoint(f)(X), [X, *module.parameters()], dO, allow_unused=True)
    compare(tuple(light), tuple(gradients), name="gradients with a checkpoint")
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        checkpointed = matrix_flops(lambda: at.checkpoint(f)(X).backward(dO))
    assert (plain, checkpointed) == (3 * forward, 4 * forward)


@pytest.mark.slow
@pytest.mark.claim("lem-sqrt-checkpoint")
@settings(max_examples=4)
@given(seeds, st.sampled_from([4, 6, 8]), st.integers(2, 9), st.integers(1, 9))
def test_segments_hold_what_the_lemma_says(seed, N, n, width):
    """A stack of attentions with residuals, weighed whenever a segment has been run: forward and backward."""
    rng = np.random.default_rng(seed)
    X0, dY = (rng.standard_normal((n, width)) for _ in range(2))
    waiting, weighed = [], []

    def stack(X, layers):
        vjps = []
        for _ in range(layers):
            O, vjp = an.attention(X, X, X)
            X = X + O
            vjps.append(vjp)
        weighed.append(count.bytes_held([*vjps, *waiting]))  # each array once
        return X, lambda dX: reduce(lambda dX, vjp: dX + sum(vjp(dX)), reversed(vjps), dX)

    want = stack(X0, N)[1](dY)
    x, a = X0.nbytes, weighed.pop() / N
    assert a == x + 8 * n * n, "a layer holds its input and its weights"
    for s in (s for s in range(1, N + 1) if N % s == 0):
        X, dX = X0, dY
        for _ in range(N // s):
            X, vjp = an.checkpoint(stack)(X, s)
            waiting.append(vjp)
        assert count.bytes_held(waiting) == N // s * x, "between the passes, the inputs of the segments"
        while waiting:
            dX = waiting[-1](dX)
            waiting.pop()
        assert np.array_equal(dX, want)
        assert max(weighed) == (N // s - 1) * x + s * a, "the input of the segment at work is among its layers' arrays"
        weighed.clear()


@pytest.mark.claim("lem-sqrt-checkpoint")
@given(st.integers(1, 500), st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0.01, 100))
def test_the_best_segment_is_the_root(N, x, a, s):
    best = (N * x / a) ** 0.5
    compare(N * x / best + best * a, 2 * (N * x * a) ** 0.5, name="the bound at the root", rtol=1e-9)
    assert N * x / s + s * a >= 2 * (N * x * a) ** 0.5 * (1 - 1e-12)
    assert N * x / s + s * a > 2 * (N * x * a) ** 0.5 * (1 + 1e-9) or abs(s / best - 1) < 1e-3


@pytest.mark.claim("exr-value-bias", "exr-head-coordinates")
@settings(max_examples=10)
@given(seeds)
def test_parameters_that_can_be_spared(seed):
    """The value bias goes into the output bias; an invertible change of coordinates inside a head does nothing."""
    rng = np.random.default_rng(seed)
    params, Q, K, V, mask = layer(rng, 3)
    O, _ = an.multi_head_attention(Q, K, V, params, 3, mask)
    bv, Wo, bo = params["value"]["bias"], params["output"]["weight"], params["output"]["bias"]
    merged = {
        **params,
        "value": {**params["value"], "bias": np.zeros_like(bv)},
        "output": {"weight": Wo, "bias": bo + bv @ Wo},
    }
    compare(an.multi_head_attention(Q, K, V, merged, 3, mask)[0], O, name="value bias merged", atol=1e-10)
    empty = mask & (np.arange(4) != 1)[:, None]  # query 2 may attend to nothing, and then the value bias does matter
    core = partial(an.attention_fused, empty_rows="zero")
    both = [an.multi_head_attention(Q, K, V, p, 3, empty, attend=core)[0][:, 1] for p in (params, merged)]
    compare(both[1] - both[0], np.broadcast_to(bv @ Wo, both[0].shape), name="empty row", atol=1e-10)

    A, B = np.eye(3) + 0.2 * rng.standard_normal((3, 3)), np.eye(2) + 0.2 * rng.standard_normal((2, 2))
    bare = {name: {"weight": p["weight"], "bias": np.zeros_like(p["bias"])} for name, p in params.items()}
    other = {name: {leaf: X.copy() for leaf, X in p.items()} for name, p in bare.items()}
    k, v = slice(3, 6), slice(2, 4)  # the columns of head 2
    for name, columns, M in (("query", k, A), ("key", k, np.linalg.inv(A).T), ("value", v, B)):
        other[name]["weight"][:, columns] = bare[name]["weight"][:, columns] @ M
    other["output"]["weight"][v] = np.linalg.inv(B) @ bare["output"]["weight"][v]
    got, want = (an.multi_head_attention(Q, K, V, p, 3, mask)[0] for p in (other, bare))
    compare(got, want, name="head 2 in other coordinates", atol=1e-9)


@pytest.mark.claim("exr-nested-checkpoints")
@pytest.mark.parametrize("r", [0, 1, 3])
def test_checkpoints_within_checkpoints_run_each_layer_r_plus_two_times(r, rng):
    runs, inputs, alive = [0] * 2**r, [], []

    def nested(i, size):
        def f(X):
            if size == 1:
                runs[i] += 1
                inputs.append(weakref.ref(X))
                if runs[-1] == r + 2 and not alive:  # the backward pass of the last layer begins
                    alive.extend({id(ref()) for ref in inputs if ref() is not None})
                Y, vjp = an.attention(X, X, X)
                return Y, lambda dY: sum(vjp(dY))
            halves = [nested(i, size // 2), nested(i + size // 2, size // 2)]
            Y, first = halves[0](X)
            Z, second = halves[1](Y)
            return Z, lambda dZ: first(second(dZ))

        return an.checkpoint(f)

    X, dY = rng.standard_normal((2, 5, 3))
    _, vjp = nested(0, 2**r)(X)
    assert runs == [1] * 2**r
    vjp(dY)
    assert runs == [r + 2] * 2**r
    assert len(alive) == r + 1, "inputs of layers that are held at the worst moment"


@pytest.mark.claim("exr-heads-parameters", "exr-narrow-heads", "exr-wrong-merge")
def test_the_numbers_of_the_exercises():
    for d, h, n in ((384, 12, 222), (4096, 32, 1449)):
        assert h * n * n > 4 * d * d > h * (n - 1) ** 2
    assert 60 * 26 * 10**2 > count.multi_head_flops(10, 384, 1, 384, 384) - 8 * 10 * 384**2 > 60 * 25 * 10**2
    H = np.array([[[10 * head + position] * 2 for position in range(1, 5)] for head in (1, 2)])  # entry: head, position
    assert H.reshape(4, 4).tolist() == [[11, 11, 12, 12], [13, 13, 14, 14], [21, 21, 22, 22], [23, 23, 24, 24]]
    assert merge_heads(H.astype(float))[0].tolist() == [11, 11, 21, 21]
