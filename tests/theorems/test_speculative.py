"""Speculative sampling writes what the target would write: by listing all that can happen, and by a test with power."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, ncx2

from attnmath import speculative
from attnmath.check import compare
from attnmath.speculative import (
    acceptance,
    expected_tokens,
    min_p,
    nucleus,
    residual,
    speculate,
    speedup,
    temperature,
    top_k,
)

seeds = st.integers(0, 2**32 - 1)

# Draft and target, given the last token. All fractions that occur are multiples of 1/4, or of 1/2: four, or two,
# equally likely uniform numbers say all that can happen.
QUARTERS = np.array([[2, 2, 0], [1, 1, 2], [0, 0, 4]]) / 4, np.array([[1, 1, 2], [2, 1, 1], [1, 1, 2]]) / 4
HALVES = np.array([[2, 0], [1, 1]]) / 2, np.array([[1, 1], [2, 0]]) / 2


class Tape(np.random.Generator):
    """A generator that reads its numbers from a list and notes how many more it was asked for."""

    def __init__(self, digits, base):
        super().__init__(np.random.PCG64(0))
        self.digits, self.base, self.read = digits, base, 0

    def random(self):
        self.read += 1
        digit = self.digits[self.read - 1] if self.read <= len(self.digits) else 0
        return (digit + 0.5) / self.base


def law(run, base):
    """What a program writes with which probability: all tapes of digits, as long as it reads them."""
    found, open_ = {}, [()]
    while open_:
        digits = open_.pop()
        tape = Tape(digits, base)
        tokens = tuple(run(tape))
        if tape.read > len(digits):
            open_ += [(*digits, i) for i in range(base)]
        else:
            found[tokens] = found.get(tokens, 0) + Fraction(1, base ** len(digits))
    return found


def exact(target, start, length):
    """The target's own law of the tokens behind the start."""
    found = {}
    for tokens in product(range(len(target)), repeat=length):
        p = Fraction(1)
        for before, token in zip((start, *tokens), tokens, strict=False):
            p *= Fraction(target[before, token])
        if p:
            found[tokens] = p
    return found


@pytest.mark.claim("thm-speculative", "alg-speculative", "eq:accept", "eq:residual")
@pytest.mark.parametrize(
    ("tables", "limit", "guesses"),
    [(QUARTERS, 1, 3), (QUARTERS, 2, 1), (QUARTERS, 2, 4), (HALVES, 3, 1), (HALVES, 3, 2)],
    ids=["1-3", "2-1", "2-4", "3-1", "3-2"],
)
def test_the_law_of_what_is_written_is_the_targets(tables, limit, guesses):
    """Equal as fractions, through the library's own program."""
    draft, target = tables

    def rows(text, count):
        return target[np.array(text)[len(text) - count :]]

    def run(tape):
        return speculate(rows, lambda text: draft[text[-1]], [0], limit, tape, guesses=guesses).tokens

    found = law(run, base=4 if tables is QUARTERS else 2)
    assert sum(found.values()) == 1 and found == exact(target, 0, limit)


def one_token(p, q):
    """The law of one tested token: drafted and kept, or replaced."""
    kept = q * np.minimum(1, np.divide(p, q, out=np.ones_like(p), where=q > 0))
    return kept + (1 - kept.sum()) * residual(p, q), kept.sum()


def distributions(seed, t=6):
    """A target and a draft, with tokens that one of them never says."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(t, 0.5), 2)
    zeros = rng.random((2, t)) < 0.3
    zeros[:, rng.integers(t)] = False
    p, q = np.where(zeros[0], 0, p), np.where(zeros[1], 0, q)
    return p / p.sum(), q / q.sum(), rng


@pytest.mark.claim("thm-speculative", "thm-acceptance", "eq:acceptance")
@settings(max_examples=40)
@given(seeds)
def test_one_token_and_how_often_it_is_kept(seed):
    p, q, rng = distributions(seed)
    found, kept = one_token(p, q)
    compare(found, p, name="the target's law", atol=1e-12)
    alpha = acceptance(p, q)
    compare(kept, alpha, name="kept", atol=1e-12)
    events = [list(event) for event in product([False, True], repeat=len(p))]
    far = max(abs((p - q)[event].sum()) for event in events)  # total variation by its definition
    compare(alpha, 1 - far, name="1 - TV", atol=1e-12)
    # no joint law of a token of q and one of p has them equal more often: any joint law, by fitting its margins
    J = rng.random((len(p), len(p))) + np.diag(rng.exponential(9, len(p)))
    for _ in range(300):
        J *= np.divide(p, J.sum(1), out=np.zeros_like(p), where=J.sum(1) > 0)[:, None]
        J *= np.divide(q, J.sum(0), out=np.zeros_like(p), where=J.sum(0) > 0)
    assert np.trace(J) <= alpha + np.abs(J.sum(1) - p).sum() + 1e-9


def chi_square(counts, expected):
    return ((counts - expected) ** 2 / expected).sum()


@pytest.mark.slow
@pytest.mark.claim("thm-speculative")
def test_chi_square_passes_and_would_see_the_usual_fault(monkeypatch):
    """Two tokens, nine texts. The fault draws the replacement from p; its law is known, so the power is too."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    number = 1200

    def statistic(expected):
        rng, counts = np.random.default_rng(1), np.zeros(9)
        for _ in range(number):
            a, b = speculate(lambda _, count: np.tile(p, (count, 1)), lambda _: q, [0], 2, rng, guesses=2).tokens
            counts[3 * a + b] += 1
        return chi_square(counts, number * expected)

    right = np.outer(p, p).ravel()
    limit = chi2.ppf(1 - 1e-4, 8)
    assert statistic(right) < limit
    # the first token is drafted and tested; the second is the target's own draw, since there is room for one guess only
    wrong = np.minimum(p, q) + (1 - acceptance(p, q)) * p
    faulty = np.outer(wrong, p).ravel()
    power = ncx2.sf(limit, 8, number * ((faulty - right) ** 2 / right).sum())
    assert power > 0.999
    monkeypatch.setattr(speculative, "residual", lambda p, q: p)
    assert statistic(right) > limit and statistic(faulty) < limit


