"""Shaped attention: softmax weights centred on the identity, for stacks that may be infinitely deep."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.torch.attention import attention_weights
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.types import Array


@cast_by_autocast
@half_in_float32
def shaped_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... n k"],
    V: Float[Array, "... n v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    temperature: float = 1.0,
    strength: float = 1.0,
) -> Float[Array, "... n v"]:
    r"""Self-attention that adds to each value what the weights have beyond an even average.

    .. math:: O = V + g\,(P - U)\,V,\qquad P = \operatorname{softmax}\Bigl(\frac{Q K^\top}{\tau\sqrt{d_k}}\Bigr),
              \quad U_{ij} = \frac{\text{mask}_{ij}}{\sum_l \text{mask}_{il}}

    Parameters, errors and source as in `attnmath.numpy.shaped.shaped_attention`.

    Examples
    --------
    >>> V = torch.tensor([[1.0, 0.0], [3.0, 2.0]])
    >>> shaped_attention(torch.zeros(2, 1), torch.ones(2, 1), V)
    tensor([[1., 0.],
            [3., 2.]])
    """
    _require.shapes(Q=(Q, "... n k"), K=(K, "... n k"), V=(V, "... n v"))
    _require.positive("temperature", temperature)
    P = attention_weights(Q / temperature, K, mask)
    allowed = torch.as_tensor(mask, device=P.device).expand(P.shape)
    U = allowed.to(P.dtype) / allowed.sum(-1, keepdim=True)
    D = strength * (P - U)
    return V + D @ V  # eq:shaped-attention
