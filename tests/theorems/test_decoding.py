"""What greedy and beam search find."""

from functools import partial

import numpy as np
import pytest

from attnmath.check import compare
from attnmath.decoding import beam_search, greedy

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero")


def two_steps(first, second):
    """A step function of a model of two steps: ``second[i]`` follows token i. The end symbol is never drawn."""

    def step(prefixes, rows, parents):
        p = np.array([first if len(prefix) == 1 else second[prefix[1]] for prefix in prefixes.tolist()])
        return np.log(np.hstack([p, np.zeros((len(p), 1))]))

    return step


@pytest.mark.claim("lem-greedy-loss")
@pytest.mark.parametrize("r", [2, 5, 11])
def test_greedy_misses_by_any_factor(r):
    """The construction of the proof approaches r, with r tokens; and no random model does more than its vocabulary."""
    t, delta, sure = r, 1e-4, np.eye(r)[0]
    first = np.r_[0.5 + delta, 0.5 - delta, np.zeros(t - 2)]
    step = two_steps(first, [np.full(t, 1 / r)] + [sure] * (t - 1))
    found, best = (
        search(step, 99, t, 1, limit=2, **kw)[1][0] for search, kw in ((greedy, {}), (beam_search, {"width": t}))
    )
    assert np.isclose(best, np.log(0.5 - delta))
    assert np.isclose(np.exp(best - found), r, rtol=1e-3) and np.exp(best - found) < r


@pytest.mark.claim("lem-greedy-loss")
def test_the_factor_is_less_than_the_vocabulary(rng):
    largest = 0.0
    for _ in range(2000):
        t = 3
        first, *second = rng.dirichlet(np.full(t, 0.3), t + 1)
        joint = first[:, None] * np.array(second)
        a = first.argmax()
        largest = max(largest, joint.max() / joint[a].max())
    assert 1.5 < largest < t


@pytest.mark.claim("lem-greedy-loss")
@pytest.mark.parametrize("t", [2, 3, 7])
def test_a_tie_reaches_the_vocabulary(t):
    """Two first tokens alike, the smaller one followed by anything: the factor is t. A hair more on either decides."""
    first, second = np.r_[0.5, 0.5, np.zeros(t - 2)], [np.full(t, 1 / t)] + [np.eye(t)[0]] * (t - 1)
    for delta, factor in ((0.0, t), (1e-3, t * 0.499 / 0.501), (-1e-3, 1)):
        step = two_steps(first + delta * np.r_[1, -1, np.zeros(t - 2)], second)
        found, best = greedy(step, 99, t, 1, 2)[1][0], beam_search(step, 99, t, 1, t, 2)[1][0]
        assert np.isclose(np.exp(best - found), factor)


def random_tables(rng, t, n):
    tables = [2 * rng.standard_normal((t,) * i) for i in range(1, n + 1)]
    return [Z - np.log(np.exp(Z).sum(-1, keepdims=True)) for Z in tables]


def step_of(tables, prefixes, rows, parents):
    n, t = prefixes.shape[1], tables[0].shape[-1]
    return np.broadcast_to(tables[n - 1][tuple(prefixes[:, 1:].T)], (len(prefixes), t))


def every_sequence(tables, t, end):
    """{sequence: log-probability} of those that end, and of those that have n tokens."""
    values, open_ = {}, {(): 0.0}
    for table in tables:
        grown = {(*y, j): s + table[(*y, j)] for y, s in open_.items() for j in range(t)}
        values |= {y: s for y, s in grown.items() if y[-1] == end}
        open_ = {y: s for y, s in grown.items() if y[-1] != end}
    return values | open_


@pytest.mark.claim("lem-beam")
def test_the_two_ends_of_a_beam(rng):
    t, n, end = 3, 5, 2
    better = 0
    for _ in range(60):
        tables = random_tables(rng, t, n)
        values = every_sequence(tables, t, end)
        best = max(values, key=values.get)
        step = partial(step_of, tables)
        exact, score = beam_search(step, 9, end, 1, t ** (n - 1), n)
        assert exact[0] == [j for j in best if j != end] and np.isclose(score[0], values[best])
        one, plain = beam_search(step, 9, end, 1, 1, n), greedy(step, 9, end, 1, n)
        assert one[0] == plain[0] and np.isclose(one[1], plain[1])
        better += plain[0] != exact[0]
    assert better > 5


@pytest.mark.claim("lem-beam")
@pytest.mark.parametrize("t", [2, 3, 6])
def test_in_two_steps_a_width_of_one_less_can_lose_the_best(t):
    """The least probable first token is the only one that is followed by a certain one."""
    first = np.full(t, 1 / t) + 1e-3 * (np.arange(t) == 0) - 1e-3 * (np.arange(t) == t - 1)
    step = two_steps(first, [np.full(t, 1 / t)] * (t - 1) + [np.eye(t)[0]])
    wide, narrow = (np.exp(beam_search(step, 99, t, 1, w, 2)[1][0]) for w in (t, t - 1))
    compare(wide, 1 / t - 1e-3, name="a width of t", atol=1e-12)
    compare(narrow, (1 / t + 1e-3) / t, name="a width of t - 1", atol=1e-12)


@pytest.mark.claim("lem-beam")
def test_nothing_overtakes_a_best_that_has_ended(rng):
    """The search asks for no step after that, and an exhaustive one finds nothing better among the beam's heirs."""
    t, n, end, early = 3, 7, 2, 0
    for _ in range(60):
        tables, lengths = random_tables(rng, t, n), []

        def step(prefixes, rows, parents, tables=tables, lengths=lengths):
            lengths.append(prefixes.shape[1])
            return step_of(tables, prefixes, rows, parents)

        _, score = beam_search(step, 9, end, 1, t ** (n - 1), n)
        assert np.isclose(score[0], max(every_sequence(tables, t, end).values()))
        early += len(lengths) < n
    assert early > 5
