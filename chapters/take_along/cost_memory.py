import torch


def attention_in_blocks(Q, K, V, block=128, causal=False):
    """Exact attention that never holds more than (n, block) scores.

    Q: (..., n, k), K: (..., m, k), V: (..., m, v). Returns the output (..., n, v) and
    L (..., n), the log-sum-exp of each row of scores, from which `backward` starts.
    """
    n, m = Q.shape[-2], K.shape[-2]
    t = Q.new_full(Q.shape[:-1], -torch.inf)  # the largest score so far
    z = torch.zeros_like(t)  # the sum of exponentials
    a = Q.new_zeros(*Q.shape[:-1], V.shape[-1])  # the weighted sum of the values
    for start in range(0, m, block):
        S = block_of_scores(Q, K, start, block, causal, n, m)
        top = torch.maximum(t, S.amax(dim=-1))
        shrink, E = torch.exp(t - top), torch.exp(S - top[..., None])
        z = shrink * z + E.sum(dim=-1)
        a = shrink[..., None] * a + E @ V[..., start : start + block, :]
        t = top
    return a / z[..., None], t + z.log()


def backward(Q, K, V, O, L, dO, block=128, causal=False):
    """The gradients of Q, K and V; the weights are computed again, block by block."""
    n, m, dQ, dK, dV = Q.shape[-2], K.shape[-2], torch.zeros_like(Q), [], []
    row = (dO * O).sum(dim=-1, keepdim=True)
    for start in range(0, m, block):
        S = block_of_scores(Q, K, start, block, causal, n, m)
        P = torch.exp(S - L[..., None])
        dS = P * (dO @ V[..., start : start + block, :].mT - row) * Q.shape[-1] ** -0.5
        dQ = dQ + dS @ K[..., start : start + block, :]
        dK.append(dS.mT @ Q)
        dV.append(P.mT @ dO)
    return dQ, torch.cat(dK, dim=-2), torch.cat(dV, dim=-2)


def block_of_scores(Q, K, start, block, causal, n, m):
    S = Q @ K[..., start : start + block, :].mT * Q.shape[-1] ** -0.5
    i, j = torch.arange(n)[:, None] + m - n, torch.arange(start, start + S.shape[-1])
    return S.masked_fill(j > i, -torch.inf) if causal else S
