"""Scores from a distance, against PyTorch's own `cdist` and softmax."""

from functools import partial

import numpy as np
import torch

from tests.attnmath.cases.case import Case, const, draw

B, H, N, M, K, V = 2, 3, 5, 7, 4, 6  # batch, heads, queries, keys, key width, value width
ALLOWED = np.random.default_rng(4).random((N, M)) < 0.5
ALLOWED[:, 3] = True
CAUSAL = np.tril(np.ones((N, M), bool), M - N)


def distances(Q, K, bandwidth):
    """Differences component by component, in PyTorch's own kernel."""
    D = torch.cdist(Q, K, compute_mode="donot_use_mm_for_euclid_dist")
    return -D.square() / (2 * bandwidth[..., None, None] ** 2)


def averages(Q, K, V, bandwidth, allowed=None):
    S = distances(Q, K, bandwidth)
    S = S if allowed is None else S.masked_fill(~torch.from_numpy(allowed), -torch.inf)
    return S.softmax(-1) @ V


def call(w, *args, mask=None):
    return w.metric_attention(*args, **({} if mask is None else {"mask": const(w, mask)}))


def with_width(*shapes, width=(H,), scale=1.0):
    """Arrays of the shapes, and bandwidths between 0.5 and 1.5."""
    return lambda rng: (*(scale * rng.standard_normal(s) for s in shapes), np.asarray(0.5 + rng.random(width)))


HEADS = (B, H, N, K), (B, H, M, K), (B, H, M, V)
CASES = [
    Case("metric_score", "heads", with_width(*HEADS[:2]), lambda w, *args: w.metric_score(*args), distances),
    Case(
        "metric_score", "one-width", with_width((N, K), (M, K), width=()), lambda w, *a: w.metric_score(*a), distances
    ),
    Case(
        "metric_score",
        "no-batch",
        with_width((0, N, K), (0, M, K), width=()),
        lambda w, *a: w.metric_score(*a),
        distances,
    ),
    Case(
        "metric_score",
        "number",
        draw((N, K), (M, K)),
        lambda w, Q, K: first_two(w.metric_score(Q, K, 0.7)),
        lambda Q, K: distances(Q, K, torch.tensor(0.7, dtype=torch.float64)),
    ),
    Case("metric_attention", "heads", with_width(*HEADS), call, averages),
    Case(
        "metric_attention", "mask", with_width(*HEADS), partial(call, mask=ALLOWED), partial(averages, allowed=ALLOWED)
    ),
    Case(
        "metric_attention", "causal", with_width(*HEADS), partial(call, mask=CAUSAL), partial(averages, allowed=CAUSAL)
    ),
    Case(
        "metric_attention",
        "shared-keys",
        with_width((B, H, N, K), (M, K), (B, 1, M, V), width=(B, 1)),
        partial(call, mask=ALLOWED),
        partial(averages, allowed=ALLOWED),
    ),
    Case("metric_attention", "widths-alone-have-heads", with_width((N, K), (M, K), (M, V)), call, averages),
    Case("metric_attention", "one-key", with_width((H, N, K), (H, 1, K), (H, 1, V)), call, averages),
    Case("metric_attention", "no-batch", with_width((0, N, K), (0, M, K), (0, M, V), width=()), call, averages),
    Case("metric_attention", "huge", with_width(*HEADS, scale=1e2), call, averages, vjp_atol=1e-7),
]


def first_two(y):
    """A bandwidth that is a number has a cotangent too, which no reference is asked for."""
    if not isinstance(y, tuple):
        return y
    return y[0], lambda dS: y[1](dS)[:2]
