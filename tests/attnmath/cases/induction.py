"""Attention-only models and patched heads, against PyTorch's own functions put together here."""

import numpy as np
import torch
import torch.nn.functional as F

from attnmath import shapes
from tests.attnmath.cases.case import HEADS, POSITIONS, TOKENS, B, Case, D, K, M, N, V, const, draw

PLAIN = {
    name: {"weight": X["weight"]} for name, X in shapes.attention_shapes(D, HEADS).items()
}  # no biases, as paths need it
PARAMS = {
    "embeddings": {"word": (TOKENS, D), "position": (POSITIONS, D)},
    "layers": {"0": {"attention": shapes.attention_shapes(D, HEADS)}, "1": {"attention": PLAIN}},
    "head": {"weight": (D, TOKENS)},
}
TIED = {"embeddings": {"word": (TOKENS, D)}, "layers": {"0": {"attention": PLAIN}}}
IDS = np.random.default_rng(5).integers(0, TOKENS, (B, N))
GIVEN = np.random.default_rng(6).random((N, M))
MANY = np.random.default_rng(7).random((B, N, M)) - 0.5
CAUSAL = np.tril(np.ones((N, M), bool), M - N)


def params(tree, sharpness):
    def drawn(rng):
        found = shapes.random_tree(tree, rng, 0.4)
        for layer in found["layers"].values():
            layer["attention"]["query"]["weight"] *= sharpness
        return (found,)

    return drawn


def by_hand(ids, heads=HEADS):
    """Each layer by torch's own attention."""

    def model(params):
        X = F.embedding(torch.from_numpy(ids), params["embeddings"]["word"])
        if "position" in params["embeddings"]:
            X = X + params["embeddings"]["position"][: ids.shape[-1]]
        for layer in params["layers"].values():
            own = layer["attention"]
            maps = {name: X @ own[name]["weight"] + own[name].get("bias", 0) for name in ("query", "key", "value")}
            Q, K, V = (Y.unflatten(-1, (heads, -1)).transpose(-2, -3) for Y in maps.values())
            O = F.scaled_dot_product_attention(Q, K, V, is_causal=True).transpose(-2, -3).flatten(-2)
            X = X + O @ own["output"]["weight"] + own["output"].get("bias", 0)
        table = params["head"]["weight"] if "head" in params else params["embeddings"]["word"].T
        return X @ table

    return model


def model(circumstance, tree, ids=IDS, sharpness=1.0, **tolerance):
    def call(world, params):
        return world.attention_only(const(world, ids), params, HEADS)

    return Case("attention_only", circumstance, params(tree, sharpness), call, by_hand(ids), **tolerance)


def patch(circumstance, args, patches, mask=None):
    def call(world, Q, K, V):
        core = world.patched(world.attention, {a: const(world, P) for a, P in patches.items()})
        return core(Q, K, V, **({} if mask is None else {"mask": const(world, mask)}))

    def reference(Q, K, V):
        allowed = None if mask is None else torch.from_numpy(mask)
        own = F.scaled_dot_product_attention(Q, K, V, attn_mask=allowed)
        given = torch.zeros(HEADS, N, K.shape[-2], dtype=Q.dtype).expand(*own.shape[:-2], N, -1).clone()
        chosen = torch.zeros(HEADS, 1, 1, dtype=torch.bool)
        for a, P in patches.items():
            given[..., a, :, :] = torch.from_numpy(P)
            chosen[a] = True
        return torch.where(chosen, torch.einsum("...ij,...jv->...iv", given, V), own)

    return Case("patched", circumstance, args, call, reference)


def huge(rng):
    return (1e4 * rng.standard_normal((B, HEADS, N, K)), *(rng.standard_normal((B, HEADS, M, w)) for w in (K, V)))


QKV = draw((B, HEADS, N, K), (B, HEADS, M, K), (B, HEADS, M, V))
CASES = [
    model("two-layers", PARAMS),
    model("tied", TIED),
    model("one-token", PARAMS, IDS[:, :1]),
    model("one-text", PARAMS, IDS[0]),
    model("no-batch", PARAMS, IDS[:0]),
    model("huge", PARAMS, sharpness=1e4, vjp_atol=1e-9),
    patch("one-head", QKV, {1: GIVEN}),
    patch("both-heads", QKV, {0: GIVEN, 1: MANY}),
    patch("none", QKV, {}),
    patch("causal", QKV, {0: MANY}, CAUSAL),
    patch("one-key", draw((B, HEADS, N, K), (B, HEADS, 1, K), (B, HEADS, 1, V)), {0: GIVEN[:, :1]}),
    patch("no-batch", draw((0, HEADS, N, K), (0, HEADS, M, K), (0, HEADS, M, V)), {1: GIVEN}),
    patch("no-leading-axis", draw((HEADS, N, K), (HEADS, M, K), (HEADS, M, V)), {1: GIVEN}),
    patch("huge", huge, {0: GIVEN}, CAUSAL),
]
