"""One layer of the Transformer's encoder, with the norm after the sum as in the original and in BERT."""

from jaxtyping import Bool, Float

from attnmath.numpy.layers import feed_forward, layer_norm
from attnmath.numpy.multihead import multi_head_attention
from attnmath.numpy.types import Array, Vjp
from attnmath.tree import child


def encoder_layer(
    X: Float[Array, "... n d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    eps: float = 1e-5,
    record: dict | None = None,
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Self-attention and a feed-forward network, each added to its input and normalised (post-norm).

    .. math:: A = \operatorname{norm}(X + \operatorname{multihead}(X, X, X)),\qquad
              Y = \operatorname{norm}(A + \operatorname{feedforward}(A))

    Parameters
    ----------
    X : (..., n, d).
    params : ``{"attention", "attention_norm", "feed_forward", "feed_forward_norm"}``, see
        `attnmath.shapes.encoder_layer_shapes`.
    heads : h, divides d.
    mask : boolean, broadcasts to (..., h, n, n); True = may attend.
    eps : of both norms.
    record : a dict that receives ``["attention"]["weights"]``.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams).

    Raises
    ------
    ValueError
        As `multi_head_attention`, `layer_norm` and `feed_forward`.

    References
    ----------
    Vaswani et al. (2017), section 3.1; Devlin et al. (2019). Appendix B, eq:encoder-attention, eq:encoder-feed-forward.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import encoder_layer_shapes, random_tree
    >>> params = random_tree(encoder_layer_shapes(4, 8), np.random.default_rng(0))
    >>> Y, vjp = encoder_layer(np.eye(3, 4), params, heads=2)
    >>> Y.shape
    (3, 4)
    """
    H, attention_vjp = multi_head_attention(
        X, X, X, params["attention"], heads, mask, record=child(record, "attention")
    )
    norm = params["attention_norm"]
    A, attention_norm_vjp = layer_norm(X + H, norm["gain"], norm["bias"], eps)  # eq:encoder-attention
    F, feed_forward_vjp = feed_forward(A, params["feed_forward"])
    norm = params["feed_forward_norm"]
    Y, feed_forward_norm_vjp = layer_norm(A + F, norm["gain"], norm["bias"], eps)  # eq:encoder-feed-forward

    def vjp(dY):
        dsum, dgain, dbias = feed_forward_norm_vjp(dY)
        dparams = {"feed_forward_norm": {"gain": dgain, "bias": dbias}}
        dA, dparams["feed_forward"] = feed_forward_vjp(dsum)
        dsum, dgain, dbias = attention_norm_vjp(dsum + dA)
        dparams["attention_norm"] = {"gain": dgain, "bias": dbias}
        dQ, dK, dV, dparams["attention"] = attention_vjp(dsum)
        return dsum + dQ + dK + dV, dparams

    return Y, vjp
