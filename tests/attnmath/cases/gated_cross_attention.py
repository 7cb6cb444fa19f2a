"""Gated layers: how they are called in either world, and what PyTorch's own attention says."""

from functools import partial

import torch
import torch.nn.functional as F

from attnmath import shapes
from attnmath.flamingo_shapes import flamingo_shapes, gated_cross_attention_shapes, gated_sublayer_shapes
from tests.attnmath.cases.case import FF, HEADS, POSITIONS, TOKENS, B, Case, D, M, N, const, tree
from tests.attnmath.cases.case import A as E  # the width of the pictures' rows

GATED = gated_cross_attention_shapes(D, FF, E, heads=HEADS)
VECTOR = gated_cross_attention_shapes(D, FF, E, heads=HEADS, gates=D)
LANGUAGE = shapes.decoder_only_shapes(TOKENS, D, FF, 2, POSITIONS, heads=HEADS)
LANGUAGE |= {"norm": shapes.norm_shapes(D)}
WHOLE = flamingo_shapes(LANGUAGE, GATED, [1])
EACH = flamingo_shapes(LANGUAGE, VECTOR)
SEES = torch.rand(N, M, generator=torch.Generator().manual_seed(4)).numpy() > 0.4  # some of the pictures' rows
SEES[0] = False  # the first word stands before all pictures
IDS = torch.randint(TOKENS, (B, N), generator=torch.Generator().manual_seed(3)).numpy()


def normed(X, params):
    return F.layer_norm(X, (D,), params["gain"], params["bias"])


def linear(X, leaf):
    return F.linear(X, leaf["weight"].T, leaf.get("bias"))


def network(X, params):
    return linear(F.gelu(linear(X, params["up"])), params["down"])


def heads_of(X):
    return X.unflatten(-1, (HEADS, -1)).transpose(-2, -3)


def attended(X, memory, params, sees, causal=False):
    """PyTorch's own attention; rows that see nothing get zeros."""
    Q, K, V = (heads_of(linear(Y, params[n])) for n, Y in (("query", X), ("key", memory), ("value", memory)))
    if sees is None:
        H = F.scaled_dot_product_attention(Q, K, V, is_causal=causal)
    else:
        H = F.scaled_dot_product_attention(Q, K, V, attn_mask=sees | ~sees.any(-1, keepdim=True))
        H = H * sees.any(-1, keepdim=True)
    return linear(H.transpose(-2, -3).flatten(-2), params["output"])


def join(X, values, params):
    return X + torch.tanh(params["gate"]) * values


def layer(X, memory, params, sees=None):
    """The definition, line by line."""
    sees = None if sees is None else torch.from_numpy(sees)
    Z = normed(X, params["cross_attention_norm"]["norm"])
    X = join(X, attended(Z, memory, params["cross_attention"], sees), params["cross_attention_norm"])
    Z = normed(X, params["feed_forward_norm"]["norm"])
    return join(X, network(Z, params["feed_forward"]), params["feed_forward_norm"])


def model(memory, params, sees=SEES):
    X = params["embeddings"]["word"][IDS] + params["embeddings"]["position"][:N]
    for name, own in params["layers"].items():
        if memory is not None and name in params["gated"]:
            X = layer(X, memory, params["gated"][name], sees)
        Z = normed(X, own["attention_norm"])
        X = X + attended(Z, Z, own["attention"], None, causal=True)
        X = X + network(normed(X, own["feed_forward_norm"]), own["feed_forward"])
    return normed(X, params["norm"]) @ params["embeddings"]["word"].T


def joined(world, X, params):
    return world.gated_sublayer(X, partial(through, world), params)


def through(world, Z):
    """Twice the rows, cubed a little: a function with a slope of its own."""
    if world.__name__.endswith("torch"):
        return 2 * Z + Z**3
    return 2 * Z + Z**3, lambda dF: ((2 + 3 * Z**2) * dF,)


def joined_by_hand(X, params):
    Z = normed(X, params["norm"])
    return join(X, 2 * Z + Z**3, params)


def closed(*parts):
    """As `tree`, with every gate at 0."""
    draw = tree(*parts)

    def drawn(rng):
        *arrays, params = draw(rng)
        for name in ("cross_attention_norm", "feed_forward_norm"):
            params[name]["gate"] = 0 * params[name]["gate"]
        return *arrays, params

    return drawn


def huge(rng):
    """Queries and keys of some hundred: weights of 0 and 1."""
    X, memory, params = tree((B, N, D), (B, M, E), GATED)(rng)
    for name in ("query", "key"):
        params["cross_attention"][name]["weight"] *= 100
    return X, memory, params


def call(world, X, memory, params):
    return world.gated_cross_attention(X, memory, params, HEADS)


def masked(world, X, memory, params):
    return world.gated_cross_attention(X, memory, params, HEADS, const(world, SEES))


def whole(world, memory, params):
    return world.flamingo(const(world, IDS), memory, params, HEADS, const(world, SEES))


PLAIN, PICTURES = (B, N, D), (B, M, E)
CASES = [
    Case("gated_sublayer", "one-gate", tree(PLAIN, gated_sublayer_shapes(D)), joined, joined_by_hand),
    Case("gated_sublayer", "vector", tree(PLAIN, gated_sublayer_shapes(D, gates=D)), joined, joined_by_hand),
    Case("gated_sublayer", "no-batch", tree((0, N, D), gated_sublayer_shapes(D)), joined, joined_by_hand),
    Case("gated_cross_attention", "plain", tree(PLAIN, PICTURES, GATED), call, layer),
    Case("gated_cross_attention", "vector", tree(PLAIN, PICTURES, VECTOR), call, layer),
    Case("gated_cross_attention", "masked", tree(PLAIN, PICTURES, GATED), masked, partial(layer, sees=SEES)),
    Case("gated_cross_attention", "closed", closed(PLAIN, PICTURES, GATED), call, layer),
    Case("gated_cross_attention", "one-key", tree(PLAIN, (B, 1, E), GATED), call, layer),
    Case("gated_cross_attention", "huge", huge, call, layer, vjp_atol=1e-7),
    Case("gated_cross_attention", "no-batch", tree((0, N, D), (0, M, E), GATED), call, layer),
    Case("flamingo", "one-layer", tree(PICTURES, WHOLE), whole, model, 1e-11),
    Case("flamingo", "each-layer", tree(PICTURES, EACH), whole, model, 1e-11),
]

HELPERS = {"picture_mask"}  # booleans, without a gradient; tests/theorems/test_gated_cross_attention.py
