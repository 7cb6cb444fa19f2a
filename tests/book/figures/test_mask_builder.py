"""A mask of padding, causal and window, against the library's three functions."""

import itertools

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
NAMES = {name: getattr(an, name) for name in ("padding_mask", "causal_mask", "window_mask")} | {"np": np, "bool": bool}


def wanted(n, length, front, causal, window):
    words = an.padding_mask(np.array([length]), n)[0]
    mask = np.broadcast_to(words[:, ::-1] if front else words, (n, n)) & an.window_mask(n, window)
    return mask & an.causal_mask(n) if causal else mask


def test_the_square_is_the_mask_of_the_library(open_figure):
    figure = open_figure("mask-builder")
    n = int(figure.data("n"))
    squares = figure.root.locator("rect[role=button]")
    assert (n, figure.knob("length"), squares.count()) == (6, 4, 36)
    for length, front, causal, window in itertools.product((1, 4, 6), (False, True), (False, True), (0, 2, 5)):
        figure.turn(length=length, front=front, causal=causal, window=window)
        mask = wanted(n, length, front, causal, window)
        np.testing.assert_array_equal(figure.shown("mask"), mask)
        np.testing.assert_array_equal(figure.shown("sees"), mask.sum(1))
        np.testing.assert_array_equal(figure.shown("empty"), 1 + np.flatnonzero(~mask.any(1)))
        assert figure.shown("total") == mask.sum()
        of_code = eval(figure.shown("code"), {"__builtins__": {}}, NAMES)
        np.testing.assert_array_equal(np.broadcast_to(of_code, (n, n)), mask, err_msg=figure.shown("code"))
        filled = squares.evaluate_all("all => all.map((one) => one.classList.contains('filled'))")
        np.testing.assert_array_equal(np.reshape(filled, (n, n)), mask)
        labels = squares.evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
        assert [label.endswith("allowed") for label in labels] == mask.ravel().tolist()
        assert f"{mask.sum()} of 36" in figure.said()
        assert ("0/0" in figure.said()) == (not mask.any(1).all())


def test_a_square_explains_its_pair_by_finger_and_by_keyboard(open_figure):
    figure = open_figure("mask-builder", width=390, has_touch=True)
    figure.turn(length=4, front=False, causal=True, window=1)
    squares = figure.root.locator("rect[role=button]")
    figure._after_drawing(squares.nth(2 * 6 + 4).tap)
    assert figure.knob("pair") == [3, 5] and figure.shown("why") == 3
    for words in ("Query 3 may not look at key 5", "is padding", "comes after", "2 apart"):
        assert words in figure.said()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowDown", "ArrowUp"):
        squares.and_(figure.page.locator("[tabindex='0']")).focus()
        figure._after_drawing(lambda key=key: figure.page.keyboard.press(key))
    assert figure.knob("pair") == [3, 3] and figure.shown("why") == 0
    assert "Query 3 may look at key 3." in figure.said()
    assert figure.page.evaluate("document.activeElement.getAttribute('aria-label')") == "query 3, key 3: allowed"
    for _ in range(7):  # the edge holds
        figure._after_drawing(lambda: figure.page.keyboard.press("ArrowUp"))
    assert figure.knob("pair") == [1, 3]
