"""Weights that can be exactly zero, against the `entmax` package of those who proposed them."""

import entmax
import numpy as np
import torch

from tests.attnmath.cases.case import B, Case, K, M, N, V, const, draw, normal

SEEN = np.random.default_rng(5).random((N, M)) < 0.6
SEEN[:, 2] = True  # every query may attend to key 2
HOLE = SEEN.copy()
HOLE[1] = False
ALPHAS = np.array([1.3, 1.7])[:, None, None]  # one for each head
RIGHT = np.random.default_rng(6).dirichlet(np.ones(M), (B, N))
RIGHT[0] = np.eye(M)[[0, 3, 1]]


def by_package(S, alpha):
    """The package's function of a name where there is one, and its bisection to the last digit elsewhere."""
    if isinstance(alpha, float) and alpha in (1.0, 1.5, 2.0):
        return {1.0: torch.softmax, 1.5: entmax.entmax15, 2.0: entmax.sparsemax}[alpha](S, dim=-1)
    return entmax.entmax_bisect(S, alpha=alpha, dim=-1, n_iter=80)


def attended(Q, K, V, alpha=1.5, mask=None, scale=None, bias=0.0):
    """Masked scores get -1e6: with -inf the package gives nan. A row that sees nothing gets zeros."""
    S = torch.einsum("...nk,...mk->...nm", Q, K) * (scale or Q.shape[-1] ** -0.5) + bias
    if mask is None:
        return by_package(S, alpha) @ V
    mask = torch.from_numpy(mask)
    return by_package(S.masked_fill(~mask, -1e6), alpha) @ V * mask.any(-1, keepdim=True)


def loss(S, Y, alpha):
    """The definition: the maximum, with the package's maximiser, less the value at Y."""

    def value(P):
        H = torch.special.entr(P) if alpha == 1 else (P - P**alpha) / (alpha * (alpha - 1))
        return (P * S + H).sum(-1)

    return value(by_package(S, alpha)) - value(Y)


def tsallis(P, alpha):
    return ((1 - P ** (alpha - 1)) * P / (alpha - 1)).sum(-1) / alpha


def core(mask=None, **options):
    """The core with a mask of NumPy's, which goes into either world."""

    def call(w, *args):
        seen = {} if mask is None else {"mask": const(w, mask)}
        return w.entmax_attention(*args, **seen, **options)

    return call


def learned(w, Q, K, V, bias, alpha):
    return w.entmax_attention(Q, K, V, alpha=alpha, bias=bias)


def near(rng):
    """Huge scores whose differences are small."""
    return (1e4 + rng.standard_normal((B, N, M)),)


def huge(rng):
    return (1e4 * rng.standard_normal((B, N, M)),)


def probabilities(rng):
    return (rng.dirichlet(np.ones(M), (B, N)),)


