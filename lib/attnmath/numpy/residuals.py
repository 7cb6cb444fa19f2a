"""A sub-layer with its residual connection and its norm: the joint of every block."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.types import Array, Vjp


def normalise(X, params, norm, eps):
    """A norm with its parameters in a dict, ``{"gain", "bias"}`` or ``{"gain"}``; vjp: dY -> (dX, dparams)."""
    names = [name for name in ("gain", "bias") if name in params]
    Y, norm_vjp = norm(X, *(params[name] for name in names), eps)

    def vjp(dY):
        dX, *dvalues = norm_vjp(dY)
        return dX, dict(zip(names, dvalues, strict=True))

    return Y, vjp


def _leave(F):
    """The dropout of a model that has none."""
    return F, lambda dF: dF


def sublayer(
    X: Float[Array, "... n d"],
    f: Callable,
    params: dict,
    *,
    norm_first: bool = False,
    norm: Callable = layer_norm,
    eps: float = 1e-5,
    drop: Callable | None = None,
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""X plus a function of X, with a norm after the sum (post-norm) or before the function (pre-norm).

    .. math:: Y = \operatorname{norm}(X + f(X))\qquad\text{or}\qquad Y = X + f(\operatorname{norm}(X))

    Parameters
    ----------
    X : (..., n, d) rows.
    f : ``f(Z) -> (F, vjp)`` of X's shape, with ``vjp(dF) -> (dZ, …)``: attention or a feed-forward network.
    params : of the norm, ``{"gain", "bias"}``, each (d,), or ``{"gain"}``.
    norm_first : True is pre-norm.
    norm : ``norm(X, gain[, bias], eps) -> (Y, vjp)``, such as `layer_norm`.
    eps : of the norm.
    drop : ``drop(F) -> (F', vjp)``, applied to f's value before the sum, such as `random_dropout`; None leaves it.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams, …), the dots being what f's vjp gives after dZ.

    Raises
    ------
    ValueError
        As ``norm`` and ``f``.

    References
    ----------
    Vaswani et al. (2017), section 3.1; Xiong et al. (2020). Chapter 5, eq:sublayer-post-norm, eq:sublayer-pre-norm.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.numpy.linear import linear
    >>> norm = {"gain": np.ones(2), "bias": np.zeros(2)}
    >>> Y, vjp = sublayer(np.array([[1.0, 3.0]]), lambda Z: linear(Z, np.eye(2), np.zeros(2)), norm, norm_first=True)
    >>> Y.round(3)
    array([[0., 4.]])
    """
    drop = drop or _leave
    if norm_first:
        N, norm_vjp = normalise(X, params, norm, eps)
        F, f_vjp = f(N)
        F, drop_vjp = drop(F)
        Y = X + F  # eq:sublayer-pre-norm
    else:
        F, f_vjp = f(X)
        F, drop_vjp = drop(F)
        Y, norm_vjp = normalise(X + F, params, norm, eps)  # eq:sublayer-post-norm

    def vjp(dY):
        if norm_first:
            dN, *rest = f_vjp(drop_vjp(dY))
            dX, dparams = norm_vjp(dN)
            return dY + dX, dparams, *rest
        dsum, dparams = norm_vjp(dY)
        dX, *rest = f_vjp(drop_vjp(dsum))
        return dsum + dX, dparams, *rest

    return Y, vjp
