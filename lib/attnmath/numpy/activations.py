"""Activations: functions of one number, applied to every entry."""

import math

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.blockwise import blockwise
from attnmath.numpy.normal import density, distribution
from attnmath.numpy.types import Array, Vjp, differentiable


@differentiable
def relu(X: Float[Array, "..."]) -> tuple[Float[Array, "..."], Vjp]:
    r"""The rectified linear unit.

    .. math:: \operatorname{relu}(x) = \max(x, 0)

    Parameters
    ----------
    X : any shape.

    Returns
    -------
    Y : X's shape.
    vjp : dY -> dX. At 0, where there is no derivative, it is 0, as in PyTorch.

    Raises
    ------
    ValueError
        If X is not floating point.

    References
    ----------
    Vaswani et al. (2017), equation 2. Chapter 5, eq:relu.

    Examples
    --------
    >>> Y, vjp = relu(np.array([-1.0, 0.0, 2.0]))
    >>> Y, vjp(np.array([5.0, 5.0, 5.0]))
    (array([0., 0., 2.]), array([0., 0., 5.]))
    """
    _require.floats(X=X)
    Y = np.maximum(X, 0)  # eq:relu

    def vjp(dY):
        return dY * (X > 0)  # eq:relu-vjp

    return Y, vjp


@differentiable
def swish(X: Float[Array, "..."], beta: float = 1.0) -> tuple[Float[Array, "..."], Vjp]:
    r"""Each number times its sigmoid.

    .. math:: \operatorname{swish}_\beta(x) = x\,\sigma(\beta x),\qquad \sigma(x) = \frac1{1+e^{-x}}

    Parameters
    ----------
    X : any shape.
    beta : :math:`\beta > 0`, a constant. Towards 0 the function becomes x/2, towards infinity relu.

    Returns
    -------
    Y : X's shape.
    vjp : dY -> dX.

    Raises
    ------
    ValueError
        If X is not floating point or beta is not positive.

    References
    ----------
    Ramachandran, Zoph and Le (2017). Chapter 5, eq:swish.

    Examples
    --------
    >>> Y, vjp = swish(np.array([-1.0, 0.0, 1.0]))
    >>> Y.round(4)
    array([-0.2689,  0.    ,  0.7311])
    """
    _require.floats(X=X)
    _require.positive("beta", beta)

    def sigmoid(X):
        with np.errstate(over="ignore"):  # an exponential that is infinite makes the sigmoid 0: it is
            E = np.exp(-beta * X)
        E += 1
        return np.reciprocal(E, out=E)

    def value(X, out):
        np.multiply(X, sigmoid(X), out)  # eq:swish

    def backward(X, dY, out):
        gate = sigmoid(X)
        Y = X * gate
        np.multiply(dY, gate + beta * Y * (1 - gate), out)  # eq:swish-vjp

    return blockwise(value, X), lambda dY: blockwise(backward, X, dY)


@differentiable
def silu(X: Float[Array, "..."]) -> tuple[Float[Array, "..."], Vjp]:
    r"""`swish` with beta = 1, under the name that PyTorch and the gated networks use.

    .. math:: \operatorname{silu}(x) = x\,\sigma(x)

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
    Hendrycks and Gimpel (2016). Chapter 5, eq:swish.

    Examples
    --------
    >>> silu(np.array([1.0]))[0].round(4)
    array([0.7311])
    """
    return swish(X)


@differentiable
def gelu_tanh(X: Float[Array, "..."]) -> tuple[Float[Array, "..."], Vjp]:
    r"""The Gaussian error linear unit with a hyperbolic tangent in place of the normal distribution function.

    .. math:: \operatorname{gelu}_{\tanh}(x) = \tfrac x2\bigl(1 + \tanh(\sqrt{2/\pi}\,(x + 0.044715\,x^3))\bigr)

    Parameters
    ----------
    X : any shape.

    Returns
    -------
    Y : X's shape; within 5e-4 of `gelu`.
    vjp : dY -> dX, the derivative of this function and not of `gelu`.

    Raises
    ------
    ValueError
        If X is not floating point.

    References
    ----------
    Hendrycks and Gimpel (2016). Chapter 5, eq:gelu-tanh. GPT-2's weights were trained with this.

    Examples
    --------
    >>> Y, vjp = gelu_tanh(np.array([-1.0, 0.0, 1.0]))
    >>> Y.round(4)
    array([-0.1588,  0.    ,  0.8412])
    """
    _require.floats(X=X)
    c, a = math.sqrt(2 / math.pi), 0.044715

    def tanh(X, out):  # of c (X + a X^3); in place, since a new array costs more than what is done with it
        with np.errstate(over="ignore"):  # of an infinite number it is ±1
            np.multiply(X, X, out)
            out *= c * a
            out += c
            out *= X
        np.tanh(out, out)

    def value(X, out):
        tanh(X, out)
        out += 1
        out *= 0.5
        out *= X  # eq:gelu-tanh

    def backward(X, dY, out):
        T, slope = np.empty_like(X), np.clip(X, -1e6, 1e6)  # beyond, the tangent is ±1, and a square may be infinite
        tanh(X, T)
        np.multiply(slope, slope, out)
        out *= 3 * a * c
        out += c
        slope *= out  # X times the derivative of tanh's argument
        np.subtract(1, T, out)  # 1 - T^2 = (1 - T) (1 + T)
        out *= slope
        out += 1
        T += 1
        out *= T
        out *= 0.5
        out *= dY  # eq:gelu-tanh-vjp

    return blockwise(value, X), lambda dY: blockwise(backward, X, dY)


@differentiable
def gelu(X: Float[Array, "..."]) -> tuple[Float[Array, "..."], Vjp]:
    r"""The Gaussian error linear unit, exact.

    .. math:: \operatorname{gelu}(x) = x\,\Phi(x),\qquad \Phi \text{ the standard normal distribution function}

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

    def value(X, out):
        np.multiply(X, distribution(X), out)  # eq:gelu

    def backward(X, dY, out):
        Phi, phi = distribution(X), density(X)
        np.multiply(dY, Phi + X * phi, out)  # eq:gelu-vjp

    return blockwise(value, X), lambda dY: blockwise(backward, X, dY)
