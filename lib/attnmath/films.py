"""Small films: handwritten digits flash, animals are named in phonemes, and a written question asks about one of them.

The three streams come at different rates and at uneven times. Which digit flashed nearest to the word of the question?
Pictures are scikit-learn's digits, sounds are from the CMU dictionary. A tick of the clock is 80 milliseconds.
"""

from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from attnmath import cmudict
from attnmath.digits import SIDE, Part

ANIMALS = tuple("cat dog pig hen fish goat duck bird frog wolf".split())
FLASHES, SPOKEN = 4, 2  # pictures and words of a film
LETTERS, PHONEMES = 4, 4  # of the longest animal, as it is written and as it is spoken
GAP, LOOSE = (16, 32), 5  # ticks between two flashes; a word's middle is at most so many ticks from its flash
PIXELS = SIDE * SIDE
STREAMS = ("pictures", "sounds", "text")
COUNTS = (FLASHES, SPOKEN * PHONEMES, 1 + LETTERS)  # rows of each stream; the text begins with "?"
PAD, ASK = 0, len(cmudict.LETTERS) + 1  # of letters and phonemes; "?" after the letters
SUBSETS = np.array(list(combinations(range(FLASHES), SPOKEN)))  # which flashes have a word


class Films(NamedTuple):
    """Films, and what they were made from.

    Attributes
    ----------
    pictures : (b, 4, 64) grey from 0 to 1.
    sounds : (b, 8) numbers of phonemes, 0 where a word is shorter than 4.
    text : (b, 5) the number of "?", then those of letters, 0 after the word.
    times : (b, 17) ticks of all rows: of pictures, sounds, text.
    answer : (b,) the digit that flashed nearest to the middle of the word that the text asks about.
    digits : (b, 4) what the pictures show.
    words : (b, 2) animals in the order in which they are spoken.
    at : (b, 2) the flash of each of them.
    loose : (b, 2) ticks from that flash to the word's middle.
    asked : (b,) which of the two words the text names.
    """

    pictures: np.ndarray
    sounds: np.ndarray
    text: np.ndarray
    times: np.ndarray
    answer: np.ndarray
    digits: np.ndarray
    words: np.ndarray
    at: np.ndarray
    loose: np.ndarray
    asked: np.ndarray

    @property
    def there(self) -> np.ndarray:
        """(b, 17) where a row is no padding."""
        return np.concatenate([np.ones(self.digits.shape, bool), self.sounds != PAD, self.text != PAD], -1)