QKV = draw((B, 2, N, K), (B, 2, M, K), (B, 2, M, V))
SCORES = {
    "plain": normal(B, N, M),
    "flat": normal(B, N, M, scale=0.05),  # every weight above 0
    "long": normal(2, 67, scale=0.3),
    "wide-range": near,
    "huge": huge,
    "one-key": normal(B, 1),
    "no-batch": normal(0, N, M),
}
CASES = [
    Case("sparsemax", at, args, lambda w, S: w.sparsemax(S), lambda S: by_package(S, 2.0), vjp_atol=1e-10)
    for at, args in SCORES.items()
]
CASES += [
    Case("entmax15", at, args, lambda w, S: w.entmax15(S), lambda S: by_package(S, 1.5), vjp_atol=1e-10)
    for at, args in SCORES.items()
]
CASES += [
    Case(
        "entmax_bisect",
        f"alpha-{alpha}",
        normal(B, N, M),
        lambda w, S, alpha=alpha: w.entmax_bisect(S, alpha),
        lambda S, alpha=alpha: by_package(S, alpha),
    )
    for alpha in (1.1, 1.3, 1.5, 2.0)
]
CASES += [
    Case(
        "entmax_bisect",
        "learned",
        lambda rng: (rng.standard_normal((B, 2, N, M)), ALPHAS.copy()),
        lambda w, S, alpha: w.entmax_bisect(S, alpha),
        by_package,
        vjp_atol=1e-10,
    ),
    Case(
        "entmax_bisect",
        "one-alpha",
        lambda rng: (rng.standard_normal((N, M)), np.array([1.4])),
        lambda w, S, alpha: w.entmax_bisect(S, alpha),
        by_package,
        vjp_atol=1e-10,
    ),
    Case("entmax_bisect", "one-key", normal(B, 1), lambda w, S: w.entmax_bisect(S, 1.3), lambda S: by_package(S, 1.3)),
    Case("entmax_bisect", "no-batch", normal(0, M), lambda w, S: w.entmax_bisect(S, 1.3), lambda S: by_package(S, 1.3)),
    Case("entmax_bisect", "huge", huge, lambda w, S: w.entmax_bisect(S, 1.3), lambda S: by_package(S, 1.3)),
]
CASES += [
    Case(
        "tsallis_entropy",
        f"alpha-{alpha}",
        probabilities,
        lambda w, P, alpha=alpha: w.tsallis_entropy(P, alpha),
        (lambda P: -(P * P.log()).sum(-1)) if alpha == 1 else (lambda P, alpha=alpha: tsallis(P, alpha)),
    )
    for alpha in (1.0, 1.5, 2.0, 3.2)
]
CASES += [
    Case(
        "fenchel_young_loss",
        f"alpha-{alpha}",
        normal(B, N, M),
        lambda w, S, alpha=alpha: w.fenchel_young_loss(S, const(w, RIGHT.astype(str(S.dtype).split(".")[-1])), alpha),
        lambda S, alpha=alpha: loss(S, torch.from_numpy(RIGHT), alpha),
    )
    for alpha in (1.0, 1.5, 1.7, 2.0)
]
CASES += [
    Case("entmax_attention", "plain", QKV, core(), attended),
    Case("entmax_attention", "softmax", QKV, core(alpha=1.0), lambda *a: attended(*a, alpha=1.0)),
    Case("entmax_attention", "between", QKV, core(alpha=1.3), lambda *a: attended(*a, alpha=1.3)),
    Case("entmax_attention", "mask", QKV, core(SEEN), lambda *a: attended(*a, mask=SEEN)),
    Case("entmax_attention", "empty-row", QKV, core(HOLE, empty_rows="zero"), lambda *a: attended(*a, mask=HOLE)),
    Case("entmax_attention", "scale", QKV, core(scale=0.7), lambda *a: attended(*a, scale=0.7)),
    Case(
        "entmax_attention",
        "learned-and-biased",
        lambda rng: (*QKV(rng), rng.standard_normal((2, 1, M)), ALPHAS.copy()),
        learned,
        lambda Q, K, V, bias, alpha: attended(Q, K, V, alpha=alpha, bias=bias),
        vjp_atol=1e-10,
    ),
    Case("entmax_attention", "one-key", draw((N, K), (1, K), (1, V)), core(), attended),
    Case("entmax_attention", "no-batch", draw((0, N, K), (0, M, K), (0, M, V)), core(), attended),
    Case("entmax_attention", "shared-keys", draw((B, N, K), (M, K), (M, V)), core(), attended),
    Case(
        "sparsemax_attention",
        "plain",
        QKV,
        lambda w, *a: w.sparsemax_attention(*a),
        lambda *a: attended(*a, alpha=2.0),
    ),
    Case(
        "sparsemax_attention",
        "empty-row",
        QKV,
        lambda w, *a: w.sparsemax_attention(*a, mask=const(w, HOLE), empty_rows="zero", scale=0.7),
        lambda *a: attended(*a, alpha=2.0, mask=HOLE, scale=0.7),
    ),
]
