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


def transformer_parameters(
    d: int, f: int, layers: int, vocabulary: int = 0, *, key_width: int | None = None, gated: bool = False
) -> int:
    r"""The weights of a stack that are multiplied with each token's row: four projections, two or three maps, logits.

    .. math:: N = L\,(2 d^2 + 2 d e + c\, d f) + t d

    Without biases, norms and tables that are only looked up; a table tied to the logits is counted as the logits.

    Parameters
    ----------
    d, f, layers : width, width of the feed-forward network, L.
    vocabulary : t, the rows of the logits; 0 leaves the logits out.
    key_width : e, the width of all key heads together; None if there are as many as query heads, e = d.
    gated : c = 3 matrices in the feed-forward network, else c = 2.

    Returns
    -------
    How many.

    References
    ----------
    Kaplan et al. (2020), section 2.1. Chapter 6, eq:transformer-parameters.

    Examples
    --------
    >>> transformer_parameters(768, 3072, 12), 12 * 12 * 768**2
    (84934656, 84934656)
    """
    e, c = d if key_width is None else key_width, 3 if gated else 2
    return layers * (2 * d * d + 2 * d * e + c * d * f) + vocabulary * d  # eq:transformer-parameters


def transformer_flops(
    n: int,
    d: int,
    f: int,
    layers: int,
    vocabulary: int = 0,
    *,
    key_width: int | None = None,
    gated: bool = False,
    causal: bool = False,
) -> int:
    r"""The products of a forward pass over one text, its self-attention included.

    .. math:: 2 n N + 4 a d L,\qquad a = n^2, \text{ or } \tfrac12 n (n+1) \text{ if only allowed pairs are computed}

    Parameters
    ----------
    n : tokens.
    d, f, layers, vocabulary, key_width, gated : as in `transformer_parameters`.
    causal : whether the pairs that a causal mask forbids are skipped, as fused kernels do, or computed and discarded.

    Returns
    -------
    FLOP, those of norms, activations and softmax not counted.

    References
    ----------
    Kaplan et al. (2020), section 2.1. Chapter 6, eq:transformer-flops.

    Examples
    --------
    >>> transformer_flops(n=2, d=2, f=8, layers=1), transformer_flops(n=2, d=2, f=8, layers=1, causal=True)
    (224, 216)
    """
    N = transformer_parameters(d, f, layers, vocabulary, key_width=key_width, gated=gated)
    pairs = n * (n + 1) // 2 if causal else n * n
    return 2 * n * N + 4 * pairs * d * layers  # eq:transformer-flops


def training_flops(n: int, d: int, f: int, layers: int, vocabulary: int = 0, **options) -> int:
    r"""The products of one text's forward and backward pass.

    .. math:: 3\,(2 n N + 4 a d L) = 6 n N + 12 a d L

    Parameters
    ----------
    n, d, f, layers, vocabulary, options : as in `transformer_flops`.

    Returns
    -------
    FLOP.

    References
    ----------
    Chapter 6, eq:training-flops.

    Examples
    --------
    >>> training_flops(n=2, d=2, f=8, layers=1)
    672
    """
    return 3 * transformer_flops(n, d, f, layers, vocabulary, **options)  # eq:training-flops


def training_bytes(parameters: int, copy: int = 2, gradient: int = 2, master: int = 4, moments: int = 8) -> int:
    r"""What a parameter occupies throughout training with Adam, activations left out.

    .. math:: (2 + 2 + 4 + 4 + 4)\, N \text{ in mixed precision}

    Parameters
    ----------
    parameters : N, all of them.
    copy, gradient, master, moments : bytes of one parameter's 16-bit copy, gradient, float32 original, two moments.

    Returns
    -------
    Bytes.

    References
    ----------
    Rajbhandari et al. (2020), section 3.1. Chapter 6, eq:training-bytes.

    Examples
    --------
    >>> training_bytes(7_000_000_000) / 1e9
    112.0
    """
    return (copy + gradient + master + moments) * parameters  # eq:training-bytes


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
