"""The velocity of tokens on a sphere, against every weight and projection written out with PyTorch."""

from functools import partial

import numpy as np
import torch

from tests.attnmath.cases.case import Case, const

N, D = 5, 3  # tokens, width
CAUSAL = np.tril(np.ones((N, N), bool))
ANY = np.random.default_rng(5).random((2, N, N)) < 0.5
ANY[..., 1] = True


def unit(*shape, matrices=0):
    """Rows of length 1, and so many square matrices."""

    def args(rng):
        X = rng.standard_normal(shape)
        X = X / np.linalg.norm(X, axis=-1, keepdims=True)
        return X, *(rng.standard_normal((shape[-1], shape[-1])) for _ in range(matrices))

    return args


def written_out(X, B=None, V=None, allowed=None, beta=1.0):
    """Token by token: the exponentials, their mean of the values, and a projector for each token."""
    identity = torch.eye(X.shape[-1], dtype=X.dtype)
    S = beta * torch.einsum("...ia,ab,...jb->...ij", X, identity if B is None else B, X)
    E = torch.exp(S - S.amax(-1, keepdim=True).detach())
    E = E if allowed is None else E * torch.from_numpy(allowed)
    O = torch.einsum("...ij,...ja,ab->...ib", E / E.sum(-1, keepdim=True), X, identity if V is None else V)
    project = identity - X[..., :, None] * X[..., None, :]
    return torch.einsum("...iab,...ib->...ia", project, O)


def flow(circumstance, args, names="", mask=None, beta=1.0):
    """``names`` says which matrices the arguments after X are."""

    def call(world, X, *matrices):
        options = {} if mask is None else {"mask": const(world, mask)}
        return world.sphere_attention_flow(X, **dict(zip(names, matrices, strict=True)), beta=beta, **options)

    def reference(X, *matrices):
        return written_out(X, **dict(zip(names, matrices, strict=True)), allowed=mask, beta=beta)

    return Case("sphere_attention_flow", circumstance, args, call, reference)


CASES = [
    flow("plain", unit(2, N, D)),
    flow("warm", unit(2, N, D), beta=4.0),
    flow("beta-0", unit(N, D), beta=0.0),
    flow("repelled-scores", unit(N, D), beta=-2.0),
    flow("scores", unit(2, N, D, matrices=1), "B", beta=1.5),
    flow("values", unit(2, N, D, matrices=1), "V", beta=1.5),
    flow("both", unit(2, N, D, matrices=2), "BV", CAUSAL, 0.7),
    flow("causal", unit(2, N, D), mask=CAUSAL, beta=3.0),
    flow("any-mask", unit(2, N, D, matrices=2), "BV", ANY, 2.0),
    flow("one-token", unit(1, D, matrices=2), "BV"),
    flow("no-batch", unit(0, N, D, matrices=2), "BV"),
    flow("huge", unit(N, D), beta=1e4),
    Case(
        "sphere_attention_flow",
        "off-the-sphere",
        lambda rng: (rng.standard_normal((N, D)),),
        lambda world, X: world.sphere_attention_flow(X, beta=0.5),
        partial(written_out, beta=0.5),
    ),
]
