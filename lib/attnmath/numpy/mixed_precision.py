"""Loss scaling: gradients that a 16-bit format would round to zero, carried at a size that it holds."""

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.tree import flatten, map_tree


@differentiable
def scale_loss(loss: Float[Array, "..."], scale: float) -> tuple[Float[Array, "..."], Vjp]:
    r"""Multiply the loss, and with it every gradient, by a constant.

    .. math:: L_s = s\, L

    Parameters
    ----------
    loss : any shape, usually (); float32, so that neither the product nor its cotangent s overflows.
    scale : s > 0, best a power of two.

    Returns
    -------
    scaled : the loss's shape.
    vjp : dscaled -> dloss.

    Raises
    ------
    ValueError
        If the loss is not floating point or s is not positive.

    References
    ----------
    Micikevicius et al. (2018), section 3.2. Chapter 6, eq:loss-scale.

    Examples
    --------
    >>> scaled, vjp = scale_loss(np.array(0.5), 1024.0)
    >>> float(scaled), float(vjp(np.array(1.0)))
    (512.0, 1024.0)
    """
    _require.floats(loss=loss)
    _require.positive("scale", scale)
    scale = float(scale)  # np.float64 would turn float32 into float64
    scaled = np.asarray(scale * loss)  # eq:loss-scale

    def vjp(dscaled):
        return scale * dscaled  # eq:loss-scale-vjp

    return scaled, vjp


def unscale(grads: dict, scale: float) -> tuple[dict, bool]:
    r"""Divide gradients by the loss's scale, in float32 or wider, and say whether all are finite.

    .. math:: g = \frac{1}{s}\, g_s

    Parameters
    ----------
    grads : a tree of gradients of the scaled loss, of any floating-point types.
    scale : s > 0.

    Returns
    -------
    grads : the tree of g; 16-bit leaves have become float32, because in 16 bits the division would lose again what
        the scaling kept. The others keep their dtype.
    finite : False if a leaf holds an infinity or a NaN: the step must then be left out.

    Raises
    ------
    ValueError
        If a leaf is not floating point or s is not positive.

    References
    ----------
    Micikevicius et al. (2018), section 3.2. Chapter 6, eq:unscale.

    Examples
    --------
    >>> grads, finite = unscale({"W": np.array([2.0**-14, 2.0], np.float16)}, 2.0**15)
    >>> grads["W"].dtype, float(grads["W"][0]) == 2.0**-29, finite
    (dtype('float32'), True, True)
    """
    for name, leaf in flatten(grads).items():
        _require.floats(**{name: leaf})
    _require.positive("scale", scale)
    wide = map_tree(lambda g: g.astype(np.promote_types(g.dtype, np.float32)), grads)
    wide = map_tree(lambda g: g / float(scale), wide)  # eq:unscale
    return wide, all(bool(np.isfinite(g).all()) for g in flatten(wide).values())
