"""Greedy and beam search against the list of all sequences."""

from itertools import product

import numpy as np
import pytest

from attnmath.decoding import beam_search, greedy

START, END, LIMIT = 9, 2, 4


def markov(batch, t=4, order=3, sharp=1.0):
    """A random model for each member of the batch: log-probabilities that depend on the last ``order`` tokens."""
    tables = [{} for _ in range(batch)]

    def log_probabilities(row, prefix):
        key = tuple(prefix[-order:])
        if key not in tables[row]:
            Z = sharp * np.random.default_rng([row, len(prefix), *key]).standard_normal(t)
            tables[row][key] = Z - np.log(np.exp(Z).sum())
        return tables[row][key]

    def step(prefixes, rows, parents):
        return np.array([log_probabilities(row, prefix) for row, prefix in zip(rows, prefixes.tolist(), strict=True)])

    return step, log_probabilities


def complete(t, limit):
    """Every sequence that ends with END, or has ``limit`` tokens and no END."""
    others = [token for token in range(t) if token != END]
    for n in range(limit):
        for body in product(others, repeat=n):
            yield [*body, END]
    yield from map(list, product(others, repeat=limit))


def value(log_probabilities, row, sequence, alpha=0.0):
    total = sum(log_probabilities(row, [START, *sequence[:i]])[token] for i, token in enumerate(sequence))
    return total / len(sequence) ** alpha


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_wide_beam_finds_the_best_of_all(alpha):
    t, batch = 4, 20
    step, log_probabilities = markov(batch, t)
    found, scores = beam_search(step, START, END, batch, t**LIMIT, LIMIT, alpha)
    gained = 0
    for row in range(batch):
        values = {tuple(s): value(log_probabilities, row, s, alpha) for s in complete(t, LIMIT)}
        best = max(values, key=values.get)
        assert found[row] == [token for token in best if token != END]
        np.testing.assert_allclose(scores[row], values[best], rtol=1e-12)
        plain = greedy(step, START, END, batch, LIMIT)[0][row]
        gained += plain != found[row]
    assert gained >= 1  # greedy misses one at least, so there was something to find


def test_width_one_is_greedy():
    for batch in (0, 1, 7):
        step, log_probabilities = markov(batch, t=5)
        plain, beam = greedy(step, START, END, batch, 6), beam_search(step, START, END, batch, 1, 6)
        assert plain[0] == beam[0]
        np.testing.assert_allclose(plain[1], beam[1], rtol=1e-12)
        for row, sequence in enumerate(plain[0]):
            full = sequence + [END] * (len(sequence) < 6)
            np.testing.assert_allclose(plain[1][row], value(log_probabilities, row, full), rtol=1e-12)


def test_greedy_takes_the_most_probable_token_each_time():
    step, log_probabilities = markov(5, t=5)
    for row, sequence in enumerate(greedy(step, START, END, 5, 6)[0]):
        full = sequence + [END] * (len(sequence) < 6)
        for i, token in enumerate(full):
            assert token == log_probabilities(row, [START, *full[:i]]).argmax()


def test_members_of_a_batch_do_not_disturb_each_other():
    step, _ = markov(6, t=5)
    together, scores = beam_search(step, START, END, 6, 3, 6, 0.7)
    for row in range(6):
        alone, score = beam_search(
            lambda prefixes, rows, parents: step(prefixes, rows + row, parents), START, END, 1, 3, 6, 0.7
        )
        assert alone == [together[row]] and score[0] == scores[row]


def test_greedy_can_be_wrong_and_two_are_enough():
    """The likelier first token leads to unlikely sequences."""
    P = {(): [0.4, 0.6, 0.0], (0,): [0.0, 0.0, 1.0], (1,): [0.5, 0.0, 0.5], (1, 0): [0.5, 0.0, 0.5]}

    def step(prefixes, rows, parents):
        with np.errstate(divide="ignore"):
            return np.log([P[tuple(prefix[1:])] for prefix in prefixes.tolist()])

    plain, worse = greedy(step, START, END, 1, 3)
    found, better = beam_search(step, START, END, 1, 2, 3)
    assert (plain, found) == ([[1, 0, 0]], [[0]])
    np.testing.assert_allclose(np.exp([worse[0], better[0]]), [0.15, 0.4])


