"""How a layer that keeps a state begins: as the published programs draw it, or as long as the text.

The layers are those of `attnmath.memory_tasks`: the diagonal state space S4D, and Mamba-2's layer.
"""

import math

import numpy as np

from attnmath import _require
from attnmath.memory_tasks import HEADS, INNER, STATES, D
from attnmath.state_shapes import mamba2_shapes
from attnmath.tree import flatten

LAYERS = ("s4d", "mamba2")
STEPS, RATES = (1e-3, 1e-1), (1, 16)  # the ranges from which the published programs draw the first steps and rates
STARTS = ("published", "adapted")


def sizes(layer: str) -> dict:
    """The shapes of one layer's parameters.

    Parameters
    ----------
    layer : one of LAYERS.

    Examples
    --------
    >>> from math import prod
    >>> {layer: sum(map(prod, flatten(sizes(layer)).values())) for layer in LAYERS}
    {'s4d': 4346, 'mamba2': 4518}
    """
    _require.choice("layer", layer, LAYERS)
    if layer == "mamba2":
        return mamba2_shapes(D, D, STATES, HEADS)
    flat = {"conv": (4, D), "input": (D, INNER), "output": (INNER, D), "step": (INNER,), "skip": (INNER,)}
    return flat | dict.fromkeys("ABC", (INNER, STATES // 2, 2))


def begin(layer: str, rng, n: int, start: str = "adapted") -> dict:
    r"""The first parameters of one layer, as a flat dict of float32 tensors.

    .. math:: \Delta=e^z,\ z\sim U(\log10^{-3},\log10^{-1}),\qquad r\sim U(1,16)

    Parameters
    ----------
    layer : one of LAYERS.
    rng : NumPy's generator.
    n : tokens of a text.
    start : ``"published"`` draws the steps, and Mamba-2's rates, as the published programs do. ``"adapted"`` fits
        them to the text: S4D draws its steps from :math:`0.64/n` to :math:`32/n`, and a head of Mamba-2 starts with a
        half-life of 2 n rows.

    Examples
    --------
    >>> step, rate = (begin("mamba2", np.random.default_rng(0), 64)[name] for name in ("step", "rate"))
    >>> (math.log(2) / (step.exp().log1p() * rate.exp())).round().tolist()  # half-lives
    [128.0, 128.0]
    """
    import torch

    from attnmath.numpy.state_space import legs_diagonal

    _require.choice("start", start, STARTS)
    params, fixed = {}, {"gain": 1.0, "skip": 1.0, "bias": 0.0}
    for name, shape in flatten(sizes(layer)).items():
        last = name.rpartition(".")[2]
        fan = shape[0] if len(shape) == 2 else 1
        value = np.full(shape, fixed[last]) if last in fixed else rng.standard_normal(shape) * fan**-0.5
        params[name] = value
    low, high = (0.64 / n, 32 / n) if start == "adapted" and layer == "s4d" else STEPS
    steps = np.exp(rng.uniform(np.log(low), np.log(high), params["step"].shape))
    if layer == "mamba2":  # its steps pass through softplus, its rates through an exponential
        rates = rng.uniform(*RATES, steps.shape) if start == "published" else math.log(2) / (2 * n * steps)
        params |= {"step": np.log(np.expm1(steps)), "rate": np.log(rates)}
    else:
        A, B = legs_diagonal(STATES)
        A = np.stack([np.log(-A[:, 0]), A[:, 1]], -1)
        params |= {"step": np.log(steps)} | {k: np.broadcast_to(v, params[k].shape) for k, v in (("A", A), ("B", B))}
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in params.items()}
