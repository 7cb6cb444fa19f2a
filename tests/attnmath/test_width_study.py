"""The study of widths: where a parabola is lowest, what a gradient step gains, and that the record begins as today."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import width_study as study
from attnmath.check import compare

RECORD = Path(__file__).parents[2] / "chapters" / "08_at_work" / "width_and_schedules.json"


def test_the_lowest_point_of_a_parabola_is_found(rng):
    exponents = list(range(-9, -4))
    for at in rng.uniform(-7.9, -6.1, 5):
        losses = [2 + 0.3 * (e - at) ** 2 for e in exponents]
        compare(study.optimum(exponents, losses), at, atol=1e-12)


@pytest.mark.parametrize("losses", [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
def test_a_best_loss_at_an_end_is_refused(losses):
    with pytest.raises(ValueError, match=r"the best of 3 losses is at an end, 2\^-[57]; try rates beyond it"):
        study.optimum([-7, -6, -5], losses)


def test_schedules_start_together_and_differ_behind_the_warm_up():
    for name, rate in study.SCHEDULES.items():
        rises = [rate(s, 0.5) for s in range(1, study.RISE + 1)]
        compare(rises, 0.5 * np.arange(1, study.RISE + 1) / study.RISE, name=name, atol=1e-12)
    end = {name: rate(study.LONG, 0.5) for name, rate in study.SCHEDULES.items()}
    compare(end["inverse root"], 0.5 * (study.RISE / study.LONG) ** 0.5, atol=1e-12)
    assert end["warmup-stable-decay"] == 0.0 and end["cosine"] < 1e-12
    compare(study.SCHEDULES["warmup-stable-decay"](study.LONG - study.FALL, 0.5), 0.5, atol=0.0)


def test_a_gain_is_the_fall_of_the_loss_and_leaves_the_model_as_it_was(rng):
    pool = torch.from_numpy(rng.integers(0, study.VOCABULARY, (6, study.CONTEXT + 1)))
    model = study.network(32, "standard", 1)
    before = {name: P.detach().clone() for name, P in model.named_parameters()}
    G = torch.stack([study.gradient(model, row[None]) for row in pool])
    whole = study.gradient(model, pool)
    compare(G.mean(0), whole, atol=1e-5)
    gained = study.gain(model, pool, G, None, 1e-2, rng)
    compare(gained, 1e-2 * (whole @ whole).item(), atol=2e-2 * gained)
    assert 0 < study.gain(model, pool, G, 2, 1e-2, rng) != gained
    assert all(torch.equal(P, before[name]) for name, P in model.named_parameters())


def test_rates_of_the_comparison_are_those_that_the_plan_trains():
    names = study._plan()["widths"]
    assert "mup 256 -5 2" in names and "standard 256 -9 1" in names and not any("mup 32 " in name for name in names)
    assert len(names) == 3 * (5 + 4 + 4 + 5 + 4 + 4 + 3)
    assert {name.rpartition(" ")[0] for name in study._plan()["tests"]} < {name.rpartition(" ")[0] for name in names}


def test_the_committed_record_is_whole():
    stored = json.loads(RECORD.read_text())
    assert study.record(*(stored[name] for name in study.STUDY.names)) == stored
    assert {part: list(names) for part, names in study._plan().items()} == {
        part: list(stored[part]) for part in study.STUDY.names
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["standard 32 -6 1", "mup 64 -5 2"])
def test_the_committed_study_begins_as_a_run_does_today(name):
    rule, d, exponent, seed = name.split()
    model, rate = study.network(int(d), rule, int(seed)), 2.0 ** int(exponent)
    run = study.training(model, lambda s: study.rise_and_cosine(s, rate, study.RISE, study.STEPS), int(seed))
    compare(list(islice(run, study.FIRST)), json.loads(RECORD.read_text())["widths"][name]["first"], atol=2e-4)
