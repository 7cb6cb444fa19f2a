"""The results of the page on what attention costs: intensities of kernels, and where the cache outweighs the layer."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnmath import count
from attnmath.roofline import H100, Machine, attainable, checksum, intensity, kernels, main, measure
from attnmath.two_levels import tiled_transfers

DATA = Path(__file__).parents[2] / "chapters" / "07_outlook" / "roofline.json"
sizes = st.integers(1, 10**5)


@pytest.mark.claim("eq:roofline", "eq:intensity")
@given(st.floats(1e-3, 1e6))
def test_the_roof_is_the_time_of_the_slower_half(nbytes):
    """Arithmetic and traffic side by side: the operations over the longer of the two times."""
    flops, machine = 12.0, Machine("any", peak=80.0, bandwidth=7.0)
    seconds = max(flops / machine.peak, nbytes / machine.bandwidth)
    assert attainable(machine, intensity(flops, nbytes)) == pytest.approx(flops / seconds)
    assert attainable(machine, machine.ridge) == pytest.approx(machine.peak)


@pytest.mark.claim("prop-tile-intensity")
@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 256), sizes)
def test_the_intensity_of_tiles_is_the_number_of_queries_in_one(rows, tiles, k, m):
    """At most 2 B / s for any number of keys, and near to it if there are many more keys than queries in a tile."""
    n = rows * tiles
    for itemsize in (2, 4):
        moved = itemsize * tiled_transfers(n, m, k, k, rows)
        found, limit = count.attention_flops(n, m, k, k) / moved, 2 * rows / itemsize
        assert found == pytest.approx(limit / (1 + rows * (2 * k + 1) / (2 * m * k)))
        assert found < limit


@pytest.mark.claim("prop-tile-intensity")
@given(sizes, st.integers(1, 256))
def test_decoding_and_three_steps_have_an_intensity_that_no_length_raises(n, k):
    listed = kernels(n, 64, k)
    one, steps = (intensity(*listed[name]) for name in ("decoding one token", "attention in three steps"))
    assert one == pytest.approx(1 / (1 + 1 / n)) and one < 1
    assert steps < k / 2


def the_lemma_says(n, d, batch):
    """Which of attention, attention with a causal mask and the cache outweigh the rest."""
    return n > 6 * d, n + 1 > 12 * d, batch * n > 6 * d


def counted(n, d, batch):
    weights, rest = count.transformer_parameters(d, 4 * d, 1), count.projection_flops(n, d, d, d) + 16 * n * d * d
    attention = count.transformer_flops(n, d, 4 * d, 1) - 2 * n * weights
    seen = n * (n + 1) // 2  # pairs of a causal mask; each takes 2 d operations for its score and 2 d for its value
    assert attention == 4 * d * n * n and weights == 12 * d * d and rest == 2 * n * weights
    return attention > rest, 4 * d * seen > rest, 2 * batch * n * d > weights


@pytest.mark.claim("lem-cache-crossover")
@given(sizes, st.integers(1, 4096), st.integers(1, 64))
def test_attention_and_the_cache_outweigh_the_layer_from_some_widths_on(n, d, batch):
    assert the_lemma_says(n, d, batch) == counted(n, d, batch)


@pytest.mark.claim("lem-cache-crossover")
@pytest.mark.parametrize("d", [1, 8, 4096])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_borders_are_sharp(d, batch):
    for border in (6 * d, 12 * d, 6 * d // batch):
        for n in range(max(border - 2, 1), border + 3):
            assert the_lemma_says(n, d, batch) == counted(n, d, batch)


def test_the_kernels_that_are_listed():
    n, d, k = 1024, 512, 64
    listed = kernels(n, d, k)
    assert listed["projection"][0] == 4 * listed["feed-forward"][0] / 32
    assert listed["attention in tiles"][0] == count.attention_flops(n, n, k, k) == listed["attention in three steps"][0]
    assert 4 * listed["projection"][0] == count.projection_flops(n, d, d, d)
    tiles = 2 * tiled_transfers(n, n, k, k, 256)
    assert listed["attention in tiles"][1] == tiles - 2 * n  # without the logarithms of the sums
    assert 294 < H100.ridge < 296


def test_bad_input_gets_one_sentence():
    with pytest.raises(ValueError, match=r"nbytes is 0; it must be > 0"):
        intensity(3, 0)
    with pytest.raises(ValueError, match=r"intensity is -1\.0; it must be >= 0"):
        attainable(H100, -1.0)


def test_the_stored_measurement_is_the_commands(capsys):
    """Memory is measured again at small sizes and is the same; times are not compared, but their growth is."""
    stored = json.loads(DATA.read_text())
    assert stored["command"].endswith("python -m attnmath.roofline --longest 16384")
    assert stored["sha256"] == checksum(stored), "the record was edited by hand"
    stored["rows"][0]["peak"] += 1
    assert stored["sha256"] != checksum(stored)
    stored["rows"][0]["peak"] -= 1
    rows = {(row["form"], row["n"]): row for row in stored["rows"]}
    assert max(n for _, n in rows) == 16384 and ("plain", 4096) in rows
    for row in measure([256, 512], repeats=1):
        assert row["peak"] == pytest.approx(rows[row["form"], row["n"]]["peak"], rel=0.15, abs=50_000)
    main(["--longest", "256"])
    again = json.loads(capsys.readouterr().out)
    assert [row["form"] for row in again["rows"]] == [
        "plain",
        "fused",
        "tiled",
        "kernel",
    ] and again.keys() == stored.keys()
    assert rows["tiled", 16384]["peak"] < 10 * 2**20 < 700 * 2**20 < rows["fused", 16384]["peak"]
    assert again["sha256"] == checksum(again)
    assert rows["tiled", 16384]["seconds"] < 3
    assert rows["kernel", 16384]["peak"] < 4.4 * rows["kernel", 4096]["peak"] < 20 * 2**20
    assert rows["tiled", 16384]["seconds"] > 6 * rows["tiled", 4096]["seconds"], "quadratic in time"
    assert rows["tiled", 16384]["peak"] < 4.4 * rows["tiled", 4096]["peak"], "linear in memory"
