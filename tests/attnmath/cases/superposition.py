"""Features in superposition and sparse autoencoders, against sums over single units written out with PyTorch."""

from functools import partial

import torch

from tests.attnmath.cases.case import Case, draw

B, N, F, M, D, U = 2, 4, 5, 3, 6, 7  # models, samples, features, dimensions, width, units


def squeezed(X, W, b):
    """Feature by feature: what comes back is the sum of what each feature sends along its direction."""
    found = []
    for i in range(W.shape[-2]):
        total = b[..., None, i] + torch.zeros_like(X[..., 0])
        for j in range(W.shape[-2]):
            total = total + X[..., j] * (W[..., i, :] * W[..., j, :]).sum(-1)[..., None]
        found.append(torch.clamp(total, min=0))
    return torch.stack(torch.broadcast_tensors(*found), -1)


def coded(X, E, a, top=None):
    """Unit by unit; of each row the loudest, by sorting."""
    R = torch.stack([torch.clamp((X * E[:, j]).sum(-1) + a[j], min=0) for j in range(E.shape[1])], -1)
    if top is None:
        return R
    order = R.argsort(-1, descending=True)
    return R * torch.zeros_like(R).scatter(-1, order[..., :top], 1)


def rebuilt(X, E, a, D, c, top=None):
    """The centre plus unit after unit, each divided by its length."""
    Z = coded(X - c, E, a, top)
    return c + sum(Z[..., j, None] * D[j] / (D[j] ** 2).sum() ** 0.5 for j in range(len(D)))


def call(name, world, *arrays, **options):
    return getattr(world, name)(*arrays, **options)


def press(circumstance, args):
    return Case("superposition", circumstance, args, partial(call, "superposition"), squeezed)


def encode(circumstance, args, **options):
    return Case("sparse_code", circumstance, args, partial(call, "sparse_code", **options), partial(coded, **options))


def rebuild(circumstance, args, vjp_atol=1e-12, **options):
    own, want = partial(call, "sparse_autoencoder", **options), partial(rebuilt, **options)
    return Case("sparse_autoencoder", circumstance, args, own, want, vjp_atol)


def loud(*shape_list):
    """The first array a thousand times as large."""
    return lambda rng: tuple((1e3 if i == 0 else 1.0) * rng.standard_normal(s) for i, s in enumerate(shape_list))


CODE, WHOLE = ((B, N, D), (D, U), (U,)), ((B, N, D), (D, U), (U,), (U, D), (D,))
CASES = [
    press("one-model", draw((N, F), (F, M), (F,))),
    press("models-side-by-side", draw((B, N, F), (B, F, M), (B, F))),
    press("shared-model", draw((B, N, F), (F, M), (F,))),
    press("shared-samples", draw((N, F), (B, F, M), (F,))),
    press("one-dimension", draw((N, 2), (2, 1), (2,))),
    press("no-batch", draw((0, N, F), (F, M), (F,))),
    encode("all", draw(*CODE)),
    encode("top-two", draw(*CODE), top=2),
    encode("top-one", draw((N, D), (D, U), (U,)), top=1),
    encode("top-is-all", draw(*CODE), top=U),
    encode("no-batch", draw((0, N, D), (D, U), (U,)), top=2),
    rebuild("all", draw(*WHOLE)),
    rebuild("top-two", draw(*WHOLE), top=2),
    rebuild("one-unit", draw((N, D), (D, 1), (1,), (1, D), (D,)), top=1),
    rebuild("no-batch", draw((0, N, D), *WHOLE[1:]), top=2),
    rebuild("huge", loud(*WHOLE), 1e-8, top=3),
]
