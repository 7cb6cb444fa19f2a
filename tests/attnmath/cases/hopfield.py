"""Hopfield networks, against sums over patterns written out with PyTorch, one state after the other."""

from functools import partial

import numpy as np
import torch

from tests.attnmath.cases.case import Case, const, draw

B, N, M, K, V = 2, 3, 5, 7, 4  # batch, states, patterns, width, width of values
SEEN = np.array([[True, True, False, True, True], [True, False, True, True, False]])[:, None]
EACH = np.random.default_rng(3).random((B, N, M)) < 0.6
EACH[..., 1] = True


def shares(x, K, beta, seen):
    """The weights of one state, from exponentials of differences to its best pattern."""
    scores = torch.stack([beta * (x * k).sum() for k in K])
    best = scores[torch.from_numpy(seen)].max().detach()
    parts = [torch.exp(s - best) if ok else torch.zeros_like(s) for s, ok in zip(scores, seen, strict=True)]
    return torch.stack([part / sum(parts) for part in parts])


def written_out(Q, K, V=None, allowed=True, scale=None, steps=1):
    """Row by row and step by step; the last step reads V if there is one."""
    lead = torch.broadcast_shapes(
        *(A.shape[:-2] for A in (Q, K) if A is not None), V.shape[:-2] if V is not None else ()
    )
    beta = scale or Q.shape[-1] ** -0.5
    seen = np.broadcast_to(allowed, (*lead, Q.shape[-2], K.shape[-2])).copy()
    Qs, Ks = Q.expand(*lead, *Q.shape[-2:]), K.expand(*lead, *K.shape[-2:])
    Vs = Ks if V is None else V.expand(*lead, *V.shape[-2:])
    rows = []
    for at in np.ndindex(*lead, Q.shape[-2]):
        x, keys, values = Qs[at], Ks[at[:-1]], Vs[at[:-1]]
        for _ in range(steps - 1):
            x = (shares(x, keys, beta, seen[at])[:, None] * keys).sum(0)
        rows.append((shares(x, keys, beta, seen[at])[:, None] * values).sum(0))
    shape = (*lead, Q.shape[-2], Vs.shape[-1])
    return torch.stack(rows).reshape(shape) if rows else (Qs.sum() + Ks.sum() + Vs.sum()) * torch.ones(shape).double()


def energy(X, K, scale=None):
    """Half the square of the norm minus a smooth maximum, pattern by pattern."""
    beta = scale or X.shape[-1] ** -0.5
    scores = torch.stack([beta * (X * K[..., j : j + 1, :]).sum(-1) for j in range(K.shape[-2])], -1)
    top = scores.amax(-1).detach()
    return X.pow(2).sum(-1) / 2 - (top + (scores - top[..., None]).exp().sum(-1).log()) / beta


def call(name, world, *arrays, mask=None, **options):
    options |= {} if mask is None else {"mask": const(world, mask)}
    return getattr(world, name)(*arrays, **options)


def update(circumstance, args, mask=True, **options):
    given = options if mask is True else options | {"mask": mask}
    return Case(
        "hopfield",
        circumstance,
        args,
        partial(call, "hopfield", **given),
        lambda X, K: written_out(X, K, None, mask, options.get("scale"), options.get("steps", 1)),
    )


def core(circumstance, args, mask=True, **options):
    given = options if mask is True else options | {"mask": mask}
    return Case(
        "hopfield_attention",
        circumstance,
        args,
        partial(call, "hopfield_attention", **given),
        lambda Q, K, V: written_out(Q, K, V, mask, options.get("scale"), options.get("steps", 2)),
    )


def far(*shape_list):
    """States a hundred times as large: the first step chooses one pattern."""
    return lambda rng: tuple(
        (100.0 if i == 0 else 1.0) * rng.standard_normal(shape) for i, shape in enumerate(shape_list)
    )


XK, QKV = draw((B, N, K), (B, M, K)), draw((B, N, K), (B, M, K), (B, M, V))
CASES = [
    update("one-step", XK),
    update("four-steps", XK, scale=0.3, steps=4),
    update("sharp", XK, scale=1.5, steps=3),
    update("some-patterns", XK, SEEN, steps=3),
    update("any-mask", XK, EACH, steps=2),
    update("shared-patterns", draw((B, N, K), (M, K)), steps=3),
    update("shared-states", draw((N, K), (B, M, K)), steps=3),
    update("one-pattern", draw((N, K), (1, K)), steps=2),
    update("one-component", draw((N, 1), (M, 1)), scale=0.7, steps=3),
    update("no-batch", draw((0, N, K), (0, M, K)), steps=3),
    update("huge", far((B, N, K), (B, M, K)), scale=1.0, steps=2),
    core("two-steps", QKV),
    core("one-step", QKV, steps=1),
    core("four-steps", QKV, scale=0.6, steps=4),
    core("any-mask", QKV, EACH, steps=3),
    core("shared-queries", draw((N, K), (B, M, K), (3, 1, M, V)), SEEN, steps=3),
    core("mask-of-the-values", draw((N, K), (M, K), (B, M, V)), EACH, steps=3),
    core("no-batch", draw((0, N, K), (0, M, K), (0, M, V))),
    core("huge", far((B, N, K), (B, M, K), (B, M, V)), scale=1.0),
    Case("hopfield_energy", "plain", XK, partial(call, "hopfield_energy"), energy),
    Case("hopfield_energy", "sharp", XK, partial(call, "hopfield_energy", scale=2.0), partial(energy, scale=2.0)),
    Case("hopfield_energy", "shared-states", draw((N, K), (B, M, K)), partial(call, "hopfield_energy"), energy),
    Case("hopfield_energy", "one-pattern", draw((N, K), (1, K)), partial(call, "hopfield_energy"), energy),
    Case("hopfield_energy", "no-batch", draw((0, N, K), (0, M, K)), partial(call, "hopfield_energy"), energy),
    Case("hopfield_energy", "huge", far((B, N, K), (B, M, K)), partial(call, "hopfield_energy"), energy, 1e-10),
]
