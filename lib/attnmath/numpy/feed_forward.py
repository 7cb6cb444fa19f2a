"""The network with one hidden layer that each position passes, plain and gated."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.activations import gelu, silu
from attnmath.numpy.linear import affine
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.shapes import declares, feed_forward_shapes, gated_feed_forward_shapes


@declares(feed_forward_shapes)
@differentiable
def feed_forward(
    X: Float[Array, "... n d"], params: dict, activation: Callable = gelu
) -> tuple[Float[Array, "... n e"], Vjp]:
    r"""A network with one hidden layer, applied to each position.

    .. math:: Y = a(X W_1 + b_1)\, W_2 + b_2

    Parameters
    ----------
    X : (..., n, d) rows.
    params : ``{"up": {"weight" (d, f), "bias" (f,)}, "down": {"weight" (f, d), "bias" (d,)}}``; biases may be missing.
    activation : ``a(X) -> (Y, vjp)``, element by element.

    Returns
    -------
    Y : (..., n, e), e the width of ``down``; d in a Transformer.
    vjp : dY -> (dX, dparams).

    Raises
    ------
    ValueError
        If the widths do not agree or the dtypes differ.

    References
    ----------
    Vaswani et al. (2017), equation 2, with the activation free. Appendix B, eq:feed-forward.

    Examples
    --------
    >>> import numpy as np
    >>> one = {"weight": np.ones((1, 1)), "bias": np.zeros(1)}
    >>> Y, vjp = feed_forward(np.array([[1.0]]), {"up": one, "down": one})
    >>> Y.round(4)
    array([[0.8413]])
    """
    _require.branches(params, ("up", "down"))
    A, up_vjp = affine(X, params["up"])
    H, activation_vjp = activation(A)
    Y, down_vjp = affine(H, params["down"])  # eq:feed-forward

    def vjp(dY):
        dH, ddown = down_vjp(dY)
        dX, dup = up_vjp(activation_vjp(dH))
        return dX, {"up": dup, "down": ddown}

    return Y, vjp


@declares(gated_feed_forward_shapes)
@differentiable
def gated_feed_forward(
    X: Float[Array, "... n d"], params: dict, activation: Callable = silu
) -> tuple[Float[Array, "... n e"], Vjp]:
    r"""A feed-forward network whose hidden layer is a product of an activated and a linear map.

    .. math:: Y = \bigl(a(X W_g + b_g) \odot (X W_1 + b_1)\bigr)\, W_2 + b_2

    Parameters
    ----------
    X : (..., n, d) rows.
    params : ``{"gate": {"weight" (d, f)}, "up": {"weight" (d, f)}, "down": {"weight" (f, d)}}``; biases if given.
    activation : ``a(X) -> (Y, vjp)``, element by element: `silu` makes SwiGLU, `gelu` GEGLU.

    Returns
    -------
    Y : (..., n, e), e the width of ``down``; d in a Transformer.
    vjp : dY -> (dX, dparams).

    Raises
    ------
    ValueError
        If the widths do not agree or the dtypes differ.

    References
    ----------
    Shazeer (2020), equation 6. Chapter 5, eq:gated-feed-forward.

    Examples
    --------
    >>> import numpy as np
    >>> one = {"weight": np.ones((1, 1))}
    >>> Y, vjp = gated_feed_forward(np.array([[2.0]]), {"gate": one, "up": one, "down": one})
    >>> Y.round(4)
    array([[3.5232]])
    """
    _require.branches(params, ("gate", "up", "down"))
    A, gate_vjp = affine(X, params["gate"])
    G, activation_vjp = activation(A)
    U, up_vjp = affine(X, params["up"])
    _require.shapes(gate=(G, "... n f"), up=(U, "... n f"))
    Y, down_vjp = affine(G * U, params["down"])  # eq:gated-feed-forward

    def vjp(dY):
        dH, ddown = down_vjp(dY)
        dX1, dgate = gate_vjp(activation_vjp(dH * U))  # eq:gated-feed-forward-vjp
        dX2, dup = up_vjp(dH * G)
        return dX1 + dX2, {"gate": dgate, "up": dup, "down": ddown}

    return Y, vjp
