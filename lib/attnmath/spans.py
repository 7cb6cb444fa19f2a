r"""Span corruption: pieces of a text are cut out, each leaves a mark, and the pieces become what a model has to write.

Nothing here learns. The functions draw which tokens are cut out, make the pair of input and target, put the pieces
back, and say what all of this costs.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import comb
from typing import NamedTuple

import numpy as np

from attnmath import _require
from attnmath.count import transformer_flops


class Counts(NamedTuple):
    """How many tokens are cut out of a text, and in how many spans."""

    cut: int
    spans: int


class Pair(NamedTuple):
    """What goes into the encoder, and what the decoder has to write."""

    source: np.ndarray
    target: np.ndarray


def span_counts(n: int, density: float = 0.15, mean: float = 3.0) -> Counts:
    r"""How many tokens of a text are cut out, and in how many spans: the same for every text of this length.

    .. math:: k = \operatorname{round}(r n) \text{ within } [1, n-1],\qquad
              s = \operatorname{round}(k / \mu) \text{ within } [1, \min(k, n-k)]

    Parameters
    ----------
    n : tokens of the text, n >= 2.
    density : r, the share that is cut out; 0 < r < 1.
    mean : :math:`\mu`, the mean length of a span; at least 1. A half is rounded to the even number.

    Raises
    ------
    ValueError
        If a number is outside its domain.

    References
    ----------
    Raffel et al. (2020), sections 3.1.4 and 3.3.4, and ``random_spans_noise_mask`` of their program, which does not
    bound s by n - k. Chapter 8, eq:span-counts.

    Examples
    --------
    >>> span_counts(568)
    Counts(cut=85, spans=28)
    """
    _require.count("n", n)
    if n < 2:
        raise ValueError(f"n is {n}; a text needs at least 2 tokens, so that one is cut out and one is left")
    if not 0 < density < 1:
        raise ValueError(f"density is {density}; it must be more than 0 and less than 1")
    if not mean >= 1:
        raise ValueError(f"mean is {mean}; a span has at least 1 token, so it must be at least 1")
    cut = min(max(round(n * density), 1), n - 1)  # eq:span-counts
    return Counts(cut, min(max(round(cut / mean), 1), cut, n - cut))


def composition(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    r"""Positive integers with a given sum, every such list equally likely.

    .. math:: p(\ell_1, \dots, \ell_s) = \binom{k-1}{s-1}^{-1}

    Parameters
    ----------
    total : k, the sum.
    parts : s, how many; 1 <= s <= k.
    rng : where the draw comes from.

    Raises
    ------
    ValueError
        If there are more parts than units.

    References
    ----------
    Chapter 8, eq:composition.

    Examples
    --------
    >>> composition(7, 3, np.random.default_rng(0))
    array([4, 1, 2])
    """
    _require.count("parts", parts)
    if parts > total:
        raise ValueError(f"{total} tokens cannot be cut into {parts} spans of at least one; ask for fewer")
    walls = 1 + np.sort(rng.choice(total - 1, parts - 1, replace=False))
    return np.diff(walls, prepend=0, append=total)  # eq:composition


def span_mask(
    n: int, density: float = 0.15, mean: float = 3.0, rng: np.random.Generator | None = None, *, roll: bool = False
) -> np.ndarray:
    r"""Which tokens of a text are cut out: kept and cut spans take turns, and every such mask is equally likely.

    .. math:: \underbrace{0\cdots0}_{g_1}\,\underbrace{1\cdots1}_{\ell_1}\,\cdots\,
              \underbrace{0\cdots0}_{g_s}\,\underbrace{1\cdots1}_{\ell_s}

    Parameters
    ----------
    n, density, mean : as in `span_counts`.
    rng : where the draws come from; by default one that differs from call to call.
    roll : turn the mask by a random number of places, so that each place is cut with probability k / n. A span at the
        end may then be torn into two. Without it the first token is never cut and the last one always.

    Returns
    -------
    (n,) of bool, True where a token is cut out.

    Raises
    ------
    ValueError
        As `span_counts`.

    References
    ----------
    Raffel et al. (2020), ``random_spans_noise_mask`` of their program. Chapter 8, thm-span-masks.

    Examples
    --------
    >>> span_mask(12, 0.4, 2.5, np.random.default_rng(1)).astype(int)
    array([0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1])
    """
    cut, spans = span_counts(n, density, mean)
    rng = np.random.default_rng() if rng is None else rng
    lengths = np.stack([composition(n - cut, spans, rng), composition(cut, spans, rng)], -1)
    mask = np.repeat(np.tile([False, True], spans), lengths.ravel())  # eq:span-mask
    return np.roll(mask, rng.integers(n)) if roll else mask


def corrupt(ids, mask, sentinels: Sequence[int]) -> Pair:
    r"""The pair of a text: each span that is cut out leaves its sentinel; the target names it and tells the span.

    .. math:: \text{source} = u_1\langle1\rangle u_2\langle2\rangle\cdots\langle s\rangle u_{s+1},\qquad
              \text{target} = \langle1\rangle v_1\langle2\rangle v_2\cdots\langle s\rangle v_s\langle s{+}1\rangle

    Parameters
    ----------
    ids : (n,) the text.
    mask : (n,), True where a token is cut out; any mask, so the text may begin or end with a span.
    sentinels : tokens that no text has, one more than there are spans: the last one says that the target ends.

    Returns
    -------
    source, target : n - k + s and k + s + 1 tokens, if k are cut out in s spans.

    Raises
    ------
    ValueError
        If the shapes differ, the sentinels do not suffice or repeat, or the text has one of them.

    References
    ----------
    Raffel et al. (2020), figure 2. Their program ends the target with its token for the end of a text instead.

    Examples
    --------
    >>> text, mask = np.array([5, 6, 7, 8, 9]), np.array([False, True, True, False, True])
    >>> corrupt(text, mask, [100, 101, 102])
    Pair(source=array([  5, 100,   8, 101]), target=array([100,   6,   7, 101,   9, 102]))
    """
    ids, mask = _text(ids), np.asarray(mask)
    if mask.shape != ids.shape or mask.dtype != bool:
        raise ValueError(f"mask has shape {mask.shape} and dtype {mask.dtype}; expected {ids.shape} of bool, as ids")
    begins = mask & ~np.concatenate([[False], mask[:-1]])
    marks = _sentinels(sentinels, int(begins.sum()))
    if len(met := np.intersect1d(ids, marks)):
        raise ValueError(f"the text has the sentinel {met[0]}; choose sentinels that no text has")
    source, spans = ids.copy(), len(marks) - 1
    source[begins] = marks[:spans]
    target = np.insert(ids[mask], np.flatnonzero(begins[mask]), marks[:spans])
    return Pair(source[~mask | begins], np.append(target, marks[-1]))  # eq:span-pair


def blanks(target, sentinels: Sequence[int]) -> list[list[int]]:
    """The spans that a target tells, in order.

    Parameters
    ----------
    target : (m,) of the form that `corrupt` makes; a model may have written it.
    sentinels : as in `corrupt`, more than enough allowed.

    Raises
    ------
    ValueError
        If the target does not begin and end with a sentinel, if their order is another, or if a span is empty.

    Examples
    --------
    >>> blanks([100, 6, 7, 101, 9, 102], [100, 101, 102])
    [[6, 7], [9]]
    """
    target = _text(target)
    marks = np.flatnonzero(np.isin(target, sentinels))
    wanted = list(sentinels)[: len(marks)]
    if not len(marks) or marks[0] or marks[-1] != len(target) - 1 or target[marks].tolist() != wanted:
        raise ValueError(
            f"the target's sentinels are {target[marks].tolist()}; it must begin and end with one, in order"
        )
    if (np.diff(marks) == 1).any():
        raise ValueError("the target has an empty span; a span has at least one token")
    return [target[i + 1 : j].tolist() for i, j in pairwise(marks)]


def restore(source, target, sentinels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Put the spans back: the inverse of `corrupt`.

    Parameters
    ----------
    source, target, sentinels : as `corrupt` makes and takes them.

    Returns
    -------
    ids, mask : (n,), the text, and which of its tokens were cut out.

    Raises
    ------
    ValueError
        If the target is malformed (see `blanks`), or the source has other sentinels than the target.

    Examples
    --------
    >>> ids, mask = restore([5, 100, 8, 101], [100, 6, 7, 101, 9, 102], [100, 101, 102])
    >>> ids, mask.astype(int)
    (array([5, 6, 7, 8, 9]), array([0, 1, 1, 0, 1]))
    """
    spans, source = blanks(target, sentinels), _text(source)
    places = np.flatnonzero(np.isin(source, sentinels))
    if source[places].tolist() != list(sentinels)[: len(spans)]:
        told = source[places].tolist()
        raise ValueError(f"the source's sentinels are {told}, and the target tells {len(spans)} spans")
    parts, last = [], 0
    for place, span in zip(places, spans, strict=True):
        parts += [(source[last:place], False), (np.array(span, source.dtype), True)]
        last = place + 1
    parts.append((source[last:], False))
    mask = np.concatenate([np.full(len(part), cut) for part, cut in parts])
    return np.concatenate([part for part, _ in parts]), mask  # eq:span-restore


