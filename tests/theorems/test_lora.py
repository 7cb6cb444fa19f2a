"""Low-rank adaptation: the gradient of the factors, the start, what can be reached, and the first step."""

from functools import partial

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.lora import adapting_bytes, lora_numbers, lora_scale
from attnmath.low_rank import best_error

I, O, R = 11, 7, 3
ALPHA = 2.0
S = ALPHA / R


def drawn(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def loss_of(target):
    """A loss of the changed matrix that is no quadratic form, and its gradient: sum of (W' - target)^4 / 4."""
    return lambda M: (((M - target) ** 4).sum() / 4, (M - target) ** 3)


@pytest.mark.claim("prop-lora-gradient", "eq:lora-merge-vjp")
def test_gradients_of_the_factors_are_products_with_that_of_the_matrix():
    W, A, B, target = drawn(1, (I, O), (I, R), (R, O), (I, O))
    loss = loss_of(target)
    M, vjp = an.lora_merge(W, A, B, alpha=ALPHA)
    G = loss(M)[1]
    _, dA, dB = vjp(G)
    compare(dA, S * G @ B.T, name="dA", atol=1e-12)
    compare(dB, S * A.T @ G, name="dB", atol=1e-12)
    for k, (F, dF) in enumerate(((A, dA), (B, dB))):
        E = drawn(2 + k, F.shape)[0]
        ends = [
            loss(an.lora_merge(W, *((F + h * E, B) if k == 0 else (A, F + h * E)), alpha=ALPHA)[0])[0]
            for h in (1e-5, -1e-5)
        ]
        compare((ends[0] - ends[1]) / 2e-5, (dF * E).sum(), name="finite difference", rtol=1e-7)


@pytest.mark.claim("prop-lora-gradient")
def test_a_step_on_the_factors_moves_the_matrix_by_a_projection_of_its_gradient():
    W, A, B, target = drawn(3, (I, O), (I, R), (R, O), (I, O))
    M, vjp = an.lora_merge(W, A, B, alpha=ALPHA)
    G = loss_of(target)(M)[1]
    _, dA, dB = vjp(G)
    eta = 0.3
    moved = an.lora_merge(W, A - eta * dA, B - eta * dB, alpha=ALPHA)[0] - M
    first = -eta * S**2 * (A @ A.T @ G + G @ B.T @ B)
    compare(moved, first + eta**2 * S**3 * G @ B.T @ A.T @ G, name="the whole step", rtol=1e-10, atol=1e-9)
    assert np.abs(moved - first).max() > 1e-3, "the last term is there"
    fall = (G * first).sum()
    compare(fall, -eta * S**2 * ((A.T @ G) ** 2).sum() - eta * S**2 * ((G @ B.T) ** 2).sum(), rtol=1e-12)


@pytest.mark.claim("prop-lora-gradient")
def test_with_orthonormal_columns_the_first_step_is_the_projection():
    W, A, target = drawn(4, (I, O), (I, R), (I, O))
    Q, B = np.linalg.qr(A)[0], np.zeros((R, O))
    M, vjp = an.lora_merge(W, Q, B, alpha=ALPHA)
    G = loss_of(target)(M)[1]
    _, dA, dB = vjp(G)
    moved = an.lora_merge(W, Q - 0.1 * dA, B - 0.1 * dB, alpha=ALPHA)[0] - M
    nearest = Q @ np.linalg.lstsq(Q, G, rcond=None)[0]
    compare(moved, -0.1 * S**2 * nearest, name="the step", atol=1e-12, rtol=1e-10)
    assert np.linalg.matrix_rank(moved) == R < np.linalg.matrix_rank(G)


@pytest.mark.claim("prop-lora-start")
def test_at_the_start_nothing_changes_and_only_b_has_a_gradient():
    X, W, b, A, dY = drawn(5, (5, I), (I, O), (O,), (I, R), (5, O))
    B = np.zeros((R, O))
    Y, vjp = an.lora_linear(X, W, b, A, B, alpha=ALPHA)
    np.testing.assert_array_equal(Y, an.linear(X, W, b)[0])
    dX, dW, _, dA, dB = vjp(dY)
    assert (dA == 0).all()
    compare(dB, S * A.T @ dW, name="dB", atol=1e-12)
    assert np.abs(dB).max() > 0.1
    compare(dX, dY @ W.T, name="dX", atol=1e-12)


@pytest.mark.claim("prop-lora-start")
def test_two_factors_of_zero_never_move():
    """Neither by gradient descent nor by Adam, and one factor that is not zero is enough."""
    X, W, b, A, target = drawn(6, (5, I), (I, O), (O,), (I, R), (5, O))
    for start, moves in ((0 * A, False), (A, True)):
        params = {"A": start, "B": np.zeros((R, O))}
        state = an.adam_state(params)
        plain = dict(params)
        for _ in range(5):
            grads = []
            for own in (params, plain):
                Y, vjp = an.lora_linear(X, W, b, own["A"], own["B"])
                grads.append(dict(zip("AB", vjp(Y - target)[3:], strict=True)))
            params, state = an.adam(params, grads[0], state, 0.01)
            plain = {name: plain[name] - 1e-3 * grads[1][name] for name in plain}
        for own in (params, plain):
            assert (np.abs(own["B"]).max() > 1e-3) == moves
            assert (np.abs(own["A"] - start).max() > 1e-6) == moves


@pytest.mark.claim("prop-lora-start")
def test_a_gradient_beside_the_columns_of_a_is_lost():
    """dB is 0 although G is not, if the columns of G are orthogonal to those of A."""
    A, G = drawn(7, (I, R), (I, O))
    Q = np.linalg.qr(A)[0]
    beside = G - Q @ (Q.T @ G)
    _, vjp = an.lora_merge(np.zeros((I, O)), A, np.zeros((R, O)))
    assert np.abs(vjp(beside)[2]).max() < 1e-13 and np.abs(beside).max() > 1 and np.abs(vjp(G)[2]).max() > 0.1


@pytest.mark.claim("prop-lora-reach")
@pytest.mark.parametrize("r", [1, 3, 6])
def test_changes_have_the_rank_and_the_best_is_that_of_eckart_and_young(r):
    W, D, A, B = drawn(8, (I, O), (I, O), (I, r), (r, O))
    change = an.lora_merge(W, A, B, alpha=ALPHA)[0] - W
    assert np.linalg.matrix_rank(change) == r
    U, sigma, V = np.linalg.svd(D, full_matrices=False)
    s = lora_scale(r, ALPHA)
    reached = an.lora_merge(W, U[:, :r] * sigma[:r] / s, V[:r], alpha=ALPHA)[0] - W
    compare(np.linalg.norm(D - reached), best_error(D, r), name="the error", rtol=1e-12)
    assert np.linalg.matrix_rank(reached) == r
    A, B = drawn(9, (I, r), (r, O))
    for _ in range(300):  # least squares for one factor, then the other
        B = np.linalg.lstsq(s * A, D, rcond=None)[0]
        A = np.linalg.lstsq(s * B.T, D.T, rcond=None)[0].T
        assert np.linalg.norm(D - s * A @ B) >= best_error(D, r) * (1 - 1e-12), "no factors are nearer"
    compare(np.linalg.norm(D - s * A @ B), best_error(D, r), name="found by descent", rtol=1e-3)


@pytest.mark.claim("prop-lora-reach")
def test_an_output_is_missed_by_no_more_than_the_next_singular_value():
    X, D = drawn(10, (50, I), (I, O))
    U, sigma, V = np.linalg.svd(D, full_matrices=False)
    for r in range(1, O):
        missed = X @ (D - U[:, :r] * sigma[:r] @ V[:r])
        assert (np.linalg.norm(missed, axis=-1) <= sigma[r] * np.linalg.norm(X, axis=-1) * (1 + 1e-12)).all()
    compare(np.linalg.norm(U[:, O - 1] @ D), sigma[O - 1], name="and it may be so much", rtol=1e-10)


def first_step(A, x, g, s, step):
    """The change of x's output by one step from B = 0; the factors' own gradients decide it."""
    r, o = A.shape[-1], g.shape[-1]
    alpha = s * r
    Y, vjp = an.lora_linear(x, np.zeros((len(A), o)), np.zeros(o), A, np.zeros((r, o)), alpha=alpha)
    *_, dA, dB = vjp(g)
    after = an.lora_linear(x, np.zeros((len(A), o)), np.zeros(o), A - step(dA), -step(dB), alpha=alpha)[0]
    return after - Y


@pytest.mark.claim("prop-lora-first-step")
@pytest.mark.parametrize("s", [0.5, 2.0])
def test_the_first_step_of_gradient_descent_and_of_adam(s):
    x, g, A = drawn(11, (1, I), (1, O), (I, 5))
    moved = first_step(A, x, g, s, lambda dF: 0.1 * dF)
    compare(moved, -0.1 * s**2 * ((x @ A) ** 2).sum() * g, name="gradient descent", rtol=1e-10)
    moved = first_step(A, x, g, s, lambda dF: 0.1 * np.sign(dF))
    compare(moved, -0.1 * s * np.abs(x @ A).sum() * np.sign(g), name="signs", rtol=1e-10)
    params = {"B": np.zeros((5, O))}
    _, vjp = an.lora_linear(x, np.zeros((I, O)), np.zeros(O), A, params["B"], alpha=s * 5)
    after, _ = an.adam(params, {"B": vjp(g)[4]}, an.adam_state(params), 0.1)
    compare(after["B"], -0.1 * np.sign(vjp(g)[4]), name="Adam's first step", rtol=1e-5)


@pytest.mark.claim("prop-lora-first-step", "eq:lora-scale")
def test_which_scale_makes_the_first_step_independent_of_the_rank():
    x, g = drawn(12, (1, 36), (1, 36))
    rng, sizes = np.random.default_rng(13), {}
    for r in (9, 36):
        for stabilised in (False, True):
            s = lora_scale(r, 1.0, stabilised)
            for name, step in (("descent", lambda dF: dF), ("adam", np.sign)):
                draws = [first_step(rng.standard_normal((36, r)) / 6, x, g, s, step) for _ in range(40)]
                sizes[name, stabilised, r] = np.mean([np.abs(d).sum() for d in draws])
    length, spread = np.linalg.norm(x), np.abs(g).sum()
    for r in (9, 36):
        compare(sizes["descent", True, r], length**2 / 36 * spread, name="descent, root", rtol=0.25)
        compare(sizes["descent", False, r], length**2 / 36 * spread / r, name="descent, rank", rtol=0.25)
        compare(sizes["adam", False, r], np.sqrt(2 / np.pi) * length / 6 * 36, name="adam, rank", rtol=0.12)
        compare(sizes["adam", True, r], np.sqrt(2 * r / np.pi) * length / 6 * 36, name="adam, root", rtol=0.12)


@pytest.mark.claim("eq:lora-numbers", "eq:adapting-bytes")
def test_what_an_adapter_costs():
    shapes = [(I, O), (O, I), (I, I)]
    for r in (1, R):
        factors = [F for i, o in shapes for F in (np.empty((i, r)), np.empty((r, o)))]
        assert lora_numbers(shapes, r) == sum(F.size for F in factors)
    N, n = 1000, 40
    words = [np.zeros(N, np.float32)] + [np.zeros(n, np.float32) for _ in range(4)]  # the factors, a gradient, moments
    assert adapting_bytes(N + n, n) == sum(X.nbytes for X in words)
    assert adapting_bytes(N, N) == 16 * N


@pytest.mark.claim("eq:lora-vjp-factors", "eq:lora-vjp-inputs", "eq:lora")
def test_the_layer_is_the_linear_map_of_the_merged_matrix():
    X, W, b, A, B, dY = drawn(14, (2, 5, I), (I, O), (O,), (I, R), (R, O), (2, 5, O))
    for options in ({}, {"alpha": 3.0}, {"alpha": 3.0, "stabilised": True}):
        merge = partial(an.lora_merge, **options)
        M, merge_vjp = merge(W, A, B)
        Y, vjp = an.lora_linear(X, W, b, A, B, **options)
        want, linear_vjp = an.linear(X, M, b)
        compare(Y, want, name="Y", atol=1e-12)
        dX, dM, db = linear_vjp(dY)
        _, dA, dB = merge_vjp(dM)
        for name, got, hope in zip(
            ("dX", "db", "dA", "dB"), np.array(vjp(dY), object)[[0, 2, 3, 4]], (dX, db, dA, dB), strict=True
        ):
            compare(got, hope, name=name, atol=1e-11)
        compare(an.lora_unmerge(M, A, B, **options)[0], W, name="back", atol=1e-14)
