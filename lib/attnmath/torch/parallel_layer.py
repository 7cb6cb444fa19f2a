"""A layer whose attention and feed-forward network stand side by side, under one norm."""

from collections.abc import Callable

from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.parallel_shapes import PARALLEL, parallel_layer_shapes
from attnmath.shapes import declares
from attnmath.torch.attention import attention_fused
from attnmath.torch.encoder import own_attention
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.multi_head import multi_head_attention
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.residuals import normalise
from attnmath.torch.types import Array


@declares(parallel_layer_shapes)
def parallel_layer(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable = attention_fused,
    attention: Callable = multi_head_attention,
    feed_forward: Callable = feed_forward,
    norm: Callable = layer_norm,
) -> Float[Array, "... n d"]:
    r"""Self-attention and a feed-forward network that read the same rows, both added to them.

    .. math:: Y = X + \operatorname{multihead}(Z, Z, Z) + \operatorname{feedforward}(Z),\qquad
              Z = \operatorname{norm}(X)

    Parameters, errors and source as in `attnmath.numpy.parallel_layer.parallel_layer`; the functions return tensors.

    Examples
    --------
    >>> import torch
    >>> from attnmath.torch.modules import ParamTree
    >>> parallel_layer(torch.eye(3, 4), ParamTree(parallel_layer_shapes(4, 8)).tree(), heads=2).shape
    torch.Size([3, 4])
    """
    _require.branches(params, PARALLEL)
    Z = normalise(X, params["norm"], norm)
    A = own_attention(attention, heads, mask, attend)(Z, params["attention"])
    return X + A + feed_forward(Z, params["feed_forward"])  # eq:parallel-layer
