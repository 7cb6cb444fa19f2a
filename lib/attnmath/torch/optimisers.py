"""Adam with either kind of weight decay, and clipping by the global norm: pure functions of trees, no gradient."""

import math

import torch

from attnmath import _require
from attnmath.tree import flatten, map_tree


@torch.no_grad()
def adam_state(params: dict) -> dict:
    r"""What Adam remembers, before its first step.

    .. math:: t = 0,\qquad m_0 = 0,\qquad v_0 = 0

    Parameters, errors and source as in `attnmath.numpy.optimisers.adam_state`.

    Examples
    --------
    >>> adam_state({"w": torch.ones(2)})
    {'step': 0, 'first': {'w': tensor([0., 0.])}, 'second': {'w': tensor([0., 0.])}}
    """
    _require.optimisers.same_leaves(params=params)
    return {"step": 0, "first": map_tree(torch.zeros_like, params), "second": map_tree(torch.zeros_like, params)}


@torch.no_grad()
def adam(
    params: dict,
    grads: dict,
    state: dict,
    lr: float,
    *,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-9,
    weight_decay: float = 0.0,
    decoupled: bool = True,
) -> tuple[dict, dict]:
    r"""One step of Adam, element by element.

    .. math:: m_t &= \beta_1 m_{t-1} + (1 - \beta_1)\, g_t,\qquad v_t = \beta_2 v_{t-1} + (1 - \beta_2)\, g_t^2\\
              \hat m_t &= \frac{m_t}{1 - \beta_1^t},\qquad \hat v_t = \frac{v_t}{1 - \beta_2^t},\qquad
              w_t = w_{t-1} - \eta\,\frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon}

    Parameters, errors and source as in `attnmath.numpy.optimisers.adam`. The new parameters are plain tensors that
    collect no gradient until they are told to, ``W.requires_grad_()``.

    Examples
    --------
    >>> params, grads = {"w": torch.tensor([1.0, 1.0])}, {"w": torch.tensor([0.001, -1000.0])}
    >>> params, state = adam(params, grads, adam_state(params), lr=0.1)
    >>> params["w"]
    tensor([0.9000, 1.1000])
    """
    _require.optimisers.same_leaves(params=params, grads=grads, **_require.optimisers.moments(state))
    b1, b2 = _require.optimisers.decay_rates("betas", betas)
    lr, eps, weight_decay = float(lr), float(eps), float(weight_decay)
    for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
        _require.nonnegative(name, value)
    t = state["step"] + 1

    def moments(w, g, m, v):
        if weight_decay and not decoupled:
            g = g + weight_decay * w  # eq:weight-decay
        return b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g  # eq:adam-moments

    def step(w, m, v):
        m, v = m / (1 - b1**t), v / (1 - b2**t)  # eq:adam-correction
        if weight_decay and decoupled:
            w = (1 - lr * weight_decay) * w  # eq:adamw
        return w - lr * m / (v.sqrt() + eps)  # eq:adam-step

    both = map_tree(moments, params, grads, state["first"], state["second"])
    first, second = (map_tree(lambda pair: pair[i], both) for i in (0, 1))
    return map_tree(step, params, first, second), {"step": t, "first": first, "second": second}


@torch.no_grad()
def clip_by_norm(grads: dict, limit: float) -> tuple[dict, float]:
    r"""Shorten gradients that are together longer than the limit, keeping their direction.

    .. math:: \operatorname{clip}_c(g) = g\,\min\Bigl(1, \frac{c}{\lVert g\rVert}\Bigr),\qquad
              \lVert g\rVert^2 = \sum_{\text{leaves}}\sum_i g_i^2

    Parameters, errors and source as in `attnmath.numpy.optimisers.clip_by_norm`.

    Examples
    --------
    >>> clip_by_norm({"w": torch.tensor([3.0, 4.0])}, 1.0)
    ({'w': tensor([0.6000, 0.8000])}, 5.0)
    """
    _require.optimisers.same_leaves(grads=grads)
    limit = float(limit)
    _require.positive("limit", limit)
    norms = {path: torch.linalg.vector_norm(g.double()).item() for path, g in flatten(grads).items()}
    norm = math.hypot(*norms.values())
    _require.optimisers.finite_norms("grads", norms, norm)
    factor = min(1.0, limit / norm) if norm else 1.0
    return map_tree(lambda g: g * factor, grads), norm  # eq:clip
