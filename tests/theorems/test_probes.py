"""Lenses and probes: direct logits, a lens that shows anything, what a linear probe fits, what a removal removes."""

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from sklearn.linear_model import LinearRegression, LogisticRegression

import attnmath.numpy as an
from attnmath import probes, shapes
from attnmath.check import compare


def model(rng, layers=2, scale=0.5):
    sizes = shapes.decoder_only_shapes(11, 6, 10, layers, 9, norm=an.layer_norm)
    return shapes.random_tree(sizes, rng, scale)


def run(ids, params):
    """The model itself, by the library's own function."""
    from functools import partial

    join = partial(an.sublayer, norm_first=True)
    return an.decoder_only(ids, params, 2, norm=an.layer_norm, join=join)[0]


@pytest.mark.claim("prop-direct-logits", "eq:direct-logits", "eq:stream-writes", "eq:logit-lens")
def test_logits_are_a_sum_of_what_was_written(rng):
    params, ids = model(rng), rng.integers(0, 11, (3, 7))
    writes = probes.stream_writes(ids, params, 2)
    assert list(writes) == ["embedding", "0.attention", "0.feed_forward", "1.attention", "1.feed_forward"]
    Z, parts = run(ids, params), probes.direct_logits(writes, params)
    compare(sum(parts.values()), Z, name="the sum", atol=1e-11)
    streams = np.cumsum(list(writes.values()), 0)
    compare(probes.logit_lens(streams[-1], params), Z, name="the lens at the end", atol=1e-11)

    def divisor(X):
        return np.sqrt(X.var(-1, keepdims=True) + 1e-5)

    own, factors = list(parts.values()), []
    for s, X in enumerate(streams):
        factor = divisor(streams[-1]) / divisor(X)
        want = factor * sum(own[: s + 1]) + parts["bias"]
        compare(probes.logit_lens(X, params), want, name=f"the lens behind {s}", atol=1e-10)
        factors.append(factor)
    assert abs(factors[0] - 1).max() > 0.1  # without the factor the claim would be wrong


@pytest.mark.claim("prop-direct-logits", "eq:stream-writes")
def test_a_model_that_is_cut_off_has_the_stream_so_far(rng):
    """The lens behind i layers is the model with the layers from i on left out."""
    params, ids = model(rng, layers=3), rng.integers(0, 11, (2, 5))
    streams = np.cumsum(list(probes.stream_writes(ids, params, 2).values()), 0)
    for i in (1, 3):
        short = params | {"layers": {str(j): params["layers"][str(j)] for j in range(i)}}
        compare(probes.logit_lens(streams[2 * i], params), run(ids, short), name=f"{i} layers", atol=1e-10)


@pytest.mark.claim("prop-lens-arbitrary")
def test_a_lens_can_show_anything(rng):
    params, v = model(rng), rng.standard_normal(6)
    for c in (1.0, 1e7):
        longer = probes.with_silent_layers(params, c * v)
        between = []
        for ids in rng.integers(0, 11, (2, 4, 7)):
            Z, writes = run(ids, params), list(probes.stream_writes(ids, longer, 2).values())
            compare(run(ids, longer), Z, name="the same logits", atol=1e-10 * c + 1e-10)
            X = sum(writes[:-3])
            compare(sum(writes[:-1]), X + c * v, name="the note", atol=1e-9 * c)
            between.append(probes.logit_lens(sum(writes[:-1]), params))
        spread = np.ptp(np.stack(between), axis=(0, 1, 2)).max()
        if c == 1e7:
            assert spread < 1e-4
            compare(
                between[0],
                np.broadcast_to(probes.logit_lens(1e9 * v[None], params)[0], (4, 7, 11)),
                name="the limit",
                atol=1e-4,
            )
    assert np.ptp(run(rng.integers(0, 11, (4, 7)), params), axis=(0, 1)).max() > 0.1


def separable(X, signs):
    """Whether some w has these signs on the rows, by linear programming."""
    found = linprog(np.zeros(X.shape[1]), A_ub=-signs[:, None] * X, b_ub=-np.ones(len(X)), bounds=(None, None))
    return found.status == 0


