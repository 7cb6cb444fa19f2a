"""Films are what they are said to be: real pictures and phonemes, at uneven times, with one right answer each."""

import numpy as np
import pytest

from attnmath import cmudict
from attnmath import films as film
from attnmath.check import compare
from attnmath.digits import digits


@pytest.fixture(scope="module")
def made():
    return film.films(np.random.default_rng(3), 400, digits().test)


def test_pictures_show_their_digits_by_the_hands_of_one_part(made):
    own = {X.tobytes(): int(y) for X, y in zip(*digits().test, strict=True)}
    found = [own[X.tobytes()] for X in made.pictures[:100].reshape(-1, 1, 8, 8)]
    assert found == made.digits[:100].ravel().tolist()
    assert all(len(set(row)) == film.FLASHES for row in made.digits.tolist()), "no digit twice"
    assert len({X.tobytes() for X in made.pictures.reshape(-1, 64)}) > 600, "many hands"


def test_sounds_and_letters_are_the_dictionarys(made):
    book = cmudict.cmudict()
    book = book.train | book.validation | book.test
    for row in range(40):
        for k, name in enumerate(film.ANIMALS[i] for i in made.words[row]):
            ids = made.sounds[row, film.PHONEMES * k :][: film.PHONEMES]
            assert tuple(cmudict.PHONEMES[i - 1] for i in ids if i) == book[name][0]
        asked = film.ANIMALS[made.words[row, made.asked[row]]]
        assert "".join(cmudict.LETTERS[i - 1] for i in made.text[row, 1:] if i) == asked
    assert (made.text[:, 0] == film.ASK).all() and film.ASK > made.text[:, 1:].max()
    assert (made.words[:, 0] != made.words[:, 1]).all()


def test_times_are_those_of_the_script_and_the_answer_is_the_nearest_flash(made):
    flash, spoken, written = np.split(made.times, np.cumsum(film.COUNTS)[:2], -1)
    gaps = np.diff(flash, axis=-1)
    assert gaps.min() == film.GAP[0] and gaps.max() == film.GAP[1]
    assert (np.diff(written) == 1).all() and (written[:, 0] == flash[:, -1] + film.GAP[0]).all()
    spoken = spoken.reshape(-1, film.SPOKEN, film.PHONEMES)
    assert (np.diff(spoken) == 1).all()
    for row in range(len(flash)):
        k = made.asked[row]
        heard = [t for t, i in zip(spoken[row, k], made.sounds[row, film.PHONEMES * k :], strict=False) if i]
        middle = heard[len(heard) // 2]
        away = abs(flash[row] - middle)
        assert (away <= film.LOOSE).sum() == 1 and made.digits[row, away.argmin()] == made.answer[row]
        assert flash[row, made.at[row, k]] + made.loose[row, k] == middle
    ends = spoken[:, 0, -1][(made.sounds[:, 3] > 0)]
    assert (spoken[:, 1, 0][(made.sounds[:, 3] > 0)] > ends).all(), "one word after the other"
    assert made.times[made.there].min() >= 0
    assert set(made.loose.ravel()) == set(range(-film.LOOSE, film.LOOSE + 1))


def test_rules_find_what_they_say(made):
    rows = np.arange(len(made.answer))
    compare(made.digits[rows, film.nearest(made)], made.answer, atol=0.0)
    first = film.before(made)
    late_words = made.loose[rows, made.asked] >= 0
    right = made.digits[rows, first] == made.answer
    start = made.at[rows, made.asked] == 0
    assert right[late_words].all() and not right[~late_words & ~start].any() and right[start].all()


def test_the_same_rows_told_otherwise_have_another_answer(made):
    other = film.told_otherwise(np.random.default_rng(4), made)
    for name in ("pictures", "sounds", "text", "digits", "words", "loose", "asked"):
        assert np.array_equal(getattr(made, name), getattr(other, name)), name
    assert (made.answer != other.answer).all()
    compare(other.digits[np.arange(len(made.answer)), film.nearest(other)], other.answer, atol=0.0)
    ours, theirs = made.times[:, : film.COUNTS[0]], other.times[:, : film.COUNTS[0]]
    assert np.array_equal(ours, theirs) and (np.diff(other.at) > 0).all()
    assert len(np.unique(other.at, axis=0)) == len(film.SUBSETS), "every choice of flashes"


def test_one_stream_can_be_late(made):
    for i, name in enumerate(film.STREAMS):
        moved = film.late(made, 7, name).times - made.times
        stream = np.repeat(range(3), film.COUNTS)
        compare(moved, np.broadcast_to(7 * (stream == i), moved.shape), atol=0.0)


def test_padding_is_told_apart(made):
    assert made.there.shape == made.times.shape and made.there[:, : film.FLASHES].all()
    lengths = [len(film.ANIMALS[i]) for i in made.words[np.arange(400), made.asked]]
    compare(made.there[:, -film.LETTERS - 1 :].sum(-1), 1 + np.array(lengths), atol=0.0)
    letters, phonemes, count = film.lexicon()
    compare((phonemes > 0).sum(-1), count, atol=0.0)
    assert len(np.unique(letters, axis=0)) == len(np.unique(phonemes, axis=0)) == len(film.ANIMALS)
