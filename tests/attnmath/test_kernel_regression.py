"""Local lines are NumPy's and scikit-learn's weighted fits, leaving out is refitting, bad input is told."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import comb
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import pairwise
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import PolynomialFeatures

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import kernel_regression as kr
from attnmath import monomials
from attnmath.check import check_vjp, compare


def test_lines_of_one_component_are_polyfits(rng):
    K, Q, V = rng.standard_normal((23, 1)), rng.standard_normal((4, 1)), rng.standard_normal((23, 2))
    O, _ = an.local_linear_attention(Q, K, V, bandwidth=0.7, ridge=1e-13)
    for q, o in zip(Q[:, 0], O, strict=True):
        w = np.exp(-((K[:, 0] - q) ** 2) / (2 * 0.7**2))
        compare(o, np.polynomial.polynomial.polyfit(K[:, 0] - q, V, 1, w=np.sqrt(w))[0], name="a line", atol=1e-9)


@pytest.mark.parametrize("ridge", [1e-12, 0.3])
def test_lines_of_many_components_are_scikit_learns(ridge, rng):
    """With the ridge as scikit-learn's penalty: it weighs all pairs, and we their weights' share."""
    K, Q, V = rng.standard_normal((30, 3)), rng.standard_normal((4, 3)), rng.standard_normal((30, 2))
    O, _ = an.local_linear_attention(Q, K, V, bandwidth=1.3, ridge=ridge)
    for q, o in zip(Q, O, strict=True):
        w = np.exp(-((K - q) ** 2).sum(-1) / (2 * 1.3**2))
        model = Ridge(ridge * 1.3**2 * w.sum(), solver="cholesky") if ridge > 1e-9 else LinearRegression()
        compare(o, model.fit(K - q, V, sample_weight=w).intercept_, name="lines", atol=1e-9)


def test_lines_are_attention_that_also_averages_the_keys(rng):
    """The same output from one plain attention over values, keys and their products, and a small system."""
    K, Q, V, h = rng.standard_normal((9, 2)), rng.standard_normal((4, 2)), rng.standard_normal((9, 3)), 1.1
    products = [(A[:, :, None] * B[:, None, :]).reshape(9, -1) for A, B in ((K, K), (K, V))]
    lifted = np.concatenate([K, -(K**2).sum(-1, keepdims=True) / 2], -1)
    asked = np.concatenate([Q, np.ones((4, 1))], -1)
    averages, _ = an.attention(asked, lifted, np.concatenate([V, K, *products], -1), scale=h**-2)
    v, k, kk, kv = np.split(averages, np.cumsum([3, 2, 4]), -1)
    spread = kk.reshape(4, 2, 2) - k[:, :, None] * k[:, None, :] + 1e-3 * h**2 * np.eye(2)
    slopes = np.linalg.solve(spread, kv.reshape(4, 2, 3) - k[:, :, None] * v[:, None, :])
    want = v - ((k - Q)[:, None] @ slopes)[:, 0]
    compare(an.local_linear_attention(Q, K, V, bandwidth=h, ridge=1e-3)[0], want, name="averages", atol=1e-10)


def test_lines_go_into_heads(rng):
    d = 6
    params = {name: {"weight": rng.standard_normal((d, d)) / 3} for name in ("query", "key", "value", "output")}
    X = rng.standard_normal((2, 5, d))
    core = {world: partial(world.local_linear_attention, bandwidth=2.0, ridge=0.1) for world in (an, at)}
    Y, _ = an.multi_head_attention(X, X, X, params, 2, attend=core[an])
    twin = at.multi_head_attention(*[torch.from_numpy(X)] * 3, at.from_numpy(params), 2, attend=core[at])
    compare(twin, Y, name="heads", atol=1e-11)
    check_vjp(lambda X: _summed(an.multi_head_attention(X, X, X, params, 2, attend=core[an])), X, rng=rng)
    assert np.abs(Y - an.multi_head_attention(X, X, X, params, 2)[0]).max() > 0.1


def _summed(result):
    Y, vjp = result
    return Y, lambda dY: sum(vjp(dY)[:3])


def test_one_sided_keys_and_a_single_key():
    K = np.array([[40.0], [50], [60], [70], [80]])
    got = an.local_linear_attention(K, K, 10 * K, bandwidth=10.0)[0]
    compare(got, 10 * K, name="a line", atol=1e-3)
    assert abs(kr.gaussian_weights(K, K, 10.0) @ (10 * K) - 10 * K).max() > 50
    one = an.local_linear_attention(K, K, 10 * K, np.eye(5, dtype=bool)[[3] * 5], bandwidth=10.0)[0]
    compare(one, np.full((5, 1), 700.0), name="one key", atol=1e-9)


def test_leaving_one_out_is_scikit_learns_cross_validation(rng):
    X, Y = rng.standard_normal((40, 2)), rng.standard_normal((40, 1))
    left = an.leave_one_out(kr.gaussian_weights(X, X, 0.8), Y)[0]

    class Smoother(KNeighborsRegressor):
        """Every neighbour, with Gaussian weights."""

        def predict(self, Z):
            w = pairwise.rbf_kernel(Z, self._fit_X, gamma=1 / (2 * 0.8**2))
            return w @ self._y / w.sum(-1)

    compare(left[:, 0], Y[:, 0] - cross_val_predict(Smoother(), X, Y[:, 0], cv=LeaveOneOut()), name="left out")
    masked = np.where(np.eye(40, dtype=bool), -np.inf, -kr.squared_distances(X, X) / 2 / 0.8**2)
    compare(left, Y - an.softmax(masked)[0] @ Y, name="a masked diagonal")


def test_leaving_one_out_survives_weights_near_one(rng):
    """One minus a weight of 1 - 1e-14 has two digits left; the sum of the others has all."""
    P = rng.random((6, 6)) * 1e-14
    P[np.arange(6), np.arange(6)] = 1.0
    V = rng.standard_normal((6, 2))
    share = np.where(np.eye(6, dtype=bool), 0, P)
    compare(an.leave_one_out(P, V)[0], V - share @ V / share.sum(-1, keepdims=True), name="left out")
    compare(at.leave_one_out(torch.from_numpy(P), torch.from_numpy(V)), an.leave_one_out(P, V)[0], name="twin")


@pytest.mark.parametrize(("width", "degree"), [(3, 4), (1, 6), (5, 2)])
def test_monomials_are_scikit_learns(width, degree, rng):
    X = rng.standard_normal((4, width))
    theirs = PolynomialFeatures(degree).fit(X)
    ours = an.taylor_features(X, degree)[0] / monomials.lengths(width, degree)
    np.testing.assert_array_equal(monomials.exponents(width, degree), theirs.powers_)
    compare(ours, theirs.transform(X), name="monomials", atol=1e-10)
    assert ours.shape[-1] == kr.monomial_count(width, degree) == comb(width + degree, degree, exact=True)


def test_taylor_features_make_linear_attention_of_a_polynomial(rng):
    """In time linear in the keys, and with its gradient: the weights are those of 1 + t + t^2/2."""
    Q, K, V = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 6, 4)), rng.standard_normal((2, 6, 5))
    t = Q @ K.swapaxes(-1, -2)
    P = 1 + t + t * t / 2
    O, _ = an.linear_attention(Q, K, V, feature=partial(an.taylor_features, degree=2))
    compare(O, P / P.sum(-1, keepdims=True) @ V, name="the polynomial", atol=1e-11)
    core = partial(an.linear_attention, feature=partial(an.taylor_features, degree=2))
    check_vjp(core, Q, K, V, rng=rng)


X = np.ones
BAD = [
    ("local_linear_attention", (X((3, 2)), X((5, 2)), X((5, 1))), {"bandwidth": 0.0}, r"bandwidth is 0\.0; it must"),
    ("local_linear_attention", (X((3, 2)), X((5, 2)), X((5, 1))), {"ridge": -1.0}, r"ridge is -1\.0; it must be > 0"),
    ("local_linear_attention", (X((3, 2)), X((5, 3)), X((5, 1))), {}, r"K has shape \(5, 3\).*k = 2"),
    ("local_linear_attention", (X((3, 2)), X((0, 2)), X((0, 1))), {}, r"at least one key is needed"),
    ("local_linear_attention", (X((3, 0)), X((5, 0)), X((5, 1))), {}, r"at least one component is needed"),
    ("local_linear_attention", (X((3, 2)), X((5, 2)), X((5, 1)), X((3, 5))), {}, r"masks are boolean"),
    (
        "local_linear_attention",
        (X((3, 2)), X((5, 2)), X((5, 1)), X((3, 5)) < 0),
        {},
        r"row \(0,\) may attend to no key",
    ),
    ("leave_one_out", (np.eye(3), X((3, 1))), {}, r"row \(0,\) gives nothing to the other values.*widen the bandwidth"),
    ("leave_one_out", (X((3, 4)), X((4, 1))), {}, r"P has shape \(3, 4\), expected \(\.\.\., n, n\)"),
    ("leave_one_out", (X((3, 3)), X((4, 1))), {}, r"V has shape \(4, 1\).*n = 3"),
    ("taylor_features", (X((3, 4)), 0), {}, r"degree is 0; it must be an integer >= 1"),
    ("taylor_features", (X((3, 4)), 2.0), {}, r"degree is 2\.0; it must be an integer"),
    ("taylor_features", (X((3, 4), int), 2), {}, r"X has dtype (torch\.)?int64; floats are expected"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("name", "args", "options", "said"), BAD)
def test_bad_input_is_told(world, name, args, options, said, as_users_call):
    given = [torch.from_numpy(A) if world is at and isinstance(A, np.ndarray) else A for A in args]
    with pytest.raises(ValueError, match=said):
        getattr(world, name)(*given, **options)


def test_helpers_refuse_too(as_users_call):
    with pytest.raises(ValueError, match="bandwidth is 0"):
        kr.box_weights(X((1, 1)), X((2, 1)), 0)
    with pytest.raises(ValueError, match="may attend to no key"):
        kr.box_weights(X((1, 1)), np.full((2, 1), 9.0), 0.5)
    with pytest.raises(ValueError, match="width is 0"):
        kr.relation_features(np.eye(3), 0)
    with pytest.raises(ValueError, match=r"no degree up to 4 comes within 0\.1; the largest number is 9"):
        kr.degree_needed(np.array([-9.0]), 0.1, most=4)


def test_degrees_are_the_least_even_ones():
    """Against the exact sums, in fractions."""
    from fractions import Fraction

    t, exact = Fraction(-5, 4), np.exp(-1.25)
    term, total, errors = Fraction(1), Fraction(0), []
    for m in range(12):
        total, term = total + term, term * t / (m + 1)
        errors.append(abs(float(total) / exact - 1))
    want = next(m for m in range(2, 12, 2) if errors[m] <= 0.01)
    assert kr.degree_needed(np.array([-1.25, 0.5]), 0.01) == want == 6


def test_the_gradient_of_the_scales(rng):
    A, Y = rng.standard_normal((12, 3)), rng.standard_normal((12, 1))
    check_vjp(lambda a: _with_gradient(kr.scales_loss(a, A, Y)), rng.standard_normal(3), rng=rng)
    a = np.array([0.3, -0.2, 0.5])
    Z = A * np.exp(a)
    loss = (an.leave_one_out(kr.gaussian_weights(Z, Z, 1.0), Y)[0] ** 2).mean()
    compare(kr.scales_loss(a, A, Y)[0], loss, name="the loss")


def _with_gradient(result):
    loss, gradient = result
    return loss, lambda d: d * gradient


def test_learned_scales_lower_the_error_on_what_they_saw():
    A, Y = kr.patients()
    A, Y = A[:120], Y[:120]
    h, errors = kr.choose(A, Y, kr.BANDWIDTHS)
    a = kr.learned_scales(A, Y, h)
    assert kr.scales_loss(np.log(a), A, Y)[0] ** 0.5 < 0.97 * min(errors)


def test_nearest_neighbours_are_scikit_learns(rng):
    A, B, Y = rng.standard_normal((30, 3)), rng.standard_normal((7, 3)), rng.standard_normal((30, 1))
    compare(kr.nearest(B, A, Y, 4), KNeighborsRegressor(4).fit(A, Y).predict(B), name="neighbours")


@pytest.mark.slow
def test_the_contest_says_what_the_page_says():
    """Over five halves: attention ties with neighbours, learned scales do not help, lines beat both by more."""
    runs = [kr.contest(seed) for seed in range(5)]
    errors = {name: np.array([run["errors"][name] for run in runs]) for name in runs[0]["errors"]}
    assert all(errors["mean of all"].min() > 1.15 * e.max() for name, e in errors.items() if name != "mean of all")
    assert abs(errors["attention"].mean() - errors["nearest neighbours"].mean()) < 2
    assert errors["ten learned scales"].mean() > errors["attention"].mean()
    assert (errors["attention with lines"] < errors["attention"]).all()
    assert abs(errors["attention with lines"] - errors["one straight line"]).max() < 1.5
    assert all(run["inside"] < run["errors"]["ten learned scales"] for run in runs)
    assert np.mean([run["corrected"] for run in runs]) < errors["attention"].mean() - 0.5
    assert min(run["displacement"] for run in runs) > 15


@pytest.mark.slow
def test_the_library_is_imported_without_the_compiler():
    """It would take a second of every page and command, and a decorator that names it is enough."""
    code = "import sys, attnmath.torch; print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
