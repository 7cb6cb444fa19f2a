"""Attention over a store that is too large to attend to, and a store of what followed beside a language model."""

import numpy as np
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require import beyond_one_memory as require
from attnmath.numpy.attention import attention
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.softmax import softmax
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


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


@differentiable
@half_in_float32
def store_distribution(
    Q: Float[Array, "... n k"],
    K: Float[Array, "m k"],
    followed: Integer[Array, " m"],
    vocabulary: int,
    *,
    temperature: float = 1.0,
    keep: int | None = None,
) -> tuple[Float[Array, "... n t"], Vjp]:
    r"""What a store of keys, each followed by a token, says about the token that follows a query.

    .. math:: p_i(w) = \sum_{j \in A_i:\, w_j = w}
              \frac{e^{-\lVert q_i - k_j\rVert^2/T}}{\sum_{l\in A_i} e^{-\lVert q_i - k_l\rVert^2/T}}

    It is attention with negative squared distances for scores and tokens, as one-hot rows, for values.

    Parameters
    ----------
    Q : (..., n, k) rows from which a model predicts now.
    K : (m, k) rows from which it predicted in the text of the store; m >= 1.
    followed : (m,) integers in 0 … t - 1, the token that came after each of them.
    vocabulary : t >= 1, how many tokens there are.
    temperature : T > 0, in the unit of a squared distance; a Gaussian kernel of bandwidth h has T = 2 h^2.
    keep : how many of the nearest keys are A_i, >= 1; None takes all. Keys that equal the last one that is kept are
        kept too.

    Returns
    -------
    P : (..., n, t), non-negative, rows sum to 1; 0 for a token that followed none of the keys in A_i.
    vjp : dP -> (dQ, dK), which takes the choice of the keys as given.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no key, Q or K holds nan or an infinite number, followed are not m
        integers of the vocabulary, the temperature is not positive, or vocabulary or keep is no positive integer.

    References
    ----------
    Khandelwal et al. (2020), equation 2, with T = 1 and squared Euclidean distances. Chapter 7, eq:store-distribution.

    Examples
    --------
    >>> K = np.array([[0.0], [0.0], [9.0]])
    >>> store_distribution(np.array([[1.0]]), K, np.array([2, 0, 1]), 4, keep=2)[0]
    array([[0.5, 0. , 0.5, 0. ]])
    """
    require.store(Q, K, followed, vocabulary, temperature, keep)
    require.finite("Q", Q, np.isfinite)
    require.finite("K", K, np.isfinite)
    _require.losses.within(followed, vocabulary, name="followed")
    centre = K.mean(0)  # distances remain, and far from the origin they keep their digits
    A, B = Q - centre, K - centre
    S = 2 * A @ T(B) - (B * B).sum(-1)  # without -|q|^2, which all keys share
    if keep is not None and keep < len(K):
        S = np.where(_greatest(S, keep), S, -np.inf)
    W, softmax_vjp = softmax(S, temperature)
    P = np.zeros((*W.shape[:-1], vocabulary), W.dtype)
    np.add.at(P, (..., followed), W)  # eq:store-distribution

    def vjp(dP):
        dS = softmax_vjp(dP[..., followed])  # each row sums to 0
        dK = T(dS) @ A - dS.sum(-2)[..., None] * B
        return 2 * (dS @ B), sum_to(2 * dK, K.shape)  # eq:store-distribution-vjp

    return P, vjp


@differentiable
@half_in_float32
def store_mixture(
    model: Float[Array, "... t"], store: Float[Array, "... t"], weight: float
) -> tuple[Float[Array, "... t"], Vjp]:
    r"""The distribution of a model, mixed with that of a store.

    .. math:: p = (1 - \lambda)\,p_{\text{model}} + \lambda\,p_{\text{store}}

    Parameters
    ----------
    model, store : (..., t) probabilities of all tokens; the leading axes broadcast.
    weight : :math:`\lambda` from 0 (the model alone) to 1 (the store alone).

    Returns
    -------
    P : (..., t); where model and store sum to 1, it does.
    vjp : dP -> (dmodel, dstore).

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, a probability is negative, nan or infinite, or weight is not in [0, 1].

    References
    ----------
    Khandelwal et al. (2020), equation 3, whose lambda is ours. Chapter 7, eq:store-mixture.

    Examples
    --------
    >>> store_mixture(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0]), 0.25)[0]
    array([0.375, 0.375, 0.25 ])
    """
    _require.shapes(model=(model, "... t"), store=(store, "... t"))
    require.share("weight", weight)
    require.probabilities("model", model, np.isfinite)
    require.probabilities("store", store, np.isfinite)
    P = (1 - weight) * model + weight * store  # eq:store-mixture

    def vjp(dP):
        return sum_to((1 - weight) * dP, model.shape), sum_to(weight * dP, store.shape)  # eq:store-mixture-vjp

    return P, vjp


def _best(Q, K, V, mask, keep):
    """True for the keys with the greatest scores that each query may attend to."""
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.count("keep", keep)
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    if keep >= sizes["m"]:
        return mask
    return _greatest(np.where(mask, Q @ T(K), -np.inf), keep) & mask


def _greatest(S, keep):
    """True for the entries of each row that are not below the last one kept."""
    return np.partition(S, -keep, -1)[..., -keep, None] <= S
