"""The results of the page on blanks: which masks come, how long the pairs are, what is learned, and what it costs."""

import math
from collections import Counter, defaultdict
from itertools import combinations, product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attnmath import bpe, spans
from attnmath.tasks import t5

MARKS = range(50, 60)


def masks(n, cut, number):
    """All masks of n tokens with so many cut ones in so many spans, the first token kept and the last one cut."""
    found = []
    for places in combinations(range(1, n), cut):
        mask = np.isin(np.arange(n), places)
        if mask[-1] and (np.diff(mask.astype(int), prepend=0) == 1).sum() == number:
            found.append(mask)
    return found


@pytest.mark.claim("thm-span-masks", "eq:span-mask", "eq:composition")
@pytest.mark.parametrize(("n", "density", "mean", "count"), [(9, 0.45, 2.0, 12), (8, 0.4, 1.0, 6), (8, 0.5, 4.0, 1)])
def test_every_mask_is_equally_likely(n, density, mean, count):
    cut, number = spans.span_counts(n, density, mean)
    every = masks(n, cut, number)
    assert len(every) == count == math.comb(cut - 1, number - 1) * math.comb(n - cut - 1, number - 1)
    rng = np.random.default_rng(2)
    drawn = Counter(spans.span_mask(n, density, mean, rng).tobytes() for _ in range(300 * count))
    assert drawn.keys() == {mask.tobytes() for mask in every}
    assert count == 1 or chisquare(list(drawn.values())).pvalue > 1e-3


@pytest.mark.claim("prop-first-and-last", "eq:cut-probability")
@pytest.mark.parametrize(("n", "density", "mean"), [(9, 0.45, 2.0), (10, 0.3, 1.5), (7, 0.7, 3.0)])
def test_the_first_token_is_never_cut_and_the_last_one_always(n, density, mean):
    cut, number = spans.span_counts(n, density, mean)
    want = np.mean(masks(n, cut, number), 0)
    np.testing.assert_allclose(spans.cut_probabilities(n, density, mean), want, atol=1e-12)
    assert want[0] == 0 and want[-1] == 1
    turned = np.mean([np.roll(mask, i) for mask in masks(n, cut, number) for i in range(n)], 0)
    np.testing.assert_allclose(turned, cut / n, rtol=1e-12)
    rng = np.random.default_rng(1)
    drawn = np.mean([spans.span_mask(n, density, mean, rng, roll=True) for _ in range(4000)], 0)
    assert np.abs(drawn - cut / n).max() < 5 * (0.25 / 4000) ** 0.5


@pytest.mark.claim("prop-span-lengths", "eq:span-length")
@pytest.mark.parametrize(("cut", "number"), [(9, 4), (6, 1), (5, 5), (7, 2)])
def test_the_length_of_a_span(cut, number):
    every = [c for c in product(range(1, cut + 1), repeat=number) if sum(c) == cut]
    p = spans.span_length_probabilities(cut, number)
    for j in {0, number - 1}:
        want = np.bincount([c[j] for c in every], minlength=len(p) + 1)[1:] / len(every)
        np.testing.assert_allclose(p, want, rtol=1e-12)
    np.testing.assert_allclose(p @ np.arange(1, len(p) + 1), cut / number, rtol=1e-12)


@pytest.mark.claim("prop-span-lengths")
def test_in_long_texts_a_span_ends_at_each_token_with_one_probability():
    p = spans.span_length_probabilities(3000, 1000)
    np.testing.assert_allclose(p[:8], (1 / 3) * (2 / 3) ** np.arange(8), rtol=0.01)
    assert abs(spans.span_length_probabilities(30, 10)[0] - 1 / 3) > 0.02, "in short ones it differs"


@pytest.mark.claim("prop-pair-lengths", "eq:pair-lengths", "eq:span-counts")
def test_input_and_target_have_the_lengths_that_are_said():
    rng, worst = np.random.default_rng(5), np.zeros(2)
    for _ in range(400):
        n, density, mean = int(rng.integers(20, 400)), rng.uniform(0.1, 0.5), rng.uniform(1, 4)
        mask = spans.span_mask(n, density, mean, rng)
        pair = spans.corrupt(np.arange(100, 100 + n), mask, range(1000, 1400))
        assert tuple(map(len, pair)) == spans.pair_lengths(n, density, mean)
        about = n * np.array([1 - density + density / mean, density + density / mean]) + (0, 1)
        worst = np.maximum(worst, np.abs(np.array([len(X) for X in pair]) - about))
    assert (worst <= (1, 1.5)).all() and (worst > (0.6, 0.9)).all(), "the bounds hold and are nearly met"


def world(n, letters, seed):
    """All texts of n letters with random probabilities."""
    texts = list(product(range(letters), repeat=n))
    p = np.random.default_rng(seed).dirichlet(np.full(len(texts), 0.4))
    return dict(zip(texts, p, strict=True))


