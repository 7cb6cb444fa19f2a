"""The layers around attention: linear maps, norms, GELU, feed-forward networks."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.activations import silu
from attnmath.numpy.normal import upper_tail
from attnmath.numpy.types import Array, Vjp, sum_to


def linear(
    X: Float[Array, "... n i"], W: Float[Array, "i o"], b: Float[Array, " o"]
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""An affine map of each row.

    .. math:: Y = X W + b

    Parameters
    ----------
    X : (..., n, i) rows.
    W : (i, o); the transpose of ``torch.nn.Linear.weight``.
    b : (o,).

    Returns
    -------
    Y : (..., n, o).
    vjp : dY -> (dX, dW, db).

    Raises
    ------
    ValueError
        If the widths do not agree or the dtypes differ.

    References
    ----------
    Appendix B, eq:linear.

    Examples
    --------
    >>> Y, vjp = linear(np.array([[1.0, 2.0]]), np.array([[1.0], [10.0]]), np.array([0.5]))
    >>> Y
    array([[21.5]])
    """
    _require.shapes(X=(X, "... n i"), W=(W, "i o"), b=(b, "o"))
    rows = X.reshape(-1, X.shape[-1])  # one product of two matrices, however many leading axes
    Y = rows @ W
    Y += b  # eq:linear

    def vjp(dY):
        dY = dY.reshape(-1, dY.shape[-1])
        dX, dW, db = dY @ W.T, rows.T @ dY, dY.sum(0)  # eq:linear-vjp
        return dX.reshape(X.shape), dW, db

    return Y.reshape(*X.shape[:-1], W.shape[1]), vjp


