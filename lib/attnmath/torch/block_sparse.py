"""Block-sparse attention: only the tiles that a layout lets somebody see are computed."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.layouts import Layout, as_layout
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.types import Array


@cast_by_autocast
@half_in_float32
def block_sparse_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    layout: Layout | Bool[Array, "a b"],
    size: int = 64,
    empty_rows: str = "error",
    scale: float | None = None,
) -> Float[Array, "... n v"]:
    r"""Attention within a layout, whose work is that of the tiles in which the layout allows something.

    .. math:: O_i = \sum_{j\in A(i)} P_{ij} V_j,\qquad
              P_{ij} = \frac{e^{S_{ij}}}{\sum_{l\in A(i)} e^{S_{il}}},\quad S = Q K^\top / \sqrt{d_k}

    Parameters, errors and source as in `attnmath.numpy.block_sparse.block_sparse_attention`. Strips with about the same
    number of tiles, up to the next power of two, are gathered together, so that few large products do all the work;
    autograd keeps the weights of these tiles. Where no value can be looked at, an empty row gives zeros.

    Examples
    --------
    >>> from attnmath.layouts import window
    >>> V = torch.tensor([[1.0], [3.0], [8.0], [9.0]])
    >>> block_sparse_attention(torch.zeros(4, 1), torch.ones(4, 1), V, layout=window(1), size=2).T
    tensor([[2.0000, 4.0000, 6.6667, 8.5000]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    lead, n, m = sizes["..."], sizes["n"], sizes["m"]
    _require.nonempty("K", K.shape, -2, m, "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    _require.mask(mask, (*lead, n, m))
    _require.count("size", size)
    c = factor(scale, sizes["k"])
    if not n:
        return Q.new_zeros(*lead, n, sizes["v"]) + 0 * (Q.sum() + K.sum() + V.sum())
    Q, K, V = (_tiled(X.expand(*lead, *X.shape[-2:]), size) for X in (c * Q, K, V))  # (..., tiles, size, width)
    mask = None if mask is True else _square_tiles(torch.as_tensor(mask, device=Q.device).expand(*lead, n, m), size)
    outputs, order = [], []
    for rows, columns, allowed in gathers(layout, n, m, size):
        rows, columns, allowed = (torch.from_numpy(X).to(Q.device) for X in (rows, columns, allowed))
        keys, values = (X[..., columns, :, :].flatten(-3, -2) for X in (K, V))  # (..., strips, keys, width)
        if mask is not None:
            own = mask[..., rows[:, None], columns, :, :].transpose(-3, -2).flatten(-2)
            allowed = allowed & own
        S = Q[..., rows, :, :] @ keys.transpose(-1, -2)
        S = S.masked_fill(~allowed, -torch.inf)
        E = torch.exp(S - S.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(S.dtype).min))
        z = E.sum(-1, keepdim=True)
        outputs.append((E @ values / z.masked_fill(z == 0, 1), z))  # eq:block-sparse
        order.append(rows)
    back = torch.argsort(torch.cat(order))
    O, z = (torch.cat(parts, -3)[..., back, :, :].flatten(-3, -2)[..., :n, :] for parts in zip(*outputs, strict=True))
    if empty_rows == "error" and can_look(z) and bool((z == 0).any()):
        _require.no_empty_row(tuple((z[..., 0] == 0).nonzero()[0].tolist()), "empty_rows='zero'")
    return O


def gathers(layout, n: int, m: int, size: int):
    """The work of a layout in few pieces: strips of queries with about the same number of tiles stand together.

    Parameters
    ----------
    layout, size : as in `block_sparse_attention`.
    n, m : how many queries and keys.

    Returns
    -------
    A list of arrays ``(rows (s,), columns (s, t), allowed (s, size, t size))``: the numbers of s strips, the t tiles
    that are gathered for each, and the pairs that may be seen. Each strip stands in one of them.

    Examples
    --------
    >>> from attnmath.layouts import causal
    >>> [(rows.tolist(), columns.tolist()) for rows, columns, allowed in gathers(causal(), 6, 6, 2)]
    [([0], [[0]]), ([1], [[0, 1]]), ([2], [[0, 1, 2]])]
    """
    layout = as_layout(layout, size)
    tiles = layout.tiles(n, m, size)
    count = (tiles > 0).sum(1)
    room = np.minimum(1 << np.ceil(np.log2(np.maximum(count, 1))).astype(int), tiles.shape[1])
    pieces = []
    for t in np.unique(room):
        rows = (room == t).nonzero()[0]
        t = count[rows].max(initial=1)
        columns = np.argsort(tiles[rows] == 0, axis=1, kind="stable")[:, :t]  # the tiles that are seen come first
        real = np.arange(t) < count[rows, None]
        columns = np.where(real, columns, columns[:, :1])  # what fills up is seen, but not counted again
        i = (rows[:, None] * size + np.arange(size))[:, :, None]
        j = (columns[:, :, None] * size + np.arange(size)).reshape(len(rows), 1, -1)
        inside = (i < n) & (j < m) & real.repeat(size, 1)[:, None]
        allowed = layout.pairs(np.minimum(i, n - 1), np.minimum(j, m - 1), n, m) & inside
        pieces.append((rows, columns, allowed))
    return pieces


def _tiled(X, size):
    """(..., n, k) to (..., ceil(n / size), size, k), with zeros behind the last row."""
    return F.pad(X, (0, 0, 0, -X.shape[-2] % size)).unflatten(-2, (-1, size))


def _square_tiles(mask, size):
    """(..., n, m) to (..., ceil(n / size), ceil(m / size), size, size)."""
    n, m = mask.shape[-2:]
    mask = F.pad(mask, (0, -m % size, 0, -n % size))
    return mask.unflatten(-1, (-1, size)).unflatten(-3, (-1, size)).transpose(-3, -2)
