"""Multi-head attention: the readable sum over heads, and the fused form with all heads side by side in one matrix."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float

from attnmath import _require, shapes, wiring
from attnmath.torch.attention import attention, attention_fused
from attnmath.torch.cores import grouped
from attnmath.torch.linear import affine
from attnmath.torch.modules import ParamTree
from attnmath.torch.residuals import normalise
from attnmath.torch.types import Array


def split_heads(X: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n k"]:
    """Cut the width into heads and put them before the rows: (..., n, h k) to (..., h, n, k)."""
    return X.unflatten(-1, (heads, -1)).transpose(-2, -3)


def merge_heads(X: Float[Array, "... h n k"]) -> Float[Array, "... n d"]:
    """Undo `split_heads`."""
    return X.transpose(-2, -3).flatten(-2)


@shapes.declares(shapes.attention_shapes)
def multi_head_attention(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m e"] | None,
    V: Float[Array, "... m c"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable = attention_fused,
    turn: Callable | None = None,
    norm: Callable | None = None,
) -> Float[Array, "... n o"]:
    r"""Attention in h subspaces at once.

    .. math:: O = [H_1, \dots, H_h] W_o + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters, errors and source as in `attnmath.numpy.multi_head.multi_head_attention`; the functions return tensors.

    Examples
    --------
    >>> one = {"weight": torch.eye(2), "bias": torch.zeros(2)}
    >>> X = torch.eye(2)
    >>> multi_head_attention(X, X, X, dict.fromkeys(["query", "key", "value", "output"], one), heads=2)
    tensor([[0.7311, 0.5000],
            [0.5000, 0.7311]])
    """
    start = getattr(attend, "start", 0)
    g = wiring.head_counts(params, heads, norm)
    wiring.inputs(Q, K, V, start)

    def project(X, name, count):
        if X is None:
            return None
        return _prepare(split_heads(affine(X, params[name]), count), params, name, norm, turn, start)

    q, k, v = project(Q, "query", heads), project(K, "key", g), project(V, "value", g)
    H = grouped(attend)(q, k, v, **({} if mask is True else {"mask": mask}))  # eq:head
    return affine(merge_heads(H), params["output"])  # eq:multi-head, alg-multi-head


def _prepare(Y, params, name, norm, turn, start):
    """What happens to queries and keys before they meet: the norm, then the turn."""
    if name != "value" and norm is not None:
        Y = normalise(Y, params[f"{name}_norm"], norm)
    if name != "value" and turn is not None:
        Y = turn(Y, start=start) if start else turn(Y)
    return Y


def multi_head_sum(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m e"],
    V: Float[Array, "... m c"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    turn: Callable | None = None,
    norm: Callable | None = None,
    bias: Float[Array, "..."] | None = None,
    empty_rows: str = "error",
) -> Float[Array, "... n o"]:
    r"""Multi-head attention as its definition reads: one head after the other, each with its own small matrices.

    .. math:: O = \sum_{i=1}^{h} H_i W_o^i + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters, errors and source as in `attnmath.numpy.multi_head.multi_head_sum`.

    Examples
    --------
    >>> one = {"weight": torch.eye(2), "bias": torch.zeros(2)}
    >>> X = torch.eye(2)
    >>> multi_head_sum(X, X, X, dict.fromkeys(["query", "key", "value", "output"], one), heads=2)
    tensor([[0.7311, 0.5000],
            [0.5000, 0.7311]])
    """
    sizes = _require.shapes(Q=(Q, "... n d"), K=(K, "... m e"), V=(V, "... m c"))
    g = wiring.head_counts(params, heads, norm)
    shape = (*sizes["..."], heads, sizes["n"], sizes["m"])
    _require.mask(mask, shape)
    _require.bias(bias, shape, Q)
    Wo = params["output"]["weight"].unflatten(0, (heads, -1))
    O = params["output"].get("bias", 0)
    for i in range(heads):
        projected = []
        for name, X, count in (("query", Q, heads), ("key", K, g), ("value", V, g)):
            j = i * count // heads  # the key head of query head i
            Y = affine(X, {leaf: P.chunk(count, -1)[j] for leaf, P in params[name].items()})
            projected.append(_prepare(Y, params, name, norm, turn, start=0))
        H = attention(*projected, _of_head(mask, i), bias=_of_head(bias, i), empty_rows=empty_rows)
        O = O + H @ Wo[i]  # eq:multi-head-sum
    return O


def _of_head(X, i):
    """Head i's part of a mask or a bias."""
    return X if X is None or isinstance(X, bool) or X.ndim < 3 else X[..., min(i, X.shape[-3] - 1), :, :]


class MultiHeadAttention(ParamTree):
    """`multi_head_attention` that holds its parameters; options are its keywords."""

    def __init__(self, d: int, heads: int, key_heads: int | None = None, **options):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.of(partial(multi_head_attention, **options), d, heads, key_heads))
        self.heads, self.options = heads, options

    def forward(self, Q, K, V, mask: torch.Tensor | bool = True, **options):
        return multi_head_attention(Q, K, V, self.tree(), self.heads, mask, **self.options | options)
