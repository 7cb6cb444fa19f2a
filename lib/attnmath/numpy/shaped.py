"""Shaped attention: softmax weights centred on the identity, for stacks that may be infinitely deep."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.attention import attention_weights
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def shaped_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... n k"],
    V: Float[Array, "... n v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    temperature: float = 1.0,
    strength: float = 1.0,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Self-attention that adds to each value what the weights have beyond an even average.

    .. math:: O = V + g\,(P - U)\,V,\qquad P = \operatorname{softmax}\Bigl(\frac{Q K^\top}{\tau\sqrt{d_k}}\Bigr),
              \quad U_{ij} = \frac{\text{mask}_{ij}}{\sum_l \text{mask}_{il}}

    Parameters
    ----------
    Q, K : (..., n, k) queries and keys of the same n tokens.
    V : (..., n, v) their values.
    mask : boolean, broadcasts to (..., n, n); True = may attend. A token's own value passes whatever the mask says.
    temperature : :math:`\tau > 0`, beside the usual root of k.
    strength : :math:`g`; 0 returns V.

    Returns
    -------
    O : (..., n, v); the rows of I + g (P - U) sum to 1, but an entry may be negative.
    vjp : dO -> (dQ, dK, dV).

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, queries and keys differ in number, the mask is not boolean or does not broadcast,
        a row is empty, or the temperature is not positive.

    References
    ----------
    Noci et al. (2023), with U for the mask as in He and Hofmann (2024). Chapter 6, eq:shaped-attention.

    Examples
    --------
    >>> V = np.array([[1.0, 0.0], [3.0, 2.0]])
    >>> O, vjp = shaped_attention(np.zeros((2, 1)), np.ones((2, 1)), V)
    >>> O
    array([[1., 0.],
           [3., 2.]])
    """
    _require.shapes(Q=(Q, "... n k"), K=(K, "... n k"), V=(V, "... n v"))
    _require.positive("temperature", temperature)
    P, weights_vjp = attention_weights(Q / temperature, K, mask)
    allowed = np.broadcast_to(mask, P.shape)
    U = (allowed / allowed.sum(-1, keepdims=True)).astype(P.dtype)
    D = strength * (P - U)
    O = V + D @ V  # eq:shaped-attention

    def vjp(dO):
        dV = dO + T(D) @ dO  # eq:shaped-attention-vjp
        dQ, dK = weights_vjp(strength * sum_to(dO @ T(V), P.shape))
        return dQ / temperature, dK, sum_to(dV, V.shape)

    return O, vjp
