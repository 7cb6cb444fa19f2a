"""Dropout: a random mask that keeps the expectation. The mask is an argument, so the function is pure."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.types import Array, Generator, Vjp, differentiable, sum_to


@differentiable
def dropout(X: Float[Array, "..."], keep: Bool[Array, "..."], p: float) -> tuple[Float[Array, "..."], Vjp]:
    r"""Zero what is not kept, and enlarge the rest so that the expectation stays.

    .. math:: Y = \frac{\text{keep} \odot X}{1 - p}

    Parameters
    ----------
    X : of any shape.
    keep : boolean, broadcasts to X's shape; each entry True with probability 1 - p, see `draw_keep`.
    p : the probability of being dropped, 0 <= p < 1.

    Returns
    -------
    Y : of X's shape.
    vjp : dY -> dX; what was dropped passes no gradient, what was kept passes 1 / (1 - p) of it.

    Raises
    ------
    ValueError
        If p is no such probability, or keep is not boolean or does not broadcast to X.

    References
    ----------
    Srivastava et al. (2014), in the form that scales during training. Chapter 6, eq:dropout.

    Examples
    --------
    >>> Y, vjp = dropout(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]), p=0.5)
    >>> Y
    array([2., 0., 6.])
    """
    _require.floats(X=X)
    _require.dropout.probability(p)
    _require.dropout.keep(keep, X.shape)
    factor = keep * np.asarray(1 / (1 - p), X.dtype)
    Y = factor * X  # eq:dropout

    def vjp(dY):
        return sum_to(factor * dY, X.shape)  # eq:dropout-vjp

    return Y, vjp


def draw_keep(shape: tuple[int, ...], p: float, rng: Generator) -> Bool[Array, "..."]:
    """A mask for `dropout`: independent entries, True with probability 1 - p.

    Parameters
    ----------
    shape : of the mask.
    p : the probability of False, 0 <= p < 1.
    rng : a NumPy generator; its state moves on.

    Raises
    ------
    ValueError
        If p is no such probability.

    Examples
    --------
    >>> draw_keep((6,), 0.5, np.random.default_rng(0))
    array([ True, False, False, False,  True,  True])
    """
    _require.dropout.probability(p)
    return rng.random(shape) >= p


def random_dropout(p: float, rng: Generator) -> Callable:
    """Dropout that draws a new mask at every call: for the options ``drop`` and ``drop_weights`` of a layer.

    Parameters
    ----------
    p : the probability of being dropped, 0 <= p < 1.
    rng : a NumPy generator; its state moves on with every call.

    Returns
    -------
    drop : ``drop(X) -> (Y, vjp)``. Not pure: do not `checkpoint` what calls it.

    Raises
    ------
    ValueError
        If p is no such probability.

    Examples
    --------
    >>> drop = random_dropout(0.5, np.random.default_rng(0))
    >>> drop(np.ones(6))[0], drop(np.ones(6))[0]
    (array([2., 0., 0., 0., 2., 2.]), array([2., 2., 2., 2., 2., 0.]))
    """
    _require.dropout.probability(p)
    return lambda X: dropout(X, draw_keep(X.shape, p, rng), p)