def pair_lengths(n: int, density: float = 0.15, mean: float = 3.0) -> tuple[int, int]:
    r"""The tokens of input and target, the same for every mask.

    .. math:: n - k + s \approx n\,(1 - r + r/\mu),\qquad k + s + 1 \approx n\,(r + r/\mu) + 1

    Parameters
    ----------
    n, density, mean : as in `span_counts`.

    References
    ----------
    Chapter 8, eq:pair-lengths.

    Examples
    --------
    T5 reads 512 tokens, the last one of which is its mark for the end:

    >>> pair_lengths(568)
    (511, 114)
    """
    cut, spans = span_counts(n, density, mean)
    return n - cut + spans, cut + spans + 1  # eq:pair-lengths


def span_length_probabilities(cut: int, spans: int) -> np.ndarray:
    r"""How probable each length of a span is: 1, 2, …, k - s + 1.

    .. math:: P(\ell = a) = \binom{k-a-1}{s-2} \Big/ \binom{k-1}{s-1}

    Parameters
    ----------
    cut, spans : k and s, 1 <= s <= k.

    References
    ----------
    Chapter 8, eq:span-length.

    Examples
    --------
    >>> span_length_probabilities(5, 3)
    array([0.5       , 0.33333333, 0.16666667])
    """
    _require.count("spans", spans)
    if spans > cut:
        raise ValueError(f"{cut} tokens cannot be cut into {spans} spans of at least one; ask for fewer")
    if spans == 1:
        return np.eye(cut)[-1]
    every = comb(cut - 1, spans - 1)
    return np.array([comb(cut - a - 1, spans - 2) / every for a in range(1, cut - spans + 2)])  # eq:span-length


