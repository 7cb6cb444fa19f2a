"""Attention over a store that is too large to attend to: the best keys of each query, and what the others weigh."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.attention import attention
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable


@differentiable
@half_in_float32
def top_k_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    keep: int,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Each query attends to those keys alone that have its greatest scores.

    .. math:: O_i = \sum_{j\in A_i} \frac{e^{S_{ij}}}{\sum_{l\in A_i} e^{S_{il}}} V_j,\qquad
              A_i = \{j : S_{ij} \text{ is among the } t \text{ greatest of row } i\}

    Parameters
    ----------
    Q, K, V : (..., n, k), (..., m, k), (..., m, v).
    mask : boolean, broadcasts to (..., n, m); True = may attend.
    keep : t >= 1; with t >= m it is attention. Keys with the same score as the last one that is kept are kept too.

    Returns
    -------
    O : (..., n, v).
    vjp : dO -> (dQ, dK, dV), which takes the choice of the keys as given.

    Raises
    ------
    ValueError
        If keep is not a positive integer, or as `attention`.

    References
    ----------
    Gupta et al. (2021), section 3; Wu et al. (2022) with a store of keys of earlier texts. Chapter 7,
    eq:top-k-attention.

    Examples
    --------
    >>> K = np.array([[0.0], [1.0], [2.0]])
    >>> top_k_attention(np.array([[1.0]]), K, K, keep=1)[0]
    array([[2.]])
    """
    chosen = _best(Q, K, V, mask, keep)
    O, core_vjp = attention(Q, K, V, chosen)  # eq:top-k-attention
    return O, lambda dO: core_vjp(dO)  # eq:top-k-attention-vjp


def dropped_weight_bound(scores: Float[Array, "... n t"], dropped: int) -> Float[Array, "... n"]:
    r"""At most how much weight lies on keys that a search did not return, from the scores of those that it did.

    .. math:: \tau \le \frac{u\,e^{s_t}}{\sum_{j\le t} e^{s_j} + u\,e^{s_t}},\qquad s_t = \min_j s_j

    Parameters
    ----------
    scores : (..., n, t) of the t best keys of each query.
    dropped : u >= 0, how many other keys the store holds, none of them with a better score.

    Returns
    -------
    tau : (..., n), from 0 to 1.

    Raises
    ------
    ValueError
        If there is no score or dropped is negative.

    References
    ----------
    Chapter 7, eq:dropped-weight.

    Examples
    --------
    >>> dropped_weight_bound(np.array([[0.0, 0.0]]), 2)
    array([0.5])
    """
    sizes = _require.shapes(scores=(scores, "... n t"))
    _require.nonempty("scores", scores.shape, -1, sizes["t"], "score")
    _require.nonnegative("dropped", dropped)
    return dropped / (np.exp(scores - scores.min(-1, keepdims=True)).sum(-1) + dropped)  # eq:dropped-weight


def _best(Q, K, V, mask, keep):
    """True for the keys with the greatest scores that each query may attend to."""
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.count("keep", keep)
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    if keep >= sizes["m"]:
        return mask
    S = np.where(mask, Q @ T(K), -np.inf)
    least = np.partition(S, -keep, -1)[..., -keep, None]
    return (S >= least) & mask
