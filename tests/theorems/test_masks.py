"""Masks, causality and decoding (Chapter 3), shared keys and values (Chapter 4): tests that false statements fail."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import count
from attnmath.check import check_vjp, compare
from attnmath.shapes import attention_shapes, encoder_layer_shapes, random_tree

WORLDS = {"numpy": (an, np.array, lambda A: A), "torch": (at, torch.tensor, lambda A: A.numpy())}
world = pytest.mark.parametrize("world", WORLDS)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None, derandomize=True)


def equal(got, want):
    want = np.array(want)
    assert got.dtype == want.dtype and np.array_equal(got, want), f"got\n{got}\nexpected\n{want}"


# ---- the masks themselves


@world
@pytest.mark.claim("def-causal-mask", "eq:causal-mask")
def test_causal_masks(world):
    a, _, plain = WORLDS[world]
    equal(plain(a.causal_mask(3)), [[True, False, False], [True, True, False], [True, True, True]])
    equal(plain(a.causal_mask(2, 5)), [[True, True, True, True, False], [True, True, True, True, True]])
    equal(plain(a.causal_mask(1, 3)), [[True, True, True]])
    equal(plain(a.causal_mask(1)), [[True]])
    for n, m in ((4, 7), (5, 5), (1, 6)):
        by_definition = [[j <= i + m - n for j in range(1, m + 1)] for i in range(1, n + 1)]
        equal(plain(a.causal_mask(n, m)), by_definition)
    assert plain(a.causal_mask(7)).sum() == 7 * 8 // 2


@world
@pytest.mark.claim("eq:padding-mask")
def test_padding_masks(world):
    a, array, plain = WORLDS[world]
    equal(plain(a.padding_mask(array([1, 3, 2]))), [[[True, False, False]], [[True] * 3], [[True, True, False]]])
    equal(plain(a.padding_mask(array([2, 1]), 4)), [[[True, True, False, False]], [[True, False, False, False]]])
    assert tuple(a.padding_mask(array([2, 5, 1])).shape) == (3, 1, 5)


@world
@pytest.mark.claim("eq:window-mask")
def test_window_masks(world):
    a, _, plain = WORLDS[world]
    equal(plain(a.window_mask(3, 0)), np.eye(3, dtype=bool))
    equal(plain(a.window_mask(5, 2))[1], [True, True, True, True, False])
    equal(plain(a.window_mask(4, 1))[3], [False, False, True, True])
    assert (
        plain(a.window_mask(3, 9)).all() and plain(a.window_mask(3, 2)).all() and not plain(a.window_mask(3, 1)).all()
    )


@world
@pytest.mark.claim("eq:additive-mask")
def test_additive_masks(world):
    a, array, plain = WORLDS[world]
    dtypes = (np.float64, np.float32, np.float16) if world == "numpy" else (torch.float64, torch.float32, torch.float16)
    for dtype in dtypes:
        A = a.additive_mask(array([[True, False], [False, True]]), dtype)
        assert A.dtype == dtype
        assert plain(A).tolist() == [[0.0, -np.inf], [-np.inf, 0.0]]


@pytest.mark.claim("eq:additive-mask")
@few
@given(seeds)
def test_added_and_boolean_masks_give_the_same_weights(seed):
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((5, 3)), rng.standard_normal((7, 3))
    mask = rng.random((5, 7)) < 0.5
    mask[:, rng.integers(7)] = True
    S, _ = an.scaled_dot_score(Q, K)
    added, _ = an.softmax(S + an.additive_mask(mask, S.dtype))
    np.testing.assert_array_equal(added, an.attention_weights(Q, K, mask)[0])
    other = rng.random((5, 7)) < 0.7
    np.testing.assert_array_equal(
        an.additive_mask(mask, float) + an.additive_mask(other, float), an.additive_mask(mask & other, float)
    )


@pytest.mark.claim("sec-additive-masks")
def test_which_way_true_points_in_torch(rng):
    x, M = torch.tensor(rng.standard_normal((2, 5, 4))), at.causal_mask(5)
    real = at.padding_mask(torch.tensor([5, 3]))
    mha = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True, dtype=torch.float64).requires_grad_(False)
    mha.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    mha.out_proj.weight.copy_(torch.eye(4))
    want = at.attention(x, x, x, M & real)
    compare(F.scaled_dot_product_attention(x, x, x, attn_mask=M & real), want, name="SDPA, True = takes part")
    got, _ = mha(x, x, x, attn_mask=~M, key_padding_mask=~real[:, 0])
    compare(got, want, name="MultiheadAttention, True = not allowed")
    assert not torch.allclose(mha(x, x, x, attn_mask=~M, key_padding_mask=real[:, 0])[0], want)


# ---- a large negative number


@pytest.mark.claim("errata-large-negative")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_constants_attend_to_what_is_forbidden(dtype):
    s = torch.tensor([3.0, 1.0, 0.0, 2.0]).to(dtype)
    big, least = torch.tensor(-1e9).to(dtype), torch.tensor(torch.finfo(dtype).min, dtype=dtype)
    assert torch.isinf(big) == (dtype is torch.float16)
    for c in (big, least):
        row = torch.softmax(s + c, -1)
        assert torch.isnan(row).all() if torch.isinf(c) else (row == 0.25).all()
    assert (s + least == least).all(), "every score of ordinary size is lost"
    assert torch.isneginf(least + least) and torch.isnan(torch.softmax(s + least + least, -1)).all()
    once_or_twice = s + least * torch.tensor([1, 2, 1, 1]).to(dtype)
    row = torch.softmax(once_or_twice, -1).double()
    torch.testing.assert_close(row, torch.tensor([1.0, 0, 1, 1]).double() / 3, atol=2e-3, rtol=0)


@pytest.mark.claim("sec-poison")
def test_an_ignored_row_of_nan_spoils_the_values(rng):
    M = torch.tensor([[True, False, False], [False, False, False], [True, True, True]])
    grads = []
    for weights in (
        lambda S: torch.softmax(S.masked_fill(~M, -torch.inf), -1),
        lambda S: torch.softmax(S + at.additive_mask(M, S.dtype), -1),
        lambda S: at.softmax(S.masked_fill(~M, -torch.inf), empty_rows="zero"),
    ):
        q, k, v = (torch.tensor(rng.standard_normal((3, 2)), requires_grad=True) for _ in range(3))
        (weights(q @ k.T) @ v)[[0, 2]].sum().backward()
        grads.append([bool(A.grad.isnan().any()) for A in (q, k, v)])
    assert grads == [[False, False, True], [True, True, True], [False, False, False]]


# ---- causality


def jacobian(f, X):
    O, vjp = f(X)
    J = np.array([vjp(dO.reshape(O.shape))[0] for dO in np.eye(O.size)]).reshape(*O.shape, *X.shape)
    return np.abs(J).max((1, 3))


@pytest.mark.claim("prop-causality")
@few
@given(seeds, st.integers(2, 6), st.floats(0.1, 1.0))
def test_outputs_depend_on_the_past_and_on_all_of_it(seed, n, size):
    rng = np.random.default_rng(seed)
    X, weights = rng.standard_normal((n, 3)), size * rng.standard_normal((3, 3, 3))
    mask = an.causal_mask(n)
    O, _ = an.self_attention(X, *weights, mask)
    J = jacobian(lambda X: an.self_attention(X, *weights, mask), X)
    assert (J[~mask] == 0).all()
    P, _ = an.attention_weights(X @ weights[0], X @ weights[1], mask)
    assert ((P > 0) == mask).all() and (J[mask] > 0).all()
    j = int(rng.integers(1, n))
    moved = X.copy()
    moved[j:] = 5 * rng.standard_normal((n - j, 3))
    np.testing.assert_array_equal(an.self_attention(moved, *weights, mask)[0][:j], O[:j])
    assert np.abs(an.self_attention(moved, *weights, mask)[0][j:] - O[j:]).max() > 0


@pytest.mark.slow
@pytest.mark.claim("lem-causal-stack")
@few
@given(seeds, st.integers(1, 3))
def test_a_stack_of_causal_layers_is_causal(seed, depth):
    rng = np.random.default_rng(seed)
    layers = [random_tree(encoder_layer_shapes(4, 7), rng, 0.5) for _ in range(depth)]
    X, j = rng.standard_normal((5, 4)), int(rng.integers(1, 5))
    edited = X.copy()
    edited[j:] = rng.standard_normal((5 - j, 4))

    def moved(mask):
        outputs = []
        for Y in (X, edited):
            for params in layers:
                Y, _ = an.encoder_layer(Y, params, 2, mask)
            outputs.append(Y)
        return np.abs(outputs[0] - outputs[1]).max(-1)

    causal = moved(an.causal_mask(5))
    assert (causal[:j] == 0).all() and causal[j] > 0
    assert moved(np.tri(5, 5, 1, dtype=bool))[j - 1] > 0, "one diagonal too far shows"


@pytest.mark.claim("exr-mask-depth")
def test_what_a_position_may_not_see_it_may_hear_of(rng):
    n, depth = 9, 3
    windowed = an.causal_mask(n) & an.window_mask(n, 2)
    holes = rng.random((n, n)) < 0.2
    for mask in (windowed, holes | np.eye(n, dtype=bool), an.causal_mask(n)):
        layers = 0.5 * rng.standard_normal((depth, 3, 3, 3))

        def stack(X, mask=mask, layers=layers):
            vjps = []
            for weights in layers:
                O, vjp = an.self_attention(X, *weights, mask)
                X = X + O
                vjps.append(vjp)

            def back(dX):
                for vjp in reversed(vjps):
                    dX = dX + vjp(dX)[0]
                return (dX,)

            return X, back

        reach = np.linalg.matrix_power((mask | np.eye(n, dtype=bool)).astype(int), depth) > 0
        np.testing.assert_array_equal(jacobian(stack, rng.standard_normal((n, 3))) > 0, reach)
    i, j = np.indices((n, n))
    assert (np.linalg.matrix_power(windowed.astype(int), depth) > 0).tolist() == ((j <= i) & (j >= i - 6)).tolist()


@pytest.mark.claim("lem-mask-renormalise")
@few
@given(seeds, st.integers(2, 9))
def test_a_masked_softmax_is_a_conditional_distribution(seed, m):
    rng = np.random.default_rng(seed)
    s, allowed = 3 * rng.standard_normal(m), rng.random(m) < 0.5
    allowed[0], allowed[-1] = True, False
    p, _ = an.softmax(s)
    want, _ = an.softmax(np.where(allowed, s, -np.inf))
    compare(np.where(allowed, p, 0) / p[allowed].sum(), want, name="p given allowed", atol=1e-13)
    assert p[allowed].sum() < 1
    s[-1] += 1  # a forbidden score rises
    assert (an.softmax(s)[0][allowed] < p[allowed]).all()
    s[-1] = 2000.0
    assert an.softmax(s)[0][allowed].sum() == 0 and np.isfinite(want).all(), "underflow: only masking first survives"


# ---- fewer queries than keys


@pytest.mark.claim("lem-cached-decoding", "eq:causal-mask")
@few
@given(seeds, st.integers(1, 7), st.integers(0, 6))
def test_the_last_queries_alone_give_the_last_rows(seed, n, earlier):
    rng = np.random.default_rng(seed)
    m = n + earlier
    Q, K, V = rng.standard_normal((3, m, 4))
    O, _ = an.attention(Q, K, V, an.causal_mask(m))
    compare(an.attention(Q[-n:], K, V, an.causal_mask(n, m))[0], O[-n:], name="the last queries", atol=1e-12)
    i = int(rng.integers(m))
    compare(an.attention(Q[i : i + 1], K[: i + 1], V[: i + 1])[0], O[i : i + 1], name="one query, no mask", atol=1e-12)
    if earlier:  # the upper left corner is wrong, in every row but one that sees everything anyway
        assert not np.allclose(an.attention(Q[-n:], K, V, np.tri(n, m, dtype=bool))[0], O[-n:], atol=1e-6)


@pytest.mark.claim("lem-cached-decoding")
def test_torch_aligns_is_causal_at_the_upper_left(rng):
    from torch.nn.attention.bias import causal_lower_right

    Q, K, V = torch.tensor(rng.standard_normal((3, 1, 2, 7, 4)))
    for n in (1, 3):
        q = Q[:, :, -n:]
        want = at.attention(q, K, V, at.causal_mask(n, 7))
        compare(F.scaled_dot_product_attention(q, K, V, attn_mask=causal_lower_right(n, 7)), want, name="lower right")
        upper = at.attention(q, K, V, torch.ones(n, 7, dtype=torch.bool).tril())
        compare(F.scaled_dot_product_attention(q, K, V, is_causal=True), upper, name="is_causal")


@pytest.mark.claim("lem-cached-decoding", "lem-causal-stack")
@few
@given(seeds)
def test_decoding_with_a_cache_equals_one_pass(seed):
    rng = np.random.default_rng(seed)
    X, layers = rng.standard_normal((6, 3)), 0.6 * rng.standard_normal((2, 3, 3, 3))
    want = X
    for weights in layers:
        want = want + an.self_attention(want, *weights, an.causal_mask(6))[0]
    cache = [[np.empty((0, 3)), np.empty((0, 3))] for _ in layers]
    for t in range(6):
        x = X[t : t + 1]
        for held, (Wq, Wk, Wv) in zip(cache, layers, strict=True):
            held[:] = np.vstack([held[0], x @ Wk]), np.vstack([held[1], x @ Wv])
            x = x + an.attention(x @ Wq, *held)[0]
        compare(x[0], want[t], name=f"step {t}", atol=1e-11)


@pytest.mark.claim("rem-padding-sides")
@few
@given(seeds, st.integers(1, 5), st.integers(1, 4))
def test_padding_on_the_right_needs_no_mask_and_on_the_left_does(seed, n, pad):
    rng = np.random.default_rng(seed)
    X, junk, weights = rng.standard_normal((n, 3)), rng.standard_normal((pad, 3)), rng.standard_normal((3, 3, 3)) / 3
    alone, _ = an.self_attention(X, *weights, an.causal_mask(n))
    causal, tokens = an.causal_mask(n + pad), np.arange(n + pad) >= pad
    right, left = np.vstack([X, junk]), np.vstack([junk, X])
    compare(an.self_attention(right, *weights, causal)[0][:n], alone, name="right, causal only", atol=1e-12)
    assert np.flatnonzero(~(causal & tokens).any(-1)).tolist() == list(range(pad))
    got, _ = an.self_attention(left, *weights, causal & tokens, empty_rows="zero")
    compare(got[pad:], alone, name="left, both", atol=1e-12)
    itself = causal & tokens | np.eye(n + pad, dtype=bool)
    compare(an.self_attention(left, *weights, itself)[0][pad:], alone, name="left, or itself", atol=1e-12)
    assert np.abs(an.self_attention(left, *weights, causal)[0][pad:] - alone).max() > 1e-6


# ---- shared keys and values


def tied(params, h, g):
    """Multi-head parameters, each key and value head of the grouped ones written out for every head of its group."""
    out = dict(params)
    for name in ("key", "value"):
        out[name] = {}
        for leaf, A in params[name].items():
            columns = A.shape[-1] // g
            pieces = [A[..., (i * g // h) * columns : (i * g // h + 1) * columns] for i in range(h)]
            out[name][leaf] = np.concatenate(pieces, -1)
    return out


heads_and_groups = st.sampled_from([(6, 6), (6, 3), (6, 2), (6, 1), (4, 2)])


@pytest.mark.slow
@pytest.mark.claim("eq:grouped-heads", "lem-tied-heads")
@few
@given(seeds, heads_and_groups)
def test_sharing_is_tying(seed, sizes):
    (h, g), rng = sizes, np.random.default_rng(seed)
    params = random_tree(attention_shapes(5, h, g, k=2, v=3), rng)
    Q, K = rng.standard_normal((3, 5)), rng.standard_normal((7, 5))
    dO = rng.standard_normal((3, 5))
    O, vjp = an.multi_head_attention(Q, K, K, params, h)
    O_tied, vjp_tied = an.multi_head_attention(Q, K, K, tied(params, h, g), h)
    compare(O, O_tied, name="grouped = tied", atol=1e-10, rtol=1e-10)
    compare(an.multi_head_sum(Q, K, K, params, h)[0], O_tied, name="the sum over heads", atol=1e-10)
    *dX, dparams = vjp(dO)
    *dX_tied, dtied = vjp_tied(dO)
    compare(tuple(dX), tuple(dX_tied), name="gradients of the inputs", atol=1e-9, rtol=1e-9)
    for name in ("key", "value"):
        for leaf, dA in dtied[name].items():
            width = dA.shape[-1] // h
            want = np.zeros_like(params[name][leaf])
            for i in range(h):
                j = i * g // h
                want[..., j * width : (j + 1) * width] += dA[..., i * width : (i + 1) * width]
            compare(dparams[name][leaf], want, name=f"d{name} {leaf}", atol=1e-9, rtol=1e-9)
    compare(dparams["query"], dtied["query"], name="query", atol=1e-9, rtol=1e-9)
    compare(dparams["output"], dtied["output"], name="output", atol=1e-9, rtol=1e-9)


@pytest.mark.claim("eq:grouped-heads-vjp")
def test_the_gradient_of_shared_heads(rng):
    shapes = attention_shapes(5, 6, 2, k=2, v=3)
    params, X = random_tree(shapes, rng), rng.standard_normal((2, 4, 5))
    f = lambda Q, K, V, p: an.multi_head_attention(Q, K, V, p, 6)  # noqa: E731
    check_vjp(f, X, rng.standard_normal((2, 7, 5)), rng.standard_normal((2, 7, 5)), params, rng=rng)


@pytest.mark.claim("eq:grouped-heads")
def test_heads_are_repeated_one_by_one_as_torch_does(rng):
    Q, K, V = (torch.tensor(rng.standard_normal(s)) for s in ((2, 6, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)))
    want = F.scaled_dot_product_attention(Q, K, V, enable_gqa=True)
    compare(at.attention(Q, at.share_heads(K, 3), at.share_heads(V, 3)), want, name="share_heads")
    shared = an.share_heads(K.numpy(), 3)
    for i in range(6):
        np.testing.assert_array_equal(shared[:, i], K.numpy()[:, i * 2 // 6])
    assert not torch.allclose(at.attention(Q, K.repeat(1, 3, 1, 1), V.repeat(1, 3, 1, 1)), want)


@pytest.mark.claim("lem-blind-directions")
@few
@given(seeds, st.sampled_from([(6, 3), (6, 2), (6, 1), (4, 1)]))
def test_what_is_not_cached_is_not_seen(seed, sizes):
    (h, g), rng = sizes, np.random.default_rng(seed)
    d, k, v = 17, 2, 3
    p = random_tree(attention_shapes(d, h, g, k=k, v=v), rng)
    both = np.hstack([p["key"]["weight"], p["value"]["weight"]])
    blind = np.linalg.svd(both.T)[2][min(d, g * (k + v)) :]
    assert len(blind) == d - g * (k + v) > 0
    Q, X = rng.standard_normal((2, 4, d))
    hidden = X + 10 * rng.standard_normal((4, len(blind))) @ blind
    O, _ = an.multi_head_attention(Q, X, X, p, h)
    compare(an.multi_head_attention(Q, hidden, hidden, p, h)[0], O, name="outputs", atol=1e-8, rtol=1e-8)
    seen = X + rng.standard_normal((4, 1)) @ np.linalg.svd(both.T)[2][:1]
    assert np.abs(an.multi_head_attention(Q, seen, seen, p, h)[0] - O).max() > 1e-3
    Wq = p["query"]["weight"].reshape(d, h, k).swapaxes(0, 1)
    Wk = an.share_heads(p["key"]["weight"].reshape(d, g, k).swapaxes(0, 1), h // g)
    assert np.linalg.matrix_rank((Wq @ Wk.swapaxes(-1, -2)).reshape(h * d, d)) == g * k


@pytest.mark.claim("eq:kv-bytes")
def test_the_cache_weighs_what_the_formula_says(rng):
    b, layers, n = 3, 2, 11
    for g, dtype in ((6, np.float64), (2, np.float32), (1, np.float16)):
        cache = [(np.zeros((b, g, n, 5), dtype), np.zeros((b, g, n, 7), dtype)) for _ in range(layers)]
        held = sum(K.nbytes + V.nbytes for K, V in cache)
        assert held == count.kv_cache_bytes(n, g, 5, 7, layers=layers, batch=b, itemsize=np.dtype(dtype).itemsize)


@pytest.mark.claim("errata-kv-step")
def test_a_step_is_mostly_projections_until_twice_the_width():
    d = 8192
    for m in (1, 2 * d - 1, 2 * d + 1, 10 * d):
        assert (count.attention_flops(1, m, d, d) > count.projection_flops(1, d, d, d)) == (m > 2 * d)
        assert count.attention_flops(1, m, d, d) + count.projection_flops(1, d, d, d) == 8 * d**2 + 4 * m * d
