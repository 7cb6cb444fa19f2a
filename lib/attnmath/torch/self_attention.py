"""One head of self-attention: queries, keys and values are three linear maps of one sequence."""

from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.torch.attention import attention
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.types import Array


@cast_by_autocast
@half_in_float32
def self_attention(
    X: Float[Array, "... n d"],
    Wq: Float[Array, "d k"],
    Wk: Float[Array, "d k"],
    Wv: Float[Array, "d v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    empty_rows: str = "error",
) -> Float[Array, "... n v"]:
    r"""Attention of a sequence to itself.

    .. math:: O = \operatorname{attention}(X W_q,\; X W_k,\; X W_v)

    Parameters, errors and source as in `attnmath.numpy.self_attention.self_attention`.

    Examples
    --------
    >>> import torch
    >>> I = torch.eye(2)
    >>> self_attention(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), I, I, I)
    tensor([[1.8884, 0.1116],
            [0.1116, 1.8884]])
    """
    _require.shapes(X=(X, "... n d"), Wq=(Wq, "d k"), Wk=(Wk, "d k"), Wv=(Wv, "d v"))
    Q, K, V = X @ Wq, X @ Wk, X @ Wv  # eq:self-projections
    return attention(Q, K, V, mask, empty_rows=empty_rows)  # eq:self-attention
