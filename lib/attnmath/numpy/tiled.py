"""Exact attention in tiles of queries and keys, in both directions, that skips what a mask hides."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to
from attnmath.tiles import ALL, NOTHING, SOME, Layout, cuts

BLOCK = 1 << 17  # scores of several heads that are worked on at a time, if one tile has fewer


@differentiable
@half_in_float32
def tiled_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool | Layout = True,
    *,
    empty_rows: str = "error",
    scale: float | None = None,
    tile: int = 256,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""`attention` by FlashAttention's loop: a tile of scores at a time, and none for what the mask hides.

    Each tile of queries passes over the tiles B of keys with a running maximum t, sum z and output a. Of the weights
    only one number for each query is kept, from which the backward pass computes them again, tile by tile:

    .. math:: O_i = a_i / z_i,\qquad L_i = t_i + \log z_i = \log \sum_j e^{S_{ij}},\qquad P_{ij} = e^{S_{ij} - L_i}

    Parameters
    ----------
    Q, K, V : (..., n, k), (..., m, k), (..., m, v); the leading axes broadcast.
    mask : boolean, broadcasts to (..., n, m), True = may attend; or a layout, `attnmath.tiles.Layout`, whose tiles are
        made when they are needed, so that no n x m array exists anywhere.
    empty_rows : a query that may attend to nothing is an ``"error"``, or gets an output of zeros with ``"zero"``.
    scale : what multiplies the dot products, > 0; None is :math:`1/\sqrt{d_k}`.
    tile : queries and keys in a tile.

    Returns
    -------
    O : (..., n, v), equal to `attention`'s up to rounding.
    vjp : dO -> (dQ, dK, dV); it holds Q, K, V, O and L, and works in the memory of a few tiles.

    Raises
    ------
    ValueError
        As `attention`; and if tile is not an integer >= 1.

    References
    ----------
    Dao et al. (2022), algorithms 1 and 4; Dao (2024), algorithms 1 and 2, with their B_r = B_c = ``tile`` and their D
    = ``row``. Chapter 7, eq:tiled-lse.

    Examples
    --------
    >>> O, vjp = tiled_attention(np.zeros((1, 2)), np.ones((2, 2)), np.array([[1.0], [3.0]]), tile=1)
    >>> O
    array([[2.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    shapes = [X.shape for X in (Q, K, V)]
    n, m = sizes["n"], sizes["m"]
    _require.nonempty("K", K.shape, -2, m, "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    _require.count("tile", tile)
    c = factor(scale, sizes["k"])
    lead = sizes["..."] or (1,)
    part, seen = _parts(mask, (*sizes["..."], n, m), tile)
    Q, K, V = (np.broadcast_to(X, (*lead, *X.shape[-2:])) for X in (Q, K, V))
    heads = max(1, BLOCK // max(1, min(tile, n) * min(tile, m)))
    groups = [(*i, slice(a, a + heads)) for i in np.ndindex(*lead[:-1]) for a in range(0, lead[-1], heads)]
    queries, keys = list(enumerate(cuts(n, tile))), list(enumerate(cuts(m, tile)))

    def buffer():
        return np.empty((min(heads, lead[-1]), min(tile, n), min(tile, m)), Q.dtype)

    def scores(i, rows, columns, kind, out):
        q, k = Q[*i, rows, :], K[*i, columns, :]
        S = np.matmul(c * q, T(k), out=out[: len(q), : q.shape[1], : k.shape[1]])
        if kind == SOME:
            np.copyto(S, -np.inf, where=~part(i, rows, columns))
        return S

    O = np.empty_like(Q, shape=(*lead, n, sizes["v"]))
    L = np.empty((*lead, n, 1), Q.dtype)
    out = buffer()
    for i in groups:
        for r, rows in queries:
            t, z, a = np.full_like(L[*i, rows, :], -np.inf), 0, 0
            for j, columns in keys:
                if seen[r, j] == NOTHING:
                    continue
                E = scores(i, rows, columns, seen[r, j], out)
                top = np.maximum(t, E.max(-1, keepdims=True))  # eq:online-max
                safe = np.where(np.isneginf(top), 0, top).astype(top.dtype, copy=False)
                shrink = np.exp(t - safe)
                E -= safe
                np.exp(E, out=E)
                z = shrink * z + E.sum(-1, keepdims=True)  # eq:online-sum
                a = shrink * a + E @ V[*i, columns, :]
                t = top
            none = np.broadcast_to(z == 0, t.shape)
            if none.any() and empty_rows == "error":
                _refuse(none, i, rows, sizes["..."])
            z = np.where(none, 1, z)
            L[*i, rows, :] = np.where(none, np.inf, t + np.log(z))  # eq:tiled-lse
            O[*i, rows, :] = a / z

    def vjp(dO):
        dO = np.broadcast_to(dO, O.shape)
        row = (dO * O).sum(-1, keepdims=True)
        dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
        first, second = buffer(), buffer()
        for i in groups:
            for j, columns in keys:
                k, v = c * K[*i, columns, :], V[*i, columns, :]
                for r, rows in queries:
                    if seen[r, j] == NOTHING:
                        continue
                    at, do = (*i, rows), dO[*i, rows, :]
                    P = scores(i, rows, columns, seen[r, j], first)
                    P -= L[at]
                    np.exp(P, out=P)  # eq:tiled-vjp-weights
                    dS = np.matmul(do, T(v), out=second[: len(P), : P.shape[1], : P.shape[2]])
                    dS -= row[at]
                    dS *= P
                    dQ[at] += dS @ k  # eq:tiled-vjp
                    dK[*i, columns, :] += T(dS) @ Q[at]
                    dV[*i, columns, :] += T(P) @ do
        dK *= c
        return tuple(sum_to(dX, shape) for dX, shape in zip((dQ, dK, dV), shapes, strict=True))

    return O.reshape(*sizes["..."], n, sizes["v"]), vjp


def _parts(mask, shape, tile):
    """How a tile of the mask is had, ``part(group, rows, columns)``, and how much may be seen in each."""
    n, m = shape[-2:]
    if mask is not True and isinstance(mask, Layout):
        return lambda i, rows, columns: mask.part(rows, columns, n, m), mask.tiles(n, m, tile)
    _require.mask(mask, shape)
    seen = np.full((-(-n // tile), -(-m // tile)), ALL, np.uint8)
    if mask is True:
        return None, seen
    mask = np.asarray(mask)
    own = np.broadcast_to(mask, (*mask.shape[:-2], n, m))
    for r, rows in enumerate(cuts(n, tile)):
        for j, columns in enumerate(cuts(m, tile)):
            M = own[..., rows, columns]
            seen[r, j] = ALL if M.all() else SOME if M.any() else NOTHING
    whole = np.broadcast_to(mask, (*(shape[:-2] or (1,)), n, m))
    return lambda i, rows, columns: whole[*i, rows, columns], seen


def _refuse(none, i, rows, lead):
    """The error for the first query of a tile that may attend to nothing."""
    head, query, _ = np.argwhere(none)[0].tolist()
    row = (*i[:-1], i[-1].start + head, rows.start + query)
    _require.no_empty_row(row[-len(lead) - 1 :], "empty_rows='zero'")
