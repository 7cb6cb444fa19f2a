"""Weights beside softmax, against PyTorch's softmax with one key more, and against exponentials that are divided."""

from functools import partial

import numpy as np
import torch

from tests.attnmath.cases.case import Case, const, draw, normal

B, H, N, M, K, V = 2, 3, 4, 7, 5, 6  # batch, heads, queries, keys, key width, value width
SEEN = np.array([[True, True, False, True, True, False, True], [True, False, True, True, True, True, False]])
SEEN = SEEN[:, None, None]
ANY = np.random.default_rng(3).random((N, M)) < 0.7
ANY[:, 1] = True
NOTHING = ANY.copy()
NOTHING[2] = False


def hidden(S, allowed):
    return torch.zeros_like(S, dtype=torch.bool) if allowed is None else ~torch.from_numpy(allowed).expand(S.shape)


def pointwise(S, allowed=None, kind="sigmoid"):
    """Numerators and denominators as they are printed in the papers."""
    out = hidden(S, allowed)
    m = (~out).sum(-1, keepdim=True)
    W = {
        "sigmoid": lambda: 1 / (1 + m * torch.exp(-S)),
        "relu": lambda: torch.where(S > 0, S, torch.zeros_like(S)) / m,
        "squared_relu": lambda: torch.where(S > 0, S * S, torch.zeros_like(S)) / m,
        "square": lambda: S * S / m,
    }[kind]()
    return torch.where(out, torch.zeros_like(W), W)


def with_a_key(S, sinks=None, allowed=None):
    """PyTorch's softmax over one key more."""
    b = torch.zeros_like(S[..., 0]) if sinks is None else sinks[..., None].expand(S.shape[:-1])
    S = torch.where(hidden(S, allowed), torch.full_like(S, -torch.inf), S)
    return torch.softmax(torch.cat([b[..., None], S], -1), -1)[..., 1:]


def divided(S, allowed=None, steps=20):
    """Rows, then columns and rows, each divided by its sum; in logarithms of the matrix itself."""
    out = hidden(S, allowed)
    L = S.masked_fill(out, -1e300).log_softmax(-1)
    used = (~out).any(-2, keepdim=True)
    log_c = torch.log(S.shape[-2] / used.sum(-1, keepdim=True))
    for _ in range(steps):
        L = torch.where(used, L.log_softmax(-2) + log_c, L)
        L = L.log_softmax(-1)
    return torch.where(out, torch.zeros_like(L), L.exp())


def attention(weights):
    """A reference for the core of a reference for the weights."""

    def attend(Q, K, V, allowed=None, scale=None, bias=None, **options):
        S = torch.einsum("...nk,...mk->...nm", Q, K) * (K.shape[-1] ** -0.5 if scale is None else scale)
        S = S if bias is None else S + bias
        return torch.einsum("...nm,...mv->...nv", weights(S, allowed=allowed, **options), V)

    return attend


def call(name, w, *args, mask=None, **options):
    options |= {} if mask is None else {"mask": const(w, mask)}
    return getattr(w, name)(*args, **options)


SCORES, QKV = normal(B, H, N, M, scale=2.0), draw((B, H, N, K), (B, H, M, K), (B, H, M, V))
EMPTY = draw((0, H, N, K), (0, H, M, K), (0, H, M, V))
SHARED = draw((N, K), (B, 1, M, K), (B, H, M, V))


def huge(rng):
    return (40 * rng.standard_normal((H, N, M)),)  # exponentials beyond float32; beyond float64 in test_other_weights


def kinked(rng):
    """Scores that are 0, where ReLU has no slope."""
    return (rng.integers(-2, 3, (H, N, M)).astype(float),)


def weights(name, circumstance, args, reference, *, allowed=None, **options):
    theirs = partial(reference, allowed=allowed, **{k: v for k, v in options.items() if k != "gradient"})
    return Case(name, circumstance, args, partial(call, name, mask=allowed, **options), theirs)


def core(name, circumstance, args, reference, *, allowed=None, **options):
    theirs = partial(attention(reference), allowed=allowed, **{k: v for k, v in options.items() if k != "gradient"})
    return Case(name, circumstance, args, partial(call, name, mask=allowed, **options), theirs)


def with_bias(name, reference, bias=(H, 1, M)):
    args = draw((B, H, N, K), (B, H, M, K), (B, H, M, V), bias)
    return Case(
        name,
        "bias",
        args,
        lambda w, Q, K, V, b: getattr(w, name)(Q, K, V, bias=b),
        lambda Q, K, V, b: attention(reference)(Q, K, V, bias=b),
    )


