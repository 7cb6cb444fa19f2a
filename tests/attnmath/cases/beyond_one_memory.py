"""Attention to the best keys of each query, against PyTorch's own sort and attention."""

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
]

HELPERS = {"dropped_weight_bound"}  # a number about scores; tests/theorems/test_beyond_one_memory.py
