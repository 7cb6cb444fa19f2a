"""Words as particles: the velocity that self-attention gives to points on a sphere."""

import math
from collections.abc import Callable

from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.torch.attention import attention
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.types import Array


@cast_by_autocast
@half_in_float32
def sphere_attention_flow(
    X: Float[Array, "... n d"],
    B: Float[Array, "d d"] | None = None,
    V: Float[Array, "d d"] | None = None,
    mask: Bool[Array, "..."] | bool = True,
    *,
    beta: float = 1.0,
    attend: Callable = attention,
) -> Float[Array, "... n d"]:
    r"""The velocity of tokens on the unit sphere, each pulled along the sphere towards what it attends to.

    .. math:: F_i = O_i - \langle x_i, O_i\rangle\, x_i,\qquad O_i = \sum_j P_{ij}\, x_j V,\qquad
              P = \operatorname{softmax}(\beta\, X B X^\top)

    Parameters, errors and source as in `attnmath.numpy.clusters.sphere_attention_flow`, the core being
    ``attend(Q, K, V, mask, scale=1.0) -> O``.

    Examples
    --------
    >>> import torch
    >>> sphere_attention_flow(torch.eye(2), beta=0.0)
    tensor([[0.0000, 0.5000],
            [0.5000, 0.0000]])
    """
    _require.shapes(X=(X, "... n d"), **{name: (A, "d d") for name, A in (("B", B), ("V", V)) if A is not None})
    if not math.isfinite(beta):
        raise ValueError(f"beta is {beta}; it must be finite")
    XB, XV = (X if A is None else X @ A for A in (B, V))
    O = attend(beta * XB, X, XV, mask, scale=1.0)
    return O - (X * O).sum(-1, keepdim=True) * X  # eq:sphere-flow
