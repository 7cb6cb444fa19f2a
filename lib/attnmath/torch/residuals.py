"""A sub-layer with its residual connection and its norm, the joint of every block, and the block itself."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath import _require, wiring
from attnmath.shapes import declares, sublayer_shapes
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.types import Array


def normalise(X, params, norm):
    """A norm with its parameters in a dict, ``{"gain", "bias"}`` or ``{"gain"}``."""
    return norm(X, *(params[name] for name in wiring.norm_names(params, norm)))


@declares(sublayer_shapes)
def sublayer(
    X: Float[Array, "... n d"],
    f: Callable,
    params: dict,
    *,
    norm_first: bool = False,
    norm: Callable = layer_norm,
    drop: Callable | None = None,
) -> Float[Array, "... n d"]:
    r"""X plus a function of X, with a norm after the sum (post-norm) or before the function (pre-norm).

    .. math:: Y = \operatorname{norm}(X + f(X))\qquad\text{or}\qquad Y = X + f(\operatorname{norm}(X))

    Parameters, errors and source as in `attnmath.numpy.residuals.sublayer`; ``f`` and ``drop`` return a tensor.

    Examples
    --------
    >>> import torch
    >>> norm = {"gain": torch.ones(2), "bias": torch.zeros(2)}
    >>> sublayer(torch.tensor([[1.0, 3.0]]), lambda Z: 0 * Z, norm, norm_first=True)
    tensor([[1., 3.]])
    """
    F = f(normalise(X, params, norm) if norm_first else X)
    Y = X + (F if drop is None else drop(F))  # eq:sublayer-pre-norm
    return Y if norm_first else normalise(Y, params, norm)  # eq:sublayer-post-norm


def block(X: Float[Array, "... n d"], params: dict, steps: dict, join: Callable = sublayer) -> Float[Array, "... n d"]:
    r"""X through named sub-layers, one after the other, each joined to its input.

    .. math:: X^{s+1} = \operatorname{join}(X^s,\; f_s)

    Parameters, errors and source as in `attnmath.numpy.residuals.block`; steps and joints return a tensor.

    Examples
    --------
    >>> import torch
    >>> norm = {"gain": torch.ones(2), "bias": torch.zeros(2)}
    >>> block(torch.tensor([[1.0, 3.0]]), {"twice": {}, "twice_norm": norm}, {"twice": lambda Z, params: 2 * Z})
    tensor([[-1.0000,  1.0000]])
    """
    if not isinstance(steps, dict):
        raise ValueError(f"steps is a {type(steps).__name__}; expected a dict of functions by name, in their order")
    _require.branches(params, tuple(steps), optional=tuple(f"{name}_norm" for name in steps))
    for name, f in steps.items():
        own = params[name]
        X = join(X, lambda Z, f=f, own=own: f(Z, own), params.get(f"{name}_norm", {}))
    return X
