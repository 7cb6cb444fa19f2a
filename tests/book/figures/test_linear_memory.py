"""Pairs in a memory of fixed size: the library's memory, what is found, and the formulas against many memories."""

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
RATES = {"linear attention": None, "delta rule": np.ones((1, 1))}


def read(keys, values, rule):
    keys = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
    S, _ = an.fast_weights_state(keys, values, beta=RATES[rule])
    R = keys @ S
    distances = ((R[..., :, None, :] - values[..., None, :, :]) ** 2).sum(-1)
    return S, ((R - values) ** 2).sum(-1), distances.argmin(-1) == np.arange(values.shape[-2])


@pytest.mark.parametrize(("pairs", "width"), [(1, 32), (1, 2), (16, 32), (24, 5), (64, 32), (64, 2), (33, 17)])
def test_the_memory_is_the_librarys(open_figure, pairs, width):
    figure = open_figure("linear-memory")
    keys, values = figure.data("keys"), figure.data("values")
    figure.turn(pairs=pairs, width=width)
    assert (figure.knob("pairs"), figure.knob("width")) == (pairs, width)
    drawn = {"linear attention": "svg circle", "delta rule": "svg rect"}
    for rule, marks in drawn.items():
        S, errors, found = read(keys[:pairs, :width], values[:pairs], rule)
        np.testing.assert_allclose(figure.shown(f"{rule} state"), S, atol=1e-10)
        np.testing.assert_allclose(figure.shown(f"{rule} errors"), errors, atol=1e-10)
        assert (figure.shown(f"{rule} found") == found).all()
        assert figure.root.locator(marks).count() == pairs
        assert figure.root.locator(f"{marks}.filled").count() == found.sum()
        assert f"finds {found.sum()} of {pairs}, with a mean squared error of {errors.mean():.2f}" in figure.said()


@pytest.mark.parametrize(("pairs", "width"), [(2, 3), (20, 8), (64, 32)])
def test_the_formulas_are_the_mean_of_many_memories(open_figure, pairs, width):
    figure = open_figure("linear-memory")
    figure.turn(pairs=pairs, width=width)
    rng = np.random.default_rng(0)
    keys, values = rng.standard_normal((4000, pairs, width)), rng.standard_normal((4000, pairs, 16)) / 4
    for rule in RATES:
        parts = zip(np.split(keys, 10), np.split(values, 10), strict=True)
        errors = np.concatenate([read(*part, rule)[1] for part in parts])
        spread = errors.std(0) / len(errors) ** 0.5
        assert (abs(figure.shown(f"{rule} formula") - errors.mean(0)) < 5 * spread + 1e-9).all(), rule
        assert f"expects {figure.shown(f'{rule} formula').mean():.2f}" in figure.said()


def test_a_button_writes_one_more(open_figure):
    figure = open_figure("linear-memory")
    figure.turn(pairs=63)
    figure.press("write one more")
    assert figure.knob("pairs") == 64
    figure.press("write one more")
    assert figure.knob("pairs") == 64
