"""Sentences about pictures of digits: a small grammar, whose phrasings can be held out.

A sentence is made of a pattern and the digits that the picture shows, one or two side by side. All words of the held
out patterns occur in the others, so that a model that has never seen such a sentence has seen its words.
"""

from collections.abc import Iterable, Sequence

import numpy as np

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ONE = (  # patterns for one digit, {a}
    "{a}",
    "the digit {a}",
    "a picture of the number {a}",
    "somebody wrote {a} on paper",
    "this is a handwritten {a}",
    "this number is {a}",
)
ONE_HELD = ("somebody wrote the digit {a}", "a handwritten number {a} on this paper")
TWO = (  # for {a} at the left and {b} at the right
    "{a} and {b}",
    "a picture of {a} and then {b}",
    "{a} is left of {b}",
    "{b} is right of {a}",
    "somebody wrote {a} and then {b}",
    "this is {b} right of {a}",
)
TWO_HELD = ("this is {a} and then {b}", "somebody wrote {b} right of {a}")
HELD_PAIRS = tuple((a, (3 * a + 1) % 10) for a in range(10))  # of digits, for training without them
PAD, START, END = 0, 1, 2
SPECIALS = ("<pad>", "<start>", "<end>")
VOCABULARY = SPECIALS + tuple(
    sorted({word for pattern in (*ONE, *TWO) for word in pattern.split() if "{" not in word} | set(WORDS))
)
IDS = {word: i for i, word in enumerate(VOCABULARY)}
LONGEST = 2 + max(len(pattern.split()) for pattern in (*ONE, *ONE_HELD, *TWO, *TWO_HELD))


def sentence(pattern: str, *shown: int) -> str:
    """The pattern with the words for one or two digits.

    Examples
    --------
    >>> sentence("{b} is right of {a}", 3, 8)
    'eight is right of three'
    """
    names = dict(zip("ab", (WORDS[digit] for digit in shown), strict=False))
    return pattern.format(**names)


def encode(sentences: str | Iterable[str]) -> np.ndarray:
    """Ids (n, `LONGEST`) of sentences: a start, the words, an end, and padding.

    Raises
    ------
    ValueError
        If a word is not in the vocabulary, or a sentence is too long or empty.

    Examples
    --------
    >>> encode(["the digit three"])
    array([[ 1, 23,  5, 26,  2,  0,  0,  0,  0]])
    """
    rows = np.full((len(given := [sentences] if isinstance(sentences, str) else list(sentences)), LONGEST), PAD)
    for row, text in zip(rows, given, strict=True):
        words = text.split()
        unknown = [word for word in words if word not in IDS or word in SPECIALS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} in {text!r} is not in the vocabulary: {' '.join(VOCABULARY[3:])}")
        if not 0 < len(words) <= LONGEST - 2:
            raise ValueError(f"{text!r} has {len(words)} words; a sentence has 1 to {LONGEST - 2}")
        row[: len(words) + 2] = [START, *(IDS[word] for word in words), END]
    return rows


def decode(ids: np.ndarray) -> list[str]:
    """The sentences of ids (n, w), without what stands for no word.

    Examples
    --------
    >>> decode(encode(["this number is nine"]))
    ['this number is nine']
    """
    return [" ".join(VOCABULARY[i] for i in row if i >= len(SPECIALS)) for row in ids.tolist()]


def side_by_side(*pictures: np.ndarray) -> np.ndarray:
    """Pictures (..., y, x) of one height next to each other.

    Examples
    --------
    >>> side_by_side(np.zeros((1, 8, 8)), np.ones((1, 8, 8))).shape
    (1, 8, 16)
    """
    return np.concatenate(pictures, -1)


def prompts(pattern: str, classes: Sequence) -> list[str]:
    """A sentence for each class, a digit or a pair of digits.

    Examples
    --------
    >>> prompts("the digit {a}", range(2)), prompts("{a} and {b}", [(4, 2)])
    (['the digit zero', 'the digit one'], ['four and two'])
    """
    return [sentence(pattern, *np.atleast_1d(one).tolist()) for one in classes]


def check_pairs(pictures, captions) -> None:
    """Refuse pictures and captions that differ in number.

    Raises
    ------
    ValueError
        With both numbers.
    """
    if len(pictures) != len(captions):
        raise ValueError(
            f"there are {len(pictures)} pictures and {len(captions)} captions; each picture has one caption"
        )
