"""The speed of a training step: what is counted, what is timed, and that every form takes the same step."""

import json
from pathlib import Path

import pytest
import torch

from attnmath import step_speed
from attnmath.check import compare
from attnmath.step_speed import FULL, Sizes, step
from attnmath.tasks import lm

TINY = Sizes(d=8, heads=2, layers=2, vocabulary=11, context=6, batch=3)
RECORD = json.loads((Path(__file__).parents[2] / "chapters/08_at_work/step_speed.json").read_text(encoding="utf-8"))


def test_full_is_the_preset_of_the_task():
    config = lm.PRESETS["full"]
    for name in ("d", "heads", "layers", "vocabulary", "context", "batch"):
        assert getattr(FULL, name) == getattr(config, name), name
    assert config.f == 4 * FULL.d


def test_operations_are_those_that_pytorch_counts():
    """A forward and a backward pass, but for the products with embeddings that need no gradient of their input."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step(TINY)()
    assert abs(counter.get_total_flops() / TINY.flops - 1) < 0.02


def test_in_16_bits_the_step_is_nearly_the_same():
    plain, half = step(TINY), step(TINY, half=True)
    first = plain(), half()
    assert first[0] != first[1], "the products are rounded"
    compare(torch.tensor(first[1]), torch.tensor(first[0]), name="the loss", atol=0.02)
    for _ in range(20):
        last = plain(), half()
    assert max(last) < 0.8 * min(first)


def test_the_shortest_time_counts(monkeypatch):
    times = map(float, [0, 1, 9, 18, 18, 27, 30, 34, 40, 42, 50, 53])
    monkeypatch.setattr(step_speed.time, "perf_counter", lambda: next(times))
    assert step_speed.seconds(lambda: None, rounds=3) == 2


def test_utilisation_is_the_share_of_a_product(monkeypatch):
    monkeypatch.setattr(step_speed, "seconds", lambda call, rounds=10: 0.5)
    found = step_speed.measured(TINY)
    assert found["tokens"] == 36 and found["flops"] == 2 * TINY.flops and found["peak"] == 4 * 1024**3
    assert found["utilisation"] == pytest.approx(2 * TINY.flops / (4 * 1024**3), rel=1e-12)


def test_the_record_is_of_this_study():
    assert step_speed.record(RECORD["hardware"], RECORD["runs"]) == RECORD
    for run in RECORD["runs"].values():
        sizes = Sizes(**run["sizes"])
        assert run["utilisation"] == pytest.approx(sizes.flops / run["seconds"] / run["peak"], rel=1e-12)
        assert 0 < run["utilisation"] < 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="compiles for a GPU, and there is none")
def test_compiled_on_a_gpu():
    plain, compiled = step(TINY, "cuda", half=True), step(TINY, "cuda", half=True, compiled=True)
    compare(torch.tensor(compiled()), torch.tensor(plain()), name="the loss", atol=0.02)


def test_a_step_changes_the_parameters():
    """What is timed is a whole step: with the optimiser left out the loss would stay."""
    take = step(TINY)
    assert len({take() for _ in range(4)}) == 4
