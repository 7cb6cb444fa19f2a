"""Scans whose steps depend on the input, against the torch paths of transformers' Mamba and Mamba-2."""

import importlib
import types
from contextlib import ExitStack
from functools import partial
from unittest import mock

import numpy as np
import torch

from attnmath import shapes
from attnmath.state_shapes import mamba2_shapes, mamba_shapes
from tests.attnmath.cases.case import HEADS, A, B, Case, D, K, M, N, V, const

S = 3  # states of a channel
INNER, RANK = 2 * D, 2  # of a layer
KEYS = np.arange(M) != 1
LOWER = np.tril(np.ones((M, M), bool)) & (np.arange(M) != 2)
LOWER[2, 0] = False  # hides a key from one query only


def theirs(name):
    """A module of transformers, which takes seconds to import; its casts to float32 are lifted."""
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


class Wide(types.ModuleType):
    """torch, as a module of transformers sees it, with float64 where it asks for float32."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


wide = partial(mock.patch.object, torch.Tensor, "float", torch.Tensor.double)


def scanned(*lead, n=A, step=0.7):
    """Draws inputs, positive steps, negative rates, and what writes and reads."""

    def draw(rng):
        U = rng.standard_normal((*lead, n, V))
        steps = step * np.exp(0.5 * rng.standard_normal((*lead, n, V)))
        B, C = rng.standard_normal((2, *lead, n, S))
        return U, steps, -np.exp(0.5 * rng.standard_normal((V, S))), B, C

    return draw


def scan_reference(U, step, A, B, C):
    """transformers' recurrent path, with one batch axis and channels before positions."""
    flat = [X.reshape(-1, *X.shape[-2:]).transpose(1, 2) for X in (U, step, B, C)]
    with wide():
        return theirs("mamba").mamba_selective_scan(*flat[:2], A, *flat[2:]).transpose(1, 2).reshape(U.shape)


def linear_reference(A, B):
    """Every product of factors written out."""
    n = A.shape[-2]
    rows = [sum(B[..., j, :] * A[..., j + 1 : t + 1, :].prod(-2) for j in range(t + 1)) for t in range(n)]
    return torch.stack(rows, -2)


def dual_draw(*lead, n=M, rate=0.5):
    def draw(rng):
        Q, Ks = rng.standard_normal((*lead, n, K)), rng.standard_normal((*lead, M, K))
        return Q, Ks, rng.standard_normal((*lead, M, V)), -rate * np.exp(rng.standard_normal((*lead, M)))

    return draw


def dual_call(world, Q, Ks, Vs, g, mask=True, **options):
    mask = mask if mask is True else const(world, mask)
    return world.state_space_dual(Q, Ks, Vs, mask, decay=g, **options)


def dual_reference(Q, Ks, Vs, g):
    """transformers' chunked path of Mamba-2: the step is the decay with its sign turned, and the rate is -1."""
    turned = [X.transpose(1, 2) for X in (Vs / -g[..., None], -g, Ks, Q)]
    values, step, Ks, Q = turned
    minus = -torch.ones(step.shape[-1], dtype=g.dtype)
    with wide():
        O = theirs("mamba2").mamba2_chunk_scan(values, step, minus, Ks, Q, chunk_size=2)
    return O.transpose(1, 2)


def masked_reference(Q, Ks, Vs, g, mask):
    """One state after another; a key that is hidden from a query is taken out of the sum of that query."""
    n, m = Q.shape[-2], Ks.shape[-2]
    mask, rows = np.broadcast_to(mask, (n, m)), []
    for i in range(n):
        H = torch.zeros_like(Ks[..., :1, :]).transpose(-1, -2) * Vs[..., :1, :]
        for j in range(m - n + i + 1):
            new = Ks[..., j, :, None] * Vs[..., j, None, :]
            H = g[..., j, None, None].exp() * H + float(mask[i, j]) * new
        rows.append((Q[..., i, None, :] @ H)[..., 0, :])
    return torch.stack(rows, -2)


def no_decay(Q, Ks, Vs):
    return (Q @ Ks.transpose(-1, -2)).tril(Ks.shape[-2] - Q.shape[-2]) @ Vs


def layer(tree, *lead):
    """Draws rows and parameters at a scale where gates and steps are neither open nor shut."""
    return lambda rng: (rng.standard_normal((*lead, M, D)), shapes.random_tree(tree, rng, 0.5))


def module(kind, name, config, weights, X, lifted):
    with ExitStack() as casts:
        if lifted:
            casts.enter_context(wide())
            casts.enter_context(mock.patch.object(theirs(name), "torch", Wide("torch")))
        built = getattr(theirs(name), kind)(config, 0).double().train()
        batch = X.reshape(-1, *X.shape[-2:])
        return torch.func.functional_call(built, weights, (batch,)).reshape(X.shape)


def mamba_reference(X, params, lifted=True):
    """transformers' MambaMixer on its slow path; ``lifted``: in float64 where it asks for float32."""
    from transformers import MambaConfig

    sizes = dict(hidden_size=D, intermediate_size=INNER, state_size=S, time_step_rank=RANK, conv_kernel=K)
    config = MambaConfig(num_hidden_layers=1, expand=2, **sizes)
    weights = {
        "in_proj.weight": params["input"]["weight"].T,
        "conv1d.weight": params["conv"]["weight"].T[:, None],
        "conv1d.bias": params["conv"]["bias"],
        "x_proj.weight": params["select"]["weight"].T,
        "dt_proj.weight": params["step"]["weight"].T,
        "dt_proj.bias": params["step"]["bias"],
        "A_log": params["rate"],
        "D": params["skip"],
        "out_proj.weight": params["output"]["weight"].T,
    }
    return module("MambaMixer", "mamba", config, weights, X, lifted)


