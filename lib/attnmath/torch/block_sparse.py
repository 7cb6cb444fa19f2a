"""Block-sparse attention: only the tiles that a layout lets somebody see are computed."""

import math

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

    Parameters, errors and source as in `attnmath.numpy.block_sparse.block_sparse_attention`. The keys and values of
    each strip's tiles are gathered; strips with the same number of tiles then go together through
    ``F.scaled_dot_product_attention``, whose kernel need not hold the weights. Where no value can be looked at, an
    empty row gives zeros.

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
    Q, K, V = (_tiled(X.expand(*lead, *X.shape[-2:]), size) for X in (Q, K, V))  # (b, tiles, size, width)
    if mask is not True:
        mask = torch.as_tensor(mask, device=Q.device)
        whole = mask.expand(n, m)[None] if mask.ndim <= 2 else mask.expand(*lead, n, m).reshape(len(Q), n, m)
        mask = _square_tiles(whole, size)
    pieces = gathers(layout, n, m, size)
    order, taken = (torch.from_numpy(np.concatenate([piece[k].ravel() for piece in pieces])) for k in (0, 1))
    order, taken = order.to(Q.device), taken.to(Q.device)
    strips = Q.index_select(1, order).split([len(rows) for rows, _, _ in pieces], 1)
    tiles = (X.index_select(1, taken).split([columns.size for _, columns, _ in pieces], 1) for X in (K, V))
    outputs, empty = [], []
    for piece, queries, *gathered in zip(pieces, strips, *tiles, strict=True):
        keys, values = (X.unflatten(1, (queries.shape[1], -1)).flatten(2, 3) for X in gathered)
        seen, none = _seen(piece, mask, Q.device), queries.new_zeros(1, dtype=torch.bool)
        if seen is not None:  # kernels differ in an empty row: it attends to everything and is zeroed afterwards
            none = ~seen.any(-1, keepdim=True)
            seen = seen | none
        O = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen, scale=c)
        outputs.append(O.masked_fill(none, 0))  # eq:block-sparse
        empty.append(none.expand(*O.shape[:-1], 1))
    back = torch.argsort(order)
    O, empty = (torch.cat(parts, 1)[:, back].flatten(1, 2)[:, :n] for parts in (outputs, empty))
    O, empty = O.reshape(*lead, n, sizes["v"]), empty.reshape(*lead, n)
    if empty_rows == "error" and can_look(empty) and bool(empty.any()):
        _require.no_empty_row(tuple(empty.nonzero()[0].tolist()), "empty_rows='zero'")
    return O


def gathers(layout, n: int, m: int, size: int):
    """The work of a layout in few pieces: strips of queries with the same number of tiles stand together.

    Parameters
    ----------
    layout, size : as in `block_sparse_attention`.
    n, m : how many queries and keys.

    Returns
    -------
    A list of arrays ``(rows (s,), columns (s, t), allowed (s, size, t size))``: the numbers of s strips, the t tiles
    that are gathered for each, and the pairs that may be seen, or None if these are all. Each strip stands in one of
    them, with its own tiles and no others; a strip without any has its first tile, of which nothing may be seen.

    Examples
    --------
    >>> from attnmath.layouts import causal
    >>> [(rows.tolist(), columns.tolist()) for rows, columns, allowed in gathers(causal(), 6, 6, 2)]
    [([0], [[0]]), ([1], [[0, 1]]), ([2], [[0, 1, 2]])]
    """
    layout = as_layout(layout, size)
    tiles = layout.tiles(n, m, size)
    count = np.maximum((tiles > 0).sum(1), 1)
    pieces = []
    for t in np.unique(count):
        rows = (count == t).nonzero()[0]
        columns = np.argsort(tiles[rows] == 0, axis=1, kind="stable")[:, :t]  # the tiles that are seen come first
        allowed = None
        if (tiles[rows[:, None], columns] < 2).any() or (columns.max() + 1) * size > m:
            i = np.minimum(rows[:, None] * size + np.arange(size), n - 1)[:, :, None]
            j = (columns[:, :, None] * size + np.arange(size)).reshape(len(rows), 1, -1)
            allowed = layout.pairs(i, np.minimum(j, m - 1), n, m) & (j < m)
        pieces.append((rows, columns, allowed))
    return pieces


def _seen(piece, mask, device):
    """What the strips of a piece may see by the layout and by the mask, (1 or b, s, size, keys), or None for all."""
    rows, columns, allowed = (X if X is None else torch.from_numpy(X).to(device) for X in piece)
    allowed = None if allowed is None else allowed[None]
    if mask is True:
        return allowed
    own = mask[:, rows[:, None], columns].transpose(-3, -2).flatten(-2)
    return own if allowed is None else own & allowed


def _tiled(X, size):
    """(..., n, k) to (b, ceil(n / size), size, k), with zeros behind the last row; b is all leading axes in one."""
    X = F.pad(X, (0, 0, 0, -X.shape[-2] % size)).unflatten(-2, (-1, size))
    return X.reshape(math.prod(X.shape[:-3]), *X.shape[-3:])


def _square_tiles(mask, size):
    """(..., n, m) to (..., ceil(n / size), ceil(m / size), size, size)."""
    n, m = mask.shape[-2:]
    mask = F.pad(mask, (0, -m % size, 0, -n % size))
    return mask.unflatten(-1, (-1, size)).unflatten(-3, (-1, size)).transpose(-3, -2)
