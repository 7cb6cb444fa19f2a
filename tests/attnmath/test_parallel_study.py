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
    assert list(RECORD["runs"]) == [f"{kind} {seed}" for seed in parallel_study.SEEDS for kind in KINDS]
    assert all(len(run["curve"]) == parallel_study.STEPS // 20 for run in RECORD["runs"].values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_steps_are_those_of_the_record(kind):
    found = parallel_study.trained(KINDS[kind], 2, steps=4)
    compare(found["first"], RECORD["runs"][f"{kind} 2"]["first"], name="losses", atol=2e-4)


def test_a_model_is_read_the_other_way():
    """The same weights, another model: on other texts too, parallel reading is worse."""
    found = parallel_study.reread(lm.docstrings()["validation"][:5])
    assert found["parallel"] > found["serial"] + 0.2
    assert RECORD["reread"]["parallel"] > RECORD["reread"]["serial"] + 0.2
