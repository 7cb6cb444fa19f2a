"""T5's relative positions: a learned number per head for each bucket of distances, added to the scores."""

import torch
from jaxtyping import Float, Integer

from attnmath import _require
from attnmath.torch.types import Array


def relative_buckets(n: int, m: int, count: int, distance: int = 128, *, causal: bool = False) -> Integer[Array, "n m"]:
    r"""The bucket of each pair of positions: near offsets have one each, far ones share, on a logarithmic scale.

    Parameters, errors and source as in `attnmath.numpy.relative_bias.relative_buckets`.

    Examples
    --------
    >>> relative_buckets(1, 8, 4, 6, causal=True)
    tensor([[3, 3, 3, 3, 2, 2, 1, 0]])
    """
    offset = torch.arange(m) - (torch.arange(n)[:, None] + m - n)
    near = count if causal else count // 2
    after = torch.zeros_like(offset) if causal else near * (offset > 0)
    offset = (-offset).clamp(min=0) if causal else offset.abs()
    exact = near // 2
    _require.bucket_sizes(count, exact, distance)
    ratio = torch.log(offset.clamp(min=1).float() / exact) / torch.log(torch.tensor(distance / exact))
    far = (exact + (ratio * (near - exact)).long()).clamp(max=near - 1)
    return after + torch.where(offset < exact, offset, far)


def relative_bias(
    table: Float[Array, "c h"], n: int, m: int, distance: int = 128, *, causal: bool = False
) -> Float[Array, "h n m"]:
    r"""A number for each head and pair of positions, looked up by bucket.

    .. math:: B^i_{jl} = R_{b(j, l),\, i}

    Parameters, errors and source as in `attnmath.numpy.relative_bias.relative_bias`.

    Examples
    --------
    >>> relative_bias(torch.tensor([[1.0], [2.0]]), 2, 2, causal=True)
    tensor([[[1., 1.],
             [2., 1.]]])
    """
    _require.shapes(table=(table, "c h"))
    buckets = relative_buckets(n, m, len(table), distance, causal=causal).to(table.device)
    return table[buckets].movedim(-1, 0)
