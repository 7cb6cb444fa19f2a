"""A layer whose attention and feed-forward network stand side by side, under one norm."""

from collections.abc import Callable

from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.encoder import own_attention
from attnmath.numpy.feed_forward import feed_forward
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.residuals import normalise
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.parallel_shapes import PARALLEL, parallel_layer_shapes
from attnmath.shapes import declares


@declares(parallel_layer_shapes)
@differentiable
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
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Self-attention and a feed-forward network that read the same rows, both added to them.

    .. math:: Y = X + \operatorname{multihead}(Z, Z, Z) + \operatorname{feedforward}(Z),\qquad
              Z = \operatorname{norm}(X)

    Parameters
    ----------
    X : (..., n, d).
    params : ``{"norm", "attention", "feed_forward"}``, see `parallel_layer_shapes`.
    heads, mask, attend, attention, feed_forward : as in `attnmath.numpy.encoder.encoder_layer`.
    norm : ``norm(X, gain[, bias]) -> (Z, vjp)``, such as `layer_norm` or `rms_norm`.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams), and after them what the core's vjp has to say, such as dbias.

    Raises
    ------
    ValueError
        As `multi_head_attention`, ``norm`` and `feed_forward`; if params lack a branch or have another.

    References
    ----------
    Wang and Komatsuzaki (2021), who introduced it with GPT-J; Chowdhery et al. (2023), section 2. Chapter 8,
    eq:parallel-layer.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import random_tree
    >>> params = random_tree(parallel_layer_shapes(4, 8), np.random.default_rng(0))
    >>> Y, vjp = parallel_layer(np.eye(3, 4), params, heads=2)
    >>> Y.shape
    (3, 4)
    """
    _require.branches(params, PARALLEL)
    own = own_attention(attention, heads, mask, attend)
    Z, norm_vjp = normalise(X, params["norm"], norm)
    A, attention_vjp = own(Z, params["attention"])
    F, network_vjp = feed_forward(Z, params["feed_forward"])
    Y = X + A + F  # eq:parallel-layer

    def vjp(dY):
        dZ, dattention, *rest = attention_vjp(dY)
        dZ_network, dnetwork = network_vjp(dY)
        dX, dnorm = norm_vjp(dZ + dZ_network)  # eq:parallel-layer-vjp
        return dY + dX, {"norm": dnorm, "attention": dattention, "feed_forward": dnetwork}, *rest

    return Y, vjp
