"""Points that move on a sphere: their steps, their clusters, their times, and what is refused."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from attnmath import particles as pa
from attnmath.check import compare

TURN = np.array([[0.0, 2.0, 0.0], [-2.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


def turning(X):
    """A rotation about an axis, whose paths are known."""
    return X @ TURN


def test_points_are_spread_evenly(rng):
    X = pa.on_sphere(rng, 4, 5000, 3)
    compare((X**2).sum(-1), np.ones((4, 5000)), name="lengths", atol=1e-12)
    compare(X.reshape(-1, 3).T @ X.reshape(-1, 3) / 20000, np.eye(3) / 3, name="second moments", atol=0.01)
    assert abs(X.mean((0, 1))).max() < 0.02


@pytest.mark.parametrize(("method", "order"), [(pa.euler, 1), (pa.runge_kutta, 4)])
def test_steps_follow_a_rotation(method, order, rng):
    from scipy.linalg import expm

    X = pa.on_sphere(rng, 6, 3)
    errors = []
    for steps in (40, 80):
        times, path = pa.integrate(turning, X, 1.5 / steps, steps, method=method)
        assert times[-1] == pytest.approx(1.5) and (path[0] == X).all()
        compare((path**2).sum(-1), np.ones((steps + 1, 6)), name="squared lengths", atol=1e-12)
        errors.append(abs(path[-1] - X @ expm(1.5 * TURN)).max())
    assert 2 ** (order - 0.3) < errors[0] / errors[1] < 2 ** (order + 0.3)


def test_some_points_of_a_path_are_kept(rng):
    X = pa.on_sphere(rng, 2, 3)
    times, path = pa.integrate(turning, X, 0.1, 12)
    kept, thin = pa.integrate(turning, X, 0.1, 12, every=5)
    compare(kept, times[[0, 5, 10]], name="times", atol=1e-12)
    compare(thin, path[[0, 5, 10]], name="path", atol=0.0)


def test_clusters_are_joined_by_neighbours():
    def ring(*degrees):
        angles = np.radians(degrees)
        return np.stack([np.cos(angles), np.sin(angles)], -1)

    assert pa.cluster_count(ring(0, 5, 10, 15, 90, 180, 184)) == 3
    assert pa.cluster_count(ring(0, 5, 10, 15, 90, 180, 184), cosine=0.9999) == 7
    assert pa.cluster_count(ring(358, 1)) == 1


def test_the_time_to_one_is_the_first_one():
    """Two sets of one pair: one closes its angle at a known speed, the other turns as a whole and never does."""
    X = np.stack([np.eye(2), np.array([[1.0, 0.0], [-1.0, 0.0]])])

    def closing(X):  # half a radian per unit of time towards the mean, which opposite points do not have
        mean = X.sum(-2, keepdims=True)
        along = mean - (mean * X).sum(-1, keepdims=True) * X
        return 0.5 * along / np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-9)

    times = pa.time_to_one(closing, X, cosine=np.cos(0.5), step=0.125, limit=4.0)
    exact = (np.pi / 2 - 0.5) / 1.0
    assert exact <= times[0] < exact + 0.125 and np.isinf(times[1])


@pytest.mark.parametrize(("n", "beta", "start"), [(2, 0.0, 0.0), (2, 5.0, -0.4), (7, 3.0, 0.2)])
def test_the_time_of_equal_angles_is_that_of_scipy(n, beta, start):
    time = pa.equal_angle_time(n, beta, start=start, end=0.9)
    end = solve_ivp(lambda t, c: pa.equal_angles(c, n, beta), (0, time), [start], rtol=1e-10, atol=1e-12).y[0, -1]
    compare(end, 0.9, name="cosine", atol=1e-7)
    if not beta:
        compare(time, np.arctanh(0.9), name="time", atol=1e-9)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pa.integrate(turning, np.ones((2, 3)), 0.1, 3), "a row of X has a length that is not 1, by 7.3e-01"),
        (lambda: pa.integrate(turning, np.eye(3), 0.0, 3), "step is 0.0; it must be > 0"),
        (lambda: pa.integrate(turning, np.eye(3), 0.1, 0), "steps is 0"),
        (lambda: pa.integrate(turning, np.eye(3), 0.1, 2, every=0), "every is 0"),
        (lambda: pa.time_to_one(turning, 2 * np.eye(3)[None]), "length that is not 1"),
        (lambda: pa.energy(np.eye(3), 0.0), "beta is 0; the energy"),
        (lambda: pa.equal_angle_time(1, 1.0), "n >= 2"),
        (lambda: pa.equal_angle_time(3, 1.0, start=0.5, end=0.4), "start <= end < 1 is needed"),
        (lambda: pa.equal_angle_time(3, 1.0, start=-0.5), "-1 / (n - 1) < start"),
        (lambda: pa.equal_angle_time(3, 1.0, end=1.0), "end < 1"),
    ],
)
def test_bad_input_gets_a_sentence(call, said):
    with pytest.raises(ValueError) as told:
        call()
    assert said in str(told.value)
