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
) -> tuple[Float[Array, ""], Vjp]:
    r"""The mean surprise at the targets, over the positions that count.

    .. math:: L = -\frac{1}{|C|}\sum_{i\in C}\sum_{j} q_{ij}\log p_{ij},\qquad p_i = \operatorname{softmax}(Z_i),\quad
              q_{ij} = (1 - \epsilon)\,[j = y_i] + \frac{\epsilon}{t}

    Parameters
    ----------
    Z : (..., t) logits; ``-inf`` for a token that is forbidden.
    targets : (...) integers :math:`y_i` in 0 … t - 1 wherever the position counts, anything elsewhere.
    mask : (...) boolean, True for the positions C that count; None if all do. Logits elsewhere are not looked at.
    smoothing : :math:`\epsilon` from 0 to 1.

    Returns
    -------
    loss : () in nats.
    vjp : dloss -> dZ, zero where a position does not count.

    Raises
    ------
    ValueError
        If Z is not floating point, a shape differs from Z's rows, no position counts, a target that counts lies outside
        the vocabulary, a row that counts holds ``-inf`` only, or smoothing is not in [0, 1].

    References
    ----------
    Szegedy et al. (2016), section 7, for the smoothing. Chapter 6, eq:sequence-loss.

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
    rows, y = (Z.reshape(-1, t), targets.reshape(-1)) if mask is None else (Z[mask], targets[mask])
    _require.losses.within(y, t)
    top = rows.max(-1, keepdims=True)
    if np.isneginf(top).any():
        _require.losses.no_token(int(np.isneginf(top).argmax()))
    with np.errstate(over="ignore"):  # in 16 bits a gap may overflow to -inf, rightly a probability of 0
        E = rows - top
    i, sums = np.arange(len(y)), np.promote_types(Z.dtype, np.float32)  # 16 bits stop at 2048
    right, mean = E[i, y].astype(sums), E.mean(-1, dtype=sums) if smoothing else 0
    np.exp(E, out=E)
    S = E.sum(-1, dtype=sums)
    token = np.log(S) - right  # eq:token-loss
    if smoothing:
        token = (1 - smoothing) * token + smoothing * (np.log(S) - mean)  # eq:smoothed-loss
    loss = token.mean().astype(Z.dtype)  # eq:sequence-loss

    def vjp(dloss):
        share = dloss / len(y)
        G = E * (share / S).astype(Z.dtype)[:, None]
        if smoothing:
            G -= np.asarray(share * smoothing / t, Z.dtype)
        G[i, y] -= np.asarray(share * (1 - smoothing), Z.dtype)  # eq:cross-entropy-vjp
        if mask is None:
            return G.reshape(Z.shape)
        dZ = np.zeros_like(Z)
        dZ[mask] = G
        return dZ

    return np.asarray(loss), vjp
