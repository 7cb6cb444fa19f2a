"""Attention in tiles, which PyTorch has as `scaled_dot_product_attention`."""

import numpy as np
import torch
import torch.nn.functional as F

from attnmath.layouts import causal, window
from tests.attnmath.cases.case import B, Case, K, M, N, V, const, draw

EACH = np.random.default_rng(11).random((B, N, M)) < 0.5  # a mask for each sequence
EACH[..., 3] = True
HOLE = np.ones((N, M), bool)
HOLE[1] = False
HOLE[:2, :2] = False  # a whole tile of 2 x 2 is hidden, and the second query sees nothing at all
PADDED = np.arange(M) < np.array([M, 1, 2, M, 3, 4, M, M, 1, 2, 3, 4, M])[:, None, None]


def sdpa(Q, K, V, mask=None, **options):
    mask = None if mask is None else torch.from_numpy(mask)
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, **options)


def tiled(mask=True, **options):
    """The component with a mask of NumPy's, which goes into either world."""
    options = {"tile": 2} | options
    return lambda w, *a: w.tiled_attention(*a, const(w, mask) if isinstance(mask, np.ndarray) else mask, **options)


def zeros_for_empty_rows(Q, K, V):
    filled = HOLE | ~HOLE.any(-1)[:, None]
    return sdpa(Q, K, V, filled) * torch.from_numpy(HOLE.any(-1))[:, None]


QKV = draw((B, N, K), (B, M, K), (B, M, V))
CASES = [
    Case("tiled_attention", "plain", QKV, tiled(), sdpa),
    Case("tiled_attention", "one-tile", QKV, tiled(tile=64), sdpa),
    Case("tiled_attention", "tiles-of-one", QKV, tiled(tile=1), sdpa),
    Case("tiled_attention", "mask", QKV, tiled(EACH), lambda *a: sdpa(*a, EACH)),
    Case("tiled_attention", "padding", QKV, tiled(PADDED), lambda *a: sdpa(*a, PADDED)),
    Case("tiled_attention", "causal", QKV, tiled(causal()), lambda *a: sdpa(*a, causal().mask(N, M))),
    Case("tiled_attention", "window", QKV, tiled(window(1)), lambda *a: sdpa(*a, window(1).mask(N, M))),
    Case("tiled_attention", "empty-row", QKV, tiled(HOLE, empty_rows="zero"), zeros_for_empty_rows),
    Case("tiled_attention", "scale", QKV, tiled(scale=1.3), lambda *a: sdpa(*a, scale=1.3)),
    Case("tiled_attention", "one-key", draw((N, K), (1, K), (1, V)), tiled(), sdpa),
    Case("tiled_attention", "no-batch", draw((0, N, K), (0, M, K), (0, M, V)), tiled(), sdpa),
    Case(
        "tiled_attention",
        "huge",
        lambda rng: (1e2 * rng.standard_normal((N, K)), 1e2 * rng.standard_normal((M, K)), rng.standard_normal((M, V))),
        tiled(),
        sdpa,
        vjp_atol=1e-9,
    ),
    Case(
        "tiled_attention",
        "shared-keys",
        draw((B, N, K), (M, K), (M, V)),
        tiled(),
        lambda Q, K, V: sdpa(Q, K.expand(B, -1, -1), V.expand(B, -1, -1)),
    ),
    Case(
        "tiled_attention",
        "many-tiles",  # and several groups of sequences, with a last one that is smaller
        draw((3, 5, 131, K), (3, 5, 167, K), (3, 5, 167, V)),
        tiled(causal(), tile=96),
        lambda *a: sdpa(*a, causal().mask(131, 167)),
    ),
]
