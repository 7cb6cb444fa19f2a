"""The timeline of a pipeline, and the share of it that a stage waits."""

import numpy as np
import pytest

from attnmath import parallel

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


def test_the_timeline_is_the_library_s_clock(open_figure):
    figure = open_figure("pipeline-bubbles")
    forward, backward = (int(figure.data(name)) for name in ("forward", "backward"))
    for stages, micro in ((4, 8), (1, 1), (6, 1), (1, 16), (3, 2), (6, 16)):
        for number, name in enumerate(("gpipe", "1f1b")):
            figure.turn(stages=stages, micro=micro, order=number)
            orders = parallel.orders(stages, micro, name)
            rows = parallel.clock(orders, forward=forward, backward=backward)
            want = [(s, what == "B", m, begin, end) for s, row in enumerate(rows) for what, m, begin, end in row]
            np.testing.assert_array_equal(figure.shown("passes"), np.array(want, float))
            total = max(end for *_, end in want)
            assert figure.shown("total") == total
            np.testing.assert_array_equal(figure.shown("held"), [parallel.held(order) for order in orders])
            bubble = parallel.bubble(stages, micro)
            np.testing.assert_allclose(figure.shown("idle"), [bubble] * stages, atol=1e-12)
            np.testing.assert_allclose(figure.shown("formula"), bubble, atol=1e-12)
            assert f"{100 * bubble:.1f} %" in figure.said() and f"time {total:.0f}." in figure.said()
            boxes = figure.root.locator("svg rect")
            assert boxes.count() == len(want) + 2, "a box for each pass, and two that say which is which"
