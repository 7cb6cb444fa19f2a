"""Learning rates that carry over from a narrow model to a wide one: the maximal update parametrisation, muP.

A model of width d is compared with a base of width d0. Each kind of parameter gets three factors, powers of d / d0:
for the spread of its first values, for its learning rate under Adam, and for what multiplies the map.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from attnmath import _require
from attnmath.torch.attention import attention_fused
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.residuals import sublayer
from attnmath.torch.transformer import DecoderOnly, logits


class Factors(NamedTuple):
    """What a parameter's spread, its rate, and the output of its map are multiplied by."""

    spread: float
    rate: float
    multiplier: float


EXPONENTS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {  # of d / d0: spread, rate, multiplier
    "standard": {"input": (0, 0, 0), "hidden": (-0.5, 0, 0), "output": (-0.5, 0, 0)},
    "mup": {"input": (0, 0, 0), "hidden": (-0.5, -1, 0), "output": (0, 0, -1)},
}


def factors(kind: str, width: int, base: int, rule: str = "mup") -> Factors:
    r"""What the model of width d changes of the base model's settings, for one kind of parameter.

    .. math:: \text{factor} = (d / d_0)^e

    Parameters
    ----------
    kind : ``"input"``, from a fixed number of entries to the width (also biases and gains); ``"hidden"``, from the
        width to the width; or ``"output"``, from the width to a fixed number.
    width, base : d and d0, >= 1.
    rule : ``"mup"``, or ``"standard"``: variances of one over the rows, one rate for all, no multiplier.

    Returns
    -------
    The three factors; all are 1 at d = d0, where the rules agree.

    Raises
    ------
    ValueError
        If the rule or the kind is unknown, or a width is below 1.

    References
    ----------
    Yang et al. (2022), table 8, column Adam: their fan_in is our number of rows. Chapter 8, tab-width-rules.

    Examples
    --------
    >>> factors("hidden", 256, 64)
    Factors(spread=0.5, rate=0.25, multiplier=1.0)
    """
    _require.choice("rule", rule, tuple(EXPONENTS))
    _require.choice("kind", kind, tuple(EXPONENTS[rule]))
    for name, size in (("width", width), ("base", base)):
        _require.positive(name, size)
    return Factors(*(float((width / base) ** e) for e in EXPONENTS[rule][kind]))


def score_scale(k: int, base: int, rule: str = "mup") -> float:
    r"""What multiplies the products of queries and keys of width k.

    .. math:: c = \frac1{\sqrt k}\qquad\text{or, with muP,}\qquad c = \frac{\sqrt{k_0}}{k}

    Parameters
    ----------
    k, base : the width of a key, and that of the base model, >= 1.
    rule : as in `factors`.

    Examples
    --------
    >>> score_scale(64, 16, "standard"), score_scale(64, 16)
    (0.125, 0.0625)
    """
    _require.choice("rule", rule, tuple(EXPONENTS))
    for name, size in (("k", k), ("base", base)):
        _require.positive(name, size)
    return base**0.5 / k if rule == "mup" else k**-0.5  # eq:score-scale


def kind_of(name: str) -> str:
    """The kind of a parameter of `DecoderOnly`, by its name.

    Examples
    --------
    >>> [kind_of(name) for name in ("embeddings.word", "layers.0.feed_forward.up.weight", "norm.gain", "head.weight")]
    ['input', 'hidden', 'input', 'output']
    """
    if name == "head.weight":
        return "output"
    return "hidden" if name.endswith(".weight") else "input"


class ScaledDecoder(DecoderOnly):
    """The decoder of Chapter 5, pre-norm, learned positions, a head of its own, at a width chosen by a rule.

    Parameters
    ----------
    vocabulary, d, heads, layers, positions : its sizes; the feed-forward networks have width 4 d.
    base : the width d0 at which the rules agree.
    rule : as in `factors`.
    seed : of the first values, which are normal: 0.1 for the tables, and variance 1 / rows for matrices at the base.

    Raises
    ------
    ValueError
        If the number of heads divides a width not, or as in `factors`.
    """

    def __init__(
        self,
        vocabulary: int,
        d: int,
        heads: int,
        layers: int,
        positions: int,
        *,
        base: int = 32,
        rule: str = "mup",
        seed: int = 0,
    ):
        _require.divides(heads, base, "the base model")
        c = score_scale(d // heads, base // heads, rule)
        multiplier = factors("output", d, base, rule).multiplier
        super().__init__(
            *(vocabulary, d, heads, 4 * d, layers, positions),
            norm=layer_norm,
            tie=False,
            join=partial(sublayer, norm_first=True),
            attend=partial(attention_fused, scale=c),
            head=lambda X, params: multiplier * logits(X, params),  # eq:output-multiplier
        )
        self.base, self.rule, self.d = base, rule, d
        self._fill(np.random.default_rng(seed))

    @torch.no_grad()
    def _fill(self, rng):
        for name, P in self.named_parameters():
            if P.ndim == 2:
                kind, ratio = kind_of(name), self.d / self.base
                at_base = 0.1 if kind == "input" else (P.shape[0] / ratio) ** -0.5
                spread = at_base * factors(kind, self.d, self.base, self.rule).spread
                P.copy_(torch.from_numpy(spread * rng.standard_normal(P.shape)))

    def groups(self) -> list[dict]:
        """The parameters by kind, as an optimiser takes them; `attnmath.torch.training` multiplies by ``"scale"``."""
        kinds: dict[str, list[nn.Parameter]] = {}
        for name, P in self.named_parameters():
            kinds.setdefault(kind_of(name), []).append(P)
        return [
            {"params": own, "scale": factors(kind, self.d, self.base, self.rule).rate} for kind, own in kinds.items()
        ]
