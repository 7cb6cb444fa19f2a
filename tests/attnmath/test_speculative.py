"""Distributions cut and sharpened, against transformers' own; a draft's loop: its counts, its ends and its refusals."""

import numpy as np
import pytest
import torch

from attnmath.check import compare
from attnmath.decoding import greedy
from attnmath.speculative import (
    acceptance,
    draw,
    expected_tokens,
    min_p,
    nucleus,
    residual,
    speculate,
    speedup,
    temperature,
    top_k,
    verify,
)

P = np.array([0.5, 0.25, 0.15, 0.1])


def markov(seed, t=5, sharp=1.0):
    """A table of the next token's probabilities, as a target and as a draft."""
    table = np.random.default_rng(seed).dirichlet(np.full(t, 1 / sharp), t)
    return lambda text, count: table[np.array(text)[len(text) - count :]], lambda text: table[text[-1]]


def theirs(warper, p):
    """What a warper of transformers makes of the logarithms of probabilities."""
    logits = torch.from_numpy(np.log(p))
    return warper(torch.zeros(len(p), 1, dtype=torch.long), logits).softmax(-1)


@pytest.mark.claim("eq:token-temperature", "eq:top-k", "eq:nucleus", "eq:min-p", "pf:truncation")
def test_the_warpers_of_transformers_say_the_same(rng):
    from transformers.generation import logits_process as warpers

    p = rng.dirichlet(np.full(11, 0.5), 40)
    for tau in (0.3, 0.9, 1.0, 2.5):
        compare(temperature(p, tau), theirs(warpers.TemperatureLogitsWarper(tau), p), name=f"temperature {tau}")
    for k in (1, 2, 7, 11):
        compare(top_k(p, k), theirs(warpers.TopKLogitsWarper(k), p), name=f"top-k {k}")
    for mass in (0.01, 0.5, 0.9, 0.999):
        compare(nucleus(p, mass), theirs(warpers.TopPLogitsWarper(mass), p), name=f"top-p {mass}")
    for share in (0.05, 0.3, 0.9):
        compare(min_p(p, share), theirs(warpers.MinPLogitsWarper(share), p), name=f"min-p {share}")


def test_ties_and_ends():
    even = np.full((2, 4), 0.25)
    assert top_k(even, 3).tolist() == [[1 / 3, 1 / 3, 1 / 3, 0]] * 2  # a tie goes to the smaller token
    assert temperature(even, 0.0).tolist() == [[1, 0, 0, 0]] * 2
    assert nucleus(even, 0.5).tolist() == [[0.5, 0.5, 0, 0]] * 2, "two have the mass: a third is too many"
    assert min_p(even, 1.0).tolist() == even.tolist(), "all equal the largest"
    for same in (top_k(P, 9), nucleus(P, 1.0), min_p(P, 0.0), temperature(P, 1.0)):
        compare(same, P, name="as it was", atol=1e-15)
    cold = temperature(np.array([0.4, 0.6, 0.0]), 1e-3)
    assert cold.tolist()[0] < 1e-150 and cold[1] == 1 and cold[2] == 0
    assert temperature(P.astype(np.float32), 0.0).dtype == top_k(P.astype(np.float32), 2).dtype == np.float32


def test_a_token_of_probability_zero_is_never_drawn():
    class Given(np.random.Generator):
        def __init__(self, u):
            super().__init__(np.random.PCG64(0))
            self.u = u

        def random(self):
            return self.u

    p = np.array([0.0, 0.3, 0.0, 0.7, 0.0])
    for u, wanted in ((0.0, 1), (0.29999, 1), (0.30001, 3), (1 - 2**-53, 3)):
        assert draw(p, Given(u)) == wanted
    short = np.array([0.1] * 9 + [0.09999, 0.0])  # float32 misses 1
    assert draw(short, Given(1 - 2**-53)) == 9


@pytest.mark.parametrize("guesses", [0, 1, 4])
@pytest.mark.parametrize("limit", [1, 2, 13])
def test_as_many_tokens_as_asked_and_every_call_counted(guesses, limit):
    target, draft = markov(1)[0], markov(2)[1]
    calls = []

    def counted(text, count):
        calls.append(count)
        assert 1 <= count <= guesses + 1 and text[:2] == [3, 1]
        return target(text, count)

    written = speculate(counted, draft, [3, 1], limit, np.random.default_rng(0), guesses=guesses)
    assert len(written.tokens) == limit and written.calls == len(calls)
    assert written.kept + written.calls == limit, "each call adds one token of the target's own"
    assert written.kept <= written.tested <= sum(calls) - len(calls)
    if guesses == 0:
        assert (written.calls, written.tested) == (limit, 0)


def test_a_draft_that_is_the_target_is_always_kept():
    target, draft = markov(1)
    written = speculate(target, draft, [0], 20, np.random.default_rng(3), guesses=4)
    assert (written.calls, written.tested, written.kept) == (4, 16, 16)


