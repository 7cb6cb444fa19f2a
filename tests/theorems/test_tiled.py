"""The results of the page on tiles: what the loops move between two levels of memory, and that they are exact."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.layouts import causal, everything, window
from attnmath.tiles import NOTHING, SOME, cuts
from attnmath.two_levels import (
    TwoLevels,
    plain_forward,
    plain_transfers,
    rows_that_fit,
    tiled_backward,
    tiled_forward,
    tiled_transfers,
    tiled_vjp_transfers,
)

few = st.integers(1, 9)
some = st.integers(1, 24)


def heads(seed, n, m, k, v):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in ((n, k), (m, k), (m, v), (n, v))]


@pytest.mark.claim("eq:tiled-rows")
@given(few, few, st.integers(1, 2000))
def test_the_largest_tile_fits_and_the_next_does_not(k, v, extra):
    size = 2 * (k + v) + 3 + extra
    rows = rows_that_fit(size, k, v)
    Q, K, V, _ = heads(0, rows + 1, 2, k, v)
    memory = TwoLevels(size)
    tiled_forward(memory, Q, K, V, rows)
    assert memory.peak == rows * (k + v + 4) + k + v <= size and memory.used == 0
    with pytest.raises(MemoryError, match="take smaller tiles"):
        tiled_forward(TwoLevels(size), Q, K, V, rows + 1)


def test_too_little_fast_memory_is_refused():
    with pytest.raises(ValueError, match=r"size is 23; for widths 7 and 3 it must be at least .* = 24"):
        rows_that_fit(23, 7, 3)
    assert rows_that_fit(24, 7, 3) == 1
    with pytest.raises(ValueError, match="size is 0; it must be an integer >= 1"):
        TwoLevels(0)


@pytest.mark.claim("eq:tiled-transfers", "eq:tiled-lse", "thm-tiled-io")
@settings(max_examples=25)
@given(st.integers(0, 99), some, some, few, few, few, few)
def test_the_loop_is_exact_and_moves_what_the_formula_says(seed, n, m, k, v, rows, columns):
    Q, K, V, _ = heads(seed, n, m, k, v)
    memory = TwoLevels(10**6)
    O, L = tiled_forward(memory, Q, K, V, rows, columns)
    compare(O, an.attention(Q, K, V)[0], name="output in tiles", atol=1e-12)
    compare(L[:, 0], an.logsumexp(Q @ K.T / math.sqrt(k))[0], name="logarithms of the sums", atol=1e-12)
    assert memory.transfers == tiled_transfers(n, m, k, v, rows)
    assert memory.writes == n * (v + 1)


class Asked:
    """A layout that notes which tiles the library's loop looks at: it says of each that some of it may be seen."""

    def __init__(self, layout):
        self.layout, self.visited = layout, []

    def mask(self, n, m):
        return self.layout.mask(n, m)

    def part(self, rows, columns, n, m):
        self.visited.append((rows.start, columns.start))
        return self.layout.part(rows, columns, n, m)

    def tiles(self, n, m, size):
        return np.minimum(self.layout.tiles(n, m, size), SOME)


class Watched(TwoLevels):
    """A machine that notes the tile, by its first query and key, when it has read what the inner loop takes."""

    def __init__(self, size, Q, K, inner):
        super().__init__(size)
        self.arrays, self.inner, self.first, self.visited = (Q, K), inner, {}, []

    def read(self, X):
        for array in self.arrays:
            if X.base is array:
                self.first[id(array)] = (X.ctypes.data - array.ctypes.data) // array.strides[0]
        if X.base is self.inner:
            self.visited.append(tuple(self.first[id(array)] for array in self.arrays))
        return super().read(X)


