import torch


def scores(Q, K, i, j, size):
    """The tile of scores of the queries from i on and the keys from j on."""
    S = Q[..., i : i + size, :] @ K[..., j : j + size, :].mT / Q.shape[-1] ** 0.5
    if i > j:
        return S  # only the tile on the diagonal needs a mask
    return S.masked_fill(torch.ones_like(S, dtype=torch.bool).triu(1), -torch.inf)


class CausalInTiles(torch.autograd.Function):
    """Causal attention that never holds more than size x size scores of a head."""

    @staticmethod
    def forward(ctx, Q, K, V, size=128):  # Q, K: (..., n, k), V: (..., n, v)
        O, L = torch.empty_like(V), torch.empty_like(V[..., :1])
        for i in range(0, Q.shape[-2], size):
            t, z, a = torch.full_like(L[..., i : i + size, :], -torch.inf), 0, 0
            for j in range(0, i + size, size):  # the later tiles of keys are hidden
                S = scores(Q, K, i, j, size)
                top = torch.maximum(t, S.amax(-1, keepdim=True))
                shrink, E = (t - top).exp(), (S - top).exp()
                z = shrink * z + E.sum(-1, keepdim=True)
                a, t = shrink * a + E @ V[..., j : j + size, :], top
            O[..., i : i + size, :] = a / z
            L[..., i : i + size, :] = t + z.log()  # one number for each query
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.size = size
        return O

    @staticmethod
    def backward(ctx, dO):
        (Q, K, V, O, L), size = ctx.saved_tensors, ctx.size
        dQ, dK, dV = (torch.zeros_like(X) for X in (Q, K, V))
        r = (dO * O).sum(-1, keepdim=True)
        for j in range(0, Q.shape[-2], size):
            J = (..., slice(j, j + size), slice(None))
            for i in range(j, Q.shape[-2], size):
                I = (..., slice(i, i + size), slice(None))
                P = (scores(Q, K, i, j, size) - L[I]).exp()  # the weights again
                dS = P * (dO[I] @ V[J].mT - r[I]) / Q.shape[-1] ** 0.5
                dQ[I] += dS @ K[J]
                dK[J] += dS.mT @ Q[I]
                dV[J] += P.mT @ dO[I]
        return dQ, dK, dV, None
