"""What a low-rank adapter costs, by formula: its scale, its numbers, and the bytes that training with Adam holds."""

import math

from attnmath import _require
from attnmath._require.lora import rank
from attnmath.count import training_bytes


def lora_scale(r: int, alpha: float = 1.0, stabilised: bool = False) -> float:
    r"""By what the product of the two factors is multiplied.

    .. math:: s = \alpha / r,\qquad\text{or}\qquad s = \alpha / \sqrt r

    Parameters
    ----------
    r : the rank, >= 1.
    alpha : > 0.
    stabilised : divide by the root of r, as plain gradient descent wants it.

    Returns
    -------
    s.

    Raises
    ------
    ValueError
        If r is not an integer >= 1 or alpha not > 0.

    References
    ----------
    Hu et al. (2022), section 4.1; Kalajdzievski (2023), whose gamma is our s. Chapter 8, eq:lora-scale.

    Examples
    --------
    >>> lora_scale(16, alpha=8.0), lora_scale(16, alpha=8.0, stabilised=True)
    (0.5, 2.0)
    """
    _require.count("r", r)
    _require.positive("alpha", alpha)
    return alpha / (math.sqrt(r) if stabilised else r)  # eq:lora-scale


def lora_numbers(shapes, r: int) -> int:
    r"""The numbers in the factors of some matrices.

    .. math:: n = \sum_{(i,\,o)} r\,(i + o)

    Parameters
    ----------
    shapes : (i, o) of each matrix that gets an adapter.
    r : the rank.

    Returns
    -------
    n.

    Raises
    ------
    ValueError
        If a matrix cannot have the rank r.

    References
    ----------
    Hu et al. (2022), section 4.2. Chapter 8, eq:lora-numbers.

    Examples
    --------
    >>> lora_numbers([(96, 96), (96, 384)], 4), 96 * 96 + 96 * 384
    (2688, 46080)
    """
    shapes = list(shapes)
    for shape in shapes:
        rank(r, shape, "a matrix")
    return sum(r * (i + o) for i, o in shapes)  # eq:lora-numbers


def adapting_bytes(parameters: int, trained: int, kept: int = 4) -> int:
    r"""What training a part of a model with Adam holds in float32, activations left out.

    .. math:: k\,(N - n) + 16\,n

    The 16 bytes are the number, its gradient and two moments. A frozen number has neither gradient nor moments.

    Parameters
    ----------
    parameters : N, all numbers that the forward pass reads, those of an adapter included.
    trained : n of them, which have a gradient and two moments.
    kept : k, the bytes of a number that is only read.

    Returns
    -------
    Bytes.

    Raises
    ------
    ValueError
        If more numbers are trained than there are.

    References
    ----------
    Chapter 6, eq:training-bytes. Chapter 8, eq:adapting-bytes.

    Examples
    --------
    >>> adapting_bytes(1000, 1000), adapting_bytes(1000 + 10, 10)
    (16000, 4160)
    """
    if not 0 <= trained <= parameters:
        raise ValueError(f"trained is {trained}; it must be at least 0 and at most the {parameters} parameters")
    own = training_bytes(trained, copy=0, gradient=4)  # 4 for the number, 4 for its gradient, 8 for two moments
    return kept * (parameters - trained) + own  # eq:adapting-bytes
