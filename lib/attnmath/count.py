"""What attention costs, by formula: floating-point operations and bytes; and what a vjp keeps, by weighing it."""

import math


def attention_flops(n: int, m: int, k: int, v: int) -> int:
    r"""Multiplications and additions in the two matrix products of attention.

    .. math:: 2 n m d_k + 2 n m d_v

    Parameters
    ----------
    n, m, k, v : queries, keys, key width, value width.

    Returns
    -------
    FLOP; a multiplication and an addition count one each. Softmax is not counted, as in
    ``torch.utils.flop_counter``.

    References
    ----------
    Chapter 2, eq:attention-flops.

    Examples
    --------
    >>> attention_flops(n=2, m=3, k=5, v=7)
    144
    """
    return 2 * n * m * k + 2 * n * m * v  # eq:attention-flops


def projection_flops(n: int, d: int, k: int, v: int) -> int:
    r"""The products that make n queries, keys and values of rows of width d, and bring the output back to d.

    .. math:: 2 n d\,(2 d_k + d_v) + 2 n d_v d

    Parameters
    ----------
    n, d, k, v : rows, model width, total key width of all heads, total value width of all heads.

    Returns
    -------
    FLOP.

    References
    ----------
    Chapter 2, eq:projection-flops.

    Examples
    --------
    >>> projection_flops(n=1, d=2, k=2, v=2)
    32
    """
    return 2 * n * d * (2 * k + v) + 2 * n * v * d  # eq:projection-flops


def attention_bytes(n: int, m: int, heads: int = 1, layers: int = 1, itemsize: int = 4, maps: int = 1) -> int:
    r"""What the weights of one sequence occupy.

    .. math:: \text{maps} \cdot N\, h\, n\, m \cdot \text{itemsize}

    Parameters
    ----------
    n, m, heads, layers : queries, keys, h, N.
    itemsize : bytes per number, 4 in float32.
    maps : how many arrays of that size are held at once: 1 for the weights alone, 2 with the scores.

    Returns
    -------
    Bytes.

    References
    ----------
    Chapter 2, eq:attention-bytes.

    Examples
    --------
    >>> attention_bytes(512, 512, heads=12, layers=12) / 2**20
    144.0
    """
    return maps * layers * heads * n * m * itemsize  # eq:attention-bytes


def bytes_held(vjp) -> int:
    """The bytes of all arrays that a vjp keeps alive, each counted once: the activation memory.

    Follows the closures of functions (and lists, tuples, dicts in them). A view counts as the whole array it looks
    into, since that is what stays alive.

    Parameters
    ----------
    vjp : a function that holds NumPy arrays in its closure.

    Returns
    -------
    Bytes, the inputs that it needs included.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.numpy import softmax
    >>> P, vjp = softmax(np.zeros((3, 5)))
    >>> bytes_held(vjp) == P.nbytes
    True
    """
    seen, total, stack = set(), 0, [vjp]
    while stack:
        thing = stack.pop()
        while getattr(thing, "base", None) is not None and hasattr(thing.base, "nbytes"):
            thing = thing.base
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if hasattr(thing, "nbytes") and hasattr(thing, "shape") and math.prod(thing.shape):
            total += thing.nbytes
        elif isinstance(thing, dict):
            stack += thing.values()
        elif isinstance(thing, list | tuple):
            stack += thing
        elif getattr(thing, "__closure__", None):
            stack += [cell.cell_contents for cell in thing.__closure__]
    return total
