"""Which tokens a masked language model has to predict, and what it sees in their places.

Of each text a fixed share of the tokens is chosen. Of the chosen ones most become the token ``[MASK]``, some become
a random token, and some stay as they are. All counts are exact: nothing but the places is left to chance.
"""

from typing import NamedTuple

import numpy as np

from attnmath import _require

SHARE, SPLIT = 0.15, (0.8, 0.1, 0.1)  # of the tokens; of the chosen ones: masked, random, unchanged


class Masked(NamedTuple):
    """A batch of texts with blanks.

    Attributes
    ----------
    ids : (b, n) what the model sees.
    targets : (b, n) the texts as they were.
    chosen : (b, n) of bool, the tokens that the model has to predict.
    """

    ids: np.ndarray
    targets: np.ndarray
    chosen: np.ndarray


def portions(count: int, shares) -> list[int]:
    """Whole numbers that sum to a count and are as near to its shares as whole numbers can be (largest remainder).

    Parameters
    ----------
    count : at least 0.
    shares : at least 0, of sum 1.

    Examples
    --------
    >>> portions(19, (0.8, 0.1, 0.1))
    [15, 2, 2]
    """
    exact = count * np.asarray(shares, dtype=float)
    whole = np.floor(exact + 1e-9).astype(int)
    late = np.argsort(whole - exact, kind="stable")[: count - int(whole.sum())]
    whole[late] += 1
    return whole.tolist()


def choose(mask: np.ndarray, rng: np.random.Generator, share: float = SHARE) -> np.ndarray:
    r"""Choose tokens of each text: the share, rounded, of those that may be chosen, and at least one.

    .. math:: c_i = \max\bigl(1,\ \operatorname{round}(s\,n_i)\bigr)

    Parameters
    ----------
    mask : (b, n) of bool, the tokens that may be chosen; n_i in row i. A row without any stays without.
    rng : where the places come from; each set of c_i places is equally probable.
    share : s, in (0, 1].

    Returns
    -------
    chosen : (b, n) of bool.

    Raises
    ------
    ValueError
        If mask is no array of booleans with two axes, or share is not in (0, 1].

    Examples
    --------
    >>> choose(np.ones((2, 20), bool), np.random.default_rng(0)).sum(-1)
    array([3, 3])
    """
    if getattr(mask, "dtype", None) != np.dtype(bool) or mask.ndim != 2:
        raise ValueError("mask is no (b, n) array of booleans; give True for each token that may be chosen")
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; it must be above 0 and at most 1")
    free = mask.sum(-1, keepdims=True)
    count = np.minimum(np.maximum(np.floor(share * free + 0.5), 1), free)  # eq:masked-count
    order = np.argsort(np.where(mask, rng.random(mask.shape), 2.0), axis=-1)
    chosen = np.zeros_like(mask)
    np.put_along_axis(chosen, order, np.arange(mask.shape[1]) < count, axis=-1)
    return chosen


def blank(
    ids: np.ndarray,
    mask: np.ndarray,
    rng: np.random.Generator,
    *,
    token: int,
    words: range,
    share: float = SHARE,
    split: tuple[float, float, float] = SPLIT,
) -> Masked:
    r"""Choose tokens, and put ``[MASK]``, a random token or the token itself in their places.

    .. math:: \hat x_i = \begin{cases} \texttt{[MASK]} & i\in M\\ \text{a random token} & i\in R\\ x_i & \text{else}
              \end{cases}

    Parameters
    ----------
    ids : (b, n) integers, the texts.
    mask : (b, n) of bool, the tokens that may be chosen: neither padding nor other special tokens.
    rng : where all draws come from.
    token : the id of ``[MASK]``.
    words : the ids from which random tokens are drawn.
    share : of the tokens, as in `choose`.
    split : the shares of the chosen ones, of the whole batch, that are masked, random and unchanged; of sum 1.

    Returns
    -------
    A `Masked`; ids outside the chosen places are the given ones.

    Raises
    ------
    ValueError
        As `choose`; if ids are no integers of mask's shape; if the split is no three shares; if there are no words.

    References
    ----------
    Devlin et al. (2019), section 3.1. There the three kinds are drawn for each token; here their counts are exact.

    Examples
    --------
    >>> ids = np.arange(10, 30)[None]
    >>> seen = blank(ids, np.ones((1, 20), bool), np.random.default_rng(0), token=1, words=range(10, 30))
    >>> int(seen.chosen.sum()), int((seen.ids == 1).sum()), bool((seen.targets == ids).all())
    (3, 3, True)
    """
    _require.integers(ids)
    if ids.shape != np.shape(mask):
        raise ValueError(f"ids has shape {ids.shape} and mask {np.shape(mask)}; they must agree")
    if len(split) != 3 or min(split) < 0 or abs(sum(split) - 1) > 1e-9:
        raise ValueError(f"split is {split}; it must be three shares >= 0 of sum 1: masked, random, unchanged")
    if not len(words):
        raise ValueError("words is empty; there must be at least one id to draw random tokens from")
    chosen = choose(mask, rng, share)
    places = rng.permutation(np.flatnonzero(chosen))
    masked, drawn, _ = portions(len(places), split)
    seen = np.array(ids)
    flat = seen.reshape(-1)
    flat[places[:masked]] = token  # eq:masked-input
    flat[places[masked : masked + drawn]] = rng.integers(words.start, words.stop, drawn)
    return Masked(seen, np.array(ids), chosen)
