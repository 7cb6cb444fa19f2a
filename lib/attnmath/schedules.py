"""The learning rate over time: a number for each step, for either world."""

from attnmath import _require


def warmup(step: int, d: int, warmup: int, factor: float = 1.0) -> float:
    r"""The learning rate of the Transformer: a straight rise, then the inverse root of the step.

    .. math:: \eta(s) = \alpha\, d^{-1/2} \min\bigl(s^{-1/2},\; s\, w^{-3/2}\bigr)

    Parameters
    ----------
    step : s >= 1. PyTorch's ``LambdaLR`` counts from 0: give it ``lambda s: warmup(s + 1, ...)`` and an optimiser
        whose own rate is 1.
    d : width of the model.
    warmup : w >= 1, the step at which the rate is largest.
    factor : the number before the root, > 0; 1 in Vaswani et al.

    Returns
    -------
    The rate; at most :math:`\alpha / \sqrt{d\,w}`.

    Raises
    ------
    ValueError
        If a number is outside its range.

    References
    ----------
    Vaswani et al. (2017), equation 3. Chapter 6, eq:warmup.

    Examples
    --------
    >>> [round(warmup(s, d=512, warmup=4000), 6) for s in (1, 2000, 4000, 16000)]
    [0.0, 0.000349, 0.000699, 0.000349]
    """
    for name, count in (("step", step), ("d", d), ("warmup", warmup)):
        if not count >= 1:
            raise ValueError(f"{name} is {count!r}; it must be at least 1: steps are counted from 1")
    _require.positive("factor", factor)
    return factor * d**-0.5 * min(step**-0.5, step * warmup**-1.5)  # eq:warmup


def warmup_stable_decay(step: int, rate: float, warmup: int, decay: int, total: int) -> float:
    r"""A straight rise, one constant rate for most of the training, and a straight fall to 0 at its end.

    .. math:: \eta(s) = \hat\eta \min\Bigl(\frac{s}{w},\; 1,\; \frac{T - s}{c}\Bigr)

    Parameters
    ----------
    step : s, from 1 to T; behind T the rate is 0.
    rate : the constant rate, > 0.
    warmup, decay : w, c >= 1, the steps of the rise and of the fall; together at most T.
    total : T, all steps. Until T - c the rate does not depend on it, so one run can go on or be ended at any time.

    Returns
    -------
    The rate of the step.

    Raises
    ------
    ValueError
        If a number is outside its range.

    References
    ----------
    Hu et al. (2024), section 4; their fall is an exponential, and ours is the line that most programs use. Chapter 8,
    eq:warmup-stable-decay.

    Examples
    --------
    >>> [round(warmup_stable_decay(s, 1.0, 2, 4, 12), 2) for s in (1, 2, 8, 9, 10, 12)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.0]
    """
    for name, count in (("step", step), ("warmup", warmup), ("decay", decay)):
        if not count >= 1:
            raise ValueError(f"{name} is {count!r}; it must be at least 1: steps are counted from 1")
    _require.positive("rate", rate)
    if warmup + decay > total:
        raise ValueError(f"warmup and decay are {warmup} and {decay}; together they may be at most total, {total}")
    return rate * max(min(step / warmup, 1.0, (total - step) / decay), 0.0)  # eq:warmup-stable-decay