def mamba2_reference(X, params, lifted=True):
    """transformers' Mamba2Mixer on its torch path; ``lifted`` as above."""
    from transformers import Mamba2Config

    sizes = dict(hidden_size=D, state_size=S, conv_kernel=K, num_heads=HEADS, head_dim=D // HEADS, chunk_size=2)
    config = Mamba2Config(num_hidden_layers=1, expand=1, n_groups=1, layer_norm_epsilon=1e-5, **sizes)
    weights = {
        "in_proj.weight": params["input"]["weight"].T,
        "conv1d.weight": params["conv"]["weight"].T[:, None],
        "conv1d.bias": params["conv"]["bias"],
        "dt_bias": params["step"],
        "A_log": params["rate"],
        "D": params["skip"],
        "norm.weight": params["norm"]["gain"],
        "out_proj.weight": params["output"]["weight"].T,
    }
    return module("Mamba2Mixer", "mamba2", config, weights, X, lifted)


MAMBA, MAMBA2 = mamba_shapes(D, INNER, S, RANK, K), mamba2_shapes(D, D, S, HEADS, K)


def scan(world, *args, **options):
    return world.selective_scan(*args, **options)


def pair(*lead, n=A):
    return lambda rng: tuple(rng.standard_normal((2, *lead, n, S)))


def linear(world, *args, **options):
    return world.linear_scan(*args, **options)


CASES = [
    Case("linear_scan", "sequential", pair(B), linear, linear_reference),
    Case("linear_scan", "parallel", pair(B), partial(linear, form="parallel"), linear_reference),
    Case("linear_scan", "even", pair(n=6), partial(linear, form="parallel"), linear_reference),
    Case("linear_scan", "one step", pair(n=1), partial(linear, form="parallel"), linear_reference),
    Case("linear_scan", "no-batch", pair(0), partial(linear, form="parallel"), linear_reference),
    Case(
        "linear_scan",
        "one sequence of factors for a batch",
        lambda rng: (rng.standard_normal((A, S)), rng.standard_normal((B, A, S))),
        linear,
        lambda A, B: linear_reference(A.expand(B.shape), B),
    ),
    Case("selective_scan", "one chunk", scanned(B), scan, scan_reference),
    Case("selective_scan", "chunks", scanned(B), partial(scan, chunk=4), scan_reference),
    Case("selective_scan", "parallel", scanned(B), partial(scan, chunk=4, form="parallel"), scan_reference),
    Case("selective_scan", "no batch axis", scanned(), partial(scan, chunk=3), scan_reference),
    Case(
        "selective_scan",
        "one reader for a batch",
        lambda rng: (*scanned(B)(rng)[:3], *rng.standard_normal((2, A, S))),
        partial(scan, chunk=4),
        lambda U, step, A, B, C: scan_reference(U, step, A, *(X.expand(*U.shape[:-1], S) for X in (B, C))),
    ),
    Case("selective_scan", "one step", scanned(B, n=1), scan, scan_reference),
    Case("selective_scan", "no-batch", scanned(0), scan, scan_reference),
    Case("selective_scan", "huge", scanned(B, step=1e4), partial(scan, chunk=4), scan_reference, 1e-8),
    Case("state_space_dual", "quadratic", dual_draw(B, HEADS), dual_call, dual_reference),
    Case("state_space_dual", "chunks", dual_draw(B, HEADS), partial(dual_call, chunk=2), dual_reference),
    Case("state_space_dual", "huge", dual_draw(B, HEADS, rate=1e4), partial(dual_call, chunk=2), dual_reference),
    Case("state_space_dual", "no-batch", dual_draw(0, HEADS), dual_call, partial(masked_reference, mask=True)),
    Case(
        "state_space_dual",
        "fewer queries, masked",
        dual_draw(n=N),
        partial(dual_call, mask=KEYS),
        partial(masked_reference, mask=KEYS),
    ),
    Case(
        "state_space_dual",
        "any mask",
        dual_draw(),
        partial(dual_call, mask=LOWER),
        partial(masked_reference, mask=LOWER),
    ),
    Case(
        "state_space_dual",
        "keys hidden, in chunks",
        dual_draw(),
        partial(dual_call, mask=KEYS, chunk=2),
        partial(masked_reference, mask=KEYS),
    ),
    Case(
        "state_space_dual",
        "no decay",
        lambda rng: dual_draw(B, n=N)(rng)[:3],
        lambda world, *args: world.state_space_dual(*args),
        no_decay,
    ),
    Case("mamba", "slow path", layer(MAMBA, B), lambda world, *a: world.mamba(*a, chunk=2), mamba_reference),
    Case("mamba2", "torch path", layer(MAMBA2, B), lambda world, *a: world.mamba2(*a, chunk=2), mamba2_reference),
    Case("mamba2", "quadratic", layer(MAMBA2, B), lambda world, *a: world.mamba2(*a, chunk=None), mamba2_reference),
]