@pytest.mark.parametrize("seed", range(8))
def test_at_temperature_zero_it_writes_what_greedy_search_writes(seed):
    target, draft = markov(seed, t=6)[0], markov(seed + 50, t=6)[1]
    cold = lambda text, count: temperature(target(text, count), 0.0)  # noqa: E731
    found = speculate(cold, draft, [2], 12, np.random.default_rng(seed), guesses=3, end=0)

    def step(prefixes, rows, parents):
        return np.log(np.array([target(prefix, 1)[0] for prefix in prefixes.tolist()]))

    wanted = greedy(step, 2, 0, 1, 12)[0][0]
    assert [token for token in found.tokens if token != 0] == wanted
    assert 0 not in found.tokens[:-1]


def test_nothing_is_written_behind_the_end():
    target, draft = markov(4, t=3)
    for seed in range(30):
        found = speculate(target, draft, [0, 2], 40, np.random.default_rng(seed), guesses=5, end=2)
        assert 2 not in found.tokens[:-1] and found.tokens[-1] == 2
    always = np.eye(3)[2]
    ends = lambda text, count: np.tile(always, (count, 1))  # noqa: E731
    first = speculate(ends, lambda text: always, [2], 9, np.random.default_rng(0), end=2)
    assert first.tokens == [2] and first.calls == 1, "an end in the prompt is none of the text's"


def test_a_draft_that_is_never_right_costs_no_token():
    """The draft gives probability 0 to all that the target says: each call writes one token."""
    target = lambda text, count: np.tile([0.5, 0.5, 0.0], (count, 1))  # noqa: E731
    draft = lambda text: np.array([0.0, 0.0, 1.0])  # noqa: E731
    written = speculate(target, draft, [0], 7, np.random.default_rng(0), guesses=3)
    assert written.calls == 7 and written.kept == 0 and written.tested == 6 and 2 not in written.tokens


def run(target=None, draft=None, **options):
    target = target or (lambda text, count: np.full((count, 3), 1 / 3))
    draft = draft or (lambda text: np.full(3, 1 / 3))
    return speculate(target, draft, [0], options.pop("limit", 3), np.random.default_rng(0), **options)


BAD = [
    (lambda: temperature(P, -1.0), r"tau is -1\.0; it must be >= 0"),
    (lambda: temperature(P, np.inf), r"tau is inf; it must be finite"),
    (lambda: temperature(np.log(P), 1.0), r"p holds no probabilities: its least entry is -2\.303.*softmax"),
    (lambda: top_k(2 * P, 2), r"p holds no probabilities.*a row sums to 2; take the softmax"),
    (lambda: top_k(P * np.nan, 2), r"p holds no probabilities"),
    (lambda: top_k(P, 0), r"k is 0; it must be an integer >= 1"),
    (lambda: top_k(P[:0], 1), r"p has shape \(0,\): there is no token to draw"),
    (lambda: top_k([0.5, 0.5], 1), r"p is a list"),
    (lambda: nucleus(P, 0.0), r"mass is 0\.0; it must be > 0"),
    (lambda: nucleus(P, 1.1), r"mass is 1\.1; it must be at most 1"),
    (lambda: min_p(P, -0.1), r"share is -0\.1; it must be >= 0"),
    (lambda: min_p(P, 2.0), r"share is 2\.0; it must be at most 1"),
    (lambda: acceptance(P, np.full(3, 1 / 3)), r"the target gives .* 4 tokens and the draft of 3.*one vocabulary"),
    (lambda: residual(P, np.full(5, 0.2)), r"the target gives .* 4 tokens and the draft of 5.*one vocabulary"),
    (lambda: run(draft=lambda text: np.full(4, 0.25)), r"the target gives .* 3 tokens and the draft of 4"),
    (lambda: run(guesses=-1), r"guesses is -1; it must be an integer >= 0"),
    (lambda: run(limit=0), r"limit is 0; it must be an integer >= 1"),
    (lambda: run(target=lambda text, count: np.full((1, 3), 1 / 3)), r"p has 1 rows, q 2.*2 drafted tokens"),
    (lambda: run(target=lambda text, count: np.ones((count, 3))), r"p holds no probabilities"),
    (
        lambda: verify(np.eye(2), np.array([[1.0, 0.0]]), [1], np.random.default_rng(0)),
        r"drafted\[0\] = 1 has probability 0 in q.*from which the draft drew",
    ),
    (lambda: expected_tokens(1.5, 2), r"alpha is 1\.5; it must be at most 1"),
    (lambda: expected_tokens(0.5, -1), r"guesses is -1"),
    (lambda: speedup(0.5, 2, -1.0), r"cost is -1\.0; it must be >= 0"),
]


@pytest.mark.parametrize(("call", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_one_line(call, said, as_users_call):
    with pytest.raises(ValueError, match=said) as error:
        call()
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
