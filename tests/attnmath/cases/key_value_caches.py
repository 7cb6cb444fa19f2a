"""Latent keys and values, in both forms, against `transformers`' way of computing them written with torch alone."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from attnmath import latent
from tests.attnmath.cases.case import B, Case, D, M, N, const, tree
from tests.attnmath.cases.longer_positions import by_complex

HEADS, WIDE, ROTARY, VALUE, LATENT = 3, 5, 14, 2, 11
SHAPES = latent.latent_shapes(D, HEADS, WIDE, VALUE, latent=LATENT, rotary=ROTARY)
THROUGH = latent.latent_shapes(D, HEADS, WIDE, VALUE, latent=LATENT, rotary=ROTARY, query=7)
STILL = latent.latent_shapes(D, HEADS, WIDE, VALUE, latent=LATENT, rotary=0)
MASK = np.random.default_rng(17).random((N, M)) < 0.6
MASK[:, 1] = True


def call(world, Q, K, params, *, absorbed=False, turned=True, mask=True, scale=None):
    """The values are the keys' tokens, so that their cotangent, zero, is left out."""
    from tests.attnmath.cases.longer_positions import FREQUENCIES

    turn = partial(world.rotary, frequencies=const(world, FREQUENCIES)) if turned else None
    options = {"turn": turn, "absorbed": absorbed, "scale": scale}
    mask = mask if mask is True else const(world, mask)
    result = world.latent_attention(Q, K, K, params, HEADS, mask, **options)
    if not isinstance(result, tuple):
        return result
    O, vjp = result

    def both(dO):
        dQ, dK, dV, dparams = vjp(dO)
        assert not dV.any()
        return dQ, dK, dparams

    return O, both


def reference(Q, K, params, *, turned=True, mask=True, scale=None, absorbed=False):
    def norm(X, gain):
        return F.rms_norm(X, gain.shape, gain, 1e-6)

    def cut(X, *widths):
        return X.unflatten(-1, (HEADS, -1)).transpose(-2, -3).split(widths, -1)

    def map_of(X, name):
        return F.linear(X, params[name]["weight"].T, params[name].get("bias"))

    Q = norm(map_of(Q, "query_down"), params["query_norm"]["gain"]) if "query_down" in params else Q
    r = ROTARY if turned else 0
    q, q_turned = cut(map_of(Q, "query"), WIDE, r)
    C, R = map_of(K, "down").split((LATENT, r), -1)
    k, v = cut(map_of(norm(C, params["norm"]["gain"]), "up"), WIDE, VALUE)
    R = R.unsqueeze(-3)
    if turned:
        q_turned, R = by_complex(q_turned), by_complex(R)
    keys, queries = torch.cat([k, R.expand(*k.shape[:-1], r)], -1), torch.cat([q, q_turned], -1)
    allowed = None if mask is True else torch.from_numpy(mask)
    H = F.scaled_dot_product_attention(queries, keys, v, attn_mask=allowed, scale=scale)
    return map_of(H.transpose(-2, -3).flatten(-2), "output")


def rows(name, shapes, **options):
    return Case(
        "latent_attention",
        name,
        tree((B, N, D), (B, M, D), shapes),
        partial(call, **options),
        partial(reference, **options),
        vjp_atol=1e-11,
    )


CASES = [
    rows("plain", SHAPES),
    rows("absorbed", SHAPES, absorbed=True),
    rows("masked", SHAPES, mask=MASK),
    rows("absorbed-masked-scaled", SHAPES, mask=MASK, absorbed=True, scale=0.3),
    rows("queries-through-a-latent", THROUGH, absorbed=True),
    rows("not-turned", STILL, turned=False),
    rows("absorbed-not-turned", STILL, turned=False, absorbed=True),
    Case("latent_attention", "one-key", tree((B, 1, D), (B, 1, D), SHAPES), call, reference, vjp_atol=1e-11),
    Case(
        "latent_attention",
        "no-batch",
        tree((0, N, D), (0, M, D), STILL),
        partial(call, turned=False),
        partial(reference, turned=False),
    ),
    Case(
        "latent_attention",
        "huge",
        lambda rng: tuple(1e3 * X if isinstance(X, np.ndarray) else X for X in tree((B, N, D), (B, M, D), SHAPES)(rng)),
        partial(call, absorbed=True),
        reference,
        vjp_atol=1e-6,
    ),
]

HELPERS = {"quantised", "dequantised"}  # rounding, which has no gradient; tests/attnmath/test_key_value_caches.py
