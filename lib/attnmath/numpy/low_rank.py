"""Attention on projected keys and values (Linformer): m keys become r slots before any query sees them."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.low_rank import rows
from attnmath._require.low_rank import slots as require_slots
from attnmath.numpy.attention import attention
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def linformer_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    E: Float[Array, "... r m"],
    F: Float[Array, "... r m"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    empty_rows: str = "error",
    scale: float | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Scaled dot-product attention to r mixtures of the keys and values.

    .. math:: O = \operatorname{softmax}(Q (EK)^\top / \sqrt{d_k})\, F V

    It takes 4 r n (k + v) operations where all pairs take 2 n² (k + v). As a core it is given its projections:
    ``partial(linformer_attention, E=E, F=F)``.

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.
    V : (..., m, v) values.
    E, F : (..., r, m) what mixes the keys and the values; leading axes broadcast, (h, r, m) for heads of their own.
    mask : boolean, broadcasts to (..., n, r); True = may attend to the slot. See `slot_mask`.
    empty_rows : a query that may attend to no slot is an ``"error"``, or gets an output of zeros with ``"zero"``.
    scale : as in `attention_weights`.

    Returns
    -------
    O : (..., n, v).
    vjp : dO -> (dQ, dK, dV, dE, dF).

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no slot, or the mask is one of keys, which cannot be hidden once they are
        mixed.

    References
    ----------
    Wang et al. (2020), equation 7, whose E_i K W_i^K is our E K and whose k is our r. Chapter 7, eq:linformer.

    Examples
    --------
    >>> V = np.array([[1.0], [3.0], [5.0], [7.0]])
    >>> halves = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    >>> O, vjp = linformer_attention(np.zeros((1, 2)), np.ones((4, 2)), V, halves, halves)
    >>> O
    array([[4.]])
    """
    shapes = {"Q": (Q, "... n k"), "K": (K, "... m k"), "V": (V, "... m v"), "E": (E, "... r m"), "F": (F, "... r m")}
    sizes = _require.shapes(**shapes)
    _require.nonempty("E", E.shape, -2, sizes["r"], "slot")
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    require_slots(mask, sizes["m"], sizes["r"])
    A, B = E @ K, F @ V  # eq:linformer-slots
    O, attention_vjp = attention(Q, A, B, mask, empty_rows=empty_rows, scale=scale)  # eq:linformer

    def vjp(dO):
        dQ, dA, dB = attention_vjp(dO)
        dE, dF = dA @ T(K), dB @ T(V)  # eq:linformer-vjp-projections
        dK, dV = T(E) @ dA, T(F) @ dB  # eq:linformer-vjp-inputs
        return dQ, *(sum_to(dX, X.shape) for dX, X in ((dK, K), (dV, V), (dE, E), (dF, F)))

    return O, vjp


def slot_mask(n: int, E: Float[Array, "... r m"], F: Float[Array, "... r m"]) -> Bool[Array, "... n r"]:
    r"""The slots that hold nothing of a later key: the only ones that a causal model may see.

    .. math:: M_{ia} = [\,E_{aj} = F_{aj} = 0 \text{ for all } j > i + m - n\,]

    Parameters
    ----------
    n : queries; the last one stands where the last key does.
    E, F : (..., r, m) the projections of `linformer_attention`.

    Returns
    -------
    mask : (..., n, r) boolean. A query before the end of the first slot has an empty row.

    Raises
    ------
    ValueError
        If the shapes disagree or there are fewer keys than queries.

    References
    ----------
    Chapter 7, prop-linformer-causal.

    Examples
    --------
    >>> halves = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    >>> slot_mask(4, halves, halves).astype(int)
    array([[0, 0],
           [1, 0],
           [1, 0],
           [1, 1]])
    """
    m = _require.shapes(E=(E, "... r m"), F=(F, "... r m"))["m"]
    rows(n, m)
    used = (E != 0) | (F != 0)
    last = np.where(used, np.arange(m), -1).max(-1)  # the latest key in each slot
    return last[..., None, :] <= np.arange(m - n, m)[:, None]  # eq:slot-mask
