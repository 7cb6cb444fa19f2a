"""Norms: each row brought to a common size."""

import math

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, Vjp, differentiable, sum_to
from attnmath.shapes import declares, gain_shapes, norm_shapes


@declares(norm_shapes)
@differentiable
@half_in_float32
def layer_norm(
    X: Float[Array, "... d"], gain: Float[Array, " d"], bias: Float[Array, " d"], eps: float = 1e-5
) -> tuple[Float[Array, "... d"], Vjp]:
    r"""Give each row mean 0 and variance 1, then a learned gain and bias.

    .. math:: Y = \gamma \odot \hat X + \beta,\qquad
              \hat X = \frac{X - \mu}{\sqrt{\sigma^2 + \epsilon}},\quad
              \mu = \tfrac1d\sum_i X_i,\quad \sigma^2 = \tfrac1d\sum_i (X_i-\mu)^2

    Parameters
    ----------
    X : (..., d) rows. In 16 bits, sums and the result are computed in float32 and rounded once.
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
    W, s, scaled_eps = _in_range(X, eps)
    C = W - W.mean(-1, keepdims=True)
    r = 1 / np.sqrt((C * C).mean(-1, keepdims=True) + scaled_eps)
    N = r * C
    Y = gain * N + bias  # eq:layer-norm

    def vjp(dY):
        dN = gain * dY
        dX = (r / s) * (dN - dN.mean(-1, keepdims=True) - N * (dN * N).mean(-1, keepdims=True))  # eq:layer-norm-vjp
        return dX, sum_to(dY * N, gain.shape), sum_to(dY, bias.shape)

    return Y, vjp


@declares(gain_shapes)
@differentiable
@half_in_float32
def rms_norm(
    X: Float[Array, "... d"], gain: Float[Array, " d"], eps: float = 1e-6
) -> tuple[Float[Array, "... d"], Vjp]:
    r"""Give each row the root mean square 1, then a learned gain.

    .. math:: Y = \gamma \odot \frac{X}{\sqrt{\tfrac1d\sum_i X_i^2 + \epsilon}}

    Parameters
    ----------
    X : (..., d) rows. In 16 bits, sums and the result are computed in float32 and rounded once.
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
    W, s, scaled_eps = _in_range(X, eps)
    r = 1 / np.sqrt((W * W).mean(-1, keepdims=True) + scaled_eps)
    N = r * W
    Y = gain * N  # eq:rms-norm

    def vjp(dY):
        dN = gain * dY
        dX = (r / s) * (dN - N * (dN * N).mean(-1, keepdims=True))  # eq:rms-norm-vjp
        return dX, sum_to(dY * N, gain.shape)

    return Y, vjp


def _in_range(X, eps):
    """Rows X / s whose squares can be summed, s, and epsilon / s^2: a norm of them is the norm of X.

    s is 1 for every row but those with numbers beyond about 4e9 in float32.
    """
    limit = math.sqrt(math.sqrt(np.finfo(X.dtype).max))
    if not X.size or (X.max() <= limit and X.min() >= -limit):
        return X, 1, eps
    s = np.abs(X).max(-1, keepdims=True)
    s = np.where(s > limit, s, 1).astype(X.dtype)
    return X / s, s, np.maximum(eps / s / s, np.finfo(X.dtype).tiny)
