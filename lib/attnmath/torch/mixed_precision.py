"""Loss scaling: gradients that a 16-bit format would round to zero, carried at a size that it holds."""

import torch
from jaxtyping import Float

from attnmath import _require
from attnmath.torch.types import Array
from attnmath.tree import flatten, map_tree


def scale_loss(loss: Float[Array, "..."], scale: float) -> Float[Array, "..."]:
    r"""Multiply the loss, and with it every gradient, by a constant.

    .. math:: L_s = s\, L

    Parameters, errors and source as in `attnmath.numpy.mixed_precision.scale_loss`.

    Examples
    --------
    >>> scale_loss(torch.tensor(0.5), 1024.0)
    tensor(512.)
    """
    _require.floats(loss=loss)
    _require.positive("scale", scale)
    return scale * loss  # eq:loss-scale


@torch.no_grad()
def unscale(grads: dict, scale: float) -> tuple[dict, bool]:
    r"""Divide gradients by the loss's scale, in float32 or wider, and say whether all are finite.

    .. math:: g = \frac{1}{s}\, g_s

    Parameters, errors and source as in `attnmath.numpy.mixed_precision.unscale`.

    Examples
    --------
    >>> grads, finite = unscale({"W": torch.tensor([2.0**-14, 2.0], dtype=torch.float16)}, 2.0**15)
    >>> grads["W"].dtype, float(grads["W"][0]) == 2.0**-29, finite
    (torch.float32, True, True)
    """
    for name, leaf in flatten(grads).items():
        _require.floats(**{name: leaf})
    _require.positive("scale", scale)
    wide = map_tree(lambda g: g.to(torch.promote_types(g.dtype, torch.float32)), grads)
    wide = map_tree(lambda g: g / scale, wide)  # eq:unscale
    return wide, all(bool(torch.isfinite(g).all()) for g in flatten(wide).values())
