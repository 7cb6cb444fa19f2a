"""Maps with a change of low rank: how they are called in either world, and what autograd says of the full matrix.

PyTorch has no such layer. The reference is its own linear map at W + s A B, put in its place by
`torch.func.functional_call`.
"""

import torch

from tests.attnmath.cases.case import A, B, Case, K, M, N, V, draw

R = V  # the rank, 2; the maps are from K to M
PLAIN = draw((B, N, K), (K, M), (M,), (K, R), (R, M))


def explicit(X, W, b, F, G, s=1 / R):
    """`nn.Linear` with the changed matrix; an adapter for each row of the batch one after the other."""
    if F.ndim > 2 or G.ndim > 2:
        lead = torch.broadcast_shapes(X.shape[:-2], F.shape[:-2], G.shape[:-2])
        X, F, G = (T.expand(*lead, *T.shape[-2:]).reshape(-1, *T.shape[-2:]) for T in (X, F, G))
        Y = torch.stack([explicit(*parts[:1], W, b, *parts[1:], s) for parts in zip(X, F, G, strict=True)])
        return Y.reshape(*lead, *Y.shape[-2:])
    layer = torch.nn.Linear(*W.shape, dtype=torch.float64)
    changed = W + s * sum(torch.outer(F[:, k], G[k]) for k in range(F.shape[1]))
    return torch.func.functional_call(layer, {"weight": changed.T, "bias": b}, (X,))


def layer(circumstance, args, options=None, s=1 / R):
    options = options or {}
    return Case(
        "lora_linear",
        circumstance,
        args,
        lambda w, *given: w.lora_linear(*given, **options),
        lambda *given: explicit(*given, s),
    )


def product(F, G):
    """F G, one number after the other."""
    return torch.einsum("...ir,...ro->...io", F, G)


def merge(circumstance, args, options=None, s=1 / R):
    options = options or {}
    return Case(
        "lora_merge",
        circumstance,
        args,
        lambda w, *given: w.lora_merge(*given, **options),
        lambda W, F, G: W + s * product(F, G),
    )


def unmerge(circumstance, args, options=None, s=1 / R):
    options = options or {}
    return Case(
        "lora_unmerge",
        circumstance,
        args,
        lambda w, *given: w.lora_unmerge(*given, **options),
        lambda M, F, G: M - s * product(F, G),
    )


def starting(rng):
    """As training begins: B is 0."""
    X, W, b, F, G = PLAIN(rng)
    return X, W, b, F, 0 * G


def huge(rng):
    X, *rest = PLAIN(rng)
    return 1e4 * X, *rest


STABLE = {"alpha": 3.0, "stabilised": True}
CASES = [
    layer("plain", PLAIN),
    layer("alpha", PLAIN, {"alpha": 3.0}, 3 / R),
    layer("stabilised", PLAIN, STABLE, 3 / R**0.5),
    layer("start", starting),
    layer("rank-one", draw((B, N, K), (K, M), (M,), (K, 1), (1, M)), s=1.0),
    layer("whole-rank", draw((N, K), (K, M), (M,), (K, M), (M, M)), s=1 / M),
    layer("adapter-for-each-text", draw((B, N, K), (K, M), (M,), (B, K, R), (B, R, M))),
    layer("shared-text", draw((N, K), (K, M), (M,), (B, K, R), (B, R, M))),
    layer("two-leading-axes", draw((A, 1, N, K), (K, M), (M,), (B, K, R), (R, M))),
    layer("no-batch", draw((0, N, K), (K, M), (M,), (K, R), (R, M))),
    layer("huge", huge),
    merge("plain", draw((K, M), (K, R), (R, M))),
    merge("stabilised", draw((K, M), (K, R), (R, M)), STABLE, 3 / R**0.5),
    merge("several", draw((K, M), (B, K, R), (B, R, M))),
    unmerge("plain", draw((K, M), (K, R), (R, M))),
    unmerge("several", draw((B, K, M), (K, R), (B, R, M)), {"alpha": 3.0}, 3 / R),
]