@pytest.mark.parametrize("layout", [everything(), causal(), window(9)], ids=repr)
@pytest.mark.parametrize("size", [8, 16, 100])
def test_the_machine_visits_the_tiles_of_the_librarys_loop(layout, size):
    """The counted loop is a program of its own. It takes the tiles of `tiled_attention`, in its order, both ways."""
    Q, K, V, dO = heads(1, 70, 90, 5, 3)
    asked = Asked(layout)
    want, vjp = an.tiled_attention(Q, K, V, asked, tile=size)
    forward = list(asked.visited)
    kinds = layout.tiles(70, 90, size)
    assert len(forward) == (kinds != NOTHING).sum() and set(forward) == {
        (size * i, size * j) for i, j in np.argwhere(kinds != NOTHING).tolist()
    }
    machine = Watched(10**6, Q, K, K)
    O, _ = tiled_forward(machine, Q, K, V, size, size, layout)
    compare(O, want, name="output", atol=1e-12)
    assert machine.visited == forward
    keys = {part.start: part.stop - part.start for part in cuts(90, size)}
    assert machine.reads == 70 * 5 + (5 + 3) * sum(keys[j] for _, j in forward)
    if (kinds != NOTHING).all():  # backward the machine has no mask
        vjp(dO)
        backward = asked.visited[len(forward) :]
        machine = Watched(10**6, Q, K, Q)
        unmasked = tiled_forward(TwoLevels(10**6), Q, K, V, size, size)
        tiled_backward(machine, Q, K, V, *unmasked, dO, size, size)
        assert machine.visited == backward and len(backward) == len(forward)
        assert size == 100 or backward != forward, "keys outside, queries inside"


@pytest.mark.claim("thm-tiled-io")
@given(st.integers(1, 10**5), st.integers(1, 10**5), st.integers(1, 256), st.integers(1, 256), st.integers(0, 10**6))
def test_the_upper_bound_holds_with_its_constants(n, m, k, v, extra):
    w = k + v
    size = 4 * w + 6 + extra
    moved = tiled_transfers(n, m, k, v, rows_that_fit(size, k, v))
    assert moved <= n * (w + 1) + m * w + 2 * n * m * w * (w + 4) / size


@pytest.mark.claim("thm-tiled-io")
@given(st.integers(4, 256), st.integers(17, 10**5), st.floats(0, 1))
def test_seventeen_times_is_enough(d, n, where):
    low, high = 8 * d + 6, n * d
    size = round(low * (high / low) ** where)
    if low <= size <= high:
        assert tiled_transfers(n, n, d, d, rows_that_fit(size, d, d)) <= 17 * n * n * d * d / size


@pytest.mark.claim("thm-tiled-io")
def test_the_bound_has_the_right_order():
    """It can't be improved by more than a constant: the loop itself moves at least 4 n^2 d^2 / M."""
    for n, d, size in ((4096, 64, 8192), (65536, 64, 65536), (4096, 16, 1024)):
        moved = tiled_transfers(n, n, d, d, rows_that_fit(size, d, d))
        assert 4 * n * n * d * d / size < moved < 10 * n * n * d * d / size


@pytest.mark.claim("eq:plain-transfers", "prop-plain-io")
@settings(max_examples=15)
@given(st.integers(0, 99), st.integers(1, 12), st.integers(1, 12), few, few, few)
def test_the_three_steps_move_five_numbers_for_each_score(seed, n, m, k, v, rows):
    Q, K, V, _ = heads(seed, n, m, k, v)
    memory = TwoLevels(10**6)
    compare(plain_forward(memory, Q, K, V, rows), an.attention(Q, K, V)[0], name="output in three steps", atol=1e-12)
    assert memory.transfers == plain_transfers(n, m, k, v, rows) > 5 * n * m
    assert memory.writes == 2 * n * m + n * v


