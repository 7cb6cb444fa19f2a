"""Hard, local, location-based, hierarchical and co-attention: what is refused, what is drawn, and the work done."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.check import compare
from tests.attnmath.refusals import check_refused, lift

X = np.zeros
Q, K, V = X((3, 7)), X((5, 7)), X((5, 2))
WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
ROW = np.ones((3, 5), bool)
FIRST = ROW & (np.arange(5) > 0)
BAD = [
    ("hard_attention", (Q, K, V), {"choice": np.array([0, 5, 1])}, r"choice holds 5, which is none of the m = 5 keys"),
    ("hard_attention", (Q, K, V), {"choice": np.array([0, -1, 1])}, r"choice holds -1, .*numbered from 0 to 4"),
    (
        "hard_attention",
        (Q, K, V),
        {"choice": X(3)},
        r"choice has shape \(3,\) and dtype .*float64; expected the integer",
    ),
    ("hard_attention", (Q, K, V), {"choice": np.array([0, 1])}, r"choice has shape \(2,\).*broadcasts to \(3,\)"),
    ("hard_attention", (Q, K, V, FIRST), {"choice": np.array([1, 0, 1])}, r"choice holds a key that mask hides"),
    (
        "hard_attention",
        (Q, K, V, ROW & ROW[:, :1] & (np.arange(3) != 1)[:, None]),
        {},
        r"row \(1,\) may attend to no key",
    ),
    ("hard_attention", (Q, X((0, 7)), X((0, 2))), {}, r"at least one key is needed"),
    ("choice_log_probability", (Q, K, np.array([0, 1, 7])), {}, r"choice holds 7"),
    ("choice_log_probability", (Q, K, np.array([0, 1, 1]), FIRST), {}, r"a key that mask hides.*masked alike"),
    ("choice_log_probability", (Q, K, np.array([0, 1, 1])), {"scale": 0.0}, r"scale is 0\.0; it must be > 0"),
    ("local_attention", (Q, K, V, X((7, 4)), X(4)), {"width": 0}, r"width is 0; it must be > 0"),
    (
        "local_attention",
        (Q, K, V, X((7, 4)), X(4)),
        {"width": 0.5},
        r"width is 0\.5; it must be >= 1.*between two keys",
    ),
    ("local_attention", (Q, K, V, X((7, 4)), X(5)), {}, r"w has shape \(5,\).*with a = 4"),
    ("local_attention", (Q, X((0, 7)), X((0, 2)), X((7, 4)), X(4)), {}, r"at least one key is needed"),
    (
        "local_attention",
        (Q, K, V, X((7, 4)), X(4), np.broadcast_to(np.arange(5) == 0, (3, 5)).copy()),
        {"width": 1},
        r"row \(0,\) may attend to no key.*empty_rows='zero'",
    ),
    ("location_attention", (Q, K, V, X((7, 4))), {}, r"K has m = 5 keys, but W has columns for 4 positions"),
    ("location_attention", (Q, K, V, X((7, 9)), ~ROW), {}, r"row \(0,\) may attend to no key"),
    (
        "location_aware_score",
        (Q, K, X((3, 5)), X((4, 2)), X((7, 3)), X((7, 3)), X((2, 3)), X(3)),
        {},
        r"F has shape \(4, 2\); its axis 0, the filter's length, must be odd",
    ),
    (
        "location_aware_score",
        (Q, K, X((3, 4)), X((3, 2)), X((7, 3)), X((7, 3)), X((2, 3)), X(3)),
        {},
        r"A has shape \(3, 4\).*with m = 5",
    ),
    (
        "hierarchical_attention",
        (Q, K, V, X(7), ROW),
        {},
        r"mask has shape \(3, 5\), a row for each query.*mask of keys",
    ),
    ("hierarchical_attention", (Q, K, V, X(7), ~ROW[:1]), {}, r"row \(0,\) may attend to no key"),
    ("hierarchical_attention", (Q, K, V, X(7)), {"size": 0}, r"size is 0; it must be an integer >= 1"),
    ("hierarchical_attention", (Q, K, V, X(6)), {}, r"u has shape \(6,\).*with k = 7"),
    ("co_attention", (Q, K, X((7, 6))), {}, r"W has shape \(7, 6\).*with e = 7"),
    ("co_attention", (Q, X((0, 7)), X((7, 7))), {}, r"Y has shape \(0, 7\).*at least one token is needed"),
    ("co_attention", (Q, K, X((7, 7)), X(3)), {}, r"x_mask has shape \(3,\) and dtype .*float64; expected booleans"),
    ("co_attention", (Q, K, X((7, 7)), None, ROW[0, :3]), {}, r"y_mask has shape \(3,\).*broadcast to \(5,\)"),
    ("co_attention", (Q, K, X((7, 7)), None, ~ROW[0]), {}, r"row \(0,\) may attend to no key"),
    ("draw_choice", (X((3, 0)), None), {}, r"P has shape \(3, 0\).*at least one key is needed"),
]


@WORLDS
@pytest.mark.parametrize(("name", "args", "options", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_a_sentence(name, args, options, said, world, as_users_call):
    check_refused(world, name, args, options, said)


def test_draws_follow_the_weights(rng):
    P = an.softmax(rng.standard_normal((2, 5)))[0].copy()
    P[0, 0], P[1, -1] = 0.0, 0.0  # the rows then sum to less than 1
    many = 40_000
    first = an.draw_choice(np.broadcast_to(P, (many, 2, 5)), np.random.default_rng(5))
    generator = torch.Generator().manual_seed(5)
    second = at.draw_choice(torch.from_numpy(P).expand(many, 2, 5), generator).numpy()
    for drawn in (first, second):
        assert drawn.shape == (many, 2) and drawn.dtype.kind == "i"
        shares = np.stack([(drawn == key).mean(0) for key in range(5)], 1)
        compare(shares, P / P.sum(1, keepdims=True), name="shares", atol=0.012)
        assert shares[0, 0] == shares[1, -1] == 0


@WORLDS
def test_a_draw_of_zero_takes_a_key_that_has_weight(world):
    """The generator may return 0, and a sum that rounding leaves below 1 may lie below a draw."""

    class Zero:
        def random(self, shape):
            return np.zeros(shape)

    P = np.array([[0.0, 0.0, 0.4, 0.6]])
    if world is an:
        assert an.draw_choice.__wrapped__(P, Zero()).tolist() == [2]
    short = np.full((1, 3), 0.3333333)
    many = lift(world, np.broadcast_to(short, (1000, 3)).copy())
    rng = np.random.default_rng(0) if world is an else torch.Generator().manual_seed(0)
    assert set(np.asarray(world.draw_choice(many, rng)).tolist()) == {0, 1, 2}


def test_the_largest_score_is_the_limit_of_soft_attention(rng):
    Q, K, V = (rng.standard_normal(s) for s in ((4, 3), (6, 3), (6, 2)))
    soft, _ = an.attention(Q, K, V, scale=1e4)
    compare(an.hard_attention(Q, K, V)[0], soft, name="the limit", atol=1e-12)


def test_a_window_around_the_middle_is_local_m(rng):
    """Without the Gaussian local-p is a window; Luong's local-m puts it at the query, as `windowed` does."""
    Q, K, V = rng.standard_normal((4, 3)), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    near = abs(np.arange(4)[:, None] - np.arange(4)) <= 1
    compare(an.windowed(an.attention, 1)(Q, K, V)[0], an.attention(Q, K, V, near)[0], name="local-m")
    # a position at the query's own index, given by three queries that differ in one component
    p = np.array([1.0, 2.0, 3.0])
    Q = np.stack([np.arctanh(np.log(p / (4 - p)) / 9), np.zeros(3), np.zeros(3)], 1)
    P = an.local_attention(Q, 0 * K, np.eye(4), np.eye(3)[:, :1], np.array([9.0]), width=1)[0]
    wanted = np.where(abs(p[:, None] - np.arange(4)) <= 1, np.exp(-2 * (p[:, None] - np.arange(4)) ** 2), 0)
    compare(P, wanted / (abs(p[:, None] - np.arange(4)) <= 1).sum(1, keepdims=True), name="local-p", atol=1e-9)