POINTWISE = [
    weights("pointwise_weights", kind, SCORES, pointwise, kind=kind)
    for kind in ("sigmoid", "relu", "squared_relu", "square")
]
CASES = [
    *POINTWISE,
    weights("pointwise_weights", "any-mask", SCORES, pointwise, allowed=ANY, kind="square"),
    weights("pointwise_weights", "mask-of-keys", SCORES, pointwise, allowed=SEEN),
    weights("pointwise_weights", "kink", kinked, pointwise, kind="relu"),
    weights("pointwise_weights", "one-key", normal(H, N, 1), pointwise),
    weights("pointwise_weights", "no-batch", normal(0, N, M), pointwise),
    Case(
        "pointwise_weights",
        "huge",
        huge,
        lambda w, S: w.pointwise_weights(S),
        lambda S: torch.special.expit(S - np.log(M)),
    ),
    Case("sink_weights", "off-by-one", SCORES, lambda w, S: w.sink_weights(S), with_a_key),
    weights("sink_weights", "sinks", draw((B, H, N, M), (H,)), with_a_key),
    weights("sink_weights", "mask", draw((B, H, N, M), (B, 1)), with_a_key, allowed=ANY),
    weights("sink_weights", "empty-row", draw((B, H, N, M), (H,)), with_a_key, allowed=NOTHING),
    weights("sink_weights", "one-key", draw((H, N, 1), (H,)), with_a_key),
    weights("sink_weights", "huge", huge, with_a_key),
    weights("sink_weights", "no-batch", normal(0, N, M), with_a_key),
    weights("sinkhorn_weights", "unrolled", SCORES, divided, steps=3),
    Case("sinkhorn_weights", "softmax", SCORES, lambda w, S: w.sinkhorn_weights(S, steps=0), partial(divided, steps=0)),
    weights("sinkhorn_weights", "implicit", SCORES, divided, steps=400, gradient="implicit"),
    weights("sinkhorn_weights", "any-mask", SCORES, divided, allowed=ANY, steps=4),
    weights("sinkhorn_weights", "mask-of-keys", SCORES, divided, allowed=SEEN, steps=5),
    weights("sinkhorn_weights", "implicit-keys", SCORES, divided, allowed=SEEN, steps=400, gradient="implicit"),
    weights("sinkhorn_weights", "one-key", normal(H, N, 1), divided),
    weights("sinkhorn_weights", "one-query", normal(H, 1, M), divided),
    weights("sinkhorn_weights", "huge", huge, divided),
    weights("sinkhorn_weights", "no-batch", normal(0, N, M), divided),
    Case("pointwise_attention", "sigmoid", QKV, lambda w, *heads: w.pointwise_attention(*heads), attention(pointwise)),
    core("pointwise_attention", "squared-relu", QKV, pointwise, kind="squared_relu", scale=0.7),
    core("pointwise_attention", "shared-queries", SHARED, pointwise, allowed=SEEN),
    core("pointwise_attention", "no-batch", EMPTY, pointwise),
    with_bias("pointwise_attention", pointwise),
    core("sink_attention", "off-by-one", QKV, with_a_key),
    Case(
        "sink_attention",
        "sinks",
        draw((B, H, N, K), (B, H, M, K), (B, H, M, V), (H,)),
        lambda w, Q, K, V, b: w.sink_attention(Q, K, V, const(w, ANY), sinks=b, scale=0.6),
        lambda Q, K, V, b: attention(with_a_key)(Q, K, V, ANY, scale=0.6, sinks=b),
    ),
    core("sink_attention", "shared-queries", SHARED, with_a_key, allowed=SEEN),
    core("sink_attention", "no-batch", EMPTY, with_a_key),
    with_bias("sink_attention", with_a_key),
    Case(
        "sinkhorn_attention",
        "unrolled",
        QKV,
        lambda w, *heads: w.sinkhorn_attention(*heads, steps=3),
        partial(attention(divided), steps=3),
    ),
    core("sinkhorn_attention", "implicit", QKV, divided, steps=300, gradient="implicit"),
    core("sinkhorn_attention", "shared-queries", SHARED, divided, allowed=SEEN, scale=0.8),
    core("sinkhorn_attention", "no-batch", EMPTY, divided),
    with_bias("sinkhorn_attention", divided, (N, M)),  # what is added to a whole column is divided out again
]
