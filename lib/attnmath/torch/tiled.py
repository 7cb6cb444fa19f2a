"""Exact attention in tiles of queries and keys, in both directions, that skips what a mask hides."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.tiles import ALL, NOTHING, SOME, Layout, cuts
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.types import Array, T


@cast_by_autocast
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
) -> Float[Array, "... n v"]:
    r"""`attention` by FlashAttention's loop: a tile of scores at a time, and none for what the mask hides.

    .. math:: O_i = a_i / z_i,\qquad L_i = t_i + \log z_i = \log \sum_j e^{S_{ij}},\qquad P_{ij} = e^{S_{ij} - L_i}

    Parameters, errors and source as in `attnmath.numpy.tiled.tiled_attention`. Here, too, the backward pass is the one
    derived by hand, because autograd would keep every tile: gradients of gradients are refused. Where no value can be
    looked at (`attnmath.torch.look.can_look`), an empty row gives zeros, and of a mask that is a tensor no tile is
    skipped.

    Examples
    --------
    >>> tiled_attention(torch.zeros(1, 2), torch.ones(2, 2), torch.tensor([[1.0], [3.0]]), tile=1)
    tensor([[2.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    n, m, lead = sizes["n"], sizes["m"], sizes["..."]
    _require.nonempty("K", K.shape, -2, m, "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    _require.count("tile", tile)
    c = factor(scale, sizes["k"])
    given, plan = _plan(mask, (*lead, n, m), tile, c, Q.device)
    Q, K, V = (X.expand(*lead, *X.shape[-2:]) for X in (Q, K, V))
    O, L = _Tiled.apply(Q, K, V, given, plan)  # eq:tiled-lse
    if empty_rows == "error" and mask is not True and can_look(L) and torch.isposinf(L).any():
        row = torch.isposinf(L)[..., 0].nonzero()[0].tolist()
        _require.no_empty_row(tuple(row), "empty_rows='zero'")
    return O


@dataclass(frozen=True)
class _Plan:
    """What the loops need beside tensors: the factor of the scores, the tiles, and how much may be seen in each."""

    c: float
    tile: int
    seen: list
    layout: Layout | None

    def scores(self, Q, K, mask, r, j):
        """A tile of scores; the mask is a tensor with both axes whole, or None."""
        n, m = Q.shape[-2], K.shape[-2]
        rows, columns = cuts(n, self.tile)[r], cuts(m, self.tile)[j]
        S = self.c * Q[..., rows, :] @ T(K[..., columns, :])
        if self.seen[r][j] == ALL:
            return S
        if self.layout is None:
            return S.masked_fill(~mask[..., rows, columns], -torch.inf)
        part = torch.as_tensor(self.layout.part(rows, columns, n, m), device=S.device)
        return S.masked_fill(~part, -torch.inf)


class _Tiled(torch.autograd.Function):
    """The two loops. Nothing is written into a tensor that exists, so that ``torch.func.vmap`` may come around them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(Q, K, V, mask, plan):
        keys = cuts(K.shape[-2], plan.tile)
        outputs, sums = [], []
        for r, rows in enumerate(cuts(Q.shape[-2], plan.tile)):
            t = torch.full_like(Q[..., rows, :1], -torch.inf)
            z, a = torch.zeros_like(t), torch.zeros_like(t * V[..., :1, :])
            for j, columns in enumerate(keys):
                if plan.seen[r][j] == NOTHING:
                    continue
                S = plan.scores(Q, K, mask, r, j)
                top = torch.maximum(t, S.amax(-1, keepdim=True))  # eq:online-max
                safe = top.masked_fill(torch.isneginf(top), 0)
                shrink, E = torch.exp(t - safe), torch.exp(S - safe)
                z = shrink * z + E.sum(-1, keepdim=True)  # eq:online-sum
                a = shrink * a + E @ V[..., columns, :]
                t = top
            none = z == 0
            z = z.masked_fill(none, 1)
            sums.append((t + torch.log(z)).masked_fill(none, torch.inf))
            outputs.append(a / z)
        return _joined(outputs, Q, V.shape[-1]), _joined(sums, Q, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        Q, K, V, mask, ctx.plan = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(Q, K, V, mask, *output)

    @staticmethod
    def backward(ctx, dO, _):
        return *_Backward.apply(dO, *ctx.saved_tensors, ctx.plan), None, None


class _Backward(torch.autograd.Function):
    """A function of its own, so that a gradient of it is refused instead of being wrong."""

    generate_vmap_rule = True

    @staticmethod
    def forward(dO, Q, K, V, mask, O, L, plan):
        row = (dO * O).sum(-1, keepdim=True)
        queries = cuts(Q.shape[-2], plan.tile)
        dQ, dKs, dVs = [torch.zeros_like(Q[..., rows, :]) for rows in queries], [], []
        for j, columns in enumerate(cuts(K.shape[-2], plan.tile)):
            k, v = K[..., columns, :], V[..., columns, :]
            dk, dv = torch.zeros_like(k), torch.zeros_like(v)
            for r, rows in enumerate(queries):
                if plan.seen[r][j] == NOTHING:
                    continue
                do = dO[..., rows, :]
                P = torch.exp(plan.scores(Q, K, mask, r, j) - L[..., rows, :])
                dS = P * (do @ T(v) - row[..., rows, :])
                dQ[r] = dQ[r] + plan.c * (dS @ k)
                dk = dk + plan.c * (T(dS) @ Q[..., rows, :])
                dv = dv + T(P) @ do
            dKs.append(dk)
            dVs.append(dv)
        return _joined(dQ, Q, Q.shape[-1]), torch.cat(dKs, -2), torch.cat(dVs, -2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("tiled_attention has no gradient of its gradient; use attention, which has one")


def _joined(parts, Q, width):
    """Tiles of rows as one tensor; of no rows too."""
    return torch.cat(parts, -2) if parts else Q.new_zeros((*Q.shape[:-1], width))


def _plan(mask, shape, tile, c, device):
    """The mask as a tensor, if it is one, and the plan."""
    n, m = shape[-2:]
    if mask is not True and isinstance(mask, Layout):
        return None, _Plan(c, tile, torch.as_tensor(mask.tiles(n, m, tile)).tolist(), mask)
    _require.mask(mask, shape)
    queries, keys = cuts(n, tile), cuts(m, tile)
    if mask is True:
        return None, _Plan(c, tile, [[ALL] * len(keys)] * len(queries), None)
    mask = torch.as_tensor(mask, device=device)
    mask = mask.expand(*mask.shape[:-2], n, m)
    seen = [[SOME] * len(keys)] * len(queries)
    if can_look(mask) and queries:
        parts = [mask[..., rows, columns] for rows in queries for columns in keys]
        kinds = torch.stack([M.any().int() + M.all().int() for M in parts])  # brought here once
        seen = kinds.reshape(len(queries), -1).tolist()
    return mask, _Plan(c, tile, seen, None)
