"""How good predictions are: whether probabilities mean what they say, how far an answer is from the right one.

They take NumPy arrays or sequences of symbols, and have no gradient.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnmath import _require


def calibration_error(probabilities, labels, bins: int = 10) -> float:
    r"""How far confidence and accuracy lie apart, on average over bins of confidence.

    .. math:: \sum_{b=1}^{B}\frac{|I_b|}{N}\,\bigl|\operatorname{acc}(I_b) - \operatorname{conf}(I_b)\bigr|,\qquad
              I_b = \Bigl\{i : \tfrac{b-1}{B} < \max_j p_{ij} \le \tfrac bB\Bigr\}

    acc is the part of a bin whose most probable class is the right one, conf the mean of its largest probabilities.

    Parameters
    ----------
    probabilities : (N, t) rows that sum to 1.
    labels : (N,) integers, the right classes.
    bins : :math:`B \ge 1`, of equal width.

    Returns
    -------
    From 0 to 1; on few examples it is above 0 for perfect probabilities too.

    Raises
    ------
    ValueError
        If there is no row, a row is no distribution, labels are not one class a row, or bins is no positive integer.

    References
    ----------
    Guo et al. (2017), equation 3. Chapter 6, eq:calibration-error.

    Examples
    --------
    >>> round(calibration_error(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 1, 1])), 12)
    0.25
    """
    P, y = np.asarray(probabilities), np.asarray(labels)
    _require.shapes(probabilities=(P, "N t"))
    N, t = P.shape
    _require.nonempty("probabilities", P.shape, 0, N, "row")
    _require.nonempty("probabilities", P.shape, 1, t, "class")
    if not (P.min() >= 0 and np.abs(P.sum(-1, dtype=float) - 1).max() < 1e-3):
        raise ValueError("probabilities has a row that is no distribution: apply softmax to the logits first")
    _require.losses.targets(y, (N,), None, "labels", "row of probabilities")
    _require.losses.within(y, t, "labels")
    _require.count("bins", bins)
    confidence, correct = P.max(-1).astype(float), P.argmax(-1) == y
    b = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    gaps = np.bincount(b, correct - confidence, minlength=bins)  # of a bin: its size times (acc - conf)
    return float(np.abs(gaps).sum() / N)  # eq:calibration-error


class ErrorRates(NamedTuple):
    """Wrong symbols for each symbol of the references, and the part of the words that are not right throughout."""

    symbols: float
    words: float


def error_rates(hypotheses: Sequence, references: Sequence) -> ErrorRates:
    r"""How many symbols must be changed, inserted or deleted to get the references, and how many words differ.

    .. math:: \text{symbols} = \frac{\sum_i \operatorname{lev}(h_i, r_i)}{\sum_i |r_i|},\qquad
              \text{words} = \frac{1}{N}\,\bigl|\{i : h_i \ne r_i\}\bigr|

    Parameters
    ----------
    hypotheses, references : N sequences of symbols each: strings, or lists of phonemes or of token ids.

    Returns
    -------
    ErrorRates : ``symbols`` is at least 0 and may exceed 1; ``words`` lies between 0 and 1.

    Raises
    ------
    ValueError
        If the two differ in number, are single strings, or the references hold no symbol.

    References
    ----------
    Levenshtein's distance, computed by RapidFuzz.

    Examples
    --------
    >>> error_rates(["sitten", "on"], ["sitting", "on"])
    ErrorRates(symbols=0.2222222222222222, words=0.5)
    """
    from rapidfuzz.distance import Levenshtein  # here, because nothing else of the library needs it

    for name, sequences in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(sequences, str):
            raise ValueError(f"{name} is one string; expected a list of words, each a sequence of symbols")
    if len(hypotheses) != len(references):
        raise ValueError(f"there are {len(hypotheses)} hypotheses and {len(references)} references; one is due to each")
    pairs = [(list(h), list(r)) for h, r in zip(hypotheses, references, strict=True)]
    length = sum(len(r) for _, r in pairs)
    if not length:
        raise ValueError("the references hold no symbol, so there is no rate")
    distance = sum(Levenshtein.distance(h, r) for h, r in pairs)
    return ErrorRates(distance / length, sum(h != r for h, r in pairs) / len(pairs))
