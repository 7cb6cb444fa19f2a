"""Layouts: the rules against loops over all pairs, tiles against the booleans, and what they cost."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnmath import layouts as L
from attnmath.numpy import causal_mask, window_mask

PATTERN = np.random.default_rng(4).random((5, 7)) < 0.5
PATTERN[:, 3] = True

# A layout, and the sentence that defines it, for a query at position p and a key at j.
RULES = {
    "everything": (L.everything(), lambda p, j: True),
    "causal": (L.causal(), lambda p, j: j <= p),
    "window": (L.window(3), lambda p, j: abs(p - j) <= 3),
    "window, causal": (L.window(3, causal=True), lambda p, j: 0 <= p - j <= 3),
    "dilated": (L.dilated(2, 3), lambda p, j: p - j in (-6, -3, 0, 3, 6)),
    "dilated, causal": (L.dilated(2, 3, causal=True), lambda p, j: p - j in (0, 3, 6)),
    "dilated, far": (L.dilated(None, 5), lambda p, j: abs(p - j) % 5 == 0),
    "strided": (L.strided(4), lambda p, j: j <= p and (p - j <= 4 or (p - j) % 4 == 0)),
    "segments": (L.segments(5), lambda p, j: p // 5 == j // 5),
    "summaries": (L.summaries(5, 2), lambda p, j: j % 5 in (3, 4)),
    "fixed": (L.fixed(5, 2), lambda p, j: j <= p and (p // 5 == j // 5 or j % 5 in (3, 4))),
    "global tokens": (L.global_tokens([0, 9]), lambda p, j: p in (0, 9) or j in (0, 9)),
    "longformer": (L.longformer(2, 3), lambda p, j: abs(p - j) <= 2 or 0 <= p < 3 or j < 3),
    "sinks": (L.sinks(2, 3), lambda p, j: j <= p and (j < 2 or p - j <= 3)),
    "or": (L.window(2) | L.dilated(None, 4), lambda p, j: abs(p - j) <= 2 or (p - j) % 4 == 0),
    "and": (L.segments(6) & L.window(2), lambda p, j: p // 6 == j // 6 and abs(p - j) <= 2),
    "three": (
        (L.window(1) | L.global_tokens(2) | L.segments(4)) & L.causal(),
        lambda p, j: (abs(p - j) <= 1 or 0 <= p < 2 or j < 2 or p // 4 == j // 4) and j <= p,
    ),
}
SIZES = [(13, 13), (7, 20), (1, 13), (19, 11)]


def by_hand(rule, n, m):
    return np.array([[rule(i + m - n, j) for j in range(m)] for i in range(n)])


def tiles_by_hand(mask, size):
    n, m = mask.shape
    grade = np.zeros((-(-n // size), -(-m // size)), int)
    for a, b in np.ndindex(grade.shape):
        tile = mask[a * size : (a + 1) * size, b * size : (b + 1) * size]
        grade[a, b] = 2 if tile.all() else int(tile.any())
    return grade


def every(layout, n, m):
    return layout.part(slice(None), slice(None), n, m)


@pytest.mark.parametrize("n, m", SIZES)
@pytest.mark.parametrize("name", RULES)
def test_a_layout_is_its_rule(name, n, m):
    layout, rule = RULES[name]
    wanted = by_hand(rule, n, m)
    assert np.array_equal(every(layout, n, m), wanted) and wanted.any()
    inner = layout.part(slice(2, 7), slice(3, None), n, m)
    assert inner.dtype == bool and np.array_equal(inner, wanted[2:7, 3:])
    assert layout.density(n, m) == wanted.mean()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 32])
@pytest.mark.parametrize("n, m", SIZES)
@pytest.mark.parametrize("name", RULES)
def test_tiles_are_those_of_the_booleans(name, n, m, size):
    layout, _ = RULES[name]
    tiles = layout.tiles(n, m, size)
    assert tiles.dtype == np.uint8 and np.array_equal(tiles, tiles_by_hand(every(layout, n, m), size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 9, 32])
@pytest.mark.parametrize("n, m", [(13, 19), (15, 21)])
def test_tiles_of_blocks_are_those_of_the_booleans(n, m, size):
    layout = L.blocks(PATTERN, 3)
    assert np.array_equal(every(layout, n, m), by_hand(lambda p, j: PATTERN[(p - m + n) // 3, j // 3], n, m))
    assert np.array_equal(layout.tiles(n, m, size), tiles_by_hand(every(layout, n, m), size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 32])
@pytest.mark.parametrize("n, m", [(23, 23), (5, 23), (25, 23)])
def test_bigbird_has_a_window_ends_and_as_many_random_blocks_as_it_was_given(n, m, size):
    layout = L.bigbird(3, width=1, ends=1, random=2, seed=5)
    mask = every(layout, n, m)
    assert np.array_equal(layout.tiles(n, m, size), tiles_by_hand(mask, size))
    whole = layout.mask(24)[::3, ::3]
    a, b = np.indices(whole.shape)
    known = (abs(a - b) <= 1) | (a < 1) | (b < 1)
    assert whole[known].all() and (whole & ~known)[1:].sum(-1).tolist() == [2] * 7
    assert np.array_equal(layout.mask(23), layout.mask(23)), "one seed, one draw"
    assert not np.array_equal(layout.mask(24), L.bigbird(3, 1, 1, 2, seed=6).mask(24))
    assert np.array_equal(mask[-5:], layout.mask(23)[-5:]), "the last query stands at the last key"


def test_layouts_are_the_masks_of_chapter_3():
    assert np.array_equal(L.causal().mask(4, 9), causal_mask(4, 9))
    assert np.array_equal(L.window(2).mask(4, 9), window_mask(4, 2, 9))


@pytest.mark.parametrize("name", ["causal", "window", "dilated, far", "strided", "fixed", "longformer", "sinks"])
def test_tiles_look_at_few_pairs(name, monkeypatch):
    layout, asked = RULES[name][0], []
    part = L.Layout.part
    monkeypatch.setattr(L.Layout, "part", lambda self, *a: asked.append((out := part(self, *a)).size) or out)
    layout.tiles(4096, 4096, 64)
    assert sum(asked) <= 5 * 4096 * 64 < 4096**2 / 8, "at most the tiles along the diagonal and one edge"


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: L.window(-1), "width is -1; it must be >= 0"),
        (lambda: L.dilated(2, 0), "stride is 0; it must be an integer >= 1"),
        (lambda: L.strided(0), "stride is 0; it must be an integer >= 1"),
        (lambda: L.fixed(0), "stride is 0; it must be an integer >= 1"),
        (lambda: L.fixed(4, 5), "count is 5, but a segment has 4 keys; take at most as many"),
        (lambda: L.global_tokens([-1]), "tokens is [-1]; it must be a number >= 1, or a list of positions >= 0"),
        (lambda: L.global_tokens([]), "tokens is []; it must be a number >= 1, or a list of positions >= 0"),
        (lambda: L.sinks(0, 3), "count is 0; it must be an integer >= 1"),
        (lambda: L.bigbird(0), "size is 0; it must be an integer >= 1"),
        (lambda: L.bigbird(2, random=-1), "random is -1; it must be >= 0"),
        (lambda: L.blocks(np.ones((2, 2)), 4), "pattern has shape (2, 2) and dtype float64; expected booleans"),
        (lambda: L.blocks(PATTERN, 4).mask(20, 40), "pattern has shape (5, 7), but 20 queries and 40 keys are 5 by 10"),
        (lambda: L.causal().tiles(4, 4, 0), "size is 0; it must be an integer >= 1"),
        (lambda: L.causal().mask(0), "n is 0; it must be an integer >= 1"),
        (lambda: L.causal() | True, "a layout is combined with a layout, not with a bool"),
        (
            lambda: (L.summaries(4) & L.causal()).mask(6),
            "row 0 of (summaries(4, 1) & causal()) may attend to no key (n = 6 queries, m = 6 keys): add | window(0)",
        ),
        (lambda: L.causal().mask(3, 2), "row 0 of causal() may attend to no key (n = 3 queries, m = 2 keys): give at"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, words):
    with pytest.raises(ValueError) as told:
        call()
    assert words in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: L.reached(layers=1), "masks have shapes []; give at least one, all of one size"),
        (
            lambda: L.reached(np.ones((2, 3), bool), layers=1),
            "a mask has shape (2, 3) and dtype bool; expected booleans",
        ),
        (lambda: L.reached(np.ones((2, 2)), layers=1), "a mask has shape (2, 2) and dtype float64; expected booleans"),
        (lambda: L.layers_to_reach(np.eye(2, dtype=bool), np.eye(3, dtype=bool)), "masks have shapes [(2, 2), (3, 3)]"),
    ],
)
def test_what_is_no_mask_is_refused(call, words):
    with pytest.raises(ValueError) as told:
        call()
    assert words in str(told.value)


def test_wanted_pairs_may_be_fewer():
    mask = L.dilated(1, 2).mask(9)
    even = np.add.outer(np.arange(9), np.arange(9)) % 2 == 0
    assert L.layers_to_reach(mask, wanted=even) == 4


def test_the_command_counts_what_the_page_says(capsys):
    page = Path(__file__).parents[2] / "chapters/07_outlook/sparse_patterns.ipynb"
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    said = "".join("".join(out.get("text", "")) for cell in cells for out in cell.get("outputs", []))
    L.main([])
    rows = {line.split("(")[0]: line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]}
    share, layers = rows["bigbird"]
    assert f"pairs that the pattern leaves out: {100 - float(share[:-1]):.1f}%" in said
    assert f"layers until all are connected: {layers}" in said
    assert rows["window"][1] == str(-(-1023 // 64)) and rows["sinks"][1] == str(-(-1019 // 64))
    with pytest.raises(SystemExit):
        L.main(["--tokens", "63"])
    assert "give at least 64 tokens" in capsys.readouterr().err
