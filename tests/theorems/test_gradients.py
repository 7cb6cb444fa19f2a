"""The lemmas of Appendix B: the rules by which vjps combine, and the vjps of the layers around attention."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import attnmath.numpy as an
from attnmath.check import check_vjp, compare

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.claim("lem-vjp-rules")
def test_the_rules_by_which_vjps_combine(rng):
    """Each rule on its own, and each broken on purpose: compose in the wrong order, forget a use, forget a sum."""
    X, W, b = rng.standard_normal((5, 3)), rng.standard_normal((3, 7)), rng.standard_normal(7)

    def composed(X):
        Y, first = an.linear(X, W, b)
        Z, second = an.softmax(Y)
        return Z, lambda dZ: first(second(dZ))[0]

    def twice(X, uses=2):
        G, gelu_vjp = an.gelu(X)
        return X * G, lambda dY: dY * G + (gelu_vjp(dY * X) if uses == 2 else 0)

    def broadcast(x, summed=True):
        return np.broadcast_to(x, (4, 3)) * 1.0, lambda dY: dY.sum(0) if summed else dY[0]

    def added(A, B):
        return A + B, lambda dY: (dY, dY)

    check_vjp(composed, X, rng=rng)
    check_vjp(twice, X, rng=rng)
    check_vjp(broadcast, X[0], rng=rng)
    check_vjp(added, X, X.copy(), rng=rng)
    for wrong in (lambda X: twice(X, uses=1), lambda X: broadcast(X, summed=False)):
        with pytest.raises(AssertionError, match="cotangent of argument 0"):
            check_vjp(wrong, X[0], rng=rng)


@pytest.mark.claim("lem-linear-vjp")
@settings(max_examples=20, deadline=None)
@given(seeds)
def test_linear_map_and_its_transpose_are_adjoint(seed):
    """<dY, X W> = <dY W', X>, exactly the definition of the vjp of a map that is linear in each argument."""
    rng = np.random.default_rng(seed)
    X, W, b, dY = (rng.standard_normal(shape) for shape in ((2, 5, 3), (3, 7), (7,), (2, 5, 7)))
    Y, vjp = an.linear(X, W, b)
    compare(Y, np.einsum("bni,io->bno", X, W) + b, name="Y", atol=1e-12)
    dX, dW, db = vjp(dY)
    linear_part = (dY * (Y - b)).sum()
    compare((dX * X).sum(), linear_part, name="<dX, X>", atol=1e-10)
    compare((dW * W).sum(), linear_part, name="<dW, W>", atol=1e-10)
    compare((db * b).sum(), (dY * b).sum(), name="<db, b>", atol=1e-10)


@pytest.mark.claim("lem-layer-norm-vjp")
@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([1e-12, 1e-5, 0.3]))
def test_layer_norm_vjp_is_exact_for_every_epsilon(seed, eps):
    rng = np.random.default_rng(seed)
    X, gain, bias = rng.standard_normal((3, 7)), rng.standard_normal(7), rng.standard_normal(7)
    check_vjp(lambda *args: an.layer_norm(*args, eps), X, gain, bias, rng=rng)
    dX = an.layer_norm(X, gain, bias, eps)[1](rng.standard_normal((3, 7)))[0]
    compare(dX.sum(-1), np.zeros(3), name="a shift of the row changes nothing", atol=1e-9)
    if eps == 1e-12:  # without epsilon a stretch of the row about its mean changes nothing either
        along = (dX * (X - X.mean(-1, keepdims=True))).sum(-1)
        compare(along, np.zeros(3), name="the component along the centred row", atol=1e-8)


@pytest.mark.claim("lem-gelu-slope", "eq:gelu-vjp")
def test_the_slope_of_gelu_and_where_it_is_extreme():
    def slope(x):
        return an.gelu(np.array([x]))[1](np.ones(1))[0]

    low = minimize_scalar(slope, bounds=(-5, 0), method="bounded", options={"xatol": 1e-10})
    high = minimize_scalar(lambda x: -slope(x), bounds=(0, 5), method="bounded", options={"xatol": 1e-10})
    compare([low.x, high.x], [-np.sqrt(2), np.sqrt(2)], name="places", atol=1e-6)
    compare([low.fun, -high.fun], [-0.1289, 1.1289], name="slopes", atol=5e-5)
    x = np.linspace(-6, 6, 101)
    compare([slope(a) + slope(-a) for a in x], np.ones(101), name="symmetry")


@pytest.mark.claim("lem-unit-norm-vjp")
@settings(max_examples=30, deadline=None)
@given(seeds, st.floats(0.01, 100.0))
def test_unit_norm_passes_only_what_is_perpendicular(seed, scale):
    rng = np.random.default_rng(seed)
    X, dY = scale * rng.standard_normal((3, 5)), rng.standard_normal((3, 5))
    Y, vjp = an.unit_norm(X)
    dX = vjp(dY)
    compare((dX * X).sum(-1), np.zeros(3), name="<dX, X>", atol=1e-10)
    perpendicular = dY - Y * (Y * dY).sum(-1, keepdims=True)
    compare(dX * np.linalg.norm(X, axis=-1, keepdims=True), perpendicular, name="dX |X|", atol=1e-10)