@pytest.mark.claim("thm-dichotomies", "eq:dichotomies")
@pytest.mark.parametrize(("n", "d"), [(1, 1), (4, 1), (3, 2), (4, 2), (6, 2), (5, 3), (6, 3)])
def test_the_labellings_of_points_in_general_position_are_counted(n, d, rng):
    """All labellings tried, with and without a bias."""
    for affine in (True, False):
        X = rng.standard_normal((n, d))
        X = np.c_[X, np.ones(n)] if affine else X
        found = sum(separable(X, np.array(signs)) for signs in product([-1.0, 1.0], repeat=n))
        assert found == probes.dichotomies(n, d, affine=affine)


@pytest.mark.claim("thm-dichotomies")
def test_points_on_a_line_allow_fewer(rng):
    """Without general position the count is an upper bound only."""
    X = np.c_[rng.standard_normal((5, 1)) * [1.0, 2.0], np.ones(5)]
    found = sum(separable(X, np.array(signs)) for signs in product([-1.0, 1.0], repeat=5))
    assert found == probes.dichotomies(5, 1) == 10 < probes.dichotomies(5, 2)


@pytest.mark.claim("thm-dichotomies")
def test_all_labels_fit_up_to_the_width_and_half_at_twice_the_width(rng):
    for d in (3, 10, 384):
        assert probes.dichotomies(d + 1, d) == 2 ** (d + 1)
        assert probes.dichotomies(2 * d + 2, d) * 2 == 2 ** (2 * d + 2)
        assert probes.dichotomies(d + 2, d) == 2 ** (d + 2) - 2
        assert probes.dichotomies(d + 3, d, affine=False) == 2 * sum(comb(d + 2, k) for k in range(d))
    X = rng.standard_normal((21, 20))
    for _ in range(10):
        labels = rng.integers(0, 2, 21)
        if np.ptp(labels):
            assert LogisticRegression(C=1e6, max_iter=2000).fit(X, labels).score(X, labels) == 1
    hits = [
        separable(np.c_[rng.standard_normal((12, 5)), np.ones(12)], rng.choice([-1.0, 1.0], 12)) for _ in range(300)
    ]
    assert abs(np.mean(hits) - 0.5) < 5 * 0.5 / 300**0.5


@pytest.mark.claim("prop-equal-means", "eq:mean-directions", "eq:without")
def test_with_equal_means_no_linear_probe_beats_a_constant(rng):
    labels = rng.choice([0, 0, 0, 1, 1, 2], 300)
    X = rng.standard_normal((300, 8)) + np.array([[0.0] * 8, [2.0] * 8, [1.0, -2.0] * 4])[labels]
    U, centre = probes.mean_directions(X, labels), X.mean(0)
    Y = probes.without(X, U, centre)
    assert U.shape == (8, 2)
    for kind in range(3):
        compare(Y[labels == kind].mean(0), centre, name="the mean", atol=1e-12)
    onehot, shares = np.eye(3)[labels], np.bincount(labels) / 300
    constant = -(shares * np.log(shares)).sum()

    def entropy(w, rows):
        S = rows @ w[:24].reshape(8, 3) + w[24:]
        return (np.log(np.exp(S).sum(-1)) - S[np.arange(300), labels]).mean()

    found = {
        name: minimize(entropy, 0.1 * rng.standard_normal(27), args=(rows,)).fun
        for name, rows in {"before": X, "after": Y}.items()
    }
    compare(found["after"], constant, name="cross-entropy", atol=1e-6)
    assert found["before"] < constant - 0.3
    line = LinearRegression().fit(Y, onehot)
    compare(line.predict(Y), np.broadcast_to(shares, (300, 3)), name="least squares", atol=1e-10)
    assert LogisticRegression(C=1e4).fit(Y, labels).score(Y, labels) == shares.max()
    one = probes.without(X, U[:, :1], centre)  # one direction of two is not enough
    assert minimize(entropy, np.zeros(27), args=(one,)).fun < constant - 1e-2
