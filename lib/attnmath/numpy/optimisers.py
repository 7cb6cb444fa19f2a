"""Adam with either kind of weight decay, and clipping by the global norm: pure functions of trees, no gradient."""

import math

import numpy as np

from attnmath import _require
from attnmath.tree import flatten, map_tree


def adam_state(params: dict) -> dict:
    r"""What Adam remembers, before its first step.

    .. math:: t = 0,\qquad m_0 = 0,\qquad v_0 = 0

    Parameters
    ----------
    params : a tree of float arrays.

    Returns
    -------
    state : ``{"step": 0, "first": tree of zeros, "second": tree of zeros}``, in the parameters' shapes and dtypes.

    Raises
    ------
    ValueError
        If a leaf is not an array of floats.

    References
    ----------
    Kingma and Ba (2015), algorithm 1. Chapter 6, eq:adam-moments.

    Examples
    --------
    >>> adam_state({"w": np.ones(2)})
    {'step': 0, 'first': {'w': array([0., 0.])}, 'second': {'w': array([0., 0.])}}
    """
    _require.optimisers.same_leaves(params=params)
    return {"step": 0, "first": map_tree(np.zeros_like, params), "second": map_tree(np.zeros_like, params)}


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

    Parameters
    ----------
    params, grads : trees of float arrays, of the same keys, shapes and dtypes.
    state : from `adam_state`, or from the step before.
    lr : the learning rate :math:`\eta \ge 0` of this step.
    betas : :math:`\beta_1, \beta_2` in [0, 1). (0.9, 0.98) in Vaswani et al., (0.9, 0.999) in PyTorch.
    eps : :math:`\epsilon \ge 0`, in the gradient's unit, outside the root and after the correction. 0 gives nan where
        every gradient so far was 0, and so does a number that the dtype rounds to 0.
    weight_decay : :math:`\lambda \ge 0`, for every leaf alike; call twice, on two trees, to spare some of them.
    decoupled : True is AdamW: the weights are first multiplied by :math:`1 - \eta\lambda`. False adds
        :math:`\lambda w_{t-1}` to the gradient, the derivative of :math:`\frac\lambda2\lVert w\rVert^2`.

    Returns
    -------
    params, state : new trees; the old ones stay as they are.

    Raises
    ------
    ValueError
        If trees, shapes or dtypes differ, or a number is outside its range.

    References
    ----------
    Kingma and Ba (2015), algorithm 1; Loshchilov and Hutter (2019), algorithm 2. Chapter 6, eq:adam-moments,
    eq:adam-correction, eq:adam-step, eq:weight-decay, eq:adamw.

    Examples
    --------
    >>> params, grads = {"w": np.array([1.0, 1.0])}, {"w": np.array([0.001, -1000.0])}
    >>> params, state = adam(params, grads, adam_state(params), lr=0.1)
    >>> params["w"].round(6)
    array([0.9, 1.1])
    """
    _require.optimisers.same_leaves(params=params, grads=grads, **_require.optimisers.moments(state))
    b1, b2 = _require.optimisers.decay_rates("betas", betas)
    lr, eps, weight_decay = float(lr), float(eps), float(weight_decay)  # np.float64 would turn float32 into float64
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
        return w - lr * m / (np.sqrt(v) + eps)  # eq:adam-step

    both = map_tree(moments, params, grads, state["first"], state["second"])
    first, second = (map_tree(lambda pair: pair[i], both) for i in (0, 1))
    return map_tree(step, params, first, second), {"step": t, "first": first, "second": second}


def clip_by_norm(grads: dict, limit: float) -> tuple[dict, float]:
    r"""Shorten gradients that are together longer than the limit, keeping their direction.

    .. math:: \operatorname{clip}_c(g) = g\,\min\Bigl(1, \frac{c}{\lVert g\rVert}\Bigr),\qquad
              \lVert g\rVert^2 = \sum_{\text{leaves}}\sum_i g_i^2

    Parameters
    ----------
    grads : a tree of float arrays.
    limit : :math:`c > 0`. `torch.nn.utils.clip_grad_norm_` divides by the norm plus 1e-6 and stays that much below it.

    Returns
    -------
    grads : a new tree, of norm at most c.
    norm : the norm before, summed in float64.

    Raises
    ------
    ValueError
        If the limit is not positive, or the norm is not finite: no factor can repair that, so skip the step.

    References
    ----------
    Pascanu, Mikolov and Bengio (2013), algorithm 1. Chapter 6, eq:clip.

    Examples
    --------
    >>> clip_by_norm({"w": np.array([3.0, 4.0])}, 1.0)
    ({'w': array([0.6, 0.8])}, 5.0)
    """
    _require.optimisers.same_leaves(grads=grads)
    limit = float(limit)
    _require.positive("limit", limit)
    with np.errstate(over="ignore"):
        norms = {path: float(np.linalg.norm(np.float64(g))) for path, g in flatten(grads).items()}
    norm = math.hypot(*norms.values())
    _require.optimisers.finite_norms("grads", norms, norm)
    factor = min(1.0, limit / norm) if norm else 1.0
    return map_tree(lambda g: g * factor, grads), norm  # eq:clip
