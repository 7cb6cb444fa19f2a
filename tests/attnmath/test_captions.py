"""The grammar of captions: what is held out is new, its words are not, and what cannot be said is refused."""

import numpy as np
import pytest

from attnmath import captions
from attnmath.check import compare


def test_sentences_come_back_and_end_where_their_words_end():
    for patterns, shown in (
        (captions.ONE + captions.ONE_HELD, range(10)),
        (captions.TWO + captions.TWO_HELD, [(3, 8)]),
    ):
        for pattern in patterns:
            said = captions.prompts(pattern, shown)
            ids = captions.encode(said)
            assert captions.decode(ids) == said and len(set(said)) == len(shown)
            assert (ids[:, 0] == captions.START).all()
            words = np.array([len(text.split()) for text in said])
            compare((ids == captions.END).argmax(-1), words + 1, atol=0.0)
            assert ((ids == captions.PAD).sum(-1) == captions.LONGEST - words - 2).all()


def test_held_patterns_are_new_and_made_of_known_words():
    for seen, held in ((captions.ONE, captions.ONE_HELD), (captions.TWO, captions.TWO_HELD)):
        said = {
            text
            for pattern in seen
            for a in range(10)
            for text in captions.prompts(pattern, [(a, b) for b in range(10)])
        }
        new = {
            text
            for pattern in held
            for a in range(10)
            for text in captions.prompts(pattern, [(a, b) for b in range(10)])
        }
        known = {word for text in said for word in text.split()}
        assert not said & new and {word for text in new for word in text.split()} <= known
        assert not any(
            text.startswith(beginning + " ") for text in new for beginning in said if len(beginning.split()) > 4
        )


def test_each_digit_stands_once_on_each_side_of_the_held_pairs():
    left, right = np.array(captions.HELD_PAIRS).T
    assert sorted(left) == sorted(right) == list(range(10)) and (left != right).all()


def test_order_of_words_and_places():
    assert captions.sentence("{b} is right of {a}", 3, 8) == captions.sentence("{a} is right of {b}", 8, 3)
    assert captions.sentence("{a}", 3) == "three"
    assert captions.side_by_side(np.zeros((2, 8, 8)), np.ones((2, 8, 8)))[..., 8:].min() == 1


def test_words_and_numbers_that_do_not_fit_are_refused():
    for text, message in (
        ("the digit eleven", "'eleven' in 'the digit eleven' is not in the vocabulary: a and digit"),
        ("<end>", "'<end>' in '<end>' is not in the vocabulary"),
        ("", "'' has 0 words; a sentence has 1 to 7"),
        ("a " * 9, "has 9 words"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            captions.encode(text)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="there are 2 pictures and 3 captions; each picture has one caption"):
        captions.check_pairs(np.zeros((2, 8, 8)), ["one"] * 3)
