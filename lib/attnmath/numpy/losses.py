"""What training minimises: the cross-entropy of the next token, with smoothed targets if wanted."""

import numpy as np
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath.numpy.types import Array, Vjp, differentiable


def smoothed_targets(targets: Integer[Array, "..."], t: int, smoothing: float) -> Float[Array, "... t"]:
    r"""The distribution that takes the place of the right token: most of it there, the rest spread evenly over all.

    .. math:: q_{ij} = (1 - \epsilon)\,[j = y_i] + \frac{\epsilon}{t}

    Parameters
    ----------
    targets : (...) integers :math:`y_i` in 0 … t - 1.
    t : size of the vocabulary.
    smoothing : :math:`\epsilon` from 0 (the token alone) to 1 (all tokens alike).

    Returns
    -------
    q : (..., t) float64, in PyTorch the default type; rows sum to 1. It has no gradient.

    Raises
    ------
    ValueError
        If a target is no integer in 0 … t - 1, or smoothing is not in [0, 1].

    References
    ----------
    Szegedy et al. (2016), section 7. Chapter 6, eq:smoothed-target.

    Examples
    --------
    >>> smoothed_targets(np.array([1]), 4, 0.2)
    array([[0.05, 0.85, 0.05, 0.05]])
    """
    _require.losses.smoothing(smoothing)
    _require.count("t", t)
    _require.losses.targets(targets, np.shape(targets), None, rows="position")
    _require.losses.within(targets.reshape(-1), t)
    return (1 - smoothing) * (np.arange(t) == targets[..., None]) + smoothing / t  # eq:smoothed-target


@differentiable
def cross_entropy(
    Z: Float[Array, "... t"],
    targets: Integer[Array, "..."],
    mask: Bool[Array, "..."] | None = None,
    *,
    smoothing: float = 0.0,
    weights: Float[Array, " t"] | None = None,
    reduction: str = "mean",
) -> tuple[Float[Array, "..."], Vjp]:
    r"""The mean surprise at the targets, over the positions that count.

    .. math:: L = -\frac{1}{|C|}\sum_{i\in C}\sum_{j} q_{ij}\log p_{ij},\qquad p_i = \operatorname{softmax}(Z_i),\quad
              q_{ij} = (1 - \epsilon)\,[j = y_i] + \frac{\epsilon}{t}

    With weights, a term of the inner sum is multiplied by :math:`w_j`, and :math:`|C|` becomes
    :math:`\sum_{i\in C} w_{y_i}`.

    Parameters
    ----------
    Z : (..., t) logits; ``-inf`` for a token that is forbidden.
    targets : (...) integers :math:`y_i` in 0 … t - 1 wherever the position counts, anything elsewhere.
    mask : (...) boolean, True for the positions C that count; None if all do. Logits elsewhere are not looked at.
    smoothing : :math:`\epsilon` from 0 to 1.
    weights : (t,) :math:`w \ge 0`, a factor for each token, constant; None for ones.
    reduction : "mean" is the formula; "sum" leaves its denominator out, "none" its outer sum too.

    Returns
    -------
    loss : () in nats; (...) with "none", zero where a position does not count.
    vjp : dloss -> dZ, zero where a position does not count.

    Raises
    ------
    ValueError
        If Z is not floating point, a shape differs from Z's rows, no position counts (for a mean), a target that counts
        lies outside the vocabulary, a row that counts holds ``-inf`` only, smoothing is not in [0, 1], weights are not
        (t,) numbers >= 0, or reduction is another word.

    References
    ----------
    Szegedy et al. (2016), section 7, for the smoothing. Chapter 6, eq:sequence-loss. Weights and reductions are those
    of ``torch.nn.functional.cross_entropy``.

    Examples
    --------
    >>> loss, vjp = cross_entropy(np.log([[2.0, 1.0, 1.0]]), np.array([1]))
    >>> loss.round(4), vjp(1.0)
    (np.float64(1.3863), array([[ 0.5 , -0.75,  0.25]]))
    """
    t = _require.shapes(Z=(Z, "... t"))["t"]
    _require.nonempty("Z", Z.shape, -1, t, "token")
    _require.losses.smoothing(smoothing)
    _require.losses.targets(targets, Z.shape[:-1], mask)
    _require.choice("reduction", reduction, ("mean", "sum", "none"))
    sums = np.promote_types(Z.dtype, np.float32)  # 16 bits stop at 2048
    rows, y = (
        (Z.reshape(len(targets.reshape(-1)), t), targets.reshape(-1)) if mask is None else (Z[mask], targets[mask])
    )
    _require.losses.within(y, t)
    own, all_tokens = _factors(Z, weights, y, t, sums)
    if reduction == "mean":
        total = own.sum() if weights is not None else len(y)
        _require.losses.a_mean(total)
    top = rows.max(-1, keepdims=True)
    if np.isneginf(top).any():
        _require.losses.no_token(int(np.isneginf(top).argmax()))
    with np.errstate(over="ignore"):  # in 16 bits a gap may overflow to -inf, rightly a probability of 0
        E = rows - top
    i = np.arange(len(y))
    right, mean = E[i, y].astype(sums), _mean(E, weights, sums) if smoothing else 0
    np.exp(E, out=E)
    S = E.sum(-1, dtype=sums)
    token = own * (np.log(S) - right)  # eq:token-loss
    if smoothing:
        token = (1 - smoothing) * token + smoothing * (all_tokens * np.log(S) - mean)  # eq:smoothed-loss
    if reduction == "none":
        loss = np.zeros(targets.shape, Z.dtype)
        loss[... if mask is None else mask] = token.reshape(targets.shape) if mask is None else token
    else:
        loss = np.asarray(token.sum() / (total if reduction == "mean" else 1), Z.dtype)  # eq:sequence-loss

    def vjp(dloss):
        if reduction == "none":
            share = dloss.reshape(-1) if mask is None else dloss[mask]
            share = share.astype(sums)
        else:
            share = np.full(len(y), dloss / total if reduction == "mean" else dloss, sums)
        hit, spread = share * (1 - smoothing) * own, share * smoothing  # of the target, and of all tokens
        G = E * ((hit + spread * all_tokens) / S).astype(Z.dtype)[:, None]
        if smoothing:
            G -= (spread / t).astype(Z.dtype)[:, None] * (1 if weights is None else weights)
        G[i, y] -= hit.astype(Z.dtype)  # eq:cross-entropy-vjp
        if mask is None:
            return G.reshape(Z.shape)
        dZ = np.zeros_like(Z)
        dZ[mask] = G
        return dZ

    return loss, vjp


def _factors(Z, weights, y, t, sums):
    """The weight of each row's target, and the mean weight of all tokens; ones without weights."""
    if weights is None:
        return np.ones((), sums), np.ones((), sums)
    _require.losses.weights(weights, Z, t)
    _require.losses.nonnegative_weights(weights)
    return weights[y].astype(sums), weights.mean(dtype=sums)


def _mean(E, weights, sums):
    """The mean gap of each row, weighted; a token of weight 0 may be forbidden."""
    if weights is None:
        return E.mean(-1, dtype=sums)
    return np.where(weights == 0, 0, weights * E).mean(-1, dtype=sums)
