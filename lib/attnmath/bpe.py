"""Byte-level byte-pair encoding: how text becomes the numbers of tokens, and back without a loss.

A text is cut into pieces (about words with the space before them), a piece into its bytes, and then the most frequent
pair of neighbours becomes a new token, again and again. The order of the learned merges is the whole model.
"""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import regex

PIECE = regex.compile(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = bytes(PRINTABLE + sorted(set(range(256)) - set(PRINTABLE)))  # in the order of GPT-2: printable ones first
CACHED, LONGEST = 1 << 16, 64  # how many pieces a tokenizer remembers, and of how many bytes at most

Pair = tuple[int, int]


@dataclass(frozen=True)
class BytePairs:
    """A tokenizer: special tokens first, then the 256 bytes, then one token for each merge.

    Parameters
    ----------
    pairs : the merges in the order in which they were learned, as pairs of ids.
    specials : strings that are tokens by themselves, such as `"<|end|>"`.

    Raises
    ------
    ValueError
        If a merge uses an id that is not there yet or comes twice, or if a special token is empty or comes twice.

    Examples
    --------
    >>> tokens = train("low low low lower", 258)
    >>> tokens.merges
    ((b'l', b'o'), (b'lo', b'w'))
    >>> tokens.encode("low"), tokens.decode([257, 68])
    ([257], 'lowe')
    """

    pairs: tuple[Pair, ...]
    specials: tuple[str, ...] = ()

    def __post_init__(self):
        tokens = _alphabet(self.specials)
        made: dict[Pair, int] = {}
        for left, right in self.pairs:
            if not len(self.specials) <= min(left, right) <= max(left, right) < len(tokens) or (left, right) in made:
                raise ValueError(f"merge {len(made)} is of {left} and {right}; it must be new, and of earlier tokens")
            made[left, right] = len(tokens)
            tokens.append(tokens[left] + tokens[right])
        object.__setattr__(self, "tokens", tuple(tokens))
        object.__setattr__(self, "_made", made)
        object.__setattr__(self, "_known", {})

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def merges(self) -> tuple[tuple[bytes, bytes], ...]:
        """The merges in the order in which they were learned, as bytes."""
        return tuple((self.tokens[left], self.tokens[right]) for left, right in self.pairs)

    @cached_property
    def _first(self) -> dict[int, int]:
        return {byte: len(self.specials) + i for i, byte in enumerate(BYTES)}

    def encode(self, text: str | bytes, *, specials: bool = False) -> list[int]:
        """The ids of a text.

        In each piece, of all neighbours that are the pair of a merge those of the earliest merge are joined, the
        leftmost first, until no neighbours are the pair of a merge.

        Parameters
        ----------
        text : a string, or any bytes, also such as are no UTF-8.
        specials : whether a special token's string in the text becomes its id; if not, it is text like any other, as it
            has to be if strangers wrote the text.

        Raises
        ------
        ValueError
            If a string holds half of a surrogate pair, which no bytes stand for.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        if specials and self.specials:
            longest_first = sorted(self.specials, key=len, reverse=True)
            cut = regex.split("(" + "|".join(map(regex.escape, longest_first)) + ")", text)
        else:
            cut = [text]
        ids: list[int] = []
        for i, part in enumerate(cut):
            if i % 2:
                ids.append(self.specials.index(part))
            else:
                for piece in PIECE.findall(part):
                    ids += self._known.get(piece) or self._piece(piece)
        return ids

    def _piece(self, piece: str) -> list[int]:
        ids = self.join(_to_bytes(piece))
        if len(self._known) < CACHED and len(piece) <= LONGEST:
            self._known[piece] = ids
        return ids

    def join(self, piece: bytes) -> list[int]:
        """The ids of one piece, by a heap of the neighbours that can be joined: the earliest merge, leftmost first.

        A piece of n bytes takes at most n - 1 joins, and each puts at most two new pairs on the heap.
        """
        ids: list = [self._first[byte] for byte in piece]
        last = len(ids) - 1
        before, after = list(range(-1, last)), list(range(1, last + 2))
        heap: list[tuple[int, int, Pair]] = []

        def offer(i):
            if 0 <= i and after[i] <= last and (new := self._made.get(pair := (ids[i], ids[after[i]]))):
                heapq.heappush(heap, (new, i, pair))  # an earlier merge has the smaller id

        for i in range(last):
            offer(i)
        while heap:
            new, i, pair = heapq.heappop(heap)
            j = after[i]
            if j > last or (ids[i], ids[j]) != pair:
                continue  # one of the two was joined with another since
            ids[i], ids[j], after[i] = new, None, after[j]
            if after[i] <= last:
                before[after[i]] = i
            offer(before[i])
            offer(i)
        return [i for i in ids if i is not None]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of tokens, one after the other.

        Raises
        ------
        ValueError
            If an id is not that of a token.
        """
        ids = [int(i) for i in ids]
        for i in ids:
            if not 0 <= i < len(self.tokens):
                raise ValueError(f"the id {i} is unknown; the ids of this tokenizer are 0 to {len(self.tokens) - 1}")
        return b"".join([self.tokens[i] for i in ids])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8, such as half a character, become `"\\ufffd"`."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def save(self, path: Path | str) -> None:
        """Write the tokenizer into a file of JSON that is, at every moment, the old one or the new one."""
        from .saves import write

        told = {"kind": "byte pairs", "specials": self.specials, "pairs": self.pairs}
        write(Path(path), json.dumps(told, separators=(",", ":")).encode())

    @classmethod
    def of(cls, told: Mapping) -> "BytePairs":
        """The tokenizer of a record that has its ``"specials"`` and ``"pairs"``."""
        pairs = tuple((int(left), int(right)) for left, right in told["pairs"])
        return cls(pairs, tuple(map(str, told["specials"])))

    @classmethod
    def load(cls, path: Path | str) -> "BytePairs":
        """Read what `save` wrote.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it holds no tokenizer.
        """
        data = Path(path).read_bytes()
        try:
            told = json.loads(data)
            if told["kind"] != "byte pairs":
                raise KeyError
            return cls.of(told)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} holds no whole tokenizer; write it again with save()") from error


