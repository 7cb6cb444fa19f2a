"""Rotary positions beyond the length of training: slower frequencies, and positions counted in the cache."""

from collections.abc import Callable
from math import ceil, floor, log, pi

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.relative_positions import rotary
from attnmath.numpy.types import Array, Vjp, differentiable


def rotary_frequencies(k: int, *, base: float = 10000.0) -> Float[Array, " r"]:
    r"""By how many radians rotary turns each pair of components per position.

    .. math:: \omega_j = B^{-2j/k},\qquad j = 0, \dots, k/2 - 1

    Parameters
    ----------
    k : the width of a head, even.
    base : :math:`B > 0`.

    Returns
    -------
    frequencies : (k / 2,) in float64, the fastest first.

    Raises
    ------
    ValueError
        If k is odd or base is not positive.

    References
    ----------
    Su et al. (2021), section 3.2.2. Chapter 7, eq:rotary-frequencies.

    Examples
    --------
    >>> rotary_frequencies(8).round(4)
    array([1.   , 0.1  , 0.01 , 0.001])
    """
    _require.even("k", k)
    _require.positive("base", base)
    return base ** (-np.arange(0, k, 2) / k)  # eq:rotary-frequencies


def interpolated_frequencies(frequencies: Float[Array, " r"], factor: float) -> Float[Array, " r"]:
    r"""Position interpolation: every wave is stretched by the factor by which the text is longer.

    .. math:: \omega'_j = \omega_j / s

    Parameters
    ----------
    frequencies : (r,), those of training.
    factor : :math:`s \ge 1`, new length over trained length.

    Returns
    -------
    frequencies : (r,), for ``rotary(X, frequencies=…)``.

    Raises
    ------
    ValueError
        If the frequencies are not a vector of floats or the factor is below 1.

    References
    ----------
    Chen et al. (2023), equation 3, where positions are divided. Chapter 7, eq:interpolated-frequencies.

    Examples
    --------
    >>> interpolated_frequencies(rotary_frequencies(4), 4.0)
    array([0.25  , 0.0025])
    """
    _require.relative_positions.progression("frequencies", frequencies, 1)
    _require.relative_positions.at_least_one("factor", factor)
    return frequencies / factor  # eq:interpolated-frequencies


def ntk_frequencies(frequencies: Float[Array, " r"], factor: float) -> Float[Array, " r"]:
    r"""NTK-aware interpolation: the fastest wave stays, the slowest is stretched by s, those between geometrically.

    .. math:: \omega'_j = \omega_j\, s^{-j/(r-1)}

    Parameters
    ----------
    frequencies : (r,) with r >= 2, those of training. If they are those of the base B, the result is those of the base
        :math:`B\, s^{k/(k-2)}`.
    factor : :math:`s \ge 1`; `dynamic_factor` gives one for the length of a text.

    Returns
    -------
    frequencies : (r,).

    Raises
    ------
    ValueError
        If there are fewer than two frequencies or the factor is below 1.

    References
    ----------
    Peng et al. (2024), definition 1, where it is a change of the base. Chapter 7, eq:ntk-frequencies.

    Examples
    --------
    >>> ntk_frequencies(rotary_frequencies(4), 4.0)
    array([1.    , 0.0025])
    """
    _require.relative_positions.progression("frequencies", frequencies, 2)
    _require.relative_positions.at_least_one("factor", factor)
    return frequencies * factor ** (-np.arange(len(frequencies)) / (len(frequencies) - 1))  # eq:ntk-frequencies


def yarn_frequencies(
    frequencies: Float[Array, " r"],
    factor: float,
    trained: int,
    *,
    fast: float = 32.0,
    slow: float = 1.0,
    ramp: str = "turns",
) -> Float[Array, " r"]:
    r"""YaRN: waves that turned often in training stay, those that did not get round are stretched, a ramp between.

    .. math:: \omega'_j = \omega_j\Bigl(\gamma_j + \frac{1-\gamma_j}{s}\Bigr),\qquad
              \gamma_j = \operatorname{clip}\Bigl(\frac{t_j - \alpha}{\beta - \alpha}, 0, 1\Bigr),\qquad
              t_j = \frac{L\,\omega_j}{2\pi}

    Parameters
    ----------
    frequencies : (r,), those of training; with ``ramp="index"`` a geometric progression of at least two.
    factor : :math:`s \ge 1`, new length over trained length.
    trained : L >= 1, the length of training.
    fast, slow : :math:`\beta > \alpha \ge 0`, in turns within the trained length. 32 and 1 suit a trained length of
        thousands; for a short one let fast be smaller.
    ramp : "turns" is linear in :math:`t_j`, as the paper has it; "index" is linear in j between the whole numbers
        around the pairs that turn fast and slow times, as the authors' code and ``transformers`` have it.

    Returns
    -------
    frequencies : (r,). The scores are multiplied by the square of `yarn_temperature` besides.

    Raises
    ------
    ValueError
        If the frequencies are no vector, factor or trained is below 1, or slow is not below fast.

    References
    ----------
    Peng et al. (2024), section 3.2 and definition 2; their theta, L, s, alpha, beta are :math:`\omega`, ``trained``,
    ``factor``, ``slow``, ``fast``. Chapter 7, eq:yarn-frequencies.

    Examples
    --------
    >>> yarn_frequencies(rotary_frequencies(8), 4.0, 32, fast=2.0)
    array([1.0e+00, 2.5e-02, 2.5e-03, 2.5e-04])
    """
    _require.relative_positions.progression("frequencies", frequencies, 2 if ramp == "index" else 1)
    _require.relative_positions.at_least_one("factor", factor)
    _require.count("trained", trained)
    _require.relative_positions.ramp_ends(slow, fast)
    _require.choice("ramp", ramp, ("turns", "index"))
    if ramp == "turns":
        keep = ((trained * frequencies / (2 * pi) - slow) / (fast - slow)).clip(0, 1)
    else:
        r, step = len(frequencies), log(frequencies[0] / frequencies[1])
        first, last = (log(trained * frequencies[0] / (2 * pi * turns)) / step for turns in (fast, max(slow, 1e-9)))
        first, last = max(floor(first), 0), min(ceil(last), 2 * r - 1)
        keep = 1 - ((np.arange(r) - first) / max(last - first, 1e-3)).clip(0, 1)
    return frequencies * (keep + (1 - keep) / factor)  # eq:yarn-frequencies


