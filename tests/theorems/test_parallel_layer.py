"""A parallel layer: two products with weights, and how far it is from a serial one."""

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.parallel_shapes import parallel_layer_shapes
from attnmath.shapes import random_tree
from tests.attnmath.cases.case import FF, HEADS, D, N

RNG = np.random.default_rng(811)


def layer(seed):
    return random_tree(parallel_layer_shapes(D, FF), np.random.default_rng(seed))


@pytest.mark.claim("prop-parallel-products")
def test_one_product_reads_and_one_writes():
    params, X = layer(1), RNG.standard_normal((N, D))
    own, net = params["attention"], params["feed_forward"]
    Z = an.layer_norm(X, *(params["norm"][name] for name in ("gain", "bias")))[0]
    readers = [own["query"], own["key"], own["value"], net["up"]]
    into, bias = (np.concatenate([p[leaf] for p in readers], -1) for leaf in ("weight", "bias"))
    assert into.shape == (D, 3 * D + FF)
    Q, K, V, H = np.split(Z @ into + bias, [D, 2 * D, 3 * D], -1)
    heads = [A.reshape(N, HEADS, -1).swapaxes(0, 1) for A in (Q, K, V)]
    S = heads[0] @ heads[1].swapaxes(-1, -2) * (D // HEADS) ** -0.5
    P = np.exp(S - S.max(-1, keepdims=True))
    O = (P / P.sum(-1, keepdims=True) @ heads[2]).swapaxes(0, 1).reshape(N, D)
    G = an.gelu(H)[0]
    back = np.concatenate([own["output"]["weight"], net["down"]["weight"]])
    assert back.shape == (D + FF, D)
    Y = X + np.concatenate([O, G], -1) @ back + own["output"]["bias"] + net["down"]["bias"]
    compare(an.parallel_layer(X, params, HEADS)[0], Y, name="two products", atol=1e-12)


def directions(rng, kind):
    """Two rows: any two, two of which one is longer, and two that point the same or the opposite way."""
    u = rng.standard_normal(5)
    v = {"any": rng.standard_normal(5), "long": 100 * rng.standard_normal(5), "same": 3 * u, "opposite": -2 * u}[kind]
    return u, v


@pytest.mark.claim("lem-unit-vectors")
@pytest.mark.parametrize("kind", ["any", "long", "same", "opposite"])
def test_unit_vectors_are_nearer_than_their_mean_length_says(kind):
    for seed in range(200):
        u, v = directions(np.random.default_rng(seed), kind)
        apart = np.linalg.norm(u / np.linalg.norm(u) - v / np.linalg.norm(v))
        bound = 2 * np.linalg.norm(u - v) / (np.linalg.norm(u) + np.linalg.norm(v))
        assert apart <= bound + 1e-12
        if kind == "opposite":
            assert apart == pytest.approx(bound), "the factor 2 cannot be smaller"


@pytest.mark.claim("prop-parallel-distance")
def test_a_serial_layer_is_as_far_as_attention_turns_the_row():
    largest = 0.0
    for seed in range(60):
        rng, params = np.random.default_rng(seed), layer(seed)
        X = rng.standard_normal((N, D)) * 10 ** rng.uniform(-1, 2)
        gain, bias = (params["norm"][name] for name in ("gain", "bias"))
        own, net = params["attention"], params["feed_forward"]

        def network(X, net=net, gain=gain, bias=bias):
            return an.feed_forward(an.layer_norm(X, gain, bias, eps=1e-30)[0], net, activation=an.relu)[0]

        Z = an.layer_norm(X, gain, bias, eps=1e-30)[0]
        A = an.multi_head_attention(Z, Z, Z, own, HEADS)[0]
        gap = np.linalg.norm(network(X + A) - network(X), axis=-1)
        lipschitz = np.prod([np.linalg.norm(net[name]["weight"], 2) for name in ("up", "down")])
        lengths = sum(np.linalg.norm(R - R.mean(-1, keepdims=True), axis=-1) for R in (X, X + A))
        moved = np.linalg.norm(A - A.mean(-1, keepdims=True), axis=-1)
        bound = lipschitz * np.abs(gain).max() * np.sqrt(D) * 2 * moved / lengths
        assert np.all(gap <= bound * (1 + 1e-12))
        assert gap.max() > 0
        largest = max(largest, (gap / bound).max())
    assert largest > 0.02, "the bound is no empty one"
