"""The page on sparse patterns: who can hear of whom, after how many layers, and what a block form does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import layouts as L
from attnmath.check import compare
from attnmath.layouts import layers_to_reach, reached

few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**20)


def stack(X, masks, layers, W):
    """Layers of attention with a residual, a token-wise tanh, and random projections; returns the last states."""
    for layer in range(layers):
        q, k, v = (X @ W[layer, i] for i in range(3))
        X = np.tanh(X + an.attention(q, k, v, masks[layer % len(masks)])[0])
    return X


@pytest.mark.claim("thm-reach", "eq:reach")
@few
@given(seeds, st.integers(2, 9), st.integers(1, 3), st.integers(1, 2))
def test_a_token_hears_of_those_that_a_path_leads_to_and_of_no_others(seed, n, layers, kinds):
    rng = np.random.default_rng(seed)
    masks = [rng.random((n, n)) < 0.25 for _ in range(kinds)]
    for mask in masks:
        mask[np.arange(n), rng.integers(0, n, n)] = True
    R = reached(*masks, layers=layers)
    X, W = rng.standard_normal((n, 3)), rng.standard_normal((layers, 3, 3, 3))
    Y = stack(X, masks, layers, W)
    uniform = np.eye(n)
    for layer in range(layers):
        P = masks[layer % kinds] / masks[layer % kinds].sum(1, keepdims=True)
        uniform = uniform + P @ uniform  # attention with queries 0, beside a residual
    assert np.array_equal(uniform > 0, R), "some parameters let every path be heard"
    for j in range(n):
        changed = X.copy()
        changed[j] += rng.standard_normal(3)
        moved = (stack(changed, masks, layers, W) != Y).any(1)
        assert not moved[~R[:, j]].any(), "and no parameters let another be heard, not by the last bit"
        assert moved[j]


@pytest.mark.claim("eq:reach")
@few
@given(seeds, st.integers(1, 8), st.integers(0, 4))
def test_reach_is_the_set_of_paths(seed, n, layers):
    """By walking, token by token."""
    rng = np.random.default_rng(seed)
    masks = [rng.random((n, n)) < 0.3, rng.random((n, n)) < 0.2]
    for i in range(n):
        known = {i}
        for layer in reversed(range(layers)):  # the last layer's row i looks at states of the layer before
            known |= {int(j) for k in known for j in np.flatnonzero(masks[layer % 2][k])}
        assert set(np.flatnonzero(reached(*masks, layers=layers)[i])) == known


widths, strides = st.integers(1, 6), st.integers(2, 7)


@pytest.mark.claim("prop-layers")
@few
@given(st.integers(2, 40), widths, strides, st.booleans(), seeds)
def test_layers_until_every_pair_is_connected(n, w, s, causal, seed):
    rng = np.random.default_rng(seed)
    assert layers_to_reach(L.window(w, causal).mask(n)) == -(-(n - 1) // w)
    with pytest.raises(ValueError, match="never hears of key"):
        layers_to_reach(L.dilated(w, s, causal).mask(n))
    strided = layers_to_reach(L.strided(s).mask(n))
    assert strided == (2 if n >= s + 2 else 1)
    c = int(rng.integers(1, s + 1))
    assert layers_to_reach(L.fixed(s, c).mask(n)) == (2 if c < s and n > s else 1)
    tokens = rng.integers(0, n, 2).tolist()
    allowed = L.longformer(w, tokens).mask(n)
    assert layers_to_reach(allowed) == (1 if allowed.all() else 2)
    big = L.bigbird(2, width=0, ends=1, random=1, seed=seed).mask(n)
    assert layers_to_reach(big) == (1 if big.all() else 2)
    assert layers_to_reach(L.sinks(c, w).mask(n)) == max(1, -(-(n - 1 - c) // w))


@pytest.mark.claim("prop-layers")
def test_the_two_halves_of_the_strided_pattern_serve_in_either_order():
    near, far = L.window(5, causal=True).mask(31), L.dilated(None, 5, causal=True).mask(31)
    assert layers_to_reach(near, far) == layers_to_reach(far, near) == 2
    with pytest.raises(ValueError, match="query 1 never hears of key 0"):
        layers_to_reach(far)


@pytest.mark.claim("lem-row-budget")
@few
@given(seeds, st.integers(2, 30), st.integers(1, 4), st.integers(1, 4))
def test_rows_of_r_keys_reach_at_most_r_to_the_layers(seed, n, r, layers):
    rng = np.random.default_rng(seed)
    masks = []
    for _ in range(2):
        mask = np.eye(n, dtype=bool)
        np.put_along_axis(mask, rng.integers(0, n, (n, r - 1)), True, 1)
        masks.append(mask)
    assert reached(*masks, layers=layers).sum(1).max() <= r**layers
    tree = (np.arange(27)[:, None] * 3 + np.arange(3)) % 27  # the bound is attained
    mask = np.zeros((27, 27), bool)
    np.put_along_axis(mask, tree, True, 1)
    assert reached(mask, layers=3)[0].all() and not reached(mask, layers=2)[0].all()


@pytest.mark.claim("lem-needle", "errata-bigbird")
@few
@given(seeds, st.integers(3, 12), st.integers(1, 3))
def test_no_pattern_without_a_path_copies_a_needle(seed, n, layers):
    """Whatever the parameters: two inputs that differ at an unreached token give one output, and one error is >= 1."""
    rng = np.random.default_rng(seed)
    mask = L.window(1, causal=True).mask(n)
    if reached(mask, layers=layers)[-1, 0]:
        return
    X, W = rng.standard_normal((n, 3)), 3 * rng.standard_normal((layers, 3, 3, 3))
    outputs = []
    for needle in (1.0, -1.0):
        X[0] = needle
        outputs.append(stack(X, [mask], layers, W)[-1])
    assert np.array_equal(*outputs)
    assert max(abs(outputs[0][0] - 1), abs(outputs[1][0] + 1)) >= 1
    key = np.zeros((n, 1))
    key[0] = 60.0
    for needle in (1.0, -1.0):
        values = np.where(np.arange(n)[:, None] == 0, needle, X[:, :1])
        O, _ = an.attention(np.ones((1, 1)), key, values)
        compare(O, [[needle]], atol=1e-12)  # one layer that sees every key copies it


@pytest.mark.claim("prop-block-form", "eq:block-sparse", "eq:block-sparse-vjp", "eq:block-gather-vjp")
@few
@given(seeds, st.integers(1, 20), st.integers(1, 20), st.integers(1, 6))
def test_the_block_form_is_attention_with_the_mask(seed, n, m, size):
    rng = np.random.default_rng(seed)
    tiles = rng.random((-(-n // size), -(-m // size))) < 0.5
    tiles[np.arange(len(tiles)), rng.integers(0, tiles.shape[1], len(tiles))] = True
    mask = tiles.repeat(size, 0).repeat(size, 1)[:n, :m]
    Q, K, V = rng.standard_normal((2, n, 3)), rng.standard_normal((2, m, 3)), rng.standard_normal((2, m, 4))
    O, vjp = an.block_sparse_attention(Q, K, V, layout=tiles, size=size)
    dense, dense_vjp = an.attention(Q, K, V, mask)
    dO = rng.standard_normal(O.shape)
    compare(O, dense, atol=1e-12)
    compare(vjp(dO), dense_vjp(dO), atol=1e-12)


@pytest.mark.claim("eq:reach")
def test_a_layer_that_adds_nothing_is_not_the_end():
    assert layers_to_reach(np.eye(4, dtype=bool), L.window(1).mask(4)) == 6