def test_a_wider_beam_may_do_worse():
    """Width 2 keeps a prefix that looks good and fails, and loses the one that greedy keeps."""
    # first step: 1 (0.5) and 0 (0.45); 0 has two good continuations, which fill the beam; both end badly
    P = {
        (): [0.45, 0.5, 0.05],
        (0,): [0.5, 0.5, 0.0],
        (1,): [0.4, 0.3, 0.3],
        (0, 0): [0.34, 0.33, 0.33],
        (0, 1): [0.34, 0.33, 0.33],
        (1, 0): [0.0, 0.0, 1.0],
    }

    def step(prefixes, rows, parents):
        with np.errstate(divide="ignore"):
            return np.log([P.get(tuple(prefix[1:]), [0.34, 0.33, 0.33]) for prefix in prefixes.tolist()])

    plain, kept = greedy(step, START, END, 1, 3)
    found, lost = beam_search(step, START, END, 1, 2, 3)
    assert plain == [[1, 0]] and found != plain and lost[0] < kept[0]


def test_ties_go_to_the_better_prefix_then_the_smaller_token():
    def step(prefixes, rows, parents):
        return np.log(np.full((len(prefixes), 4), 0.25))

    assert greedy(step, START, END, 2, 3)[0] == [[0, 0, 0]] * 2
    assert beam_search(step, START, END, 2, 3, 3)[0] == [[]] * 2  # 0, 1 and END tie; what is shorter is likelier
    assert beam_search(step, START, END, 2, 2, 3)[0] == [[0, 0, 0]] * 2  # END was third


def test_the_length_penalty_lets_a_longer_sequence_win():
    P = {(): [0.5, 0.0, 0.5], (0,): [0.0, 0.1, 0.9]}

    def step(prefixes, rows, parents):
        with np.errstate(divide="ignore"):
            return np.log([P.get(tuple(prefix[1:]), [0.0, 0.0, 1.0]) for prefix in prefixes.tolist()])

    short, log_p = beam_search(step, START, END, 1, 3, 4)
    long, mean = beam_search(step, START, END, 1, 3, 4, length_penalty=1.0)
    assert (short, long) == ([[]], [[0]])
    np.testing.assert_allclose([log_p[0], mean[0]], [np.log(0.5), np.log(0.45) / 2])


@pytest.mark.parametrize("search", [greedy, lambda *args: beam_search(*args[:-1], 3, args[-1])], ids=["greedy", "beam"])
def test_parents_lead_from_call_to_call(search):
    """A model that keeps its past by itself, reordered by ``parents`` alone, sees the same prefixes."""
    step, _ = markov(5, t=5)
    past, calls = {"prefixes": np.full((5, 0), 0), "rows": np.arange(5)}, []

    def stateful(prefixes, rows, parents):
        past["prefixes"] = np.concatenate([past["prefixes"][parents], prefixes[:, -1:]], 1)
        past["rows"] = past["rows"][parents]
        np.testing.assert_array_equal(past["prefixes"], prefixes)
        np.testing.assert_array_equal(past["rows"], rows)
        calls.append(len(rows))
        return step(prefixes, rows, parents)

    sequences, _ = search(stateful, START, END, 5, 6)
    assert sequences == search(step, START, END, 5, 6)[0]
    assert len(calls) <= 6 and calls[-1] < max(calls)  # what has ended is not asked about again


def test_bad_input():
    step, _ = markov(2)
    for sizes, said in (((-1, 3, 3), "batch is -1"), ((2, 0, 3), "width is 0"), ((2, 3, 0), "limit is 0")):
        with pytest.raises(ValueError, match=said):
            beam_search(step, START, END, *sizes)
    with pytest.raises(ValueError, match=r"shape \(4,\); it must be \(2, t\)"):
        greedy(lambda *_: np.zeros(4), START, END, 2, 3)
    with pytest.raises(ValueError, match="nan"):
        greedy(lambda prefixes, *_: np.full((len(prefixes), 4), np.nan), START, END, 2, 3)
    with pytest.raises(ValueError, match="end is 7; step scores 4 tokens"):
        greedy(lambda prefixes, *_: np.zeros((len(prefixes), 4)), START, 7, 2, 3)
