"""Drawing tokens: what temperature and truncation make of a distribution, and drawing faster with a draft.

A distribution is an array (..., t) of probabilities, one for each token. Speculative sampling lets a small model, the
draft, propose several tokens, and asks the large one, the target, about all of them in one call. What is written has
the target's distribution, whatever the draft proposes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from attnmath import _require

TOLERANCE = 1e-4  # by which a row of probabilities may miss the sum 1: float32 and a long vocabulary


def _distribution(**arrays):
    """Rows of probabilities."""
    for name, p in arrays.items():
        _require.shapes(**{name: (p, "... t")})
        if not p.shape[-1]:
            raise ValueError(f"{name} has shape {p.shape}: there is no token to draw")
        sums = p.sum(-1)
        if not bool((p >= 0).all() and (abs(sums - 1) <= TOLERANCE).all()):
            raise ValueError(
                f"{name} holds no probabilities: its least entry is {p.min():.4g} and a row sums to "
                f"{sums.reshape(-1)[abs(sums - 1).argmax()]:.4g}; take the softmax of logits first"
            )


def _share(name, value, zero):
    """A number up to 1; `zero` says whether 0 is one of them."""
    _require.nonnegative(name, value) if zero else _require.positive(name, value)
    if value > 1:
        raise ValueError(f"{name} is {value!r}; it must be at most 1")


def _kept(p, keep):
    """Probabilities of the tokens that are kept, divided by their sum."""
    kept = np.where(keep, p, 0)
    return kept / kept.sum(-1, keepdims=True)


def _ranks(p):
    """How many tokens stand before each, the most probable first; a tie goes to the smaller token."""
    return np.argsort(np.argsort(-p, axis=-1, kind="stable"), axis=-1, kind="stable")


def temperature(p, tau: float | int):
    r"""Sharpen or flatten: what the softmax of logits divided by tau would be.

    .. math:: p^{(\tau)}_y = p_y^{1/\tau} \Big/ \sum_z p_z^{1/\tau}

    Parameters
    ----------
    p : (..., t) probabilities.
    tau : >= 0. At 0 the most probable token has probability 1, and a tie goes to the smaller token.

    Returns
    -------
    q : (..., t) probabilities, in the same order.

    Raises
    ------
    ValueError
        If p holds no probabilities, or tau is negative or infinite.

    References
    ----------
    Chapter 7, eq:token-temperature.

    Examples
    --------
    >>> p = np.array([0.5, 0.3, 0.2])
    >>> temperature(p, 0.5).round(3), temperature(p, 0)
    (array([0.658, 0.237, 0.105]), array([1., 0., 0.]))
    """
    _distribution(p=p)
    _require.nonnegative("tau", tau)
    if not isfinite(tau):
        raise ValueError(f"tau is {tau!r}; it must be finite")
    if tau == 0:
        return np.asarray(_ranks(p) == 0, p.dtype)
    with np.errstate(divide="ignore"):
        logs = np.log(p / p.max(-1, keepdims=True)) / tau
    powers = np.exp(logs)
    return powers / powers.sum(-1, keepdims=True)  # eq:token-temperature


def top_k(p, k: int):
    r"""Keep the k most probable tokens.

    .. math:: A = \{y : \operatorname{rank}(p_y) \le k\}

    Parameters
    ----------
    p : (..., t) probabilities.
    k : >= 1; a tie goes to the smaller token, so that no more than k are kept.

    Returns
    -------
    q : (..., t) probabilities; the distance to p is what was cut off, lem-truncation.

    Raises
    ------
    ValueError
        If p holds no probabilities, or k is not an integer >= 1.

    References
    ----------
    Fan, Lewis and Dauphin (2018), section 5.4. Chapter 7, eq:top-k.

    Examples
    --------
    >>> top_k(np.array([0.5, 0.25, 0.15, 0.1]), 2).round(3)
    array([0.667, 0.333, 0.   , 0.   ])
    """
    _distribution(p=p)
    _require.count("k", k)
    return _kept(p, _ranks(p) < k)  # eq:top-k


def nucleus(p, mass: float | int):
    r"""Keep the smallest set of most probable tokens that has at least the given probability (top-p).

    .. math:: A = \{y : \text{the tokens before } y \text{ have less than } \text{mass}\}

    Parameters
    ----------
    p : (..., t) probabilities.
    mass : in (0, 1]; 1 keeps all.

    Returns
    -------
    q : (..., t) probabilities, at a distance of at most 1 - mass from p, lem-truncation.

    Raises
    ------
    ValueError
        If p holds no probabilities, or the mass is not in (0, 1].

    References
    ----------
    Holtzman et al. (2020), section 3.1. Chapter 7, eq:nucleus.

    Examples
    --------
    >>> nucleus(np.array([0.15, 0.5, 0.25, 0.1]), 0.7).round(3)
    array([0.   , 0.667, 0.333, 0.   ])
    """
    _distribution(p=p)
    _share("mass", mass, zero=False)
    if mass == 1:
        return _kept(p, True)
    ranks = _ranks(p)
    ordered = -np.sort(-p, axis=-1)
    before = np.cumsum(ordered, -1) - ordered
    return _kept(p, np.take_along_axis(before < mass, ranks, -1))  # eq:nucleus


def min_p(p, share: float | int):
    r"""Keep the tokens that have at least a share of the largest probability.

    .. math:: A = \{y : p_y \ge \text{share} \cdot \max_z p_z\}

    Parameters
    ----------
    p : (..., t) probabilities.
    share : in [0, 1]; 0 keeps all, 1 the most probable and what equals it.

    Returns
    -------
    q : (..., t) probabilities, of at most 1 / (share max p) tokens, lem-truncation.

    Raises
    ------
    ValueError
        If p holds no probabilities, or the share is not in [0, 1].

    References
    ----------
    Nguyen et al. (2025), section 3. Chapter 7, eq:min-p.

    Examples
    --------
    >>> min_p(np.array([0.5, 0.25, 0.15, 0.1]), 0.4).round(3)
    array([0.667, 0.333, 0.   , 0.   ])
    """
    _distribution(p=p)
    _share("share", share, zero=True)
    return _kept(p, p >= share * p.max(-1, keepdims=True))  # eq:min-p


def acceptance(p, q):
    r"""How often a token of the draft is kept: the mass that two distributions share.

    .. math:: \alpha = \sum_y \min(p_y, q_y) = 1 - \operatorname{TV}(p, q)

    Parameters
    ----------
    p, q : (..., t) probabilities of the target and of the draft.

    Returns
    -------
    alpha : (...) in [0, 1].

    Raises
    ------
    ValueError
        If one holds no probabilities, or they are not of one vocabulary.

    References
    ----------
    Leviathan, Kalman and Matias (2023), corollary 3.6. Chapter 7, eq:acceptance.

    Examples
    --------
    >>> float(acceptance(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])))
    0.7
    """
    _pair(p, q)
    return np.minimum(p, q).sum(-1)  # eq:acceptance


def _pair(p, q):
    """A target's and a draft's distribution of the same tokens."""
    _one_vocabulary(p, q)
    _distribution(p=p, q=q)


def _tokens(p):
    return (np.shape(p) or (0,))[-1]


def _one_vocabulary(p, q):
    if _tokens(p) != _tokens(q):
        raise ValueError(
            f"the target gives probabilities of {_tokens(p)} tokens and the draft of {_tokens(q)}: "
            "both models need one vocabulary, token by token"
        )


def residual(p, q):
    r"""What a rejected token is replaced by: the part of p that the draft gives too seldom.

    .. math:: r_y = \max(p_y - q_y, 0) \Big/ \sum_z \max(p_z - q_z, 0)

    Parameters
    ----------
    p, q : (..., t) probabilities of the target and of the draft.

    Returns
    -------
    r : (..., t) probabilities; p itself where p = q, since nothing is rejected there.

    Raises
    ------
    ValueError
        If one holds no probabilities, or they are not of one vocabulary.

    References
    ----------
    Leviathan, Kalman and Matias (2023), section 2.3; Chen et al. (2023), algorithm 2. Chapter 7, eq:residual.

    Examples
    --------
    >>> residual(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5]))
    array([1., 0., 0.])
    """
    _pair(p, q)
    rest = np.maximum(p - q, 0)
    total = rest.sum(-1, keepdims=True)
    return np.where(total > 0, rest, p) / np.where(total > 0, total, 1)  # eq:residual


def draw(p, rng: np.random.Generator) -> int:
    """One token; a token of probability 0 is never drawn.

    Parameters
    ----------
    p : (t,) probabilities.
    rng : one uniform number is taken from it.

    Examples
    --------
    >>> draw(np.array([0.0, 1.0, 0.0]), np.random.default_rng(0))
    1
    """
    total = np.cumsum(p)
    token = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
    return min(token, int(np.flatnonzero(p)[-1]))


def verify(p, q, drafted: list[int], rng: np.random.Generator) -> list[int]:
    r"""Keep the drafted tokens as long as luck holds, and add one token of the target's.

    .. math:: \Pr(\text{keep } y) = \min(1, p_y / q_y)

    Parameters
    ----------
    p : (g + 1, t) probabilities of the target, at each drafted token and behind the last.
    q : (g, t) probabilities from which the tokens were drawn: after temperature and truncation, if the draft has them.
    drafted : g tokens, drawn from q one after the other.
    rng : one uniform number for each token that is tested, and one for the last.

    Returns
    -------
    tokens : 1 to g + 1 of them; all but the last are drafted ones, and all have the target's distribution.

    Raises
    ------
    ValueError
        If p has not one row more than q and drafted, the vocabularies differ, or a drafted token has probability 0
        under q.

    References
    ----------
    Leviathan, Kalman and Matias (2023), algorithm 1; Chen et al. (2023), algorithm 2. Chapter 7, alg-speculative.

    Examples
    --------
    The target never says token 0, so its 1 takes the place of the draft's 0:

    >>> p, q = np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([[0.5, 0.5]])
    >>> verify(p, q, [0], np.random.default_rng(0))
    [1]
    """
    if not len(p) == len(q) + 1 == len(drafted) + 1:
        raise ValueError(
            f"p has {len(p)} rows, q {len(q)} and there are {len(drafted)} drafted tokens; the target has a row for "
            "each drafted token and one behind the last"
        )
    _pair(p, q) if len(q) else _distribution(p=p)
    for i, token in enumerate(drafted):
        if not q[i, token] > 0:
            raise ValueError(
                f"drafted[{i}] = {token} has probability 0 in q: give the probabilities from which the draft drew, "
                "after temperature and truncation"
            )
        if not rng.random() * q[i, token] < p[i, token]:  # eq:accept
            return [*drafted[:i], draw(residual(p[i], q[i]), rng)]
    return [*drafted, draw(p[-1], rng)]


@dataclass(frozen=True)
class Written:
    """What was written, and what it took.

    Attributes
    ----------
    tokens : those behind the prompt.
    calls : of the target; without a draft there would be one for each token.
    tested : drafted tokens that the target judged.
    kept : those of them that it kept.
    """

    tokens: list[int]
    calls: int
    tested: int
    kept: int


def speculate(
    target: Callable,
    draft: Callable,
    prompt: list[int],
    limit: int,
    rng: np.random.Generator,
    *,
    guesses: int = 4,
    end: int | None = None,
) -> Written:
    """Write as the target would, with fewer calls of it.

    Parameters
    ----------
    target : ``target(text, count) -> (count, t)`` probabilities of the token behind each of the last ``count``
        beginnings of the text, the whole text being the last of them; one call of a causal model gives them all.
    draft : ``draft(text) -> (t,)`` probabilities of the next token.
    prompt : tokens, which `target` and `draft` are given with what is written so far.
    limit : the most tokens to write.
    rng : where the randomness comes from.
    guesses : how many tokens the draft proposes for each call of the target; 0 is plain sampling.
    end : a token after which nothing is written; None has none.

    Returns
    -------
    written : the tokens, with the end token if it came, and the counts.

    Raises
    ------
    ValueError
        If the models have different vocabularies or give no probabilities, guesses is negative, or limit is no count.

    References
    ----------
    Leviathan, Kalman and Matias (2023); Chen et al. (2023). Chapter 7, alg-speculative.

    Examples
    --------
    The target counts modulo 3 and the draft knows it: three tokens for each call.

    >>> step = lambda text: np.eye(3)[(text[-1] + 1) % 3]
    >>> target = lambda text, count: np.array([step(text[: len(text) - count + i + 1]) for i in range(count)])
    >>> speculate(target, step, [0], 6, np.random.default_rng(0), guesses=2)
    Written(tokens=[1, 2, 0, 1, 2, 0], calls=2, tested=4, kept=4)
    """
    _require.count("limit", limit)
    if not _require.integral(guesses) or guesses < 0:
        raise ValueError(f"guesses is {guesses!r}; it must be an integer >= 0")
    text, calls, tested, kept = list(prompt), 0, 0, 0
    while (left := limit + len(prompt) - len(text)) > 0:  # alg-speculative
        drafted, q = [], []
        while len(drafted) < min(guesses, left - 1) and not (drafted and drafted[-1] == end):
            q.append(np.asarray(draft(text + drafted)))
            drafted.append(draw(q[-1], rng))
        p = np.asarray(target(text + drafted, len(drafted) + 1))
        if q:
            _one_vocabulary(p, q[0])
        tokens = verify(p, np.array(q).reshape(len(q), p.shape[-1]), drafted, rng)
        calls, kept = calls + 1, kept + len(tokens) - 1
        tested += min(len(tokens), len(drafted))
        text += tokens[: tokens.index(end) + 1] if end in tokens else tokens
        if end is not None and text[-1] == end:
            break
    return Written(text[len(prompt) :], calls, tested, kept)


def expected_tokens(alpha: float | int, guesses: int) -> float:
    r"""Tokens for each call of the target, if each drafted token is kept with the same probability independently.

    .. math:: \sum_{i=0}^{g} \alpha^i = \frac{1 - \alpha^{g+1}}{1 - \alpha}

    Parameters
    ----------
    alpha : in [0, 1].
    guesses : g >= 0.

    Raises
    ------
    ValueError
        If alpha is not in [0, 1] or guesses is negative.

    References
    ----------
    Leviathan, Kalman and Matias (2023), equation 1. Chapter 7, eq:tokens-per-call.

    Examples
    --------
    >>> expected_tokens(0.5, 2)
    1.75
    """
    _share("alpha", alpha, zero=True)
    if not _require.integral(guesses) or guesses < 0:
        raise ValueError(f"guesses is {guesses!r}; it must be an integer >= 0")
    return float(sum(alpha**i for i in range(guesses + 1)))  # eq:tokens-per-call


def speedup(alpha: float | int, guesses: int, cost: float | int) -> float:
    r"""How many times faster than one call of the target for each token.

    .. math:: \frac{1}{1 + g c} \sum_{i=0}^{g} \alpha^i

    Parameters
    ----------
    alpha, guesses : as in `expected_tokens`.
    cost : c >= 0, the time of one call of the draft over the time of one call of the target, which must not take longer
        for g + 1 tokens than for one.

    Raises
    ------
    ValueError
        As `expected_tokens`, and if the cost is negative.

    References
    ----------
    Leviathan, Kalman and Matias (2023), theorem 3.8. Chapter 7, eq:speculative-speedup.

    Examples
    --------
    >>> round(speedup(0.8, 4, 0.05), 3)
    2.801
    """
    _require.nonnegative("cost", cost)
    return expected_tokens(alpha, guesses) / (1 + guesses * cost)  # eq:speculative-speedup
