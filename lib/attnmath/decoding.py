"""From next-token probabilities to whole sequences: greedy search and beam search, in batches.

Both ask a function ``step(prefixes, rows, parents)`` for the logarithms of the probabilities of the next token:

- ``prefixes`` : (p, n) ints, the sequences that are still open, each from its start symbol;
- ``rows`` : (p,) ints, which member of the batch each prefix belongs to;
- ``parents`` : (p,) ints, which prefix of the call before each of these extends (in the first call, its row): what a
  model keeps of the past, such as keys and values, is reordered by them;
- it returns (p, t) log-probabilities, an array.
"""

from collections.abc import Callable

import numpy as np

Step = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _check(batch, limit, width=1):
    for name, value in (("batch", batch), ("limit", limit), ("width", width)):
        if value < (name != "batch"):
            raise ValueError(f"{name} is {value}; it must be at least {int(name != 'batch')}")


def _log_probabilities(step, end, prefixes, rows, parents):
    logp = np.asarray(step(prefixes, rows, parents), dtype=np.float64)
    if logp.ndim != 2 or len(logp) != len(prefixes):
        raise ValueError(f"step returned the shape {logp.shape}; it must be ({len(prefixes)}, t), one row a prefix")
    if not 0 <= end < logp.shape[1]:
        raise ValueError(f"end is {end}; step scores {logp.shape[1]} tokens")
    if np.isnan(logp).any():
        raise ValueError("step returned nan; it must return logarithms of probabilities")
    return logp


def greedy(step: Step, start: int, end: int, batch: int, limit: int) -> tuple[list[list[int]], np.ndarray]:
    r"""The most probable next token, again and again.

    .. math:: y_i = \operatorname{argmax}_y\; p(y \mid y_{<i})

    Parameters
    ----------
    step : see the module; a tie goes to the smaller token.
    start, end : the symbols before the first token and after the last.
    batch : how many sequences to make at once.
    limit : the most tokens of a sequence, its end symbol counted.

    Returns
    -------
    sequences : the tokens, without start and end.
    scores : (batch,) the logarithms of the sequences' probabilities.

    Raises
    ------
    ValueError
        If a size is too small, or if step returns another shape or nan.

    Examples
    --------
    >>> step = lambda prefixes, rows, parents: np.log([[0.1, 0.6, 0.3]] * len(prefixes))
    >>> sequences, scores = greedy(step, 0, 2, batch=1, limit=3)
    >>> sequences, scores.round(4)
    ([[1, 1, 1]], array([-1.5325]))
    """
    _check(batch, limit)
    tokens, scores = np.full((batch, limit + 1), end), np.zeros(batch)
    tokens[:, 0] = start
    rows = parents = np.arange(batch)
    for n in range(1, limit + 1):
        if not len(rows):
            break
        logp = _log_probabilities(step, end, tokens[rows, :n], rows, parents)
        best = logp.argmax(-1)
        tokens[rows, n] = best
        scores[rows] += logp[np.arange(len(rows)), best]
        parents = np.flatnonzero(best != end)
        rows = rows[parents]
    return [_until(row[1:], end) for row in tokens], scores


def _until(row, end):
    stop = np.flatnonzero(row == end)
    return row[: stop[0] if len(stop) else len(row)].tolist()


def beam_search(
    step: Step, start: int, end: int, batch: int, width: int, limit: int, length_penalty: float = 0.0
) -> tuple[list[list[int]], np.ndarray]:
    r"""The best sequence that is found when ``width`` prefixes are kept at every length.

    .. math:: \hat y = \operatorname{argmax}_{y \in \text{beam}}\; \frac{1}{|y|^\alpha} \sum_i \log p(y_i \mid y_{<i})

    A sequence that has ended keeps its place in the beam for as long as no ``width`` others are more probable. Width 1
    is greedy search; a width that holds all prefixes is exact.

    Parameters
    ----------
    step, start, end, batch, limit : as in `greedy`.
    width : how many prefixes each sequence keeps. Ties go to the better prefix, then to the smaller token.
    length_penalty : the exponent :math:`\alpha`; :math:`|y|` counts the end symbol. 0 looks for the most probable
        sequence, which favours short ones; 1 for the best mean.

    Returns
    -------
    sequences : the tokens, without start and end.
    scores : (batch,) what was maximised.

    Raises
    ------
    ValueError
        If a size is too small, or if step returns another shape or nan.

    Examples
    --------
    Token 1 is the better start, and token 0 the better beginning:

    >>> table = {(3,): [0.4, 0.6, 0.0], (3, 0): [0.0, 0.0, 1.0], (3, 1): [0.5, 0.0, 0.5], (3, 1, 0): [0.5, 0.0, 0.5]}
    >>> def step(prefixes, rows, parents):
    ...     with np.errstate(divide="ignore"):
    ...         return np.log([table[tuple(prefix)] for prefix in prefixes.tolist()])
    >>> beam_search(step, 3, 2, batch=1, width=2, limit=3)[0], greedy(step, 3, 2, batch=1, limit=3)[0]
    ([[0]], [[1, 0, 0]])
    """
    _check(batch, limit, width)
    tokens = np.full((batch, 1, limit + 1), end)
    tokens[:, :, 0] = start
    scores = np.zeros((batch, 1))  # of each hypothesis in the beam; -inf where there is none
    open_, lengths = np.ones((batch, 1), bool), np.zeros((batch, 1), int)
    before = np.arange(batch)[:, None]  # where each hypothesis stood in the last call
    for n in range(1, limit + 1):  # alg-beam-search
        active = open_ & np.isfinite(scores)
        if not length_penalty:  # a prefix never gains: once the best one has ended, nothing overtakes it
            active &= open_[np.arange(batch), scores.argmax(-1)][:, None]
        if not active.any():
            break
        rows, slots = np.nonzero(active)
        logp = _log_probabilities(step, end, tokens[rows, slots, :n], rows, before[rows, slots])
        call = np.full(active.shape, -1)
        call[rows, slots] = np.arange(len(rows))
        t, w = logp.shape[1], active.shape[1]
        candidates = np.full((batch, w, t), -np.inf)
        candidates[rows, slots] = scores[rows, slots, None] + logp
        candidates[:, :, end] = np.where(active, candidates[:, :, end], scores)  # what has ended stays as it is
        flat = candidates.reshape(batch, w * t)
        order = np.argsort(-flat, axis=1, kind="stable")[:, :width]
        slot, token = order // t, order % t
        scores = np.take_along_axis(flat, order, 1)
        grown = np.take_along_axis(active, slot, 1)
        tokens = np.take_along_axis(tokens, slot[:, :, None], 1)
        tokens[:, :, n] = np.where(grown, token, tokens[:, :, n])
        lengths = np.take_along_axis(lengths, slot, 1) + grown
        open_ = np.take_along_axis(open_, slot, 1) & ~(grown & (token == end))
        before = np.take_along_axis(call, slot, 1)
    with np.errstate(invalid="ignore"):
        ranked = scores / np.maximum(lengths, 1) ** length_penalty
    best = ranked.argmax(-1) if batch else np.zeros(0, int)
    chosen = tokens[np.arange(batch), best, 1:]
    return [_until(row, end) for row in chosen], ranked[np.arange(batch), best]