def cut_probabilities(n: int, density: float = 0.15, mean: float = 3.0) -> np.ndarray:
    r"""How probable it is that each place of a text is cut out, if the mask is not rolled.

    Place i lies in span j if j kept spans with b tokens together, and a tokens of the cut ones, come before or at it,
    a + b = i + 1. All such masks are counted.

    Parameters
    ----------
    n, density, mean : as in `span_counts`.

    References
    ----------
    Chapter 8, eq:cut-probability.

    Examples
    --------
    >>> cut_probabilities(5, 0.4, 1.0).round(3)
    array([0. , 0.5, 0.5, 0. , 1. ])
    """
    k, s = span_counts(n, density, mean)
    found = np.zeros(n)
    for a in range(1, k + 1):
        inside = [comb(a - 1, j - 1) * comb(k - a, s - j) for j in range(1, s + 1)]  # the a-th cut token is in span j
        for b in range(1, n - k + 1):
            before = [comb(b - 1, j - 1) * _rest(n - k - b, s - j) for j in range(1, s + 1)]  # b tokens in j kept spans
            found[a + b - 1] += sum(x * y for x, y in zip(inside, before, strict=True)) / comb(k - 1, s - 1)
    return found / comb(n - k - 1, s - 1)  # eq:cut-probability


def _rest(total, parts):
    """How many lists of so many positive integers have this sum; the empty list has the sum 0."""
    return int(total == 0) if parts == 0 else comb(total - 1, parts - 1) if total else 0


def objective_flops(
    n: int, d: int, f: int, layers: int, vocabulary: int, *, density: float = 0.15, mean: float = 3.0
) -> dict[str, dict[str, int]]:
    r"""What a text of n tokens costs in a forward pass, and how many of its tokens are predicted, by objective.

    ``"spans"`` is an encoder and a decoder of so many layers each, ``"whole text"`` the same pair with the whole text
    as its target, ``"masked"`` an encoder and ``"next token"`` a decoder of twice as many layers. Scores that a causal
    mask forbids are not counted, nor are logits where nothing is predicted.

    Parameters
    ----------
    n, density, mean : as in `span_counts`.
    d, f, vocabulary : the widths and the number of tokens.
    layers : L, of the encoder and of the decoder each.

    Returns
    -------
    For each objective ``"flops"`` and ``"predicted"``.

    References
    ----------
    Chapter 8, eq:span-flops; `attnmath.count.transformer_flops`.

    Examples
    --------
    >>> found = objective_flops(568, 512, 2048, 6, 32128)
    >>> [(name, round(one["flops"] / 1e9, 1), one["predicted"]) for name, one in found.items()]
    [('spans', 35.3, 85), ('whole text', 75.0, 568), ('masked', 53.6, 85), ('next token', 65.5, 568)]
    """
    cut, spans = span_counts(n, density, mean)
    rows = {"spans": (n - cut + spans, cut + spans + 1), "whole text": (n - cut + spans, n)}
    found = {}
    for name, (m, t) in rows.items():
        cross = layers * (4 * (m + t) * d * d + 4 * m * t * d)  # keys and values of m rows, queries and outputs of t
        flops = transformer_flops(m, d, f, layers) + transformer_flops(t, d, f, layers, causal=True)
        flops += cross + 2 * t * d * vocabulary  # eq:span-flops
        found[name] = {"flops": flops, "predicted": cut if name == "spans" else n}
    for name, causal, predicted in (("masked", False, cut), ("next token", True, n)):
        flops = transformer_flops(n, d, f, 2 * layers, causal=causal) + 2 * predicted * d * vocabulary
        found[name] = {"flops": flops, "predicted": predicted}
    return found


def _text(ids):
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(f"a text has shape {ids.shape} and dtype {ids.dtype}; expected one row of integers")
    return ids.astype(np.int64)


def _sentinels(sentinels, spans):
    marks = np.asarray(list(sentinels), np.int64)
    if len(marks) <= spans:
        raise ValueError(f"there are {spans} spans and {len(marks)} sentinels; one more than spans is needed")
    marks = marks[: spans + 1]
    if len(np.unique(marks)) < len(marks):
        raise ValueError("sentinels repeat; each span needs its own")
    return marks
