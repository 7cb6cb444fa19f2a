"""Activations: functions of one number, applied to every entry."""

import math

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.normal import upper_tail
from attnmath.numpy.types import Array, Vjp


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
    Ramachandran, Zoph and Le (2017). Chapter 5, eq:swish. No exponential of a positive number is taken.

    Examples
    --------
    >>> Y, vjp = swish(np.array([-1.0, 0.0, 1.0]))
    >>> Y.round(4)
    array([-0.2689,  0.    ,  0.7311])
    """
    _require.floats(X=X)
    _require.positive("beta", beta)
    E = np.exp(-np.abs(beta * X))
    gate = np.where(X > 0, 1, E) / (1 + E)
    Y = X * gate  # eq:swish

    def vjp(dY):
        return dY * (gate + beta * Y * (1 - gate))  # eq:swish-vjp

    return Y, vjp


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
    T = np.asarray(X * X)  # in place from here on: a new array of this size costs more than what is done with it
    T *= c * a
    T += c
    T *= X
    np.tanh(T, out=T)  # tanh(c (X + a X^3))
    Y = 1 + T
    Y *= X
    Y *= 0.5  # eq:gelu-tanh

    def vjp(dY):
        slope = np.asarray(X * X)
        slope *= 3 * a * c
        slope += c
        slope *= X  # X times the derivative of tanh's argument
        G = np.asarray(1 - T * T)
        G *= slope
        G += T
        G += 1
        G *= 0.5
        return G * dY  # eq:gelu-tanh-vjp

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
