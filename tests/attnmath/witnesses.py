"""The four witnesses of a component: by hand = the twin's autograd = torch's own function = a finite difference."""

import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import check_vjp, compare
from attnmath.tree import map_tree

# At a scale where a finite difference says nothing, the other three witnesses stand alone.
NO_DIFFERENCE = ("huge", "cold", "no-batch", "wide-range", "kink")


def tensors(args):
    """The arguments as leaves that collect gradients."""
    return [map_tree(lambda X: torch.from_numpy(X.copy()).requires_grad_(), arg) for arg in args]


def gradients(y, dy, leaves):
    y.backward(torch.from_numpy(dy))
    return tuple(map_tree(lambda X: torch.zeros_like(X) if X.grad is None else X.grad, leaf) for leaf in leaves)


def check_agreement(case, rng):
    """By hand, the twin and torch's own agree, forward and backward, for a random cotangent."""
    args = case.args(rng)
    y, vjp = case.call(an, *args)
    dy = rng.standard_normal(y.shape)
    cotangents = vjp(dy)
    cotangents = cotangents if isinstance(cotangents, tuple) else (cotangents,)
    for witness, f in (("the twin", lambda *a: case.call(at, *a)), ("torch's own", case.reference)):
        leaves = tensors(args)
        expected = f(*leaves)
        compare(y, expected, name=f"{case.function} against {witness}", atol=1e-12, rtol=1e-12)
        compare(
            cotangents,
            gradients(expected, dy, leaves),
            name=f"cotangent of {case.function} against {witness}",
            atol=case.vjp_atol,
            rtol=1e-10,
        )


def check_finite_difference(case, rng):
    """By hand and a finite difference agree, argument by argument."""
    check_vjp(lambda *args: case.call(an, *args), *case.args(rng), rng=rng)
