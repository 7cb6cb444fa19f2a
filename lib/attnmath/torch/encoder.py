"""One layer of the Transformer's encoder, with the norm after the sum as in the original and in BERT."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require, shapes
from attnmath.torch.layers import feed_forward, layer_norm
from attnmath.torch.modules import ParamTree
from attnmath.torch.multihead import multi_head_attention
from attnmath.torch.types import Array
from attnmath.tree import child


def encoder_layer(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    eps: float = 1e-5,
    record: dict | None = None,
) -> Float[Array, "... n d"]:
    r"""Self-attention and a feed-forward network, each added to its input and normalised (post-norm).

    .. math:: A = \operatorname{norm}(X + \operatorname{multihead}(X, X, X)),\qquad
              Y = \operatorname{norm}(A + \operatorname{feedforward}(A))

    Parameters, errors and source as in `attnmath.numpy.encoder.encoder_layer`.

    Examples
    --------
    >>> EncoderLayer(4, 2, 8)(torch.eye(3, 4)).shape
    torch.Size([3, 4])
    """
    H = multi_head_attention(X, X, X, params["attention"], heads, mask, record=child(record, "attention"))
    norm = params["attention_norm"]
    A = layer_norm(X + H, norm["gain"], norm["bias"], eps)  # eq:encoder-attention
    norm = params["feed_forward_norm"]
    return layer_norm(
        A + feed_forward(A, params["feed_forward"]), norm["gain"], norm["bias"], eps
    )  # eq:encoder-feed-forward


class EncoderLayer(ParamTree):
    """`encoder_layer` that holds its parameters."""

    def __init__(self, d: int, heads: int, f: int, eps: float = 1e-5):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.encoder_layer_shapes(d, f))
        self.heads, self.eps = heads, eps

    def forward(self, X, mask: torch.Tensor | bool = True, **options):
        return encoder_layer(X, self.tree(), self.heads, mask, eps=self.eps, **options)
