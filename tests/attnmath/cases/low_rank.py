"""Attention on projected keys and values: how it is called in either world, and what PyTorch's kernel says of it."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from attnmath import shapes
from tests.attnmath.cases.case import HEADS, A, B, Case, D, K, M, N, V, const, draw, tree

R = M  # slots; here there are A keys
MASK = np.array([[1, 0, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]], bool)
NOTHING = MASK.copy()
NOTHING[1] = False
# four slots of three, three, three and two keys, and a slot of the last key: what a causal model may see in part
SLOT = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4])
PATTERN = SLOT == np.arange(R)[:, None]
PROJECTED = draw((B, N, K), (B, A, K), (B, A, V), (R, A), (R, A))


def sdpa(Q, K, V, E, F_, mask=None):
    """The kernel, given what the projections make of keys and values."""
    K, V = torch.einsum("...rm,...mk->...rk", E, K), torch.einsum("...rm,...mv->...rv", F_, V)
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=None if mask is None else torch.from_numpy(mask))


def sdpa_zero(Q, K, V, E, F_):
    rows = NOTHING.any(-1)
    return sdpa(Q, K, V, E, F_, NOTHING | ~rows[:, None]) * torch.from_numpy(rows)[:, None]


def causal(world, Q, K, V, E, F_):
    """Projections of a pattern, and the slots that are complete."""
    pattern = const(world, PATTERN)
    mask = world.slot_mask(N, pattern * const(world, np.ones((R, A))), pattern * const(world, np.ones((R, A))))
    return world.linformer_attention(Q, K, V, E, F_, mask)


def causal_reference(Q, K, V, E, F_):
    ends = np.array([2, 5, 8, 9, 10])
    return sdpa(Q, K, V, E, F_, ends <= np.arange(A - N, A)[:, None])


def in_heads(world, X, params, E, F_):
    """As the core of multi-head attention; E differs from head to head."""
    y = world.multi_head_attention(X, X, X, params, HEADS, attend=partial(world.linformer_attention, E=E, F=F_))
    if not isinstance(y, tuple):
        return y
    O, vjp = y

    def summed(dO):
        dQ, dK, dV, *rest = vjp(dO)
        return dQ + dK + dV, *rest

    return O, summed


def in_heads_reference(X, params, E, F_):
    def heads(name):
        return F.linear(X, params[name]["weight"].T, params[name]["bias"]).unflatten(-1, (HEADS, -1)).transpose(-2, -3)

    H = sdpa(heads("query"), heads("key"), heads("value"), E, F_).transpose(-2, -3).flatten(-2)
    return F.linear(H, params["output"]["weight"].T, params["output"]["bias"])


def huge(rng):
    """Scores of some ten thousand."""
    Q, K, *rest = PROJECTED(rng)
    return 300 * Q, 30 * K, *rest


def plain(world, *args, **options):
    return world.linformer_attention(*args, **options)


def row(circumstance, args, call=plain, reference=sdpa, **more):
    return Case("linformer_attention", circumstance, args, call, reference, **more)


CASES = [
    row("plain", PROJECTED),
    row("own-projections", draw((B, HEADS, N, K), (B, HEADS, A, K), (B, HEADS, A, V), (HEADS, R, A), (HEADS, R, A))),
    row("shared-keys", draw((B, N, K), (A, K), (A, V), (R, A), (B, R, A))),
    row(
        "masked-slots",
        PROJECTED,
        lambda w, *a: w.linformer_attention(*a, const(w, MASK)),
        lambda *a: sdpa(*a, MASK),
    ),
    row(
        "empty-row",
        PROJECTED,
        lambda w, *a: w.linformer_attention(*a, const(w, NOTHING), empty_rows="zero"),
        sdpa_zero,
    ),
    row("causal", PROJECTED, causal, causal_reference),
    row(
        "scale",
        PROJECTED,
        lambda w, *a: w.linformer_attention(*a, scale=0.9),
        lambda Q, *rest: sdpa(0.9 * Q * K**0.5, *rest),
    ),
    row("huge", huge, vjp_atol=1e-9),
    row("no-batch", draw((0, N, K), (0, A, K), (0, A, V), (R, A), (R, A))),
    row("one-slot", draw((B, N, K), (B, A, K), (B, A, V), (1, A), (1, A))),
    row("one-key", draw((N, K), (1, K), (1, V), (R, 1), (R, 1))),
    row(
        "in-heads",
        tree((B, A, D), shapes.attention_shapes(D, HEADS), (HEADS, R, A), (R, A)),
        in_heads,
        in_heads_reference,
    ),
]

HELPERS = {"slot_mask"}  # a mask, seen by the causal case; tests/attnmath/test_low_rank.py