def yarn_temperature(factor: float) -> float:
    r"""By what YaRN multiplies the turned queries and the turned keys, and so by its square the scores.

    .. math:: 1/\sqrt t = 0.1 \ln s + 1

    Parameters
    ----------
    factor : :math:`s \ge 1`, new length over trained length.

    Returns
    -------
    root : a number >= 1; ``partial(attention_fused, scale=root**2 / k**0.5)`` is the core that goes with it.

    Raises
    ------
    ValueError
        If the factor is below 1.

    References
    ----------
    Peng et al. (2024), equation 22, fitted to Llama's models. Chapter 7, eq:yarn-temperature.

    Examples
    --------
    >>> round(yarn_temperature(4.0), 4)
    1.1386
    """
    _require.relative_positions.at_least_one("factor", factor)
    return 0.1 * log(factor) + 1.0  # eq:yarn-temperature


def dynamic_factor(n: int, trained: int, factor: float = 1.0) -> float:
    r"""The factor for a text of n tokens: 1 within the trained length, and then growing with the text.

    .. math:: s(n) = \max\Bigl(1,\; \frac{f n}{L} - (f - 1)\Bigr)

    Parameters
    ----------
    n : tokens of the text.
    trained : L, the length of training.
    factor : :math:`f \ge 1`; with 1 it is n / L.

    Returns
    -------
    s : a number >= 1, for `ntk_frequencies`. Keys that are kept turned by another factor no longer fit: keep keys that
        are not turned, and let `turned_attention` turn them.

    Raises
    ------
    ValueError
        If n or trained is not a positive integer, or the factor is below 1.

    References
    ----------
    Peng et al. (2024), section 3.3, for f = 1; "dynamic" of ``transformers`` for any f. Chapter 7, eq:dynamic-factor.

    Examples
    --------
    >>> dynamic_factor(20, 32), dynamic_factor(64, 32), dynamic_factor(64, 32, 4.0)
    (1.0, 2.0, 5.0)
    """
    _require.count("n", n)
    _require.count("trained", trained)
    _require.relative_positions.at_least_one("factor", factor)
    return max(1.0, factor * n / trained - (factor - 1))  # eq:dynamic-factor


@differentiable
@half_in_float32
def turned_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    turn: Callable = rotary,
    attend: Callable = attention_fused,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""A core that turns queries and keys itself, by their places among the keys that it is given.

    .. math:: O = \operatorname{attend}\bigl(\operatorname{turn}_{m-n}(Q),\; \operatorname{turn}_0(K),\; V\bigr)

    Parameters
    ----------
    Q : (..., n, k) queries that are not turned; the last one stands where the last key does.
    K, V : (..., m, k) and (..., m, v) keys that are not turned, and values.
    mask : boolean, broadcasts to (..., n, m); True = may attend.
    turn : ``turn(X, start=…) -> (Y, vjp)``, such as ``partial(rotary, frequencies=…)``.
    attend : the core that attends then.

    Returns
    -------
    O : (..., n, v). Where no row was dropped from a cache it equals ``multi_head_attention(…, turn=turn)``'s; with a
        `SinkCache` around it positions are counted in the cache, and no distance grows with the text.
    vjp : dO -> (dQ, dK, dV), and what the core's vjp has to say besides.

    Raises
    ------
    ValueError
        As turn and attend.

    References
    ----------
    Xiao et al. (2024), section 3.2, who keep keys that are not turned. Chapter 7, eq:turned-attention.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> O, vjp = turned_attention(X[1:], X, np.array([[0.0], [1.0]]))
    >>> O.round(4)
    array([[0.5806]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    turned_Q, query_vjp = turn(Q, start=sizes["m"] - sizes["n"])
    turned_K, key_vjp = turn(K, start=0)
    O, core_vjp = attend(turned_Q, turned_K, V, mask=mask)  # eq:turned-attention

    def vjp(dO):
        dQ, dK, dV, *rest = core_vjp(dO)
        return query_vjp(dQ), key_vjp(dK), dV, *rest  # eq:turned-attention-vjp

    return O, vjp
