"""Which tokens are chosen and what stands in their places, by chance and by count; what is refused."""

import numpy as np
import pytest

from attnmath import masking
from attnmath.masking import blank, choose, portions


@pytest.mark.parametrize("count", [0, 1, 2, 7, 10, 19, 307])
def test_portions_sum_to_the_count_and_differ_from_shares_by_less_than_one(count):
    for shares in ((0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5), (1 / 3, 1 / 3, 1 / 3)):
        found = portions(count, shares)
        assert sum(found) == count and all(abs(k - count * s) < 1 for k, s in zip(found, shares, strict=True))
    assert portions(10, masking.SPLIT) == [8, 1, 1] and portions(3, (0.5, 0.5)) == [2, 1]


def test_every_place_is_chosen_as_often_as_any_other(rng):
    mask = np.tile(np.arange(9) < 8, (20_000, 1))
    chosen = choose(mask, rng, 0.25)
    assert (chosen.sum(-1) == 2).all() and not chosen[:, 8].any()
    assert np.abs(chosen[:, :8].mean(0) - 0.25).max() < 0.015
    together = (chosen[:, 0] & chosen[:, 1]).mean()
    assert abs(together - 1 / 28) < 0.006, "pairs too: two of eight"


def test_random_tokens_are_drawn_from_all_words_and_the_kinds_fall_anywhere(rng):
    ids = np.full((4000, 10), 5)
    found = blank(ids, ids > 0, rng, token=1, words=range(20, 24), share=0.5)
    drawn = found.ids[found.ids >= 20]
    assert np.abs(np.bincount(drawn - 20) / len(drawn) - 0.25).max() < 0.03
    for kind, share in ((found.ids == 1, 0.4), (found.ids >= 20, 0.05), (found.chosen & (found.ids == 5), 0.05)):
        assert np.abs(kind.mean(0) - share).max() < 0.02, "in each column alike"
        assert np.abs(kind.reshape(4, 1000, 10).mean((1, 2)) - share).max() < 0.02, "in early and late texts alike"


def test_the_given_ids_stay_as_they_are_and_a_generator_decides(rng):
    ids = rng.integers(5, 50, (3, 20))
    before, mask = ids.copy(), ids > 9
    one, two, other = (blank(ids, mask, np.random.default_rng(s), token=1, words=range(5, 50)) for s in (1, 1, 2))
    assert (ids == before).all() and all((a == b).all() for a, b in zip(one, two, strict=True))
    assert (one.chosen != other.chosen).any()


def test_short_texts_and_rows_of_padding(rng):
    mask = np.array([[True, False, False], [False, False, False], [True, True, True]])
    chosen = choose(mask, rng, 0.01)
    assert chosen.sum(-1).tolist() == [1, 0, 1] and chosen[0, 0]
    assert (choose(mask, rng, 1.0) == mask).all()
    assert choose(np.ones((0, 4), bool), rng).shape == (0, 4)


IDS = np.full((2, 4), 7)
MASK = np.ones((2, 4), bool)
GOOD = {"token": 1, "words": range(5, 9)}


@pytest.mark.parametrize(
    ("ids", "mask", "options", "said"),
    [
        (IDS, MASK.astype(int), {}, r"mask is no \(b, n\) array of booleans"),
        (IDS[0], MASK[0], {}, r"mask is no \(b, n\) array of booleans"),
        (IDS, MASK, {"share": 0.0}, r"share is 0\.0; it must be above 0 and at most 1"),
        (IDS, MASK, {"share": 1.5}, r"share is 1\.5"),
        (IDS.astype(float), MASK, {}, "token ids are integers"),
        (IDS, MASK[:, :3], {}, r"ids has shape \(2, 4\) and mask \(2, 3\); they must agree"),
        (
            IDS,
            MASK,
            {"split": (0.8, 0.1, 0.2)},
            r"split is \(0\.8, 0\.1, 0\.2\); it must be three shares >= 0 of sum 1",
        ),
        (IDS, MASK, {"split": (1.2, -0.1, -0.1)}, "it must be three shares"),
        (IDS, MASK, {"words": range(5, 5)}, "words is empty"),
    ],
)
def test_bad_input_is_refused_in_one_line(ids, mask, options, said, rng):
    with pytest.raises(ValueError, match=said) as caught:
        blank(ids, mask, rng, **GOOD | options)
    assert "\n" not in str(caught.value)