@pytest.mark.claim("thm-span-conditional")
@pytest.mark.parametrize(("n", "density", "mean"), [(6, 0.5, 1.5), (6, 0.5, 3.0), (5, 0.4, 1.0)])
def test_the_best_answer_is_the_texts_own_conditional_distribution(n, density, mean):
    """All texts and masks are listed. Given a source, the texts that fit it are as likely as they are in the world."""
    cut, number = spans.span_counts(n, density, mean)
    every, joint = masks(n, cut, number), defaultdict(lambda: defaultdict(float))
    for text, p in world(n, 2, seed=n).items():
        for mask in every:
            source, target = spans.corrupt(np.array(text), mask, MARKS)
            joint[tuple(source.tolist())][tuple(target.tolist())] += p / len(every)
    loss = lengths = 0.0
    for source, targets in joint.items():
        fits = {t: spans.restore(np.array(source), np.array(t), MARKS)[0] for t in targets}
        total = sum(world(n, 2, seed=n)[tuple(ids.tolist())] for ids in fits.values())
        own, mass = defaultdict(float), sum(targets.values())
        for target, p in targets.items():
            text = tuple(fits[target].tolist())
            np.testing.assert_allclose(p / mass, world(n, 2, seed=n)[text] / total, rtol=1e-10)
            own[tuple(len(span) for span in spans.blanks(np.array(target), MARKS))] += p
            loss -= p * math.log2(p / mass)
        lengths -= sum(p * math.log2(p / mass) for p in own.values())
    assert -1e-12 <= lengths <= math.log2(math.comb(cut - 1, number - 1)) + 1e-12
    assert lengths < loss and (lengths > 0.1 or number in (1, cut))


@pytest.mark.claim("prop-prefix-language-model")
def test_one_span_is_a_prefix_and_its_continuation():
    for n, density, mean in ((12, 0.5, 5.0), (12, 0.5, 99.0), (2, 0.5, 1.0), (9, 0.3, 2.1)):
        cut, number = spans.span_counts(n, density, mean)
        assert number == 1 and cut / mean < 1.5
        text = np.arange(n)
        source, target = spans.corrupt(text, spans.span_mask(n, density, mean), MARKS)
        assert source.tolist() == [*range(n - cut), 50] and target.tolist() == [50, *range(n - cut, n), 51]
    assert spans.span_counts(12, 0.5, 4.0).spans == 2, "3 / 2 is rounded to two spans"


@pytest.mark.claim("eq:span-flops")
@pytest.mark.parametrize("mean", [1.0, 4.0])
def test_the_products_of_a_text_are_counted_as_pytorch_counts_them(mean):
    """PyTorch counts the scores that the causal mask forbids too."""
    tokens = bpe.train("the mean of the array", 260, t5.SPECIALS)
    config = t5.Config(d=8, heads=2, f=12, layers=3, vocabulary=len(tokens), context=40, density=0.3, mean=mean)
    model, rng = t5.TextToText(config, tokens), np.random.default_rng(3)
    source, target, _ = t5.corrupted(rng.integers(2, 258, 40), [0], config, rng)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.from_numpy(source), t5.shift_right(torch.from_numpy(target)))
    t, found = target.shape[1], spans.objective_flops(40, 8, 12, 3, len(tokens) + t5.SENTINELS, density=0.3, mean=mean)
    assert counter.get_total_flops() == found["spans"]["flops"] + 4 * 3 * 8 * (t * t - t * (t + 1) // 2)
    assert found["spans"]["predicted"] == 12 and found["next token"]["predicted"] == 40
    small = spans.objective_flops(568, 512, 2048, 6, 32128)
    order = [small[name]["flops"] for name in ("spans", "masked", "next token", "whole text")]
    assert order == sorted(order) and 0.5 < order[0] / order[2] < 0.6


@pytest.mark.parametrize(("n", "k", "s"), [(7, 3, 2), (8, 4, 3), (6, 2, 1), (9, 4, 2)])
def test_turned_masks_without_a_torn_span_are_equally_likely(n, k, s):
    """Each comes from s pairs of a mask and a turn; its ends are cut less often than its middle."""

    def runs(mask):
        return sum(one and not before for before, one in zip((0, *mask), mask, strict=False))

    whole = [mask for mask in product((0, 1), repeat=n) if sum(mask) == k and runs(mask) == s]
    drawn = [mask for mask in whole if mask[0] == 0 and mask[-1] == 1]
    turned = Counter(mask[n - turn :] + mask[: n - turn] for mask in drawn for turn in range(n))
    kept = {mask: times for mask, times in turned.items() if runs(mask) == s}
    assert kept == {mask: s for mask in whole if not (mask[0] and mask[-1])}
    cut = np.mean(list(kept), 0)
    assert cut[0] == pytest.approx(cut[-1]) and cut[0] < k / n
