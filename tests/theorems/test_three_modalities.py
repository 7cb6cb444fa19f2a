"""One clock for three streams: what moves with all clocks, what order cannot tell, what marks can do."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import films_study as study
from attnmath import shapes
from attnmath.check import compare
from attnmath.digits import digits
from attnmath.films import STREAMS, films, late, told_otherwise

seeds = st.integers(0, 2**32 - 1)
D, HEADS, F, ROWS = 12, 2, 17, (3, 5, 4)  # of the streams
FREQUENCIES = np.array([0.0, 0.9, 0.05])


def stack(rng, layers=2):
    return shapes.random_tree(shapes.encoder_shapes(D, F, layers, an.layer_norm, heads=HEADS), rng, 0.5)


def encoded(X, times, params):
    turn = partial(an.rotary, frequencies=FREQUENCIES, places=times[:, None])
    return an.encoder(X, params, HEADS, attention=partial(an.multi_head_attention, turn=turn))


def double(made):
    return made._replace(pictures=made.pictures.astype(float))


@pytest.mark.claim("thm-one-clock")
@settings(max_examples=6)
@given(seeds, st.integers(-5000, 5000))
def test_what_moves_with_all_clocks_is_not_seen_and_what_moves_alone_is(seed, shift):
    rng = np.random.default_rng(seed)
    params, X = stack(rng), rng.standard_normal((2, sum(ROWS), D))
    times, dY = rng.integers(0, 200, X.shape[:2]), rng.standard_normal(X.shape)
    Y, vjp = encoded(X, times, params)
    Z, moved_vjp = encoded(X, times + shift, params)
    compare(Z, Y, name="all clocks", atol=1e-8)
    compare(moved_vjp(dY), vjp(dY), name="their gradients", atol=1e-7)
    alone = times + 3 * (np.repeat(range(3), ROWS) == 1)
    assert abs(encoded(X, alone, params)[0] - Y).max() > 1e-4, "one stream alone"


@pytest.mark.claim("thm-one-clock")
def test_the_model_of_the_study_does_not_see_a_common_shift_and_sees_one_of_the_sounds(rng):
    made = double(films(rng, 40, digits().train))
    model = study.start("time", 1)[0].double()
    with torch.no_grad():
        Z = model(made)
        compare(model(made._replace(times=made.times + 777)), Z, name="all clocks", atol=1e-10)
        assert ((model(late(made, 7)) - Z).abs().max(-1).values > 1e-6).all(), "the sounds alone"


@pytest.mark.claim("thm-one-clock")
@settings(max_examples=5)
@given(seeds)
def test_positions_that_are_added_see_where_the_clock_begins(seed):
    """With the time added to the rows, as sinusoids, a common shift changes the result."""
    rng = np.random.default_rng(seed)
    params, X = stack(rng), rng.standard_normal((2, sum(ROWS), D))
    times, table = rng.integers(0, 100, X.shape[:2]), an.sinusoidal_positions(300, D)
    Y, Z = (an.encoder(X + table[t], params, HEADS)[0] for t in (times, times + 150))
    assert abs(Y - Z).max() > 1e-2


@pytest.mark.claim("thm-order-blind")
def test_order_gives_one_answer_to_two_films_and_time_gives_two(rng):
    made = double(films(rng, 60, digits().train))
    other = told_otherwise(rng, made)
    assert (made.answer != other.answer).all()
    for name, blind in (("order", True), ("merged", False), ("time", False)):
        model = study.start(name, 1)[0].double()
        with torch.no_grad():
            Z, W = model(made), model(other)
        assert Z.equal(W) if blind else ((Z - W).abs().max(-1).values > 1e-6).double().mean() > 0.9, name
    blind = study.start("order", 1)[0].double()
    right, again = (study.answers(blind, one) == one.answer for one in (made, other))
    assert not (right & again).any() and (1.0 * right + again).mean() <= 1, "at most half"


@pytest.mark.claim("prop-own-table")
def test_a_mark_is_absorbed_by_the_streams_own_table(rng):
    made = double(films(rng, 30, digits().train))
    marked, plain = (study.start(name, 4)[0].double() for name in ("time", "no marks"))
    state = marked.state_dict()
    with torch.no_grad():
        marks = torch.from_numpy(rng.standard_normal((len(STREAMS), study.D)))
        marked.params.get_parameter("marks").copy_(marks)
        state = {name: P.clone() for name, P in marked.state_dict().items() if not name.endswith("marks")}
        before = marked(made)
        plain.load_state_dict(state)
        assert (plain(made) - before).abs().max() > 1e-2, "without its marks it is another model"
        for name, mark in zip(("pictures.bias", "sounds.word", "text.word"), marks, strict=True):
            state[f"params.{name}"] += mark
        plain.load_state_dict(state)
        compare(plain(made), before, name="tables that hold the marks", atol=1e-10)


@pytest.mark.claim("prop-own-table")
def test_with_one_table_for_two_streams_the_mark_is_all_that_tells_them_apart(rng):
    """A symbol is the same row in either stream; without marks an exchange of the streams is not seen."""
    params, table = stack(rng), rng.standard_normal((9, D))
    marks, ids = rng.standard_normal((2, D)), rng.integers(9, size=(1, 6))
    times = rng.integers(0, 50, (1, 6))
    stream = np.array([0, 0, 0, 1, 1, 1])
    for mark, seen in ((marks, True), (0 * marks, False)):
        Y, Z = (encoded(table[ids] + mark[own], times, params)[0] for own in (stream, 1 - stream))
        assert (abs(Y - Z).max() > 1e-3) == seen


@pytest.mark.claim("lem-late-blind")
@settings(max_examples=5)
@given(seeds, st.integers(-500, 500))
def test_streams_that_are_joined_at_the_end_never_compare_their_clocks(seed, lag):
    rng = np.random.default_rng(seed)
    own = [stack(rng, 1) for _ in ROWS]
    X = [rng.standard_normal((2, n, D)) for n in ROWS]
    times = [rng.integers(0, 200, (2, n)) for n in ROWS]

    def means(times):
        return np.concatenate([encoded(*one)[0].mean(1) for one in zip(X, times, own, strict=True)], -1)

    compare(means([times[0], times[1] + lag, times[2]]), means(times), name="sounds that are late", atol=1e-9)
    joined = [np.concatenate(parts, 1) for parts in (X, times, [times[0], times[1] + 9, times[2]])]
    Y, Z = (encoded(joined[0], t, own[0])[0].mean(1) for t in joined[1:])
    assert abs(Y - Z).max() > 1e-4, "one sequence notices"
