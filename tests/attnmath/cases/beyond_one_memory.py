"""Attention to the best keys of each query, against PyTorch's own sort and attention, and a store of what followed."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from tests.attnmath.cases.case import B, Case, K, M, N, V, const, draw

MASK = np.random.default_rng(23).random((N, M)) < 0.7
MASK[:, :2] = True


def call(world, *args, keep=2, mask=None):
    return world.top_k_attention(*args, *([] if mask is None else [const(world, mask)]), keep=keep)


def reference(Q, Ks, Vs, keep=2, mask=None):
    """The values of the best keys, gathered, and weighed among themselves."""
    S = Q @ Ks.mT / Q.shape[-1] ** 0.5
    S = S if mask is None else S.masked_fill(~torch.from_numpy(mask), -torch.inf)
    best = S.sort(-1, descending=True).indices[..., :keep]
    weights = F.softmax(S.gather(-1, best), -1)
    found = Vs.unsqueeze(-3).expand(*S.shape[:-1], *Vs.shape[-2:])
    index = best.unsqueeze(-1).expand(*best.shape, Vs.shape[-1])
    return (weights.unsqueeze(-1) * found.gather(-2, index)).sum(-2)


FOLLOWED = np.array([3, 0, 3, 3, 1])  # of M keys; the tokens 2 and 4 followed none
T = 5  # tokens


def stored(circumstance, args, followed=FOLLOWED, vjp_atol=1e-12, **options):
    def call(world, Q, Ks):
        return world.store_distribution(Q, Ks, const(world, followed), T, **options)

    return Case("store_distribution", circumstance, args, call, partial(token_by_token, followed, **options), vjp_atol)


def token_by_token(followed, Q, Ks, temperature=1.0, keep=None):
    """Every difference of a query and a key, and for each token the weights of its own keys."""
    near = -(Q.unsqueeze(-2) - Ks).square().sum(-1)
    if keep is not None:
        near = near.masked_fill(near < near.sort(-1).values[..., -min(keep, len(Ks)), None], -torch.inf)
    W = F.softmax(near / temperature, -1)
    return torch.stack([W[..., torch.from_numpy(followed == token)].sum(-1) for token in range(T)], -1)


def beside_a_key(rng):
    """Every query stands beside one key, and thousands of units from all others."""
    Ks = 1e4 * rng.standard_normal((M, K))
    return Ks[:N] + 0.1, Ks


def far_from_the_origin(rng):
    return 1000 + rng.standard_normal((B, N, K)), 1000 + rng.standard_normal((M, K))


def mixed(circumstance, args, weight):
    return Case(
        "store_mixture",
        circumstance,
        args,
        lambda world, model, store: world.store_mixture(model, store, weight),
        lambda model, store: torch.lerp(model, store.expand(torch.broadcast_shapes(model.shape, store.shape)), weight),
    )


def distributions(*shape_list):
    """Draws one array of distributions per shape."""
    return lambda rng: tuple(rng.dirichlet(np.ones(shape[-1]), shape[:-1]) for shape in shape_list)


STORE = draw((B, N, K), (M, K))
HEADS = draw((B, N, K), (B, M, K), (B, M, V))
CASES = [
    Case("top_k_attention", "two", HEADS, call, reference),
    Case("top_k_attention", "masked", HEADS, partial(call, mask=MASK), partial(reference, mask=MASK)),
    Case("top_k_attention", "all", HEADS, partial(call, keep=M + 2), partial(reference, keep=M)),
    Case("top_k_attention", "one-key", draw((B, N, K), (B, 1, K), (B, 1, V)), call, partial(reference, keep=1)),
    Case("top_k_attention", "no-batch", draw((0, N, K), (0, M, K), (0, M, V)), call, reference),
    Case(
        "top_k_attention",
        "huge",
        lambda rng: tuple(s * rng.standard_normal((B, n, w)) for s, n, w in ((70, N, K), (70, M, K), (1, M, V))),
        call,
        reference,
        vjp_atol=1e-9,
    ),
    stored("all", STORE, temperature=6.0),
    stored("default", STORE),
    stored("three", STORE, temperature=6.0, keep=3),
    stored("one", STORE, keep=1),
    stored("more-than-there-are", STORE, temperature=6.0, keep=M + 2),
    stored("one-query", draw((1, K), (M, K)), temperature=6.0),
    stored("one-key", draw((N, K), (1, K)), followed=FOLLOWED[:1]),
    stored("one-token", STORE, followed=0 * FOLLOWED),
    stored("no-batch", draw((0, N, K), (M, K)), keep=2),
    stored("wide-range", far_from_the_origin, temperature=6.0, vjp_atol=1e-11),
    stored("cold", STORE, temperature=0.01, vjp_atol=1e-9),
    stored("huge", beside_a_key),
    mixed("a-quarter", distributions((B, N, T), (B, N, T)), 0.25),
    mixed("one-store", distributions((B, N, T), (T,)), 0.7),
    mixed("model-alone", distributions((N, T), (N, T)), 0.0),
    mixed("store-alone", distributions((N, T), (N, T)), 1.0),
    mixed("no-batch", distributions((0, N, T), (0, N, T)), 0.5),
]

HELPERS = {"dropped_weight_bound"}  # a number about scores; tests/theorems/test_beyond_one_memory.py
