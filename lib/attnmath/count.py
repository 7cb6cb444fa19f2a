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


def self_attention_flops(n: int, d: int, k: int, v: int) -> int:
    r"""One head of self-attention, without an output projection.

    .. math:: 2 n d\,(2 d_k + d_v) + 2 n^2 (d_k + d_v)

    Parameters
    ----------
    n, d, k, v : positions, model width, key width, value width.

    Returns
    -------
    FLOP, softmax not counted.

    References
    ----------
    Chapter 3, eq:self-attention-flops.

    Examples
    --------
    >>> self_attention_flops(n=2, d=3, k=5, v=7)
    300
    """
    return 2 * n * d * (2 * k + v) + 2 * n * n * (k + v)  # eq:self-attention-flops


def multi_head_flops(n: int, d: int, heads: int, k: int, v: int) -> int:
    r"""h heads of self-attention with their output projection.

    .. math:: 2 n d h\,(2 d_k + d_v) + 2 n d h\, d_v + h \cdot 2 n^2 (d_k + d_v)

    Parameters
    ----------
    n, d, heads, k, v : positions, model width, h, key and value width of one head.

    Returns
    -------
    FLOP, softmax not counted.

    References
    ----------
    Chapter 4, eq:multi-head-flops.

    Examples
    --------
    >>> multi_head_flops(n=2, d=6, heads=2, k=3, v=3) == multi_head_flops(n=2, d=6, heads=1, k=6, v=6)
    True
    """
    return projection_flops(n, d, heads * k, heads * v) + heads * attention_flops(n, n, k, v)  # eq:multi-head-flops


def exponentials(n: int, m: int, heads: int = 1) -> int:
    """How many exponentials the softmax of h heads takes: h n m.

    Examples
    --------
    >>> exponentials(n=2, m=3, heads=4)
    24
    """
    return heads * n * m


def rnn_flops(n: int, d: int, h: int) -> int:
    r"""The two matrix products of a recurrent layer, at each of n steps.

    .. math:: 2 n\,(d\, d_h + d_h^2)

    Parameters
    ----------
    n, d, h : steps, input width, state width.

    Returns
    -------
    FLOP.

    References
    ----------
    Chapter 3, eq:rnn-flops.

    Examples
    --------
    >>> rnn_flops(n=2, d=3, h=5)
    160
    """
    return 2 * n * (d * h + h * h)  # eq:rnn-flops


def conv_flops(n: int, width: int, d: int, o: int) -> int:
    r"""A convolution with ``width`` taps, zeros of the padding included.

    .. math:: 2 n\, r\, d\, d_o

    Parameters
    ----------
    n, width, d, o : positions, taps r, input and output width.

    Returns
    -------
    FLOP.

    References
    ----------
    Chapter 3, eq:conv-flops.

    Examples
    --------
    >>> conv_flops(n=2, width=3, d=5, o=7)
    420
    """
    return 2 * n * width * d * o  # eq:conv-flops


def kv_cache_bytes(n: int, key_heads: int, k: int, v: int, layers: int = 1, batch: int = 1, itemsize: int = 4) -> int:
    r"""What the keys and values of n past positions occupy while a decoder generates.

    .. math:: b\, N\, g\, n\,(d_k + d_v) \cdot \text{itemsize}

    Parameters
    ----------
    n, key_heads, k, v : positions, key-value heads g, key and value width of one head.
    layers, batch : N, b.
    itemsize : bytes per number, 2 in float16 and bfloat16.

    Returns
    -------
    Bytes.

    References
    ----------
    Shazeer (2019). Chapter 4, eq:kv-bytes.

    Examples
    --------
    >>> kv_cache_bytes(4096, 8, 128, 128, layers=32, itemsize=2) / 2**20
    512.0
    """
    return batch * layers * key_heads * n * (k + v) * itemsize  # eq:kv-bytes


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
