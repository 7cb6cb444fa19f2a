"""The joint of a compiled program: a sub-layer and its input are added, and nothing is normalised."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath._require import programs as require
from attnmath.shapes import declares
from attnmath.torch.types import Array


@declares(lambda d: {})
def bare_sublayer(X: Float[Array, "... n d"], f: Callable, params: dict) -> Float[Array, "... n d"]:
    r"""X plus a function of X, without a norm.

    .. math:: Y = X + f(X)

    Parameters, errors and source as in `attnmath.numpy.programs.bare_sublayer`; ``f`` returns a tensor.

    Examples
    --------
    >>> import torch
    >>> bare_sublayer(torch.tensor([[1.0, 3.0]]), lambda Z: 5 * Z, {})
    tensor([[ 6., 18.]])
    """
    require.no_norm(params)
    return X + f(X)  # eq:bare-sublayer
