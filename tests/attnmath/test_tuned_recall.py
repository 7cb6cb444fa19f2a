"""The record of tuned recall is what its command makes, and every model is tuned as the others are."""

import json
import math
from pathlib import Path

import pytest
import torch

from attnmath import side_by_side as side
from attnmath import tuned_recall as tuned
from attnmath.check import compare

RECORD = json.loads((Path(__file__).parents[2] / "chapters/07_outlook/tuned_recall.json").read_text(encoding="utf-8"))


def test_the_record_is_whole():
    assert tuple(RECORD["models"]) == tuned.MIXERS and tuned.record(RECORD["models"]) == RECORD
    for found in RECORD["models"].values():
        assert list(found["runs"]) == [str(seed) for seed in tuned.SEEDS]
        for run in found["runs"].values():
            assert len(run["curve"]) == side.STEPS["recall"] // side.KEEP and len(run["first"]) == 4
            assert 0 <= run["accuracy"] <= 1 and 0 <= run["validation"] <= 1


@pytest.mark.parametrize("mixer", tuned.MIXERS)
def test_what_was_tried_is_what_the_search_tries(mixer):
    found = RECORD["models"][mixer]
    known = {setting["rate"]: score for setting, score in found["sweep"]}
    assert tuned.sweep(mixer, known.get) == found["sweep"]
    assert max(known) > 9.9 * min(known) and len(known) >= 3
    best = max(known, key=known.get)
    assert found["runs"]["0"]["validation"] == known[best]  # the seed that chose, at the rate that was chosen


@pytest.mark.slow
@pytest.mark.parametrize("mixer", tuned.MIXERS)
def test_the_first_steps_are_those_of_the_record_at_the_chosen_rate(mixer):
    found = RECORD["models"][mixer]
    known = {setting["rate"]: score for setting, score in found["sweep"]}
    best = max(known, key=known.get)
    for seed in (0, 2):
        compare(tuned.train(mixer, seed, best, 4)["first"], found["runs"][str(seed)]["first"], name="losses", atol=2e-3)


def test_a_grid_whose_best_is_its_end_goes_on_and_one_that_is_solved_does_not():
    def peak(at):
        return lambda rate: 0.9 - abs(math.log(rate / at)) / 99

    def rates(score, mixer="softmax"):
        return [setting["rate"] for setting, _ in tuned.sweep(mixer, score)]

    assert rates(peak(0.1875))[3:] == [0.075, 0.1875] and rates(peak(1e-4))[3:] == [1.2e-3, 4.8e-4]
    assert len(rates(lambda rate: 1.0)) == len(rates(peak(9e-3))) == 3
    assert rates(peak(1.8e-2), "delta") == [3e-3, 1e-2, 3e-2, 1.75e-2]


def test_what_chooses_and_what_tests_share_no_text():
    first, second = ({tuple(row) for row in tuned.texts(name)[0].tolist()} for name in tuned.HELD)
    assert len(first) == len(second) == tuned.TEXTS and not first & second
    ids, targets = tuned.texts("accuracy")
    _, (wanted, answers) = side.data("recall", None)
    assert torch.equal(ids, wanted) and torch.equal(targets, answers)


def test_the_order_of_the_layers_is_that_of_the_name():
    def functions(cores):
        return [getattr(core, "func", core) for core in cores]

    cores = side.cores()
    for name in tuned.HYBRIDS:
        first, second = name.split(" + ")
        assert functions(side.parts(name)["attend"]) == functions([cores[first], cores[second]])


def test_a_wrong_name_is_named():
    with pytest.raises(ValueError, match="mixer"):
        tuned.sweep("rnn")
    with pytest.raises(ValueError, match="name"):
        tuned.texts("train")
