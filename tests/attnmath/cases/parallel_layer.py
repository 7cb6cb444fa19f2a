"""A layer with its two halves side by side, against `nn.MultiheadAttention` and plain products."""

from functools import partial

import torch
import torch.nn.functional as F

from attnmath.parallel_shapes import parallel_layer_shapes
from tests.attnmath.cases.case import FF, HEADS, B, Case, D, N, tree

LINEARS = ("query", "key", "value")


def reference(X, p, allowed=None, relu=False):
    Z = F.layer_norm(X, (D,), p["norm"]["gain"], p["norm"]["bias"])
    own, net = p["attention"], p["feed_forward"]
    joint = torch.cat([own[name]["weight"].T for name in LINEARS])
    biases = torch.cat([own[name]["bias"] for name in LINEARS])
    rows = Z.transpose(-2, -3)
    out = (own["output"]["weight"].T, own["output"]["bias"])
    mask = None if allowed is None else ~allowed
    A, _ = F.multi_head_attention_forward(
        rows, rows, rows, D, HEADS, joint, biases, None, None, False, 0.0, *out, need_weights=False, attn_mask=mask
    )
    hidden = Z @ net["up"]["weight"] + net["up"]["bias"]
    return (
        A.transpose(-2, -3)
        + X
        + (hidden.relu() if relu else F.gelu(hidden)) @ net["down"]["weight"]
        + net["down"]["bias"]
    )


def causal(world):
    return world.causal_mask(N)


CASES = [
    Case(
        "parallel_layer",
        "normal",
        tree((B, N, D), parallel_layer_shapes(D, FF)),
        lambda w, X, p: w.parallel_layer(X, p, HEADS),
        reference,
    ),
    Case(
        "parallel_layer",
        "causal-relu",
        tree((B, N, D), parallel_layer_shapes(D, FF)),
        lambda w, X, p: w.parallel_layer(
            X, p, HEADS, causal(w), feed_forward=partial(w.feed_forward, activation=w.relu)
        ),
        lambda X, p: reference(X, p, torch.ones(N, N, dtype=torch.bool).tril(), relu=True),
    ),
    Case(
        "parallel_layer",
        "no-batch",
        tree((0, N, D), parallel_layer_shapes(D, FF)),
        lambda w, X, p: w.parallel_layer(X, p, HEADS),
        reference,
    ),
]
