"""Multi-head attention with the projections of all heads side by side in one matrix."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require, shapes
from attnmath.torch.attention import attention_fused, attention_weights
from attnmath.torch.layers import linear
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array


def split_heads(X: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n k"]:
    """Cut the width into heads and put them before the rows: (..., n, h k) to (..., h, n, k)."""
    return X.unflatten(-1, (heads, -1)).transpose(-2, -3)


def merge_heads(X: Float[Array, "... h n k"]) -> Float[Array, "... n d"]:
    """Undo `split_heads`."""
    return X.transpose(-2, -3).flatten(-2)


def multi_head_attention(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m d"],
    V: Float[Array, "... m d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    empty_rows: str = "error",
    record: dict | None = None,
) -> Float[Array, "... n d"]:
    r"""Attention in h subspaces at once.

    .. math:: O = [H_1, \dots, H_h] W_o + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters, errors and source as in `attnmath.numpy.multihead.multi_head_attention`. The weights are computed
    explicitly only where a record asks for them.

    Examples
    --------
    >>> one = {"weight": torch.eye(2), "bias": torch.zeros(2)}
    >>> X = torch.eye(2)
    >>> multi_head_attention(X, X, X, dict.fromkeys(["query", "key", "value", "output"], one), heads=2)
    tensor([[0.7311, 0.5000],
            [0.5000, 0.7311]])
    """
    sizes = _require.shapes(Q=(Q, "... n d"), K=(K, "... m d"), V=(V, "... m d"))
    _require.divides(heads, sizes["d"], "Q")
    q, k, v = (
        split_heads(linear(X, params[name]["weight"], params[name]["bias"]), heads)
        for name, X in (("query", Q), ("key", K), ("value", V))
    )
    if record is None:
        H = attention_fused(q, k, v, mask, empty_rows=empty_rows)  # eq:head
    else:
        record["weights"] = attention_weights(q, k, mask, empty_rows=empty_rows)
        H = record["weights"] @ v
    return linear(merge_heads(H), params["output"]["weight"], params["output"]["bias"])  # eq:multi-head


class MultiHeadAttention(ParamTree):
    """`multi_head_attention` that holds its parameters."""

    def __init__(self, d: int, heads: int):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.attention_shapes(d))
        self.heads = heads

    def forward(self, Q, K, V, mask: torch.Tensor | bool = True, **options):
        return multi_head_attention(Q, K, V, self.tree(), self.heads, mask, **options)
