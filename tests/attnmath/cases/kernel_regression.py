"""Lines around a query, errors without the own value and Taylor's features, each written out in another way."""

import numpy as np
import torch

from tests.attnmath.cases.case import Case, const, draw, normal

B, N, M, K, V = 2, 3, 7, 2, 4  # batch, queries, keys, key width, value width
SEEN = np.array([[True, True, False, True, True, True, True]])
CAUSAL = np.tril(np.ones((N, M), bool), M - N)
ANY = np.random.default_rng(3).random((B, N, M)) < 0.8
ANY[..., :4] = True


def fitted(Q, K, V, allowed=None, bandwidth=1.0, ridge=1e-6):
    """For every query the normal equations of a line with a constant, solved; the constant is the answer."""
    lead = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2])
    Q, K, V = (X.expand(*lead, *X.shape[-2:]) for X in (Q, K, V))
    D = K.unsqueeze(-3) - Q.unsqueeze(-2)
    W = torch.exp(-(D**2).sum(-1) / (2 * bandwidth**2))
    W = W if allowed is None else W * torch.from_numpy(allowed)
    W = W / W.sum(-1, keepdim=True)
    design = torch.cat([torch.ones_like(D[..., :1]), D], -1)
    held = ridge * bandwidth**2 * torch.diag(torch.tensor([0.0] + [1.0] * D.shape[-1], dtype=D.dtype))
    normal_matrix = torch.einsum("...nm,...nma,...nmb->...nab", W, design, design) + held
    right = torch.einsum("...nm,...nma,...mv->...nav", W, design, V)
    return (torch.linalg.inv(normal_matrix) @ right)[..., 0, :]


def lines(circumstance, args, mask=None, **options):
    def call(world, Q, K, V):
        return world.local_linear_attention(
            Q, K, V, **({} if mask is None else {"mask": const(world, mask)}), **options
        )

    return Case(
        "local_linear_attention", circumstance, args, call, lambda Q, K, V: fitted(Q, K, V, mask, **options), 1e-10
    )


def far(rng):
    """Every query stands beside one key, and thousands of bandwidths from all others."""
    K_ = 1e4 * rng.standard_normal((B, M, K))
    return K_[:, :N] + 1.0, K_, rng.standard_normal((B, M, V))


def rows(*shape):
    """Draws weights and values."""

    def drawn(rng):
        P = rng.random((*shape, shape[-1]))
        return P / P.sum(-1, keepdims=True), rng.standard_normal((*shape, V))

    return drawn


def near_one(rng):
    """Weights of which nearly everything stands on the diagonal."""
    n = 6
    P = rng.random((n, n)) * 1e-9
    P[np.arange(n), np.arange(n)] += 1 - P.sum(-1)
    return P, rng.standard_normal((n, V))


def left_out(circumstance, args):
    return Case("leave_one_out", circumstance, args, lambda world, P, V: world.leave_one_out(P, V), one_by_one)


def one_by_one(P, V):
    """For each value a regression of its own, without it."""
    n, found = P.shape[-1], []
    for i in range(n):
        kept = [j for j in range(n) if j != i]
        share = P[..., i, kept] / P[..., i, kept].sum(-1, keepdim=True)
        found.append(V[..., i, :] - torch.einsum("...j,...jv->...v", share, V[..., kept, :]))
    return torch.stack(found, -2) if n else V


def written_out(X, degree):
    """Monomials as products of components, one after the other."""
    from itertools import combinations_with_replacement
    from math import factorial

    columns = []
    for m in range(degree + 1):
        for pick in combinations_with_replacement(range(X.shape[-1]), m):
            column = torch.ones_like(X[..., 0])
            for i in pick:
                column = column * X[..., i]
            for i in set(pick):
                column = column / factorial(pick.count(i)) ** 0.5
            columns.append(column)
    return torch.stack(columns, -1)


def taylor(circumstance, args, degree):
    return Case(
        "taylor_features",
        circumstance,
        args,
        lambda world, X: world.taylor_features(X, degree),
        lambda X: written_out(X, degree),
    )


QKV = draw((B, N, K), (B, M, K), (B, M, V))
CASES = [
    lines("plain", QKV, ridge=0.1),
    lines("wide", QKV, bandwidth=3.0),
    lines("keys", QKV, SEEN, ridge=0.1),
    lines("causal", QKV, CAUSAL, ridge=0.1, bandwidth=2.0),
    lines("any-mask", QKV, ANY, ridge=0.1, bandwidth=2.0),
    lines("shared-queries", draw((N, K), (B, M, K), (3, 1, M, V)), ridge=0.1),
    lines("no-leading-axis", draw((N, K), (M, K), (M, V)), ridge=0.1),
    lines("one-key", draw((N, K), (1, K), (1, V)), ridge=0.1),
    lines("no-batch", draw((0, N, K), (0, M, K), (0, M, V))),
    lines("huge", far, ridge=0.1),
    left_out("plain", rows(6)),
    left_out("batch", rows(B, 5)),
    left_out("two", rows(2)),
    left_out("no-batch", rows(0, 5)),
    left_out("shared-weights", lambda rng: (rows(5)(rng)[0], rng.standard_normal((B, 5, V)))),
    taylor("plain", normal(B, N, K), 3),
    taylor("linear", normal(N, 5), 1),
    taylor("fourth", normal(N, 3), 4),
    taylor("one-variable", normal(N, 1), 5),
    taylor("no-batch", normal(0, N, K), 2),
]
