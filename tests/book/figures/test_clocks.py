"""The hands of a query and of a key at two positions, and the score that their clocks add up to."""

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
SETTINGS = [(10, 7, 0), (10, 7, 100), (0, 60, 1000), (60, 0, 1), (33, 33, 617)]
ROTARY, ALONE, ADDED = range(3)


def rows(figure, how, name, place):
    """The query or the key with its position, as the library gives it."""
    content, wave = figure.data(name), an.sinusoidal_positions(1, 8, start=place)[0]
    return (an.rotary(content[None], start=place)[0][0], wave, content + wave)[how]


@pytest.mark.parametrize("how", [ROTARY, ALONE, ADDED])
def test_hands_and_scores_are_the_librarys(open_figure, how):
    figure = open_figure("clocks")
    assert figure.data("query").shape == figure.data("key").shape == (8,) and figure.data("base") == 10_000
    figure.turn(how=how)
    for query, key, shift in SETTINGS:
        figure.turn(query=query, key=key, shift=shift)
        ends = {name: rows(figure, how, name, place + shift) for name, place in (("query", query), ("key", key))}
        for name, row in ends.items():
            hands = row.reshape(4, 2)  # to the right and up: a rotated pair begins with what points up
            np.testing.assert_allclose(
                figure.shown(f"{name} hands"), hands[:, ::-1] if how == ROTARY else hands, atol=1e-9
            )
        parts = (ends["query"] * ends["key"]).reshape(4, 2).sum(-1)
        np.testing.assert_allclose(figure.shown("parts"), parts, atol=1e-9)
        written = [
            text.replace("−", "-").replace(" ", "") for text in figure.root.locator("svg .part").all_text_contents()
        ]
        assert [float(text) for text in written] == [float(f"{part:.3f}") for part in parts]
        score = ends["query"] @ ends["key"]
        np.testing.assert_allclose(figure.shown("score"), score, atol=1e-9)
        assert f"so their distance is {query - key}." in figure.said().replace("−", "-")
        assert f"the score {score:.4f}." in figure.said().replace("−", "-")
        before = rows(figure, how, "query", query) @ rows(figure, how, "key", key)
        np.testing.assert_allclose(figure.shown("before"), before, atol=1e-9)
        depends = how == ADDED
        assert (abs(score - before) > 1e-3) == (depends and shift > 0)
        assert ("has changed it" in figure.said()) == (depends and shift > 0)
        assert ("has not changed it" in figure.said()) == (not depends and shift > 0)


@pytest.mark.parametrize("how", [ROTARY, ALONE, ADDED])
def test_the_curve_is_the_score_at_every_distance(open_figure, how):
    figure = open_figure("clocks")
    figure.turn(how=how, query=25, key=40, shift=300)
    distances, curve = figure.shown("distances"), figure.shown("curve")
    np.testing.assert_array_equal(distances, np.arange(-60, 61))
    one = rows(figure, how, "query", 325)
    np.testing.assert_allclose(
        curve, [one @ rows(figure, how, "key", 325 - gap) for gap in distances.tolist()], atol=1e-9
    )
    np.testing.assert_allclose(curve[distances == -15], figure.shown("score"), atol=1e-9)
    figure.turn(query=50)
    assert (abs(figure.shown("curve") - curve).max() > 0.5) == (how == ADDED), "only what is added moves the curve"


def test_the_page_begins_with_its_own_score(open_figure):
    figure = open_figure("clocks")
    assert figure.said().startswith("The query stands at position 10 and the key at 7") and "−1.7961" in figure.said()
