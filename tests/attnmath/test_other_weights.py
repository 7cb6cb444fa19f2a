"""Weights beside softmax: OpenAI's sinks, bad input, huge scores, heads that share keys, caches and whole models."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch._subclasses.fake_tensor import FakeTensorMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.cache import KeyValueCache
from attnmath.check import check_vjp, compare
from attnmath.numpy.cores import recording
from tests.attnmath.refusals import check_refused

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
CORES = [
    partial(an.pointwise_attention, kind="squared_relu"),
    partial(an.sink_attention, sinks=np.array([0.3, -0.5, 1.0])),
    partial(an.sinkhorn_attention, steps=3),
]
IDS = ["pointwise", "sink", "sinkhorn"]


def twin(core):
    options = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in core.keywords.items()}
    return partial(getattr(at, core.func.__name__), **options)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_sinks_are_those_of_gpt_oss(causal, rng):
    """Heads in groups, a sink for each head, and a mask; values and all four gradients."""
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    shapes_of = ((2, 6, 4, 8), (2, 3, 4, 8), (2, 3, 4, 8), (6,))
    Q, K, V, b = leaves = [torch.from_numpy(rng.standard_normal(s)).requires_grad_() for s in shapes_of]
    mask = np.tril(np.ones((4, 4), bool)) if causal else np.ones((4, 4), bool)
    module = SimpleNamespace(num_key_value_groups=2, sinks=b, training=False)
    added = torch.zeros(4, 4, dtype=torch.float64).masked_fill(~torch.from_numpy(mask), -torch.inf)
    theirs, weights = eager_attention_forward(module, Q, K, V, added[None, None], scaling=0.3)
    arrays = [X.detach().numpy() for X in leaves]
    core = an.grouped(partial(an.sink_attention, scale=0.3, sinks=arrays[3]))
    O, vjp = core(*arrays[:3], mask=mask)
    dO = rng.standard_normal(O.shape)
    grads = torch.autograd.grad(theirs.transpose(1, 2), leaves, torch.from_numpy(dO))
    compare(O, theirs.transpose(1, 2), name="output", atol=1e-10)
    compare(vjp(dO), grads, name="gradients", atol=1e-10)
    S = 0.3 * arrays[0] @ np.repeat(arrays[1], 2, 1).swapaxes(-1, -2)
    compare(an.sink_weights(S, arrays[3], mask)[0], weights, name="weights", atol=1e-10)


S, X, NONE = np.ones((2, 3, 4)), np.ones((2, 4, 5)), np.array([True, False, True])[:, None]
BAD = [
    ("pointwise_weights", (S,), {"kind": "tanh"}, r"kind is 'tanh'; expected one of 'sigmoid', 'relu', 'squared_relu'"),
    ("pointwise_weights", (S, NONE), {}, r"row \(0, 1\) may attend to no key"),
    ("pointwise_weights", (S[..., :0],), {}, r"S has shape \(2, 3, 0\).*at least one score"),
    ("pointwise_weights", (S, np.ones((3, 5), bool)), {}, r"mask has shape \(3, 5\), which does not broadcast"),
    ("sink_weights", (S, np.ones(3)), {}, r"sinks has shape \(3,\).*leading axes \(2,\); give one logit for each head"),
    ("sink_weights", (S, np.ones(2, np.float32)), {}, r"sinks has dtype (torch\.)?float32 but S has"),
    ("sink_weights", (S, None, np.ones((3, 4))), {}, r"mask has dtype .*float64; masks are boolean"),
    ("sinkhorn_weights", (S,), {"gradient": "exact"}, r"gradient is 'exact'; expected one of 'unrolled', 'implicit'"),
    ("sinkhorn_weights", (S,), {"steps": -1}, r"steps is -1; it must be an integer >= 0, and 0 is softmax"),
    ("sinkhorn_weights", (S,), {"steps": 2.5}, r"steps is 2\.5; it must be an integer"),
    ("sinkhorn_weights", (S, NONE), {}, r"row \(0, 1\) may attend to no key"),
    ("sinkhorn_weights", (S[:, :0],), {}, r"S has shape \(2, 0, 4\).*at least one query"),
    ("pointwise_attention", (X, X, X), {"kind": "cube"}, r"kind is 'cube'"),
    ("pointwise_attention", (X, X, X), {"scale": 0.0}, r"scale is 0\.0; it must be > 0"),
    ("sink_attention", (X, X, X), {"sinks": np.ones((2, 4))}, r"sinks has shape \(2, 4\)"),
    ("sink_attention", (X, X, X), {"bias": np.ones((3, 4))}, r"bias has shape \(3, 4\), which does not broadcast"),
    ("sinkhorn_attention", (X, X[:, :0], X[:, :0]), {}, r"K has shape \(2, 0, 5\).*at least one key"),
    ("sinkhorn_attention", (X, X[..., :3], X), {}, r"K has shape \(2, 4, 3\), expected \(\.\.\., m, k\) with k = 5"),
]


@WORLDS
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, world, as_users_call):
    check_refused(world, *BAD[row])


@WORLDS
def test_scores_whose_exponentials_overflow(world, rng):
    """Scores of thousands: weights stay finite, and rows and columns keep their sums."""
    S = 3000 * rng.standard_normal((5, 5))
    lift, value = (torch.from_numpy, np.asarray) if world is at else (np.asarray, lambda y: y[0])
    b = np.array(2500.0)
    compare(value(world.sinkhorn_weights(lift(S))).sum(-1), np.ones(5), name="rows", atol=1e-11)
    apart, alike = np.array([[3000.0, 0.0], [0.0, 3000.0]]), np.array([[3000.0, 0.0], [3000.0, 0.0]])
    compare(value(world.sinkhorn_weights(lift(apart))), np.eye(2), name="each its own", atol=1e-11)
    compare(value(world.sinkhorn_weights(lift(alike))), np.full((2, 2), 0.5), name="shared", atol=1e-11)
    W = value(world.sink_weights(lift(S), lift(b)))
    compare(W.sum(-1), (S.max(-1) > 2500).astype(float), name="beyond the sink or not", atol=1e-12)
    assert 0 < W.sum() < 5
    compare(value(world.pointwise_weights(lift(S))), expit(S - np.log(5)), name="sigmoid", atol=1e-12)


@pytest.mark.parametrize("core", CORES, ids=IDS)
def test_in_a_layer_of_both_worlds(core, rng):
    """Every head of an encoder layer has its own sink, and the gradient reaches the sinks through the layer."""
    params, X = shapes.random_tree(shapes.encoder_layer_shapes(6, 7), rng, 0.5), rng.standard_normal((2, 5, 6))
    arrays = {k: v for k, v in core.keywords.items() if isinstance(v, np.ndarray)}
    fixed = partial(core.func, **{k: v for k, v in core.keywords.items() if k not in arrays})

    def layer(X, params, *options):
        return an.encoder_layer(X, params, 3, attend=partial(fixed, **dict(zip(arrays, options, strict=True))))

    Y, _ = layer(X, params, *arrays.values())
    theirs = at.encoder_layer(torch.from_numpy(X), at.from_numpy(params), 3, attend=twin(core))
    compare(theirs, Y, name="twin", atol=1e-11)
    assert np.abs(Y - an.encoder_layer(X, params, 3)[0]).max() > 1e-2
    check_vjp(layer, X, params, *arrays.values(), rng=rng)


@pytest.mark.parametrize("core", CORES[:2], ids=IDS[:2])
def test_a_cache_gives_what_the_whole_gives(core, rng):
    """Row by row, as text is written; only weights that no later row changes can do this."""
    Q, K, V = rng.standard_normal((3, 3, 6, 4))
    causal = np.tril(np.ones((6, 6), bool))
    whole, _ = core(Q, K, V, mask=causal)
    attend = an.cached(core, KeyValueCache())
    rows = [attend(Q[:, i : i + 1], K[:, i : i + 1], V[:, i : i + 1])[0] for i in range(6)]
    compare(np.concatenate(rows, 1), whole, atol=1e-13)


@pytest.mark.parametrize("core", CORES, ids=IDS)
def test_recorded_weights_are_the_weights(core, rng):
    Q, K, V = rng.standard_normal((3, 3, 4, 5))
    seen = {}
    recording(core, seen)(Q, K, V)
    score = Q @ K.swapaxes(-1, -2) / 5**0.5
    name = core.func.__name__.replace("attention", "weights")
    compare(seen["weights"], getattr(an, name)(score, **core.keywords)[0], atol=1e-13)
    assert np.ptp(seen["weights"]) > 0.1


@pytest.mark.parametrize("core", CORES, ids=IDS)
def test_samples_by_themselves_and_tensors_without_values(core, rng):
    Q, K, V = (torch.from_numpy(rng.standard_normal((2, 3, 4, 5))) for _ in range(3))
    f = lambda *x: (twin(core)(*x) ** 2).sum()  # noqa: E731
    loop = torch.stack([torch.func.grad(f)(*x) for x in zip(Q, K, V, strict=True)])
    compare(torch.func.vmap(torch.func.grad(f))(Q, K, V), loop, atol=1e-12)
    with FakeTensorMode():
        options = {k: torch.ones(3) if isinstance(v, np.ndarray) else v for k, v in core.keywords.items()}
        assert getattr(at, core.func.__name__)(*torch.ones(3, 3, 4, 5), **options).shape == (3, 4, 5)


def test_autocast_keeps_the_value(rng):
    """The weights are computed in float32, after one rounding of the arguments."""
    Q, K, V = torch.from_numpy(2 * rng.standard_normal((3, 3, 6, 5))).float()
    for core in CORES:
        options = {k: torch.from_numpy(v).float() if isinstance(v, np.ndarray) else v for k, v in core.keywords.items()}
        f = getattr(at, core.func.__name__)
        with torch.autocast("cpu", torch.bfloat16):
            low = f(Q, K, V, **options)
        rounded = [A.bfloat16().float() for A in (Q, K, V)]
        options = {k: v.bfloat16().float() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        assert low.dtype == torch.bfloat16
        compare(low, f(*rounded, **options), atol=2e-2, rtol=8e-3)