@pytest.mark.claim("prop-tokens-per-call", "eq:tokens-per-call")
@pytest.mark.parametrize("guesses", [0, 1, 3, 6])
def test_tokens_for_each_call(guesses, rng):
    """By the law of the first failure, and the general form with chances that depend on each other."""
    for alpha in (0.0, 0.3, 0.9, 1.0):
        chances = [alpha**i * (1 - alpha) for i in range(guesses)] + [alpha**guesses]
        mean = sum((i + 1) * chance for i, chance in enumerate(chances))
        compare(expected_tokens(alpha, guesses), mean, name="tokens for each call", atol=1e-12)
        if alpha < 1:
            closed = (1 - alpha ** (guesses + 1)) / (1 - alpha)
            compare(expected_tokens(alpha, guesses), closed, name="closed form", atol=1e-12)
    moods = rng.random(50)  # every call has a chance of its own: the mean chance promises too little
    mixed = np.mean([expected_tokens(float(a), guesses) for a in moods])
    assert mixed >= expected_tokens(float(moods.mean()), guesses) - 1e-12
    assert guesses < 2 or mixed > expected_tokens(float(moods.mean()), guesses) + 0.05


def time_of_a_token(alpha, guesses, cost):
    """In calls of the target, from all that may happen in a call: the first rejection, or none."""
    chances = [alpha**i * (1 - alpha) for i in range(guesses)] + [alpha**guesses]
    return (1 + guesses * cost) / sum((i + 1) * chance for i, chance in enumerate(chances))


@pytest.mark.claim("prop-speedup", "eq:speculative-speedup")
@settings(max_examples=60)
@given(st.fractions(0, 1, max_denominator=30), st.fractions(0, 2, max_denominator=30))
def test_a_draft_pays_exactly_if_it_is_kept_more_often_than_it_costs(alpha, cost):
    """In fractions: the border is sharp, on both sides, and lies at alpha = cost."""
    factors = [1 / time_of_a_token(alpha, g, cost) for g in range(1, 12)]
    found = [speedup(float(alpha), g, float(cost)) for g in range(1, 12)]
    compare(found, np.array(factors, float), name="the factor", atol=1e-12)
    assert (max(factors) > 1) == (alpha > cost)
    assert factors[0] == (1 + alpha) / (1 + cost)
    assert alpha != cost or factors[0] == 1


@pytest.mark.claim("lem-truncation", "pf:truncation")
@settings(max_examples=40)
@given(seeds, st.floats(0.05, 0.95), st.integers(1, 8))
def test_what_truncation_does(seed, part, k):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(8, 0.4))
    for q in (top_k(p, k), nucleus(p, part), min_p(p, part)):
        kept = q > 0
        compare(q[kept], p[kept] / p[kept].sum(), name="the kept ones keep their ratios", atol=1e-12)
        compare(1 - acceptance(p, q), p[~kept].sum(), name="TV is what was cut off", atol=1e-12)
        assert p[kept].min() >= p[~kept].max(initial=0)
    assert (top_k(p, k) > 0).sum() <= k
    assert p[nucleus(p, part) == 0].sum() <= 1 - part + 1e-12
    kept = nucleus(p, part) > 0
    assert p[kept].sum() - p[kept].min() < part, "one token less would be too few"
    assert (min_p(p, part) > 0).sum() <= 1 / (part * p.max()) + 1e-9


@pytest.mark.claim("lem-temperature-order")
@settings(max_examples=30)
@given(seeds)
def test_what_temperature_does(seed):
    """It keeps the order and raises the entropy; with tau it goes from one token to all alike."""
    p = np.random.default_rng(seed).dirichlet(np.full(6, 0.7)) + 1e-9
    p /= p.sum()
    entropies = []
    for tau in (0.0, 0.2, 0.7, 1.0, 1.6, 5.0, 1e6):
        q = temperature(p, tau)
        assert tau == 0 or (np.argsort(q, kind="stable") == np.argsort(p, kind="stable")).all() or q.min() == 0
        entropies.append(-(q[q > 0] * np.log(q[q > 0])).sum())
    assert (np.diff(entropies) >= -1e-12).all() and entropies[0] == 0
    compare(entropies[-1], np.log(6), name="all alike", atol=1e-4)
