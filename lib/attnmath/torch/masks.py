"""Boolean masks, True = may attend, and their additive form."""

import torch
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require.attention import window_sizes
from attnmath.torch.look import can_look
from attnmath.torch.types import Array


def causal_mask(n: int, m: int | None = None) -> Bool[Array, "n m"]:
    r"""Each query sees the keys up to its own position; the last query sees every key.

    .. math:: M_{ij} = [\,j \le i + m - n\,]

    Parameters, errors and source as in `attnmath.numpy.masks.causal_mask`. The mask is made on the CPU (or the default
    device); the attention functions bring it to the scores' device.

    Examples
    --------
    >>> causal_mask(2, 3).int()
    tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    m = n if m is None else m
    _require.causal_sizes(n, m)
    return torch.ones(n, m, dtype=torch.bool).tril(m - n)  # eq:causal-mask


def padding_mask(lengths: Integer[Array, " b"], m: int | None = None) -> Bool[Array, "b 1 m"]:
    r"""Keys that are tokens, in a batch padded at the end.

    .. math:: M_{b1j} = [\,j < \ell_b\,]

    Parameters, errors and source as in `attnmath.numpy.masks.padding_mask`. Where no value can be looked at,
    such as in a compiled function, give m; the lengths are then taken as they are.

    Examples
    --------
    >>> padding_mask(torch.tensor([1, 3]))[:, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    if can_look(lengths) or m is None:
        m = _require.lengths(lengths, m)
    return torch.arange(m, device=lengths.device) < lengths[:, None, None]  # eq:padding-mask


def window_mask(n: int, width: int, m: int | None = None) -> Bool[Array, "n m"]:
    r"""Each query sees the keys at most ``width`` steps away; the last query stands at the last key.

    .. math:: M_{ij} = [\,|i + m - n - j| \le w\,]

    Parameters, errors and source as in `attnmath.numpy.masks.window_mask`.

    Examples
    --------
    >>> window_mask(3, 1).int()
    tensor([[1, 1, 0],
            [1, 1, 1],
            [0, 1, 1]], dtype=torch.int32)
    """
    m = n if m is None else m
    window_sizes(n, m)
    _require.nonnegative("width", width)
    return abs(torch.arange(m - n, m)[:, None] - torch.arange(m)) <= width  # eq:window-mask


def additive_mask(mask: Bool[Array, "..."], dtype) -> Float[Array, "..."]:
    r"""What to add to the scores in place of a boolean mask.

    .. math:: A_{ij} = \begin{cases}0 & M_{ij}\\ -\infty & \text{otherwise}\end{cases}

    Parameters, errors and source as in `attnmath.numpy.masks.additive_mask`.

    Examples
    --------
    >>> additive_mask(torch.tensor([True, False]), torch.float32)
    tensor([0., -inf])
    """
    _require.mask(mask, mask.shape)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)  # eq:additive-mask
