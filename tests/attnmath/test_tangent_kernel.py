"""Tangent kernels against torch.func and PyTorch's own attention, forecasts against SciPy, descent, bad input."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from attnmath.check import compare
from attnmath.tangent_kernel import (
    PARTS,
    descend,
    first_weights,
    jacobian,
    linear_change,
    many_heads,
    moved,
    tangent_kernel,
)


def by_torch(weights, x, heads):
    """The same layer for one sentence, by PyTorch's own attention and with roots of our own."""
    x, d = torch.as_tensor(x)[None], x.shape[-1]
    k = weights["query"].shape[-1] // heads

    def split(A):
        return A.view(1, -1, heads, k).transpose(1, 2) / d**0.5

    Q, K, V = split(x[:, -1:] @ weights["query"]), split(x @ weights["key"]), split(x @ weights["value"])
    H = torch.nn.functional.scaled_dot_product_attention(Q, K, V)
    return H.transpose(1, 2).reshape(-1) @ weights["output"][:, 0] / (heads * k) ** 0.5


def in_torch(theta):
    return {name: torch.from_numpy(leaf["weight"]) for name, leaf in theta.items()}


@pytest.mark.claim("eq:many-heads", "eq:tangent-kernel")
@pytest.mark.parametrize(("heads", "width", "d", "n"), [(1, 1, 2, 1), (3, 2, 5, 4), (8, 3, 4, 6)])
def test_the_layer_and_its_kernel_are_those_of_torch_func(heads, width, d, n, rng):
    X, theta = rng.standard_normal((7, n, d)), first_weights(rng, heads, d=d, width=width)
    model = partial(many_heads, heads=heads)
    want = torch.stack([by_torch(in_torch(theta), x, heads) for x in X])
    compare(model(X, theta)[0], want, name="outputs", atol=1e-12)
    rows = []
    for x in X:
        grad = torch.func.grad(by_torch)(in_torch(theta), x, heads)
        rows.append(torch.cat([grad[name].reshape(-1) for name in PARTS]))
    J = torch.stack(rows)
    compare(jacobian(model, theta, X), J, name="Jacobian", atol=1e-10)
    compare(tangent_kernel(model, theta, X), J @ J.T, name="kernel", atol=1e-10, rtol=1e-10)
    compare(tangent_kernel(model, theta, X[:2], X), J[:2] @ J.T, name="two lists", atol=1e-10, rtol=1e-10)


def test_a_batch_has_the_sum_of_the_cotangents(rng):
    X, theta = rng.standard_normal((5, 4, 3)), first_weights(rng, 2, d=3, width=2)
    _, vjp = many_heads(X, theta, 2)
    dy = rng.standard_normal(5)
    got = np.concatenate([leaf["weight"].ravel() for leaf in vjp(dy).values()])
    compare(got, dy @ jacobian(partial(many_heads, heads=2), theta, X), atol=1e-12)


@pytest.mark.claim("eq:linear-flow")
@pytest.mark.parametrize("rank", [5, 3])
def test_the_forecast_is_the_matrix_exponential(rank, rng):
    """Also where the kernel has no inverse: there the integral of the flow is meant."""
    A, error, cross = rng.standard_normal((5, rank)), rng.standard_normal(5), rng.standard_normal((2, 5))
    K = A @ A.T
    times = (0.0, 0.2, 3.0)
    got = linear_change(K, error, times)
    compare(got, np.stack([(expm(-K * t) - np.eye(5)) @ error for t in times]), atol=1e-10)
    big = np.block([[-K, np.zeros((5, 2))], [-cross, np.zeros((2, 2))]])  # errors, and the other outputs, as one flow
    start = np.concatenate([error, np.zeros(2)])
    want = np.stack([(expm(big * t) @ start)[5:] for t in times])
    compare(linear_change(K, error, times, cross=cross), want, name="elsewhere", atol=1e-9)