def affine(X: Float[Array, "... n i"], leaf: dict) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""`linear` with its parameters in a dict, where the bias may be missing.

    .. math:: Y = X W + b,\qquad b = 0 \text{ if the leaf has none}

    Parameters
    ----------
    X : (..., n, i) rows.
    leaf : ``{"weight": (i, o), "bias": (o,)}`` or ``{"weight": (i, o)}``.

    Returns
    -------
    Y : (..., n, o).
    vjp : dY -> (dX, dleaf); dleaf has the leaf's keys.

    Raises
    ------
    ValueError
        If the leaf has other keys, the widths do not agree or the dtypes differ.

    References
    ----------
    Appendix B, eq:linear.

    Examples
    --------
    >>> Y, vjp = affine(np.array([[1.0, 2.0]]), {"weight": np.array([[1.0], [10.0]])})
    >>> Y
    array([[21.]])
    """
    _require.leaf(leaf)
    W = leaf["weight"]
    b = leaf["bias"] if "bias" in leaf else np.zeros(np.shape(W)[-1:], getattr(W, "dtype", None))
    Y, linear_vjp = linear(X, W, b)

    def vjp(dY):
        dX, dW, db = linear_vjp(dY)
        return dX, {"weight": dW} | ({"bias": db} if "bias" in leaf else {})

    return Y, vjp


def layer_norm(
    X: Float[Array, "... d"], gain: Float[Array, " d"], bias: Float[Array, " d"], eps: float = 1e-5
) -> tuple[Float[Array, "... d"], Vjp]:
    r"""Give each row mean 0 and variance 1, then a learned gain and bias.

    .. math:: Y = \gamma \odot \hat X + \beta,\qquad
              \hat X = \frac{X - \mu}{\sqrt{\sigma^2 + \epsilon}},\quad
              \mu = \tfrac1d\sum_i X_i,\quad \sigma^2 = \tfrac1d\sum_i (X_i-\mu)^2

    Parameters
    ----------
    X : (..., d) rows.
    gain, bias : (d,) :math:`\gamma` and :math:`\beta`.
    eps : :math:`\epsilon > 0`, in the square of X's unit; 1e-5 in PyTorch, 1e-12 in BERT.

    Returns
    -------
    Y : (..., d).
    vjp : dY -> (dX, dgain, dbias).

    Raises
    ------
    ValueError
        If the widths do not agree, d is 0, the dtypes differ, or eps is not positive.

    References
    ----------
    Ba, Kiros and Hinton (2016), equation 4. Appendix B, eq:layer-norm.

    Examples
    --------
    >>> Y, vjp = layer_norm(np.array([1.0, 3.0]), np.ones(2), np.zeros(2), eps=1e-12)
    >>> Y.round(6)
    array([-1.,  1.])
    """
    sizes = _require.shapes(X=(X, "... d"), gain=(gain, "d"), bias=(bias, "d"))
    _require.nonempty("X", X.shape, -1, sizes["d"], "component")
    _require.positive("eps", eps)
    C = X - X.mean(-1, keepdims=True)
    r = 1 / np.sqrt((C * C).mean(-1, keepdims=True) + eps)
    N = r * C
    Y = gain * N + bias  # eq:layer-norm

    def vjp(dY):
        dN = gain * dY
        dX = r * (dN - dN.mean(-1, keepdims=True) - N * (dN * N).mean(-1, keepdims=True))  # eq:layer-norm-vjp
        return dX, sum_to(dY * N, gain.shape), sum_to(dY, bias.shape)

    return Y, vjp


def rms_norm(
    X: Float[Array, "... d"], gain: Float[Array, " d"], eps: float = 1e-6
) -> tuple[Float[Array, "... d"], Vjp]:
    r"""Give each row the root mean square 1, then a learned gain.

    .. math:: Y = \gamma \odot \frac{X}{\sqrt{\tfrac1d\sum_i X_i^2 + \epsilon}}

    Parameters
    ----------
    X : (..., d) rows.
    gain : (d,) :math:`\gamma`.
    eps : :math:`\epsilon > 0`, in the square of X's unit; 1e-6 in T5, 1e-5 or 1e-6 in Llama.

    Returns
    -------
    Y : (..., d).
    vjp : dY -> (dX, dgain).

    Raises
    ------
    ValueError
        If the widths do not agree, d is 0, the dtypes differ, or eps is not positive.

    References
    ----------
    Zhang and Sennrich (2019), equation 4. Chapter 5, eq:rms-norm.

    Examples
    --------
    >>> Y, vjp = rms_norm(np.array([1.0, 7.0]), np.ones(2))
    >>> Y.round(6)
    array([0.2, 1.4])
    """
    sizes = _require.shapes(X=(X, "... d"), gain=(gain, "d"))
    _require.nonempty("X", X.shape, -1, sizes["d"], "component")
    _require.positive("eps", eps)
    r = 1 / np.sqrt((X * X).mean(-1, keepdims=True) + eps)
    N = r * X
    Y = gain * N  # eq:rms-norm

    def vjp(dY):
        dN = gain * dY
        dX = r * (dN - N * (dN * N).mean(-1, keepdims=True))  # eq:rms-norm-vjp
        return dX, sum_to(dY * N, gain.shape)

    return Y, vjp


def gelu(X: Float[Array, "..."]) -> tuple[Float[Array, "..."], Vjp]:
    r"""The Gaussian error linear unit, exact.

    .. math:: \operatorname{gelu}(x) = x\,\Phi(x) = \max(x, 0) - |x|\,(1 - \Phi(|x|)),\qquad
              \Phi \text{ the standard normal distribution function}

    Parameters
    ----------
    X : any shape.

    Returns
    -------
    Y : X's shape.
    vjp : dY -> dX.

    Raises
    ------
    ValueError
        If X is not floating point.

    References
    ----------
    Hendrycks and Gimpel (2016). Appendix B, eq:gelu. No tanh approximation: BERT's weights were trained with this.

    Examples
    --------
    >>> Y, vjp = gelu(np.array([-1.0, 0.0, 1.0]))
    >>> Y.round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    _require.floats(X=X)
    A = np.abs(X)
    Y, lost = np.maximum(X, 0), upper_tail(A)
    lost *= A
    Y -= lost  # eq:gelu

    def vjp(dY):
        Phi = np.where(X > 0, 1 - upper_tail(A), upper_tail(A))
        phi = np.exp(-X * X / 2) / np.sqrt(2 * np.pi).astype(X.dtype)
        return dY * (Phi + X * phi)  # eq:gelu-vjp

    return Y, vjp


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
    >>> one = {"weight": np.ones((1, 1)), "bias": np.zeros(1)}
    >>> Y, vjp = feed_forward(np.array([[1.0]]), {"up": one, "down": one})
    >>> Y.round(4)
    array([[0.8413]])
    """
    A, up_vjp = affine(X, params["up"])
    H, activation_vjp = activation(A)
    Y, down_vjp = affine(H, params["down"])  # eq:feed-forward

    def vjp(dY):
        dH, ddown = down_vjp(dY)
        dX, dup = up_vjp(activation_vjp(dH))
        return dX, {"up": dup, "down": ddown}

    return Y, vjp


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
    >>> one = {"weight": np.ones((1, 1))}
    >>> Y, vjp = gated_feed_forward(np.array([[2.0]]), {"gate": one, "up": one, "down": one})
    >>> Y.round(4)
    array([[3.5232]])
    """
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