def test_one_word_for_each_sentence_is_attention(rng):
    Q, K, V, u = (rng.standard_normal(s) for s in ((4, 3), (6, 3), (6, 2), (3,)))
    O, vjp = an.hierarchical_attention(Q, K, V, u, size=1)
    flat, flat_vjp = an.attention(Q, K, V)
    dO = rng.standard_normal(O.shape)
    compare(O, flat, name="value", atol=1e-12)
    compare(vjp(dO)[:3], flat_vjp(dO), name="cotangents", atol=1e-12)
    assert np.abs(vjp(dO)[3]).max() < 1e-12


def counted(f):
    with FlopCounterMode(display=False) as counter:
        f()
    return counter.get_total_flops()


@pytest.mark.claim("pf:hierarchical-work")
@pytest.mark.parametrize(("n", "m", "t", "k", "v"), [(3, 12, 4, 7, 2), (64, 256, 16, 16, 16)])
def test_the_work_of_its_matrix_products(n, m, t, k, v):
    Q, K, V, u = (torch.ones(s) for s in ((n, k), (m, k), (m, v), (k,)))
    work = counted(lambda: at.hierarchical_attention(Q, K, V, u, size=t))
    assert work == 2 * m * (2 * k + v) + 2 * n * (m // t) * (k + v)
    assert counted(lambda: at.attention(Q, K, V)) == 2 * n * m * (k + v)


CORES = {
    "hard": lambda w, rng: w.hard_attention,
    "local": lambda w, rng: partial(
        w.local_attention, W=lift(w, rng.standard_normal((2, 3, 4))), w=lift(w, rng.standard_normal(4)), width=4
    ),
    "location": lambda w, rng: partial(w.location_attention, W=lift(w, rng.standard_normal((2, 3, 16)))),
    "hierarchical": lambda w, rng: partial(w.hierarchical_attention, u=lift(w, rng.standard_normal((2, 3))), size=3),
}


@pytest.mark.parametrize("name", CORES)
def test_a_model_takes_it_without_an_edit(name, rng):
    params, Z = shapes.random_tree(shapes.encoder_shapes(6, 11, 2, heads=2), rng, 0.5), rng.standard_normal((2, 9, 6))
    seed = int(rng.integers(100))
    ours, theirs = (CORES[name](w, np.random.default_rng(seed)) for w in (an, at))
    Y, _ = an.encoder(Z, params, 2, attend=ours)
    compare(at.encoder(torch.from_numpy(Z), at.from_numpy(params), 2, attend=theirs), Y, name="twin", atol=1e-11)
    assert np.abs(Y - an.encoder(Z, params, 2)[0]).max() > 1e-2


@pytest.mark.parametrize("name", ["hard", "local", "hierarchical"])
def test_values_that_cannot_be_looked_at(name, as_users_call):
    """One graph and no question of a value: on the meta device and sample by sample."""
    core = CORES[name](at, np.random.default_rng(0))
    X = torch.ones(2, 5, 3, dtype=torch.float64)
    meta = X.to("meta")
    options = {key: value.to("meta") for key, value in getattr(core, "keywords", {}).items() if hasattr(value, "to")}
    assert (partial(core, **options))(meta, meta, meta).shape == (2, 5, 3)
    if name == "hard":
        choice = torch.zeros(5, dtype=torch.long, device="meta")
        assert at.hard_attention(meta, meta, meta, choice=choice).shape == (2, 5, 3)
        assert at.choice_log_probability(meta, meta, choice).shape == (2, 5)
