"""The record of serial and parallel models, and its first steps again."""

import json
from pathlib import Path

import pytest

from attnmath import parallel_study
from attnmath.check import compare
from attnmath.tasks import lm

RECORD = json.loads((Path(__file__).parents[2] / "chapters/08_at_work/systems.json").read_text(encoding="utf-8"))
KINDS = {"serial": lm.LanguageModel, "parallel": parallel_study.Parallel}


def test_the_record_is_whole():
    assert parallel_study.record(RECORD["runs"], RECORD["reread"]) == RECORD
    assert list(RECORD["runs"]) == list(parallel_study.STUDY.plan()["runs"])
    assert all(len(run["curve"]) == parallel_study.STEPS // 20 for run in RECORD["runs"].values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_chosen_rate_is_the_best_of_all_that_were_tried_and_not_the_end_of_the_grid(kind):
    best = parallel_study.chosen(RECORD["runs"], kind)
    rates = parallel_study.RATES[kind]
    assert best == parallel_study.CHOSEN[kind] and min(rates) < best < max(rates) and max(rates) >= 10 * min(rates)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_steps_are_those_of_the_record(kind):
    rate = parallel_study.CHOSEN[kind]
    found = parallel_study.trained(KINDS[kind], 2, rate, steps=4)
    compare(found["first"], RECORD["runs"][parallel_study.named(kind, rate, 2)]["first"], name="losses", atol=2e-4)


def test_a_model_is_read_the_other_way():
    """The same weights, another model: on other texts too, parallel reading is worse."""
    found = parallel_study.reread(lm.docstrings()["validation"][:5])
    assert found["parallel"] > found["serial"] + 0.2
    assert RECORD["reread"]["parallel"] > RECORD["reread"]["serial"] + 0.2
