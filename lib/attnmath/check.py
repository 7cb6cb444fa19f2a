"""Compare a result with its reference, and a hand-derived gradient with a finite difference.

Chapters, exercises and tests share these helpers. They take NumPy arrays, anything ``np.asarray`` takes, and PyTorch
tensors; this module never imports torch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from attnmath.tree import flatten, map_tree


class Mismatch(AssertionError):
    """A result that is not what it should be.

    Parameters
    ----------
    message : what the person who made the result reads.
    name : what the message calls the result.
    mistake : the sentence of the known mistake that the result equals; empty if it equals none.

    Examples
    --------
    >>> try:
    ...     compare([3.0, 1.0], [1.0, 3.0], name="order", mistakes={"you sorted downwards": [3.0, 1.0]})
    ... except AssertionError as error:
    ...     print(error.name, error.mistake, error, sep=" | ")
    order | you sorted downwards | order: you sorted downwards
    """

    def __init__(self, message: str, name: str = "", mistake: str = ""):
        super().__init__(message)
        self.name, self.mistake = name, mistake


def compare(
    got,
    want,
    *,
    name: str = "result",
    atol: float = 1e-12,
    rtol: float = 1e-12,
    mistakes: Mapping[str, object] | None = None,
) -> None:
    """Assert that ``got`` equals ``want``, and say what is wrong if it does not.

    Parameters
    ----------
    got, want : arrays, tensors, numbers, or trees (nested dicts, tuples, lists) of them.
    name : what the message calls the result.
    atol, rtol : ``|got - want| <= atol + rtol |want|`` in every entry; ``nan`` equals nothing,
        an infinity itself alone.
    mistakes : known wrong values by the sentence that describes them, such as
        ``{"your weights sum to 1 over the queries, axis -2; normalise over the keys": softmax over axis -2}``. If
        ``got`` equals one of them, its sentence heads the message.

    Raises
    ------
    Mismatch
        An `AssertionError` with the first difference that explains itself: a known mistake (its sentence is also in
        the field ``mistake``), a missing value, structure, shape, ``nan``, a constant factor, a transposition, or else
        the largest difference and where it stands.
    ValueError
        If a mistake equals the right value, which would make the message a lie.

    Examples
    --------
    >>> compare([1.0, 2.0], [1.0, 2.0])
    >>> compare([2.0, 4.0], [1.0, 2.0], name="scores")
    Traceback (most recent call last):
    ...
    attnmath.check.Mismatch: scores: every entry is 2 times what it should be
    """
    for sentence, wrong in (mistakes or {}).items():
        if _difference(wrong, want, name, atol, rtol) is None:
            raise ValueError(f"the mistake {sentence!r} gives the right value: choose inputs that tell them apart")
    difference = _difference(got, want, name, atol, rtol)
    if difference is None:
        return
    for sentence, wrong in (mistakes or {}).items():
        if _difference(got, wrong, name, atol, rtol) is None:
            raise Mismatch(f"{name}: {sentence}", name, sentence)
    raise Mismatch(difference, name)


def _array(X):
    if hasattr(X, "detach"):
        X = X.detach().cpu()
        X = X.double() if X.is_floating_point() else X  # bfloat16 has no NumPy counterpart
    return np.asarray(X)


def _kind(got):
    """What ``got`` is, in words; an object that refuses to be an array speaks for itself."""
    try:
        np.asarray(got)
    except (TypeError, ValueError) as error:
        return f"no plain value ({error})"
    return f"a {type(got).__name__}"


def _difference(got, want, name, atol, rtol):
    """A sentence, or None if equal."""
    if isinstance(want, dict):
        if not isinstance(got, dict) or set(got) != set(want):
            keys = sorted(map(str, got)) if isinstance(got, dict) else _kind(got)
            return f"{name} is {keys}; expected a dict with the keys {sorted(map(str, want))}"
        pairs = [(got[key], want[key], f"{name}[{key!r}]") for key in want]
    elif isinstance(want, tuple):
        if not isinstance(got, tuple | list) or len(got) != len(want):
            kind = f"{len(got)} values" if isinstance(got, tuple | list) else _kind(got)
            return f"{name} is {kind}; expected {len(want)} values in a tuple"
        pairs = [(g, w, f"{name}[{i}]") for i, (g, w) in enumerate(zip(got, want, strict=True))]
    else:
        return _array_difference(got, want, name, atol, rtol)
    return next((d for g, w, n in pairs if (d := _difference(g, w, n, atol, rtol)) is not None), None)


def _array_difference(got, want, name, atol, rtol):
    if got is None:
        return f"{name} is None: a return is missing"
    try:
        got, want = _array(got), _array(want)
    except (TypeError, ValueError) as error:
        return f"{name} is not an array: {error}"
    if got.dtype.kind not in "biufc":
        return f"{name} has dtype {got.dtype}; numbers are expected"
    if got.shape != want.shape:
        return f"{name} has shape {got.shape}; expected {want.shape}"
    if got.dtype.kind == "b" or want.dtype.kind == "b":
        wrong = np.argwhere(got != want)
        return (
            f"{name} differs in {len(wrong)} of {want.size} entries, first at {_at(wrong[0])}" if len(wrong) else None
        )
    with np.errstate(invalid="ignore", over="ignore"):
        close = (got == want) | (np.isfinite(want) & (np.abs(got - want) <= atol + rtol * np.abs(want)))
    if close.all():
        return None
    missing = np.argwhere(np.isnan(got) & ~np.isnan(want))
    if len(missing):
        return f"{name} is nan in {len(missing)} of {want.size} entries, first at {_at(missing[0])}"
    finite = np.isfinite(got).all() and np.isfinite(want).all()
    if finite and want.size > 1 and np.abs(want).max() > 0:
        if not got.any():
            return f"{name} is 0 everywhere, and should not be"
        factor = (got * want).sum() / (want * want).sum()
        if abs(factor - 1) > 1e-3 and np.allclose(got, factor * want, rtol=1e-6, atol=1e-9 * np.abs(want).max()):
            return f"{name}: every entry is {factor:.4g} times what it should be"
        if want.ndim >= 2 and want.shape[-1] == want.shape[-2] and np.allclose(got, np.swapaxes(want, -1, -2)):
            return f"{name} is transposed: its last two axes are swapped"
    if want.ndim == 0:
        return f"{name} is {got[()]:.10g}; expected {want[()]:.10g}"
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(close, 0, np.nan_to_num(np.abs(got - want), nan=np.inf))
    worst = np.unravel_index(error.argmax(), error.shape)
    return (
        f"{name} differs in {int((~close).sum())} of {want.size} entries, most at {_at(worst)}: "
        f"got {got[worst]:.6g}, expected {want[worst]:.6g}"
    )


def _at(index):
    return "[" + ", ".join(str(int(i)) for i in index) + "]"


def check_vjp(f: Callable, *args, rng: np.random.Generator, tol: float = 1e-6, step: float = 1e-5) -> None:
    r"""Assert that ``f(*args) -> (y, vjp)`` has the right vjp, by a finite difference in a random direction.

    For a random cotangent :math:`\bar y` and, argument by argument, a random direction :math:`t`,

    .. math:: \langle \bar x, t\rangle = \frac{\langle \bar y, f(x + \epsilon t) - f(x - \epsilon t)\rangle}{2\epsilon}
              + O(\epsilon^2),\qquad \bar x = \mathrm{vjp}(\bar y)

    Parameters
    ----------
    f : of float64 arrays, or trees (nested dicts) of them, positional; bind everything else beforehand.
    args : where to check, away from kinks.
    rng : the generator of cotangent and directions; a cotangent of ones would hide faults, since softmax and layer
        norm annihilate it.
    tol : the allowed relative error.
    step : :math:`\epsilon`, relative to the scale of each argument.

    Raises
    ------
    AssertionError
        Naming the argument whose cotangent is wrong, with both numbers, or has the wrong shape.
    ValueError
        If an argument is not float64, where the difference would drown in rounding.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> check_vjp(lambda x: (x**2, lambda dy: 2 * x * dy), np.array([1.0, 2.0, 3.0]), rng=rng)
    >>> check_vjp(lambda x: (x**2, lambda dy: x * dy), np.array([1.0, 2.0, 3.0]), rng=rng)
    Traceback (most recent call last):
    ...
    AssertionError: cotangent of argument 0: -2.9179 along a random direction, but the finite difference is -5.8359
    """
    for i, arg in enumerate(args):
        for path, leaf in _leaves(arg):
            if getattr(leaf, "dtype", None) != np.dtype(np.float64):
                raise ValueError(f"argument {i}{path} is not a float64 array; finite differences need float64")
    y, vjp = f(*args)
    dy = rng.standard_normal(y.shape)
    cotangents = vjp(dy)
    cotangents = cotangents if isinstance(cotangents, tuple) else (cotangents,)
    if len(cotangents) != len(args):
        raise AssertionError(f"vjp returns {len(cotangents)} cotangents for {len(args)} arguments")
    for i, (arg, cotangent) in enumerate(zip(args, cotangents, strict=True)):
        for (path, leaf), (_, dleaf) in zip(_leaves(arg), _leaves(cotangent), strict=True):
            if np.shape(dleaf) != leaf.shape:
                raise AssertionError(
                    f"cotangent of argument {i}{path} has shape {np.shape(dleaf)}; expected {leaf.shape}"
                )
        direction = map_tree(lambda leaf: rng.standard_normal(leaf.shape), arg)
        epsilon = step * max([1.0, *(float(np.abs(leaf).max()) for _, leaf in _leaves(arg) if leaf.size)])

        def along(h, i=i, arg=arg, direction=direction):
            moved = map_tree(lambda x, t: x + h * t, arg, direction)
            return (dy * f(*args[:i], moved, *args[i + 1 :])[0]).sum()

        difference = float((along(epsilon) - along(-epsilon)) / (2 * epsilon))
        terms = [dx * t_ for (_, dx), (_, t_) in zip(_leaves(cotangent), _leaves(direction), strict=True)]
        by_hand = float(sum(term.sum() for term in terms))
        noise = 1e-6 * float(np.abs(dy * y).sum())  # below the value's own last digits a difference says nothing
        scale = max(float(sum(np.abs(term).sum() for term in terms)), abs(difference), noise, 1e-12)
        if not abs(by_hand - difference) <= tol * scale:
            raise AssertionError(
                f"cotangent of argument {i}: {by_hand:.5g} along a random direction, "
                f"but the finite difference is {difference:.5g}"
            )


read_only_contexts = 0  # how many are open; every component looks here at every call


@contextmanager
def read_only() -> Iterator[None]:
    """Have every NumPy component return read-only arrays, the value as well as the cotangents, to find who writes.

    A returned array may be looked at and used, not written into, because a vjp may still need it. In this context
    NumPy raises where that happens. It holds in all threads, and for a vjp that is called in it.

    Examples
    --------
    >>> from attnmath.numpy import rms_norm
    >>> with read_only():
    ...     Y, vjp = rms_norm(np.array([1.0, 7.0]), np.ones(2))
    >>> Y += 1
    Traceback (most recent call last):
    ...
    ValueError: output array is read-only
    """
    global read_only_contexts
    read_only_contexts += 1
    try:
        yield
    finally:
        read_only_contexts -= 1


def _leaves(tree):
    if isinstance(tree, dict):
        return [(f"[{path!r}]", leaf) for path, leaf in sorted(flatten(tree).items())]
    return [("", tree)]
