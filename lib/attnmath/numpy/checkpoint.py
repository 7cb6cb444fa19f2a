"""Gradient checkpointing: a vjp that recomputes what it needs."""

from collections.abc import Callable


def checkpoint(f: Callable) -> Callable:
    r"""Make a component that holds its arguments only; its vjp calls the component again.

    .. math:: \operatorname{vjp}_{f,x}(\bar y):\quad (y, v) \leftarrow f(x),\quad \text{return } v(\bar y)

    Parameters
    ----------
    f : ``f(*args, **options) -> (y, vjp)``, pure: the same arguments give the same value.

    Returns
    -------
    A function with f's arguments, value and cotangents, bit for bit. Its vjp runs f's forward pass once more.

    References
    ----------
    Chen et al. (2016); Griewank and Walther (2000). Chapter 4, alg-checkpoint.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.count import bytes_held
    >>> from attnmath.numpy import attention
    >>> Q, K, V = np.ones((3, 100, 2))
    >>> bytes_held(attention(Q, K, V)[1]), bytes_held(checkpoint(attention)(Q, K, V)[1])
    (84800, 4800)
    """

    def light(*args, **options):
        y = f(*args, **options)[0]

        def vjp(dy):
            return f(*args, **options)[1](dy)  # alg-checkpoint

        return y, vjp

    return light