@pytest.mark.claim("prop-plain-io")
def test_where_the_tiles_begin_to_save():
    """At M = 2 d^2 / 5 the leading terms are equal; far below it the three steps move less, far above it more."""
    for d in (32, 64, 128, 512):
        n, border = 512 * d, 2 * d * d / 5

        def ratio(size, n=n, d=d):
            tiled = tiled_transfers(n, n, d, d, rows_that_fit(size, d, d))
            return plain_transfers(n, n, d, d, (size - d) // (d + 1)) / tiled

        assert ratio(round(8 * border)) > 1.5
        if d == 512:
            assert ratio(round(border / 8)) < 0.8
            assert abs(ratio(round(border)) - 1) < 0.05


@pytest.mark.claim("eq:tiled-vjp-transfers", "eq:tiled-vjp-weights", "eq:tiled-vjp", "prop-tiled-vjp-io")
@settings(max_examples=25)
@given(st.integers(0, 99), some, some, few, few, few, few)
def test_the_loop_backward_is_exact_and_moves_what_the_formula_says(seed, n, m, k, v, columns, rows):
    Q, K, V, dO = heads(seed, n, m, k, v)
    O, L = tiled_forward(TwoLevels(10**6), Q, K, V, 2)
    memory = TwoLevels(10**6)
    cotangents = tiled_backward(memory, Q, K, V, O, L, dO, columns, rows)
    compare(cotangents, an.attention(Q, K, V)[1](dO), name="cotangents in tiles", atol=1e-12)
    assert memory.transfers == tiled_vjp_transfers(n, m, k, v, columns)


@pytest.mark.claim("prop-tiled-vjp-io")
@given(st.integers(1, 10**5), st.integers(1, 10**5), st.integers(1, 256), st.integers(1, 256), st.integers(0, 10**6))
def test_the_upper_bound_of_the_backward_pass(n, m, k, v, extra):
    w = k + v
    size = 2 * (3 * w + k + 3) + extra
    columns = (size - w - k - 2) // (2 * w + 2)
    assert columns >= 1
    once = 2 * m * w + n * (2 * v + 1) + n * (w + 2 * k + 2)
    assert tiled_vjp_transfers(n, m, k, v, columns) <= once + 4 * n * m * (w + 1) * (w + 2 * k + 2) / size


@pytest.mark.claim("prop-tiled-vjp-io")
def test_a_tile_of_keys_fits_beside_one_query(rng):
    k, v, size = 5, 3, 200
    columns = (size - (k + v) - k - 2) // (2 * (k + v) + 2)
    Q, K, V, dO = heads(1, 30, 40, k, v)
    O, L = tiled_forward(TwoLevels(size), Q, K, V, rows_that_fit(size, k, v))
    tiled_backward(TwoLevels(size), Q, K, V, O, L, dO, columns)
    with pytest.raises(MemoryError):
        tiled_backward(TwoLevels(size), Q, K, V, O, L, dO, columns + 1)


@pytest.mark.claim("thm-tiled-io")
@pytest.mark.parametrize(("n", "d"), [(512, 16), (4096, 64)])
def test_at_the_end_of_the_range_only_reading_is_left(n, d):
    """With M = n d the loop moves a fixed multiple of the inputs, which every algorithm has to read: no contradiction
    to an algorithm that moves less at every smaller M follows from there."""
    size = n * d
    moved = tiled_transfers(n, n, d, d, rows_that_fit(size, d, d))
    assert 3 * n * d < moved <= 17 * n * n * d * d / size == 17 * n * d


@pytest.mark.claim("thm-tiled-io")
@pytest.mark.parametrize("layout", [causal(), window(3, causal=True)], ids=repr)
def test_a_layout_saves_what_it_hides(layout):
    n, k, v, tile = 48, 3, 2, 6
    Q, K, V, _ = heads(3, n, n, k, v)
    memory = TwoLevels(10**4)
    O, _ = tiled_forward(memory, Q, K, V, tile, tile, layout)
    compare(O, an.attention(Q, K, V, layout.mask(n, n))[0], name=f"{layout} in tiles", atol=1e-12)
    seen = int((layout.tiles(n, n, tile) > 0).sum())
    assert memory.reads == n * k + seen * tile * (k + v)
    assert seen < 40  # of 64