@pytest.mark.claim("eq:linear-flow", "eq:kernel-descent")
@pytest.mark.parametrize("rank", [5, 3])
def test_with_a_rate_the_forecast_is_descent_on_the_linear_model(rank, rng):
    J, y, Z = rng.standard_normal((5, rank)), rng.standard_normal(5), rng.standard_normal((2, rank))

    def line(X, theta):
        return X @ theta["w"], lambda dy: {"w": dy @ X}

    w, watch = {"w": rng.standard_normal(rank)}, (0, 1, 2, 30)
    end, path = descend(line, w, J, y, 0.03, 30, watch=watch)
    got = linear_change(J @ J.T, J @ w["w"] - y, watch, rate=0.03)
    compare(path, J @ w["w"] + got, atol=1e-10)
    other = linear_change(J @ J.T, J @ w["w"] - y, [30], rate=0.03, cross=Z @ J.T)
    compare(Z @ end["w"], Z @ w["w"] + other[0], name="elsewhere", atol=1e-10)
    K, cross, first = J @ J.T, rng.standard_normal((2, 5)), J @ w["w"] - y
    want = -0.03 * sum(cross @ np.linalg.matrix_power(np.eye(5) - 0.03 * K, s) @ first for s in range(30))
    compare(linear_change(K, first, [30], rate=0.03, cross=cross)[0], want, name="any kernel", atol=1e-10)
    small = linear_change(J @ J.T, J @ w["w"] - y, [20_000], rate=1e-5)
    compare(small, linear_change(J @ J.T, J @ w["w"] - y, [0.2]), name="small steps are the flow", atol=1e-4)


def test_descent_leaves_the_first_weights_alone_and_lowers_the_loss(as_users_call, rng):
    X, y, theta = rng.standard_normal((3, 4, 5)), rng.standard_normal(3), first_weights(rng, 8, d=5, width=2)
    before = {name: leaf["weight"].copy() for name, leaf in theta.items()}
    end, path = descend(partial(many_heads, heads=8), theta, X, y, 0.05, 40, watch=(0, 40))
    assert all((theta[name]["weight"] == W).all() for name, W in before.items())
    compare(path[1], many_heads(X, end, 8)[0], name="after the last step")
    assert np.linalg.norm(path[1] - y) < 0.5 * np.linalg.norm(path[0] - y)
    flat = [np.concatenate([leaf["weight"].ravel() for leaf in tree.values()]) for tree in (theta, end)]
    compare(moved(theta, end), np.linalg.norm(flat[1] - flat[0]) / np.linalg.norm(flat[0]))


THETA, EYE = first_weights(np.random.default_rng(0), 4, d=3, width=2), np.eye(2)
ONES, MODEL = np.ones((1, 2, 3)), partial(many_heads, heads=4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: first_weights(None, 0, d=3, width=2), "heads is 0; it must be an integer >= 1"),
        (lambda: many_heads(np.ones((2, 3)), THETA, 4), r"X has shape \(2, 3\)"),
        (lambda: many_heads(ONES, THETA, 3), "heads is 3; it must be a positive integer"),
        (lambda: jacobian(lambda X, t: (np.ones((1, 2)), None), THETA, ONES), "choose one output"),
        (lambda: linear_change(EYE, np.ones(3), [1]), r"error has shape \(3,\)"),
        (lambda: linear_change(np.triu(np.ones((2, 2))), np.ones(2), [1]), "K is not symmetric; pass the kernel"),
        (lambda: linear_change(EYE, np.ones(2), [1], rate=0.0), "rate is 0.0; it must be > 0"),
        (lambda: descend(MODEL, THETA, ONES, np.ones(1), -1.0, 1), "rate is -1.0; it must be > 0"),
        (lambda: descend(MODEL, THETA, ONES, np.ones(1), 0.1, 0), "steps is 0; it must be an integer >= 1"),
        (lambda: descend(MODEL, THETA, ONES, np.ones(1), 0.1, 2, watch=(3,)), "watch holds 3; name steps from 0 to 2"),
    ],
)
def test_bad_input_gets_one_sentence(call, message, as_users_call):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