def _alphabet(specials: Sequence[str]) -> list[bytes]:
    if len(set(specials)) < len(specials) or not all(specials):
        raise ValueError(f"the special tokens {tuple(specials)} must differ, and none may be empty")
    return [_to_bytes(special) for special in specials] + [bytes([byte]) for byte in BYTES]


def _to_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text has {text[error.start]!r}, half of a surrogate pair; no bytes stand for it"
        ) from None


def pieces(texts: str | Iterable[str]) -> Counter[str]:
    r"""How often each piece occurs. No token reaches over the border of a piece.

    The expression is that of GPT-2: an English ending behind an apostrophe; letters, figures or other characters, each
    with one space before them; and what is left of white space.

    Examples
    --------
    >>> pieces("It's 2 cats,  2 cats.")
    Counter({' 2': 2, ' cats': 2, 'It': 1, "'s": 1, ',': 1, ' ': 1, '.': 1})
    """
    found: Counter[str] = Counter()
    for text in [texts] if isinstance(texts, str) else texts:
        found.update(PIECE.findall(text))
    return found


def _start(texts, vocabulary, specials) -> tuple[list[list[int]], list[int], list[bytes]]:
    """The distinct pieces as lists of ids, how often each occurs, and the tokens so far."""
    tokens = _alphabet(specials)
    if vocabulary < len(tokens):
        raise ValueError(f"the vocabulary is {vocabulary}; the 256 bytes and {len(specials)} special tokens need more")
    found = pieces(texts)
    if not found:
        raise ValueError("the text is empty; there is nothing to learn pairs from")
    first = {byte: len(specials) + i for i, byte in enumerate(BYTES)}
    return [[first[byte] for byte in _to_bytes(piece)] for piece in found], list(found.values()), tokens


