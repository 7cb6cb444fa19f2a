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
