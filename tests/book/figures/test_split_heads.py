"""The width dealt to heads and put together again, against NumPy's reshape and transpose and the library's split."""

import itertools

import numpy as np
import pytest

from attnmath.numpy.multi_head import split_heads

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


def steps(A, h, split, merge):
    """Every array on the way: as it comes, viewed, the heads, before the merge, merged."""
    n, d = A.shape
    viewed = A.reshape((n, h, d // h) if split else (h, n, d // h))
    heads = viewed.swapaxes(0, 1) if split else viewed
    back = heads.swapaxes(0, 1) if merge else heads
    return A, viewed, heads, back, back.reshape(n, d)


@pytest.mark.parametrize(("transpose", "split", "merge"), [(0, True, True), (1, False, True), (2, False, False)])
def test_each_entry_goes_where_reshape_and_transpose_take_it(open_figure, transpose, split, merge):
    figure = open_figure("split-heads")
    Y = figure.data("Y")
    (n, d), places = Y.shape, np.arange(Y.size).reshape(Y.shape)
    assert (n, d) == (5, 12)
    cells = figure.root.locator("svg [role=button]")
    for number, (i, c) in itertools.product(range(6), ((0, 0), (1, 9), (4, 11), (2, 5))):
        h = (1, 2, 3, 4, 6, 12)[number]
        figure.turn(transpose=transpose, heads=number, entry=[i, c])
        on_the_way = steps(places, h, split, merge)
        want = [np.argwhere(A == places[i, c])[0].tolist() for A in on_the_way]
        assert figure.page.evaluate("() => Interactive.figures['split-heads'].shown.path") == want
        _, _, heads, _, merged = steps(Y, h, split, merge)
        np.testing.assert_array_equal(figure.shown("H"), heads)
        np.testing.assert_array_equal(figure.shown("merged"), merged)
        if split:
            np.testing.assert_array_equal(figure.shown("H"), split_heads(Y, h))
        words = np.broadcast_to(np.arange(1, n + 1)[:, None], (n, d))
        of_heads = steps(words, h, split, merge)[2]
        np.testing.assert_array_equal(figure.shown("from"), of_heads)
        strays = (on_the_way[-1] != places).sum()
        assert figure.shown("strays") == strays
        said = figure.said()
        assert f"Column {c + 1} of word {i + 1}, {Y[i, c]:.3f}".replace("-", "−") in said
        k, r, x = want[2]
        assert f"becomes column {x + 1} of row {r + 1} of head {k + 1}" in said
        assert f"[{i}, {c}], view {on_the_way[1].shape}{want[1]}" in said and said.count("transpose") == split + merge
        assert f"reshape (5, 12){want[-1]}" in said
        assert (f"{strays} of 60 entries stand in a wrong place" in said) == (strays > 0)
        assert ("Row i of each head comes from word i" in said) == (split or h == 1)
        if not split and h > 1:
            assert f"come from the words {', '.join(map(str, of_heads[0][:, 0]))}, so" in said
        labels = cells.evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
        homes = [np.argwhere(on_the_way[2] == place)[0][0] + 1 for place in range(n * d)]
        assert [int(label.split("head ")[1]) for label in labels] == homes


def test_the_drawing_has_each_entry_three_times_and_its_word_in_it(open_figure):
    figure = open_figure("split-heads")
    figure.turn(transpose=1, heads=3)
    counts = [figure.root.locator(f"svg {one}").count() for one in ("[role=button]", ".in-head", ".merged")]
    assert counts == [60, 60, 60]
    squares = figure.root.locator("svg .in-head").evaluate_all(
        "all => all.map((one) => ['x', 'y'].map((c) => +one.getAttribute(c)).concat(+one.nextSibling.textContent))"
    )
    in_order = sorted(squares, key=lambda one: (one[1], one[0]))  # row by row, all heads of a row from left to right
    shown = figure.shown("from").astype(int)
    assert [one[2] for one in in_order] == shown.swapaxes(0, 1).ravel().tolist()
    chosen = figure.root.locator("svg [style*='stroke-width: 4']")
    assert chosen.count() == 3, "the chosen entry is marked in every table"


def test_an_entry_is_chosen_by_finger_and_by_keyboard(open_figure):
    figure = open_figure("split-heads", width=390, has_touch=True)
    cells = figure.root.locator("svg [role=button]")
    figure._after_drawing(cells.nth(2 * 12 + 4).tap)
    assert figure.knob("entry") == [2, 4]
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        cells.and_(figure.page.locator("[tabindex='0']")).focus()
        figure._after_drawing(lambda key=key: figure.page.keyboard.press(key))
    assert figure.knob("entry") == [3, 4]
    assert figure.page.evaluate("document.activeElement.getAttribute('aria-label')") == "word 4, column 5: head 2"
