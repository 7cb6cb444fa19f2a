"""T5's relative positions: a learned number per head for each bucket of distances, added to the scores."""

import numpy as np
from jaxtyping import Float, Integer

from attnmath import _require
from attnmath.numpy.types import Array, Vjp


def relative_buckets(n: int, m: int, count: int, distance: int = 128, *, causal: bool = False) -> Integer[Array, "n m"]:
    r"""The bucket of each pair of positions: near offsets have one each, far ones share, on a logarithmic scale.

    Parameters
    ----------
    n, m : numbers of queries and keys; the last query stands where the last key does.
    count : of buckets. Half of them are for keys after the query; none with ``causal``.
    distance : offsets beyond it share the last bucket.
    causal : keys after the query count as offset 0, since a mask will hide them.

    Returns
    -------
    buckets : (n, m) integers in 0 … count - 1.

    Raises
    ------
    ValueError
        If there are too few buckets for the distance.

    References
    ----------
    Raffel et al. (2020), section 2.1, as its code has it, float32 logarithm included.

    Examples
    --------
    >>> relative_buckets(1, 8, 4, 6, causal=True)
    array([[3, 3, 3, 3, 2, 2, 1, 0]])
    """
    offset = np.arange(m) - (np.arange(n)[:, None] + m - n)
    near = count if causal else count // 2
    after = np.zeros_like(offset) if causal else near * (offset > 0)
    offset = np.maximum(-offset, 0) if causal else np.abs(offset)
    exact = near // 2
    _require.bucket_sizes(count, exact, distance)
    ratio = np.log(np.maximum(offset, 1).astype(np.float32) / np.float32(exact)) / np.float32(np.log(distance / exact))
    far = np.minimum(exact + (ratio * (near - exact)).astype(int), near - 1)
    return after + np.where(offset < exact, offset, far)


def relative_bias(
    table: Float[Array, "c h"], n: int, m: int, distance: int = 128, *, causal: bool = False
) -> tuple[Float[Array, "h n m"], Vjp]:
    r"""A number for each head and pair of positions, looked up by bucket.

    .. math:: B^i_{jl} = R_{b(j, l),\, i}

    Parameters
    ----------
    table : (c, h), R: one row per bucket, one column per head.
    n, m, distance, causal : as in `relative_buckets`, which gives b.

    Returns
    -------
    B : (h, n, m), to be added to the scaled scores.
    vjp : dB -> dtable.

    Raises
    ------
    ValueError
        As `relative_buckets`.

    References
    ----------
    Raffel et al. (2020), section 2.1.

    Examples
    --------
    >>> B, vjp = relative_bias(np.array([[1.0], [2.0]]), 2, 2, causal=True)
    >>> B
    array([[[1., 1.],
            [2., 1.]]])
    """
    _require.shapes(table=(table, "c h"))
    buckets = relative_buckets(n, m, len(table), distance, causal=causal)
    B = np.moveaxis(table[buckets], -1, 0)

    def vjp(dB):
        dtable = np.zeros_like(table)
        np.add.at(dtable, buckets, np.moveaxis(dB, 0, -1))
        return dtable

    return B, vjp
