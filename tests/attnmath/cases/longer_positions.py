"""Longer than trained: rotations by given frequencies, and a core that turns by places among its keys."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from tests.attnmath.cases.case import B, Case, K, M, N, V, const, draw, normal

FREQUENCIES = np.array([0.9, 0.31, 0.07, 0.003, 1.7, 0.5, 0.02])  # in no order: rotary takes them as they are
MASK = np.random.default_rng(11).random((N, M)) < 0.6
MASK[:, 1] = True


def by_complex(X, start=0, pairing="interleaved"):
    """Each pair as a complex number, multiplied by e^(i omega p)."""
    n, k = X.shape[-2:]
    turns = torch.outer(torch.arange(start, start + n), torch.from_numpy(FREQUENCIES))
    pairs = X.unflatten(-1, (k // 2, 2)) if pairing == "interleaved" else X.unflatten(-1, (2, k // 2)).mT
    Z = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(turns), turns))
    return (Z if pairing == "interleaved" else Z.mT).flatten(-2)


def turned(world, *args, mask=None):
    turn = partial(world.rotary, frequencies=const(world, FREQUENCIES))
    core = partial(world.turned_attention, turn=turn)
    return core(*args) if mask is None else core(*args, const(world, mask))


def turned_reference(Q, Ks, Vs, mask=None):
    n, m = Q.shape[-2], Ks.shape[-2]
    allowed = None if mask is None else torch.from_numpy(mask)
    return F.scaled_dot_product_attention(by_complex(Q, m - n), by_complex(Ks), Vs, attn_mask=allowed)


HEADS = draw((B, N, 2 * K), (B, M, 2 * K), (B, M, V))
CASES = [
    Case(
        "rotary",
        "given-frequencies",
        normal(B, N, 2 * K),
        lambda w, X: w.rotary(X, frequencies=const(w, FREQUENCIES), start=5),
        lambda X: by_complex(X, 5),
    ),
    Case(
        "rotary",
        "given-frequencies-half",
        normal(N, 2 * K),
        lambda w, X: w.rotary(X, frequencies=const(w, FREQUENCIES), pairing="half"),
        lambda X: by_complex(X, 0, "half"),
    ),
    Case("turned_attention", "fewer-queries", HEADS, turned, turned_reference),
    Case("turned_attention", "masked", HEADS, partial(turned, mask=MASK), partial(turned_reference, mask=MASK)),
    Case(
        "turned_attention",
        "one-key",
        draw((B, 1, 2 * K), (B, 1, 2 * K), (B, 1, V)),
        turned,
        turned_reference,
        vjp_atol=1e-11,
    ),
    Case(
        "turned_attention",
        "no-batch",
        draw((0, N, 2 * K), (0, M, 2 * K), (0, M, V)),
        turned,
        turned_reference,
    ),
    Case(
        "turned_attention",
        "huge",
        lambda rng: tuple(
            scale * rng.standard_normal((B, n, w)) for n, w, scale in ((N, 14, 70), (M, 14, 70), (M, 2, 1))
        ),
        turned,
        turned_reference,
        vjp_atol=1e-9,
    ),
]

# plain arrays and numbers, which have no gradient; tests/attnmath/test_longer_positions.py
HELPERS = {"rotary_frequencies", "interpolated_frequencies", "ntk_frequencies", "yarn_frequencies"}
HELPERS |= {"yarn_temperature", "dynamic_factor"}
