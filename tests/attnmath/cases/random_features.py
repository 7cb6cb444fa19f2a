"""Random features, and attention with them, against the products written out with PyTorch."""

from functools import partial

import numpy as np
import torch

from tests.attnmath.cases.case import Case, const, draw, normal

B, N, M, K, V, R = 2, 3, 7, 5, 4, 11  # batch, queries, keys, key width, value width, directions
W = np.random.default_rng(8).standard_normal((R, K))
SEEN = np.array([[True, True, False, True, True, False, True], [True, False, True, True, True, True, False]])[:, None]
CAUSAL = np.tril(np.ones((N, M), bool), M - N)
ANY = np.random.default_rng(3).random((N, M)) < 0.6
ANY[:, 1] = True


def directions(w, X):
    """The directions in the world and the dtype of X."""
    return const(w, W).to(X.dtype) if w.__name__.endswith("torch") else W.astype(X.dtype)


def positive(X):
    shifted = torch.einsum("...k,rk->...r", X, torch.from_numpy(W)) - X.square().sum(-1, keepdim=True) / 2
    return shifted.exp() / R**0.5


def trigonometric(X):
    """One direction after the other, cosines first."""
    waves = [X @ torch.from_numpy(w) for w in W]
    both = torch.stack([a.cos() for a in waves] + [a.sin() for a in waves], -1)
    return both * (X.square().sum(-1, keepdim=True) / 2).exp() / R**0.5


def averages(Q, K, V, allowed=None, scale=None):
    """Log-weights by a sum of exponentials of exponents, so that nothing overflows; then softmax."""
    c = (scale or K.shape[-1] ** -0.5) ** 0.5
    exponents = [
        torch.einsum("...k,rk->...r", c * X, torch.from_numpy(W)) - (c * X).square().sum(-1, keepdim=True) / 2
        for X in (Q, K)
    ]
    S = torch.logsumexp(exponents[0][..., :, None, :] + exponents[1][..., None, :, :], -1)
    S = S if allowed is None else S.masked_fill(~torch.from_numpy(allowed), -torch.inf)
    return S.softmax(-1) @ V


def call(w, Q, K, V, mask=None, **options):
    options |= {} if mask is None else {"mask": const(w, mask)}
    return w.performer_attention(Q, K, V, directions=directions(w, Q), **options)


QKV = draw((B, N, K), (B, M, K), (B, M, V))
CASES = [
    Case("random_features", "positive", normal(B, N, K), lambda w, X: w.random_features(X, directions(w, X)), positive),
    Case(
        "random_features",
        "trigonometric",
        normal(B, N, K, scale=0.7),
        lambda w, X: w.random_features(X, directions(w, X), kind="trigonometric"),
        trigonometric,
    ),
    Case("random_features", "no-batch", normal(0, N, K), lambda w, X: w.random_features(X, directions(w, X)), positive),
    Case("performer_attention", "plain", QKV, call, averages),
    Case("performer_attention", "scale", QKV, partial(call, scale=0.3), partial(averages, scale=0.3)),
    Case("performer_attention", "causal", QKV, partial(call, causal=True, chunk=2), partial(averages, allowed=CAUSAL)),
    Case("performer_attention", "causal-mask", QKV, partial(call, mask=CAUSAL), partial(averages, allowed=CAUSAL)),
    Case("performer_attention", "keys", QKV, partial(call, mask=SEEN), partial(averages, allowed=SEEN)),
    Case("performer_attention", "recurrent", QKV, partial(call, form="recurrent"), averages),
    Case(
        "performer_attention", "any-mask", QKV, partial(call, mask=ANY, form="parallel"), partial(averages, allowed=ANY)
    ),
    Case(
        "performer_attention",
        "shared-queries",
        draw((N, K), (B, M, K), (3, 1, M, V)),
        partial(call, mask=SEEN),
        partial(averages, allowed=SEEN),
    ),
    Case("performer_attention", "no-batch", draw((0, N, K), (0, M, K), (0, M, V)), call, averages),
    Case(
        "performer_attention",
        "huge",
        lambda rng: (100 * rng.standard_normal((N, K)), 100 * rng.standard_normal((M, K)), rng.standard_normal((M, V))),
        call,
        averages,
    ),
]
HELPERS = {"draw_directions"}  # draws constants, which have no gradient; tests/attnmath/test_random_features.py
