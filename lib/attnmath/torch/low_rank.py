"""Attention on projected keys and values (Linformer): m keys become r slots before any query sees them."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.low_rank import rows
from attnmath._require.low_rank import slots as require_slots
from attnmath.torch.attention import attention_fused
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.types import Array


@cast_by_autocast
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
) -> Float[Array, "... n v"]:
    r"""Scaled dot-product attention to r mixtures of the keys and values.

    .. math:: O = \operatorname{softmax}(Q (EK)^\top / \sqrt{d_k})\, F V

    Parameters, errors and source as in `attnmath.numpy.low_rank.linformer_attention`; an empty row where no value can
    be looked at as in `attnmath.torch.attention.attention_fused`.

    Examples
    --------
    >>> V = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
    >>> halves = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    >>> linformer_attention(torch.zeros(1, 2), torch.ones(4, 2), V, halves, halves)
    tensor([[4.]])
    """
    shapes = {"Q": (Q, "... n k"), "K": (K, "... m k"), "V": (V, "... m v"), "E": (E, "... r m"), "F": (F, "... r m")}
    sizes = _require.shapes(**shapes)
    _require.nonempty("E", E.shape, -2, sizes["r"], "slot")
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    require_slots(mask, sizes["m"], sizes["r"])
    A, B = E @ K, F @ V  # eq:linformer-slots
    return attention_fused(Q, A, B, mask, empty_rows=empty_rows, scale=scale)  # eq:linformer


def slot_mask(n: int, E: Float[Array, "... r m"], F: Float[Array, "... r m"]) -> Bool[Array, "... n r"]:
    r"""The slots that hold nothing of a later key: the only ones that a causal model may see.

    .. math:: M_{ia} = [\,E_{aj} = F_{aj} = 0 \text{ for all } j > i + m - n\,]

    Parameters, errors and source as in `attnmath.numpy.low_rank.slot_mask`.

    Examples
    --------
    >>> halves = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    >>> slot_mask(4, halves, halves).int()
    tensor([[0, 0],
            [1, 0],
            [1, 0],
            [1, 1]], dtype=torch.int32)
    """
    m = _require.shapes(E=(E, "... r m"), F=(F, "... r m"))["m"]
    rows(n, m)
    used = (E != 0) | (F != 0)
    places = torch.arange(m, device=E.device)
    last = torch.where(used, places, -1).amax(-1)  # the latest key in each slot
    return last[..., None, :] <= places[m - n :, None]  # eq:slot-mask
