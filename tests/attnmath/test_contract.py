"""What every NumPy component promises, whatever it computes: which cotangents it takes, and that results are kept."""

import inspect

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import check
from attnmath.check import read_only
from attnmath.count import bytes_held
from attnmath.numpy.types import differentiable
from tests.attnmath.cases import CASES


@pytest.fixture(autouse=True)
def no_context_of_the_session(monkeypatch):
    """As a user calls the library: the session's own read-only context is not there."""
    monkeypatch.setattr(check, "read_only_contexts", 0)


@differentiable
def squares(X, scale: float = 1.0):
    """Each number times itself."""
    return scale * X * X, lambda dY: {"X": 2 * scale * X * dY}


@differentiable
def total(X):
    return X.sum(), lambda dy: np.broadcast_to(dy, X.shape)


def test_a_cotangent_of_another_shape_is_refused():
    _, vjp = squares(np.array([1.0, 2.0]), scale=3.0)
    np.testing.assert_array_equal(vjp(np.array([1.0, 10.0]))["X"], [6.0, 120.0])
    for dY, found in (
        (np.ones((3, 2)), r"of shape \(3, 2\)"),
        (np.ones(1), r"of shape \(1,\)"),
        (np.ones(()), r"of shape \(\)"),
        (1.0, "that is a float"),
        ([1.0, 10.0], "that is a list"),
        (None, "that is a NoneType"),
    ):
        with pytest.raises(ValueError, match=rf"squares's vjp was given a cotangent {found}; expected an array of y's"):
            vjp(dY)


def test_a_number_has_a_number_as_cotangent():
    _, vjp = total(np.array([1.0, 2.0]))
    for dy in (2, 2.0, np.float32(2), np.array(2.0)):
        np.testing.assert_array_equal(vjp(dy), [2.0, 2.0])
    with pytest.raises(ValueError, match=r"expected an array of y's shape \(\)"):
        vjp(np.ones(1))


def test_read_only_protects_the_value_and_every_cotangent():
    X = np.array([1.0, 2.0])
    with read_only():
        Y, vjp = squares(X)
        dX = vjp(Y)["X"]
        same = differentiable(lambda X: (X, lambda dY: (dY, None)))(X)[0]
    for result in (Y, dX, same):
        with pytest.raises(ValueError, match="read-only"):
            result += 1
    X += 1  # the caller's own array stays writable, even if it is what came back
    Y, vjp = squares(X)
    Y += 1
    vjp(Y)["X"][...] = 0


def test_read_only_contexts_nest():
    with read_only():
        with read_only():
            pass
        assert not squares(np.ones(2))[0].flags.writeable
    assert squares(np.ones(2))[0].flags.writeable


def test_name_signature_and_source_stay_and_memory_does_not_grow():
    assert squares.__name__ == "squares" and squares.__doc__ == "Each number times itself."
    assert list(inspect.signature(squares).parameters) == ["X", "scale"]
    assert "2 * scale * X * dY" in inspect.getsource(squares)
    X = np.ones(100)
    assert bytes_held(squares(X)[1]) == X.nbytes


def test_what_is_no_value_with_a_vjp_is_passed_on():
    for result in (3, (1, 2, 3), ({"a": 1}, True), [np.ones(2), len]):
        assert differentiable(lambda result=result: result)() is result


WRAPPED = {"grouped", "windowed", "recording"}  # cores, whose vjps are those of the core that they wrap, and refuse too


@pytest.mark.parametrize("name", sorted({case.function for case in CASES}))
def test_every_component_keeps_the_promise(name, rng):
    """The library's own vjps: an axis more, an axis of another size, and a list are refused."""
    case = next(case for case in CASES if case.function == name)
    Y, vjp = case.call(an, *case.args(rng))
    wrong = [np.ones((1, *np.shape(Y))), [1.0]] + ([np.ones((*Y.shape[:-1], Y.shape[-1] + 1))] if np.ndim(Y) else [])
    for dY in wrong:
        with pytest.raises(ValueError, match="vjp was given a cotangent" if name not in WRAPPED else "cotangent|shape"):
            vjp(dY)
