"""The velocity of tokens on a sphere: any core, its whole Jacobian by autograd, and what is refused."""

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import check_vjp, compare


def unit(rng, *shape):
    X = rng.standard_normal(shape)
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


@pytest.mark.claim("eq:sphere-flow-vjp")
def test_the_vjp_is_the_transposed_jacobian(rng):
    """Every entry, with a matrix of scores and one of values."""
    X, B, V = unit(rng, 4, 3), *rng.standard_normal((2, 3, 3))
    F, vjp = an.sphere_attention_flow(X, B, V, beta=1.7)
    tensors = tuple(map(torch.from_numpy, (X, B, V)))
    jacobians = torch.autograd.functional.jacobian(lambda *A: at.sphere_attention_flow(*A, beta=1.7), tensors)
    for i in range(4):
        for j in range(3):
            dF = np.zeros((4, 3))
            dF[i, j] = 1
            compare(vjp(dF), tuple(J[i, j] for J in jacobians), name=f"row {i}, {j}", atol=1e-12)
    compare((F * X).sum(-1), np.zeros(4), name="velocity along the token", atol=1e-14)


@pytest.mark.parametrize("core", ["attention_fused", "attention_chunked"])
def test_the_core_is_an_argument(core, rng):
    """A core without a scale of its own gets queries that make up for it."""
    X = unit(rng, 5, 4)

    def attend(Q, K, V, mask=True, scale=1.0):
        options = {"scale": scale} if core == "attention_fused" else {}
        return getattr(an, core)(Q if options else 2.0 * Q, K, V, mask, **options)

    F, _ = an.sphere_attention_flow(X, beta=1.3, attend=an.attention_fused if core == "attention_fused" else attend)
    compare(F, an.sphere_attention_flow(X, beta=1.3)[0], name=core, atol=1e-12)
    if core == "attention_fused":
        check_vjp(lambda X: an.sphere_attention_flow(X, beta=1.3, attend=attend), X, rng=rng)


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (((3, 2), (3, 3)), {}, r"B has shape \(3, 3\)"),
        (((3, 2), None, (2, 1)), {}, r"V has shape \(2, 1\)"),
        (((2,),), {}, r"X has shape \(2,\); expected"),
        (((3, 2),), {"beta": float("inf")}, "beta is inf; it must be finite"),
        (((3, 2),), {"beta": float("nan")}, "beta is nan; it must be finite"),
    ],
)
def test_bad_input_gets_a_sentence(world, arguments, options, said, as_users_call):
    make = np.ones if world is an else lambda shape: torch.ones(shape, dtype=torch.float64)
    arguments = [None if shape is None else make(shape) for shape in arguments]
    with pytest.raises(ValueError, match=said):
        world.sphere_attention_flow(*arguments, **options)
