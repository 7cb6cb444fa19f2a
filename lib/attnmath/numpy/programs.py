"""The joint of a compiled program: a sub-layer and its input are added, and nothing is normalised."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath._require import programs as require
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.shapes import declares


@declares(lambda d: {})
@differentiable
def bare_sublayer(X: Float[Array, "... n d"], f: Callable, params: dict) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""X plus a function of X, without a norm.

    .. math:: Y = X + f(X)

    Parameters
    ----------
    X : (..., n, d) rows.
    f : ``f(X) -> (F, vjp)`` of X's shape, with ``vjp(dF) -> (dX, …)``: attention or a feed-forward network.
    params : an empty dict; there is no norm to have any.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams, …), the dots being what f's vjp gives after dX; dparams is empty.

    Raises
    ------
    ValueError
        If params are those of a norm; then `sublayer` is the joint.

    References
    ----------
    Elhage et al. (2021), who leave the norm out to read weights. Chapter 9, eq:bare-sublayer.

    Examples
    --------
    >>> import numpy as np
    >>> Y, vjp = bare_sublayer(np.array([[1.0, 3.0]]), lambda Z: (5 * Z, lambda dF: (5 * dF,)), {})
    >>> Y
    array([[ 6., 18.]])
    """
    require.no_norm(params)
    F, f_vjp = f(X)

    def vjp(dY):
        dX, *rest = f_vjp(dY)
        return dY + dX, {}, *rest  # eq:bare-sublayer-vjp

    return X + F, vjp  # eq:bare-sublayer