def replace(ids: list[int], pair: Pair, new: int) -> list[int]:
    """Join a pair wherever it occurs, from left to right.

    Examples
    --------
    >>> replace([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def train_plain(
    texts: str | Iterable[str], vocabulary: int, specials: Sequence[str] = (), *, work: Counter | None = None
) -> BytePairs:
    """What `train` does, with all pairs counted anew for each merge.

    Examples
    --------
    >>> train_plain("low low low lower", 258) == train("low low low lower", 258)
    True
    """
    words, counts, tokens = _start(texts, vocabulary, specials)
    pairs: list[Pair] = []
    while len(tokens) < vocabulary:
        found: Counter[Pair] = Counter()
        for ids, count in zip(words, counts, strict=True):
            for pair in pairwise(ids):
                found[pair] += count
            if work is not None:
                work["symbols"] += len(ids)
        if not found:
            break
        best = min(found, key=lambda pair: (-found[pair], pair))  # eq:merge
        words = [replace(ids, best, len(tokens)) for ids in words]
        tokens.append(tokens[best[0]] + tokens[best[1]])
        pairs.append(best)
    return BytePairs(tuple(pairs), tuple(specials))


def train(
    texts: str | Iterable[str], vocabulary: int, specials: Sequence[str] = (), *, work: Counter | None = None
) -> BytePairs:
    """Learn merges: the most frequent pair of neighbours becomes a token, until the vocabulary is full.

    Pairs are counted within pieces, overlaps too. Of equally frequent pairs the one with the smaller left id is taken,
    and then the one with the smaller right id; the ids of the bytes have the order of GPT-2. A heap holds the pairs by
    their counts, and only the pieces that contain the pair are looked at again.

    Parameters
    ----------
    texts : one text or several.
    vocabulary : how many tokens there shall be, with special ones and the 256 bytes; fewer come if no pair is left.
    specials : strings that get the first ids and are never part of a merge.
    work : if given, `work["symbols"]` grows by the number of symbols looked at, and `work["heap"]` by what went on it.

    Raises
    ------
    ValueError
        If there is no text, or the vocabulary is smaller than the bytes and special tokens.

    References
    ----------
    Gage (1994); Sennrich, Haddow and Birch (2016), Algorithm 1; over bytes: Radford et al. (2019), Section 2.2.

    Examples
    --------
    >>> tokens = train(["the cat", "the hat", "that"], 259, specials=["<|end|>"])
    >>> tokens.merges
    ((b'a', b't'), (b't', b'h'))
    """
    words, counts, tokens = _start(texts, vocabulary, specials)
    found: dict[Pair, int] = defaultdict(int)
    where: dict[Pair, set[int]] = defaultdict(set)
    for w, ids in enumerate(words):
        for pair in pairwise(ids):
            found[pair] += counts[w]
            where[pair].add(w)
    heap = [(-count, pair) for pair, count in found.items()]
    heapq.heapify(heap)
    seen, pushed, pairs = sum(map(len, words)), len(heap), []
    while len(tokens) < vocabulary and heap:
        count, best = heapq.heappop(heap)
        if found.get(best) != -count:
            continue  # the count has changed since
        pairs.append(best)
        change: dict[Pair, int] = defaultdict(int)
        for w in where.pop(best):
            old, words[w] = words[w], replace(words[w], best, len(tokens))
            seen += len(old)
            for pair in pairwise(old):
                change[pair] -= counts[w]
                where[pair].discard(w)
            for pair in pairwise(words[w]):
                change[pair] += counts[w]
                where[pair].add(w)
        for pair, by in change.items():
            if by:
                found[pair] += by
                if found[pair]:
                    heapq.heappush(heap, (-found[pair], pair))
                    pushed += 1
                else:
                    del found[pair]
        tokens.append(tokens[best[0]] + tokens[best[1]])
    if work is not None:
        work.update(symbols=seen, heap=pushed)
    return BytePairs(tuple(pairs), tuple(specials))


def bits_per_byte(loss: float, tokens: int, size: int) -> float:
    r"""The loss of a language model in a unit that no tokenizer changes, :math:`\ell\,T/(B\log2)`.

    Parameters
    ----------
    loss : the mean loss of a token, in nats.
    tokens : how many tokens the mean is over.
    size : how many bytes of text these tokens are.

    Raises
    ------
    ValueError
        If there are no bytes.

    Examples
    --------
    >>> round(bits_per_byte(2.0, tokens=100, size=400), 4)
    0.7213
    """
    if size < 1:
        raise ValueError(f"the text has {size} bytes; it needs at least one")
    return loss * tokens / (size * float(np.log(2)))  # eq:bits-per-byte


def train_whole(texts: Iterable[str], vocabulary: int, specials: Sequence[str] = ()) -> BytePairs:
    """`train`, where a vocabulary that the text cannot fill is an error.

    Raises
    ------
    ValueError
        As `train`, and if the text has too few pairs.

    Examples
    --------
    >>> len(train_whole(["the cat the cat"], 258))
    258
    """
    tokens = train(texts, vocabulary, specials)
    if len(tokens) < vocabulary:
        raise ValueError(f"vocabulary is {vocabulary}; the text has pairs for {len(tokens)} tokens, so ask for fewer")
    return tokens
