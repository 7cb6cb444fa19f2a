"""Memories that decay and correct: each circumstance against the product of its transition matrices, written out."""

import numpy as np
import torch

from tests.attnmath.cases.case import HEADS, B, Case, K, M, N, V, const

LEAD = (B, HEADS)
HIDDEN = np.ones((B, 1, 1, M), bool)
HIDDEN[2, ..., 1] = HIDDEN[5, ..., :3] = HIDDEN[7, ..., 3:] = False
CAUSAL = np.tri(N, M, M - N, dtype=bool) & HIDDEN


def draw(*gates, lead=LEAD, queries=N, keys=M, scale=1.0):
    """Draws Q, keys of length 1, V and the named gates."""
    sizes = {"decay": (*lead, keys, 1), "decays": (*lead, keys, K), "beta": (*lead, keys, 1), "fixed": (HEADS, 1, 1)}

    def args(rng):
        Q, Ks, Vs = (rng.standard_normal((*lead, rows, c)) for rows, c in ((queries, K), (keys, K), (keys, V)))
        drawn = [rng.standard_normal((*lead, K, V)) if g == "state" else rng.uniform(0.2, 0.9, sizes[g]) for g in gates]
        return scale * Q, Ks / np.linalg.norm(Ks, axis=-1, keepdims=True), scale * Vs, *drawn

    return args


def options(gates, args):
    return {"decay" if gate in ("decays", "fixed") else gate: arg for gate, arg in zip(gates, args, strict=True)}


def call(f, *gates, mask=None, **more):
    def run(world, Q, K, V, *args):
        given = {key: const(world, X) if isinstance(X, np.ndarray) else X for key, X in more.items()}
        given |= {} if mask is None else {"mask": const(world, mask)}
        return getattr(world, f)(Q, K, V, **options(gates, args), **given)

    return run


def call_state(*gates, **more):
    return lambda world, K, V, *args: world.fast_weights_state(K, V, **options(gates, args), **more)


def written_out(Q, K, V, decay=None, beta=None, state=None, mask=None, scale=1.0):
    """The sum over all keys of products of k x k transition matrices, with nothing passed on from step to step."""
    lead, (m, k) = torch.broadcast_shapes(*(X.shape[:-2] for X in (Q, K, V))), K.shape[-2:]
    keep = torch.ones(m, 1) if mask is None else mask[..., -1:, :].transpose(-1, -2)
    eye, key = torch.eye(k, dtype=K.dtype), (K * keep)[..., None, :]  # rows
    A = eye.expand(*lead, m, k, k)
    if decay is not None:
        A = torch.where(keep[..., None] > 0, torch.diag_embed(decay.expand(*lead, m, k)), A)
    write = key.transpose(-1, -2)
    if beta is not None:
        write = beta[..., None] * write
        A = (eye - write * key) @ A
    writes = write @ V[..., None, :]
    rows = []
    for i in range(m - Q.shape[-2], m):
        S = torch.zeros(*lead, k, V.shape[-1], dtype=K.dtype)
        for j in range(-1, i + 1):
            term = writes[..., j, :, :] if j >= 0 else (S * 0 if state is None else state)
            for later in range(j + 1, i + 1):
                term = A[..., later, :, :] @ term
            S = S + term
        rows.append(S)
    S = torch.stack(rows, -3)
    return scale * (Q[..., None, :] @ S)[..., 0, :]


def reference(*gates, **more):
    more = {key: torch.from_numpy(X) if isinstance(X, np.ndarray) else X for key, X in more.items()}
    return lambda Q, K, V, *args: written_out(Q, K, V, **options(gates, args), **more)


def state_reference(*gates):
    """Row i of the last memory is what the i-th unit query reads."""

    def run(K, V, *args):
        units = torch.eye(K.shape[-1], dtype=K.dtype).expand(*K.shape[:-2], -1, -1)
        given = options(gates, args)
        return torch.cat([written_out(unit, K, V, **given) for unit in units.split(1, -2)], -2)

    return run


def both(circumstance, gates, sizes=None, **more):
    """A row for each form, with chunks of two keys."""
    args = draw(*gates, **(sizes or {}))
    expected, options = reference(*gates, **more), {"chunk": 2} | more
    return [
        Case("fast_weights", circumstance, args, call("fast_weights", *gates, **options), expected),
        Case("fast_weights_recurrent", circumstance, args, call("fast_weights_recurrent", *gates, **options), expected),
    ]


def state(circumstance, gates, **sizes):
    def args(rng):
        return draw(*gates, **sizes)(rng)[1:]

    return Case("fast_weights_state", circumstance, args, call_state(*gates, chunk=2), state_reference(*gates))


CASES = [
    *both("added", ()),
    *both("retained", ("fixed",)),
    *both("gated", ("decays",)),
    *both("delta", ("beta",)),
    *both("gated-delta", ("decay", "beta", "state")),
    *both("gated-delta-by-component", ("decays", "beta", "state"), scale=K**-0.5),
    *both("masked", ("decay", "beta", "state"), mask=CAUSAL, scale=0.3),
    *both("masked-by-component", ("decays",), mask=CAUSAL),
    *both("one-key", ("decays", "beta"), {"queries": 1, "keys": 1}),
    *both("no-batch", ("decay", "beta"), {"lead": (0, HEADS)}),
    *both("huge", ("decay", "beta"), {"scale": 1e4}),
    state("gated-delta", ("decay", "beta", "state")),
    state("by-component", ("decays",)),
    state("one-key", ("beta",), queries=1, keys=1),
    state("no-batch", ("beta",), lead=(0, HEADS)),
]
HELPERS = {"retention_decays"}  # a plain array; tests/theorems/test_fast_weights.py