@cache
def lexicon() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each animal the letters (10, 4), the phonemes (10, 4), both from 1 on, and how many phonemes it has (10,).

    Examples
    --------
    >>> letters, phonemes, lengths = lexicon()
    >>> [cmudict.PHONEMES[k - 1] for k in phonemes[ANIMALS.index("frog")]]
    ['F', 'R', 'AA', 'G']
    """
    book = cmudict.cmudict()
    spoken = [(book.train | book.validation | book.test)[name][0] for name in ANIMALS]
    letters = cmudict.pad([[1 + cmudict.LETTERS.index(letter) for letter in name] for name in ANIMALS])
    phonemes = cmudict.pad([[1 + cmudict.PHONEMES.index(phoneme) for phoneme in word] for word in spoken])
    return letters, phonemes, np.array([len(word) for word in spoken])


def films(rng, count: int, part: Part) -> Films:
    """Films with pictures by the hands of one part of the digits.

    Examples
    --------
    >>> from attnmath.digits import digits
    >>> found = films(np.random.default_rng(0), 2, digits().train)
    >>> [ANIMALS[k] for k in found.words[0]], found.times[0, :4], found.answer
    (['cat', 'hen'], array([ 8, 35, 67, 94]), array([8, 5]))
    """
    digit = _some(rng, count, 10, FLASHES)
    order, first = np.argsort(part.y, kind="stable"), np.searchsorted(np.sort(part.y), np.arange(11))
    which = first[digit] + (rng.random(digit.shape) * np.diff(first)[digit]).astype(int)
    gaps = rng.integers(GAP[0], GAP[1] + 1, (count, FLASHES))
    gaps[:, 0] = GAP[0] // 2
    script = {
        "digits": digit,
        "words": _some(rng, count, len(ANIMALS), SPOKEN),
        "at": SUBSETS[rng.integers(len(SUBSETS), size=count)],
        "loose": rng.integers(-LOOSE, LOOSE + 1, (count, SPOKEN)),
        "asked": rng.integers(SPOKEN, size=count),
    }
    return _filmed(part.X.reshape(-1, PIXELS)[order[which]], gaps.cumsum(-1), script)


def told_otherwise(rng, films: Films) -> Films:
    """The same rows in the same order, spoken at other flashes, so that each film has another answer.

    Examples
    --------
    >>> from attnmath.digits import digits
    >>> one = films(np.random.default_rng(0), 100, digits().train)
    >>> other = told_otherwise(np.random.default_rng(1), one)
    >>> (one.sounds == other.sounds).all(), (one.answer == other.answer).any()
    (np.True_, np.False_)
    """
    rows = np.arange(len(films.asked))
    changed = SUBSETS[:, films.asked].T != films.at[rows, films.asked][:, None]
    chosen = np.where(changed, rng.random(changed.shape), 2.0).argmin(-1)
    script = {name: getattr(films, name) for name in ("digits", "words", "loose", "asked")}
    return _filmed(films.pictures, films.times[:, :FLASHES], script | {"at": SUBSETS[chosen]})


def late(films: Films, ticks: int, stream: str = "sounds") -> Films:
    """The same films with one stream later by so many ticks; the answer stays."""
    times, first = films.times.copy(), sum(COUNTS[: STREAMS.index(stream)])
    times[:, first : first + COUNTS[STREAMS.index(stream)]] += ticks
    return films._replace(times=times)


def nearest(films: Films) -> np.ndarray:
    """The rule: find the word of the question among the sounds, then the flash nearest to its middle, (b,) flashes.

    Examples
    --------
    >>> from attnmath.digits import digits
    >>> one = films(np.random.default_rng(0), 100, digits().train)
    >>> (one.digits[np.arange(100), nearest(one)] == one.answer).all()
    np.True_
    """
    middle = _heard(films)
    return abs(films.times[:, :FLASHES] - middle[:, None]).argmin(-1)


def before(films: Films) -> np.ndarray:
    """Another rule: the last flash before the word's middle (the first one if there is none), (b,) flashes."""
    return np.maximum((films.times[:, :FLASHES] <= _heard(films)[:, None]).sum(-1) - 1, 0)


def _heard(films):
    """When the middle of the word that is asked for is heard: its letters name it, its phonemes are looked for."""
    letters, phonemes, lengths = lexicon()
    word = (films.text[:, None, 1:] == letters).all(-1).argmax(-1)
    heard = films.sounds.reshape(-1, SPOKEN, PHONEMES)
    spoken = (heard == phonemes[word][:, None]).all(-1).argmax(-1)
    start = films.times[np.arange(len(word)), FLASHES + PHONEMES * spoken]
    return start + lengths[word] // 2


def _some(rng, count, n, k):
    """k different numbers below n, in any order, ``count`` times."""
    return rng.random((count, n)).argsort(-1)[:, :k]


def _filmed(pictures, flash, script):
    letters, phonemes, lengths = lexicon()
    words, at, asked = script["words"], script["at"], script["asked"]
    rows, count = np.arange(len(words)), len(words)
    start = np.take_along_axis(flash, at, -1) + script["loose"] - lengths[words] // 2
    spoken = (start[..., None] + np.arange(PHONEMES)).reshape(count, -1)
    written = flash[:, -1:] + GAP[0] + np.arange(1 + LETTERS)
    return Films(
        pictures=pictures,
        sounds=phonemes[words].reshape(count, -1),
        text=np.concatenate([np.full((count, 1), ASK), letters[words[rows, asked]]], -1),
        times=np.concatenate([flash, spoken, written], -1),
        answer=script["digits"][rows, at[rows, asked]],
        **script,
    )
