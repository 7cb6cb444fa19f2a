"""Random features: the directions that are drawn, bad input, and attention that stays finite."""

from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import check_vjp, compare
from tests.attnmath.refusals import check_refused

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def draw(world, *args, seed=0, **options):
    rng = np.random.default_rng(seed) if world is an else torch.Generator().manual_seed(seed)
    return np.asarray(world.draw_directions(*args, rng, **options), np.float64)


@WORLDS
def test_directions_of_a_block_are_at_right_angles(world):
    W = draw(world, 11, 4)
    assert W.shape == (11, 4)
    for start in (0, 4, 8):
        G = W[start : start + 4] @ W[start : start + 4].T
        compare(G - np.diag(np.diag(G)), np.zeros_like(G), atol=1e-5)
    assert abs(W[:4] @ W[4:8].T).max() > 0.1, "blocks are independent"
    G = draw(world, 4, 4, orthogonal=False)
    assert abs(np.triu(G @ G.T, 1)).max() > 0.1


@WORLDS
@pytest.mark.parametrize("orthogonal", [True, False])
def test_each_direction_is_normal(world, orthogonal):
    """First, second and fourth moments of 9,000 directions, to five standard errors."""
    W, five = draw(world, 9000, 3, orthogonal=orthogonal, seed=4), 5 / 9000**0.5
    assert abs(W.mean(0)).max() < five
    assert abs(W.T @ W / 9000 - np.eye(3)).max() < five * 2**0.5
    along = W @ np.array([2, -1, 2]) / 3
    assert abs((along**4).mean() - 3) < five * 96**0.5
    assert abs((W**2).sum(-1).var() - 6) < five * 15


X, W = np.ones((4, 3)), np.ones((5, 3))
BAD = [
    ("random_features", (X, np.ones((5, 2))), {}, r"W has shape \(5, 2\), expected \(r, k\) with k = 3"),
    ("random_features", (X, W), {"kind": "cosine"}, r"kind is 'cosine'; expected one of 'positive', 'trigonometric'"),
    ("random_features", (X, np.ones((0, 3))), {}, r"W has shape \(0, 3\); at least one direction"),
    ("random_features", (X, W.astype(np.float32)), {}, r"W has dtype .*float32 but X has"),
    ("performer_attention", (X, X, X), {"directions": np.ones((5, 2))}, r"directions has shape \(5, 2\)"),
    ("performer_attention", (X, X, X), {"directions": np.ones((0, 3))}, r"directions has shape \(0, 3\); at least"),
    ("performer_attention", (X, X, X), {"directions": W, "scale": -1.0}, r"scale is -1\.0; it must be > 0"),
    ("performer_attention", (X, X, X), {"directions": W, "form": "x"}, r"form is 'x'; expected one of"),
    ("performer_attention", (X, X, X), {"directions": W, "mask": np.zeros(4, bool)}, r"row \(0,\) has no weights"),
    ("draw_directions", (0, 3, None), {}, r"r is 0; it must be an integer >= 1"),
    ("draw_directions", (3, 2.0, None), {}, r"k is 2\.0; it must be an integer >= 1"),
]


@WORLDS
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, world, as_users_call):
    check_refused(world, *BAD[row])


def test_one_key_receives_everything(rng):
    Q, K, V = (rng.standard_normal(s) for s in ((3, 5), (1, 5), (1, 2)))
    O, vjp = an.performer_attention(Q, K, V, directions=W[:, [0, 1, 2, 0, 1]])
    compare(O, np.broadcast_to(V, O.shape), atol=1e-14)
    dQ, dK, dV = vjp(rng.standard_normal(O.shape))
    assert max(abs(dQ).max(), abs(dK).max()) < 1e-13 < abs(dV).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_in_the_thousands_stay_finite(dtype, rng):
    """Where the features of the formula overflow, and a causal mask hides nothing that is large."""
    Q, K, V = rng.standard_normal((3, 6, 5)).astype(dtype)
    directions = rng.standard_normal((9, 5)).astype(dtype)
    Q, K = 60 * Q, 60 * K
    with np.errstate(over="ignore"):
        plain, _ = an.random_features(Q * 5**-0.25, directions)
    assert not (plain.max() < np.inf and plain.max(-1).min() > 0)
    O, vjp = an.performer_attention(Q, K, V, directions=directions)
    lo, hi = V.min(0) - 1e-5, V.max(0) + 1e-5
    assert ((lo <= O) & (O <= hi)).all()
    assert all(np.isfinite(dX).all() for dX in vjp(np.ones_like(O)))


def test_in_a_decoder_of_both_worlds(rng):
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 1, 9, heads=3), rng, 0.5)
    ids, directions = rng.integers(0, 11, (2, 9)), rng.standard_normal((8, 4))

    def model(params):
        return an.decoder_only(ids, params, 3, attend=partial(an.performer_attention, directions=directions))

    Y, _ = model(params)
    core = partial(at.performer_attention, directions=torch.from_numpy(directions))
    twin = at.decoder_only(torch.from_numpy(ids), at.from_numpy(params), 3, attend=core)
    compare(twin, Y, name="twin", atol=1e-11)
    check_vjp(model, params, rng=rng)


def test_autocast_keeps_the_value(rng):
    """The exponents are computed in float32, after one rounding of the arguments."""
    Q, K, V = (2 * torch.from_numpy(rng.standard_normal((3, 6, 5))).float()).unbind()
    directions = torch.from_numpy(rng.standard_normal((9, 5))).float()
    for f in (partial(at.performer_attention, directions=directions), partial(at.linear_attention, causal=True)):
        with torch.autocast("cpu", torch.bfloat16):
            low = f(Q, K, V)
        rounded = [X.bfloat16().float() for X in (Q, K, V)]
        options = {"directions": directions.bfloat16().float()} if "directions" in f.keywords else {}
        assert low.dtype == torch.bfloat16
        compare(low, partial(f.func, **f.keywords | options)(*rounded), atol=2e-2, rtol=8e-3)
