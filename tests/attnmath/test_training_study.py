"""The record of the study of rivals in training, and that its runs begin and end as today's do."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import training_study as study
from attnmath.check import compare

RECORD = json.loads((Path(__file__).parents[2] / study.FILE).read_text(encoding="utf-8"))


def test_the_record_is_whole():
    assert study.record(*(RECORD[part] for part in study.STUDY.names)) == RECORD
    assert {part: list(RECORD[part]) for part in study.STUDY.names} == {
        part: list(runs) for part, runs in study.plan().items()
    }


@pytest.mark.parametrize("part", study.RATES)
def test_all_rivals_of_a_part_get_the_same_rates_and_seeds(part):
    settings = {}
    for name in RECORD[part]:
        rival, *rest = name.split(" | ")
        settings.setdefault(rival, []).append(tuple(rest))
    assert len(settings) >= 2 and len({tuple(sorted(own)) for own in settings.values()}) == 1
    assert max(study.RATES[part]) >= 9.99 * min(study.RATES[part])


def test_the_largest_weight_of_each_row_goes_and_the_others_stay():
    P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    compare(study.without_top(P), torch.tensor([[0, 0.3, 0.2], [0.1, 0.2, 0]]), atol=0.0)


def test_an_answer_is_scored_on_others_than_those_that_choose():
    """A model that is certain of class 0: right in all of the first 200 answers, and in none of the others."""
    p, y = np.eye(3)[np.zeros(600, int)], np.repeat([0, 1], [200, 400])
    assert study.answered(p, y) == [0.0, 1.0, 0.0]


@pytest.mark.slow
def test_a_run_comes_again():
    compare(study.clipped("limit 0.1", 0.5, 0), RECORD["clips"]["limit 0.1 | 0.5 | 0"], rtol=1e-2, atol=0.0)
    found, stored = study.smoothed("500 noisy", 0.1, 0.01), RECORD["smooths"]["500 noisy | 0.1 | 0.01"]
    compare(np.array(found["20"]), np.array(stored["20"]), atol=0.02)
