"""Sums and gradients along a stack: the lemma's lines, and the library's sub-layers with other random matrices."""

from functools import partial

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
PLACES = {"post-norm": False, "pre-norm": True}


def root(A):
    return np.sqrt((A**2).mean())


def matrix(Z, W):
    return Z @ W, lambda dF: (dF @ W.swapaxes(1, 2), Z.swapaxes(1, 2) @ dF)


def library(L, s, place, d=64, draws=200, seed=7):
    """Sizes of the sums and of the gradients; place is None where there is no norm at all."""
    rng = np.random.default_rng(seed)
    unit = {"gain": np.ones(d), "bias": np.zeros(d)}
    norm = an.layer_norm if place is not None else lambda X, gain, bias: (X, lambda dY: (dY, gain, bias))
    X, dX = rng.standard_normal((2, draws, 1, d))
    sizes, vjps, gradients = [root(X)], [], []
    for _ in range(L):
        f = partial(matrix, W=s / d**0.5 * rng.standard_normal((draws, d, d)))
        X, vjp = an.sublayer(X, f, unit, norm_first=bool(place), norm=norm)
        sizes.append(root(X))
        vjps.append(vjp)
    if place:
        dX = an.layer_norm(X, *unit.values())[1](dX)[0]
    for vjp in reversed(vjps):
        dX, _, dW = vjp(dX)
        gradients.insert(0, root(dW))
    return np.array(sizes), np.array(gradients)


def test_the_lines_and_dots_are_what_the_librarys_layers_do(open_figure):
    figure = open_figure("norm-placement")
    depths, scales = figure.data("depths").tolist(), figure.data("scales").tolist()
    assert depths == [6, 12, 24, 48] and scales == [0.125, 0.25, 0.5, 1, 2]
    for L, s in ((6, 0.5), (12, 2), (24, 1), (48, 0.125)):
        figure.turn(depth=depths.index(L), scale=scales.index(s))
        for name, place in (PLACES | {"no norm": None}).items():
            many = library(L, s, place)  # the lines are their means
            own = library(L, s, place, d=32, draws=30, seed=56)  # the dots are these very numbers, to three digits
            for what in (0, 1):
                figure.turn(what=what)
                off = np.log2(figure.shown(name) / many[what])
                assert abs(off).max() < 0.25 and abs(off.mean()) < 0.11, (L, s, name, what, off)
                if place is not None:
                    np.testing.assert_allclose(figure.shown(f"{name} drawn"), own[what], rtol=6e-3)


@pytest.mark.parametrize("what", [0, 1])
def test_the_lines_are_the_lemma_and_the_words_say_their_ends(open_figure, what):
    figure = open_figure("norm-placement")
    for depth, L in enumerate((6, 12, 24, 48)):
        for number, s in enumerate((0.125, 0.25, 0.5, 1.0, 2.0)):
            figure.turn(depth=depth, scale=number, what=what)
            l = np.arange(what, L + 1)
            pre, flat = 1 + l * s**2, np.ones(len(l))
            want = {
                "no norm": (1 + s**2) ** ((flat * (L - 1)) if what else l),
                "post-norm": flat / (1 + s**2) if what else flat,
                "pre-norm": 1 / pre if what else pre,
            }
            for name, squares in want.items():
                np.testing.assert_allclose(figure.shown(name), np.sqrt(squares), rtol=1e-12)
            for name in PLACES:
                drawn = figure.shown(f"{name} drawn")
                assert len(drawn) == len(l)
                assert f"{np.sqrt(want[name][-1]):.2f} by the lemma" in figure.said()
                assert f"{drawn[-1]:.2f} in the random layers with {name}" in figure.said()
            assert figure.root.locator("svg .dot").count() == 2 * len(l)
            end = np.sqrt(want["no norm"][-1])
            assert (f"{end:.2f}." if end < 1000 else "more than a thousand.") in figure.said()
