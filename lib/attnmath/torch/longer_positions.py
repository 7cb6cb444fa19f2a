"""Rotary positions beyond the length of training: slower frequencies, and positions counted in the cache."""

from collections.abc import Callable
from math import ceil, floor, log, pi

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.torch.attention import attention_fused
from attnmath.torch.relative_positions import rotary
from attnmath.torch.types import Array


def rotary_frequencies(k: int, *, base: float = 10000.0) -> Float[Array, " r"]:
    r"""By how many radians rotary turns each pair of components per position.

    .. math:: \omega_j = B^{-2j/k},\qquad j = 0, \dots, k/2 - 1

    Parameters, errors and source as in `attnmath.numpy.longer_positions.rotary_frequencies`.

    Examples
    --------
    >>> rotary_frequencies(8)
    tensor([1.0000, 0.1000, 0.0100, 0.0010], dtype=torch.float64)
    """
    _require.even("k", k)
    _require.positive("base", base)
    return base ** (-torch.arange(0, k, 2, dtype=torch.float64) / k)  # eq:rotary-frequencies


def interpolated_frequencies(frequencies: Float[Array, " r"], factor: float) -> Float[Array, " r"]:
    r"""Position interpolation: every wave is stretched by the factor by which the text is longer.

    .. math:: \omega'_j = \omega_j / s

    Parameters, errors and source as in `attnmath.numpy.longer_positions.interpolated_frequencies`.

    Examples
    --------
    >>> interpolated_frequencies(rotary_frequencies(4), 4.0)
    tensor([0.2500, 0.0025], dtype=torch.float64)
    """
    _require.relative_positions.progression("frequencies", frequencies, 1)
    _require.relative_positions.at_least_one("factor", factor)
    return frequencies / factor  # eq:interpolated-frequencies


def ntk_frequencies(frequencies: Float[Array, " r"], factor: float) -> Float[Array, " r"]:
    r"""NTK-aware interpolation: the fastest wave stays, the slowest is stretched by s, those between geometrically.

    .. math:: \omega'_j = \omega_j\, s^{-j/(r-1)}

    Parameters, errors and source as in `attnmath.numpy.longer_positions.ntk_frequencies`.

    Examples
    --------
    >>> ntk_frequencies(rotary_frequencies(4), 4.0)
    tensor([1.0000, 0.0025], dtype=torch.float64)
    """
    _require.relative_positions.progression("frequencies", frequencies, 2)
    _require.relative_positions.at_least_one("factor", factor)
    j = torch.arange(len(frequencies), dtype=frequencies.dtype, device=frequencies.device)
    return frequencies * factor ** (-j / (len(frequencies) - 1))  # eq:ntk-frequencies


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

    Parameters, errors and source as in `attnmath.numpy.longer_positions.yarn_frequencies`.

    Examples
    --------
    >>> yarn_frequencies(rotary_frequencies(8), 4.0, 32, fast=2.0)
    tensor([1.0000e+00, 2.5000e-02, 2.5000e-03, 2.5000e-04], dtype=torch.float64)
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
        keep = 1 - (
            (torch.arange(r, dtype=frequencies.dtype, device=frequencies.device) - first) / max(last - first, 1e-3)
        ).clip(0, 1)
    return frequencies * (keep + (1 - keep) / factor)  # eq:yarn-frequencies


def yarn_temperature(factor: float) -> float:
    r"""By what YaRN multiplies the turned queries and the turned keys, and so by its square the scores.

    .. math:: 1/\sqrt t = 0.1 \ln s + 1

    Parameters, errors and source as in `attnmath.numpy.longer_positions.yarn_temperature`.

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

    Parameters, errors and source as in `attnmath.numpy.longer_positions.dynamic_factor`.

    Examples
    --------
    >>> dynamic_factor(20, 32), dynamic_factor(64, 32), dynamic_factor(64, 32, 4.0)
    (1.0, 2.0, 5.0)
    """
    _require.count("n", n)
    _require.count("trained", trained)
    _require.relative_positions.at_least_one("factor", factor)
    return max(1.0, factor * n / trained - (factor - 1))  # eq:dynamic-factor


def turned_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    turn: Callable = rotary,
    attend: Callable = attention_fused,
) -> Float[Array, "... n v"]:
    r"""A core that turns queries and keys itself, by their places among the keys that it is given.

    .. math:: O = \operatorname{attend}\bigl(\operatorname{turn}_{m-n}(Q),\; \operatorname{turn}_0(K),\; V\bigr)

    Parameters, errors and source as in `attnmath.numpy.longer_positions.turned_attention`.

    Examples
    --------
    >>> X = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> turned_attention(X[1:], X, torch.tensor([[0.0], [1.0]]))
    tensor([[0.5806]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    turned_Q, turned_K = turn(Q, start=sizes["m"] - sizes["n"]), turn(K, start=0)
    return attend(turned_Q, turned_K, V, mask=mask)  # eq:turned-attention
