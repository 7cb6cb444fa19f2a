"""Softmax, its logarithm, and the log-sum-exp they share, along the last axis."""

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, Vjp, differentiable


@differentiable
@half_in_float32
def softmax(
    S: Float[Array, "... m"], temperature: float = 1.0, *, empty_rows: str = "error"
) -> tuple[Float[Array, "... m"], Vjp]:
    r"""Turn each row of scores into a probability distribution.

    .. math:: P_{ij} = \frac{e^{S_{ij}/\tau}}{\sum_l e^{S_{il}/\tau}}

    Parameters
    ----------
    S : (..., m) scores in nats; an entry of ``-inf`` gets weight 0. ``+inf`` and ``nan`` give ``nan``.
    temperature : :math:`\tau > 0`; below 1 sharpens, above 1 flattens.
    empty_rows : what to do with a row of ``-inf`` only: ``"error"``, or ``"zero"`` for a row of zeros.

    Returns
    -------
    P : (..., m) non-negative, rows sum to 1.
    vjp : dP -> dS.

    Raises
    ------
    ValueError
        If S is not floating point, has no entry along its last axis, or has an empty row that was not allowed.

    References
    ----------
    Chapter 2, eq:softmax. The maximum is subtracted first, which changes nothing but the overflow.

    Examples
    --------
    >>> P, vjp = softmax(np.log([[1.0, 2.0, 1.0]]))
    >>> P
    array([[0.25, 0.5 , 0.25]])
    """
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    _require.positive("temperature", temperature)
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    top = S.max(-1, keepdims=True)
    empty = np.isneginf(top)
    if empty.any():
        if empty_rows == "error":
            _require.no_empty_row(tuple(np.argwhere(empty[..., 0])[0].tolist()), "empty_rows='zero'")
        top = np.where(empty, 0, top).astype(S.dtype)
    with np.errstate(over="ignore"):  # a low temperature may overflow to -inf, rightly a weight of 0
        E = np.exp((S - top) / temperature)
    Z = E.sum(-1, keepdims=True)
    P = E / np.where(Z == 0, 1, Z).astype(S.dtype)  # eq:softmax

    def vjp(dP):
        return P * (dP - (P * dP).sum(-1, keepdims=True)) / temperature  # eq:softmax-vjp

    return P, vjp


@differentiable
@half_in_float32
def logsumexp(S: Float[Array, "... m"]) -> tuple[Float[Array, "..."], Vjp]:
    r"""The smooth maximum of each row.

    .. math:: L_i = \log\sum_j e^{S_{ij}} = \max_j S_{ij} + \log\sum_j e^{S_{ij} - \max_l S_{il}}

    Parameters
    ----------
    S : (..., m) scores in nats; a row of ``-inf`` only gives ``-inf``, and a row with ``+inf`` gives ``+inf``.

    Returns
    -------
    L : (...) between the maximum and the maximum plus :math:`\log m`.
    vjp : dL -> dS, the softmax weights times dL. Beside a score of ``+inf`` the finite ones get 0, and that score
        itself gets ``nan``, because infinity has no slope.

    Raises
    ------
    ValueError
        If S is not floating point or its last axis is empty.

    References
    ----------
    Chapter 2, eq:logsumexp; Blanchard, Higham and Higham (2021).

    Examples
    --------
    >>> L, vjp = logsumexp(np.log([1.0, 2.0, 1.0]))
    >>> round(float(np.exp(L)), 12)
    4.0
    """
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    top = S.max(-1, keepdims=True)
    if np.isposinf(top).any():
        S = np.where(np.isposinf(top) & (S < np.inf), np.asarray(-np.inf, S.dtype), S)  # beside +inf nothing counts
    top = np.where(np.isinf(top), 0, top).astype(S.dtype)
    E = np.exp(S - top)
    Z = E.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the right value of an empty row
        L = np.squeeze(top + np.log(Z), -1)  # eq:logsumexp

    def vjp(dL):
        with np.errstate(invalid="ignore"):  # inf / inf, the share of a score of +inf
            return dL[..., None] * (E / np.where(Z == 0, 1, Z).astype(S.dtype))  # eq:logsumexp-vjp

    return L, vjp


@differentiable
@half_in_float32
def log_softmax(S: Float[Array, "... m"], temperature: float = 1.0) -> tuple[Float[Array, "... m"], Vjp]:
    r"""The logarithm of the softmax, without taking the softmax first.

    .. math:: \log P_{ij} = S_{ij}/\tau - \log\sum_l e^{S_{il}/\tau}

    Parameters
    ----------
    S : (..., m) scores in nats.
    temperature : :math:`\tau > 0`.

    Returns
    -------
    logP : (..., m), finite wherever S is, even where P would underflow to 0.
    vjp : dlogP -> dS.

    Raises
    ------
    ValueError
        If S is not floating point, its last axis is empty, or a row holds ``-inf`` only.

    References
    ----------
    Chapter 2, eq:log-softmax.

    Examples
    --------
    >>> logP, vjp = log_softmax(np.array([0.0, 1000.0]))
    >>> logP
    array([-1000.,     0.])
    """
    _require.positive("temperature", temperature)
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    top = S.max(-1, keepdims=True)
    empty = np.isneginf(top)
    if empty.any():
        _require.no_empty_row(tuple(np.argwhere(empty[..., 0])[0].tolist()), "softmax(…, empty_rows='zero')")
    with np.errstate(over="ignore"):
        X = (S - top) / temperature  # the maximum first, so that rounding errors have the size of log m
    logP = X - logsumexp(X)[0][..., None]  # eq:log-softmax

    def vjp(dlogP):
        return (dlogP - np.exp(logP) * dlogP.sum(-1, keepdims=True)) / temperature  # eq:log-softmax-vjp

    return logP, vjp


@differentiable
@half_in_float32
def softmax_entropy(S: Float[Array, "... m"]) -> tuple[Float[Array, "..."], Vjp]:
    r"""How spread out the softmax of each row of scores is.

    .. math:: H_i = -\sum_j P_{ij}\log P_{ij} = \log\sum_j e^{S_{ij}} - \sum_j P_{ij} S_{ij},\qquad
              P = \operatorname{softmax}(S)

    Parameters
    ----------
    S : (..., m) scores in nats; an entry of ``-inf`` counts as a key that is not there.

    Returns
    -------
    H : (...) nats, from 0 (one key) to :math:`\log m` (all alike); :math:`e^H` is an effective number of keys.
    vjp : dH -> dS.

    Raises
    ------
    ValueError
        If S is not floating point, its last axis is empty, or a row holds ``-inf`` only.

    References
    ----------
    Shannon (1948), section 6. Chapter 3, eq:softmax-entropy. `attnmath.patterns.entropy` takes the weights instead.

    Examples
    --------
    >>> H, vjp = softmax_entropy(np.zeros((1, 4)))
    >>> np.exp(H).round(12)
    array([4.])
    """
    logP = log_softmax(S)[0]
    P = np.exp(logP)
    information = -np.where(P == 0, 0, logP).astype(S.dtype)  # 0 log 0 = 0
    H = (P * information).sum(-1)  # eq:softmax-entropy

    def vjp(dH):
        return dH[..., None] * P * (information - H[..., None])  # eq:softmax-entropy-vjp

    return H, vjp
