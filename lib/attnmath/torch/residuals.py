"""A sub-layer with its residual connection and its norm: the joint of every block."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath.torch.normalisation import layer_norm
from attnmath.torch.types import Array


def normalise(X, params, norm, eps):
    """A norm with its parameters in a dict, ``{"gain", "bias"}`` or ``{"gain"}``."""
    return norm(X, *(params[name] for name in ("gain", "bias") if name in params), eps)


def sublayer(
    X: Float[Array, "... n d"],
    f: Callable,
    params: dict,
    *,
    norm_first: bool = False,
    norm: Callable = layer_norm,
    eps: float = 1e-5,
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
    F = f(normalise(X, params, norm, eps) if norm_first else X)
    Y = X + (F if drop is None else drop(F))  # eq:sublayer-pre-norm
    return Y if norm_first else normalise(Y, params, norm, eps)  # eq:sublayer-post-norm
