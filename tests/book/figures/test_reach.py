"""Who hears of whom through a sparse pattern, against powers of the library's mask."""

import numpy as np
import pytest

from attnmath import layouts

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]
NAMES = ("token", "layers", "width", "stride", "global", "causal")
CASES = [
    (23, 2, 2, 1, 0, False),
    (0, 3, 2, 1, 0, True),
    (23, 11, 2, 1, 0, True),
    (7, 0, 0, 1, 0, False),
    (9, 24, 8, 6, 0, False),
    (17, 1, 3, 4, 0, False),
    (17, 2, 1, 3, 4, True),
    (1, 2, 1, 3, 1, False),
    (20, 24, 0, 1, 0, False),
    (12, 23, 1, 1, 0, True),
    (5, 4, 8, 1, 4, True),
]


def layout(width, stride, tokens, causal):
    one = layouts.dilated(width, stride)
    one = one | layouts.global_tokens(tokens) if tokens else one
    return one & layouts.causal() if causal else one


def test_what_is_heard_is_what_powers_of_the_mask_say(open_figure):
    figure = open_figure("reach")
    n = len(figure.data("words"))
    never = 0
    for case in CASES:
        figure.turn(**dict(zip(NAMES, case, strict=True)))
        assert tuple(figure.knob(name) for name in NAMES) == case
        token, layers, width, stride, tokens, causal = case
        mask = layout(width, stride, tokens, causal).mask(n)
        assert (figure.shown("mask") == mask).all()
        R = layouts.reached(mask, layers=layers)
        assert (figure.shown("reached") == R).all() and (figure.shown("heard") == R[token]).all()
        full = (np.tril(np.ones((n, n))) if causal else np.ones((n, n))).sum()
        assert (figure.shown("pairs"), figure.shown("full")) == (mask.sum(), full)
        wanted = np.tril(np.ones((n, n), bool)) if causal else None
        try:
            needed = layouts.layers_to_reach(mask, wanted=wanted)
            assert f"after {needed} layer" in figure.said() and f"compute {needed * mask.sum()} pairs" in figure.said()
        except ValueError:
            needed, never = -1, never + 1
            assert "never connected" in figure.said()
        assert figure.shown("needed") == needed
        assert f"can depend on {R[token].sum()} of {n} tokens" in figure.said()
        assert figure.root.locator("svg .pair").count() == mask.sum()
        assert figure.root.locator("svg .path").count() == (R & ~mask).sum()
        marks = figure.root.locator("svg text").all_text_contents()[-n:]
        assert [mark[0] for mark in marks] == ["▶" if j == token else "○●"[int(R[token, j])] for j in range(n)]
    assert 0 < never < len(CASES)
