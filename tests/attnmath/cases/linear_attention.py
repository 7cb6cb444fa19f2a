"""Linear attention in its three forms, against the sum over keys written out with PyTorch."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from tests.attnmath.cases.case import Case, const, draw, normal

B, N, M, K, V = 2, 3, 7, 5, 4  # batch, queries, keys, key width, value width
SEEN = np.array([[True, True, False, True, True, False, True], [True, False, True, True, True, True, False]])[:, None]
CAUSAL = np.tril(np.ones((N, M), bool), M - N)
ANY = np.random.default_rng(3).random((N, M)) < 0.6
ANY[:, 1] = True


def written_out(Q, K, V, allowed=None, feature=lambda X: F.elu(X) + 1, normalise=True):
    """Every weight, then every average."""
    A = torch.einsum("...nf,...mf->...nm", feature(Q), feature(K))
    A = A if allowed is None else A * torch.from_numpy(allowed)
    A = A / A.sum(-1, keepdim=True) if normalise else A
    return torch.einsum("...nm,...mv->...nv", A, V)


def bent(world):
    """A feature map of one's own, that makes another number of features, some of them negative."""
    W = np.random.default_rng(5).standard_normal((K, 6))
    if world.__name__.endswith("torch"):
        return lambda X: torch.tanh(X @ torch.from_numpy(W).to(X.dtype)) + 0.5
    return lambda X: _bent(X, W.astype(X.dtype))


def _bent(X, W):
    A = np.tanh(X @ W)
    return A + np.asarray(0.5, A.dtype), lambda dF: (dF * (1 - A * A)) @ W.T


def call(w, Q, K, V, mask=None, feature=None, **options):
    options |= {} if feature is None else {"feature": feature(w)}
    return w.linear_attention(Q, K, V, **({} if mask is None else {"mask": const(w, mask)}), **options)


def huge(rng):
    """Features that are 0 or in the thousands, the first of them never 0."""
    Q, Ks = (1e4 * rng.standard_normal((rows, K)) for rows in (N, M))
    Q[:, 0], Ks[:, 0] = abs(Q[:, 0]), abs(Ks[:, 0])
    return Q, Ks, rng.standard_normal((M, V))


QKV = draw((B, N, K), (B, M, K), (B, M, V))
CASES = [
    Case("elu_plus_one", "plain", normal(B, N, K), lambda w, X: w.elu_plus_one(X), lambda X: F.elu(X) + 1),
    Case("elu_plus_one", "huge", normal(N, K, scale=1e4), lambda w, X: w.elu_plus_one(X), lambda X: F.elu(X) + 1),
    Case("elu_plus_one", "no-batch", normal(0, N, K), lambda w, X: w.elu_plus_one(X), lambda X: F.elu(X) + 1),
]
for form in ("parallel", "recurrent", "chunked"):
    plain = partial(call, form=form, chunk=2)
    CASES += [
        Case("linear_attention", f"{form}", QKV, plain, written_out),
        Case(
            "linear_attention", f"{form}-causal", QKV, partial(plain, causal=True), partial(written_out, allowed=CAUSAL)
        ),
        Case(
            "linear_attention",
            f"{form}-causal-mask",
            QKV,
            partial(plain, mask=CAUSAL),
            partial(written_out, allowed=CAUSAL),
        ),
        Case("linear_attention", f"{form}-keys", QKV, partial(plain, mask=SEEN), partial(written_out, allowed=SEEN)),
        Case(
            "linear_attention",
            f"{form}-causal-keys",
            QKV,
            partial(plain, mask=SEEN & CAUSAL),
            partial(written_out, allowed=SEEN & CAUSAL),
        ),
        Case(
            "linear_attention",
            f"{form}-unnormalised",
            QKV,
            partial(plain, causal=True, normalise=False),
            partial(written_out, allowed=CAUSAL, normalise=False),
        ),
        Case(
            "linear_attention",
            f"{form}-another-feature",
            draw((N, K), (B, M, K), (B, M, V)),
            partial(plain, feature=bent, causal=True, normalise=False),
            lambda Q, K, V: written_out(Q, K, V, CAUSAL, bent(torch), normalise=False),
        ),
        Case(
            "linear_attention",
            f"{form}-one-key",
            draw((N, K), (1, K), (1, V)),
            partial(plain, normalise=False),
            partial(written_out, normalise=False),
        ),
        Case(
            "linear_attention",
            f"{form}-shared-queries",
            draw((N, K), (B, M, K), (3, 1, M, V)),
            partial(plain, mask=SEEN),
            partial(written_out, allowed=SEEN),
        ),
        Case("linear_attention", f"{form}-no-batch", draw((0, N, K), (0, M, K), (0, M, V)), plain, written_out),
    ]
CASES += [
    Case("linear_attention", "one-chunk", QKV, partial(call, causal=True), partial(written_out, allowed=CAUSAL)),
    Case(
        "linear_attention", "any-mask", QKV, partial(call, mask=ANY, form="parallel"), partial(written_out, allowed=ANY)
    ),
    Case(
        "linear_attention",
        "huge",
        huge,
        call,
        lambda Q, K, V: written_out(Q, K, V, feature=lambda X: torch.where(X > 0, X + 1, X.clamp(max=0).exp())),
    ),
]
