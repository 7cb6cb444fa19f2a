"""What the chapter on theory says of other trainings of the language model, whose weights the book does not hold."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnmath import faithfulness_study, induction_study, probes_study, superposition_study
from attnmath.check import compare
from attnmath.tasks import lm
from attnmath.torch.training import Run

ROOT = Path(__file__).parents[2]
STUDIES = [faithfulness_study, induction_study, probes_study, superposition_study]
of_each_study = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__.split(".")[-1])


def read(file):
    return json.loads((ROOT / file).read_text(encoding="utf-8"))


def trainings():
    runs = read("chapters/08_at_work/language_model.json")["full again"]
    return {str(run["config"]["seed"]): run for run in runs}


@of_each_study
def test_a_record_is_of_the_trainings_that_the_page_language_model_reports(study):
    record, plan = read(study.FILE), study.of_the_language_model()
    assert list(record["other trainings"]) == list(trainings()) == [str(seed) for seed in lm.OTHERS]
    for seed, found in record["other trainings"].items():
        assert found.pop("weights") == trainings()[seed]["sha256"]
        assert {part: list(some) for part, some in found.items()} == {part: list(some) for part, some in plan.items()}


@of_each_study
def test_no_two_trainings_have_the_same_numbers(study):
    record = read(study.FILE)
    for part, some in study.of_the_language_model().items():
        for name in some:
            told = [json.dumps(one[part][name]) for one in (record, *record["other trainings"].values())]
            assert len(set(told)) == len(told), f"{part}, {name}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", lm.OTHERS)
def test_another_training_begins_as_in_the_record(seed):
    told = trainings()[str(seed)]
    task = lm.Task(lm.Config(**told["config"]))

    def first_losses():
        run = Run(task, Path("nowhere"))
        for chosen in task.epoch(0)[: len(told["first_losses"])]:
            run._update(task.batch(chosen, "cpu"))
        return run.losses

    compare(first_losses(), told["first_losses"], atol=2e-3)
    task.config = replace(task.config, seed=seed + 1)
    assert np.abs(np.subtract(first_losses(), told["first_losses"])).max() > 0.01, "another seed begins otherwise"


@pytest.mark.slow
@pytest.mark.parametrize("seed", lm.OTHERS)
def test_a_training_that_is_here_is_read_as_in_the_record(seed):
    """Only where ``runs`` has the weights of the record, bit for bit."""
    path = ROOT / "runs" / f"lm-full-{seed}" / "model.safetensors"
    if not path.exists() or lm.asked(path, {})["weights"] != trainings()[str(seed)]["sha256"]:
        pytest.skip(f"{path.name} of seed {seed} is not in runs")
    ids = induction_study.passages("text", 1)
    with lm.instead(path):
        losses, _ = induction_study.surprise(lm.load().eval(), ids)
    want = read(induction_study.FILE)["other trainings"][str(seed)]["language_model"]["1"]["text"]["loss"]
    compare([losses[name] for name in want], list(want.values()), atol=2e-3)
