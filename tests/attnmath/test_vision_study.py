"""The study of digits: what it measures, and that the committed record begins as a run does today."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import digits, vision_study
from attnmath.check import compare
from attnmath.tasks import vit
from attnmath.torch.training import Run

RECORD = Path(__file__).parents[2] / "chapters" / "08_at_work" / "vision_transformer.json"


def test_rank_correlations_are_spearmans(rng):
    from scipy.stats import spearmanr

    A, B = rng.integers(0, 6, (4, 16)).astype(float), rng.random((4, 16))
    want = np.mean([spearmanr(a, b).statistic for a, b in zip(A, B, strict=True)])
    compare(vision_study.rank_correlation(A, B), want, atol=1e-12)
    A[0] = 1.0  # a row that does not vary has no order
    want = np.mean([spearmanr(a, b).statistic for a, b in zip(A[1:], B[1:], strict=True)])
    compare(vision_study.rank_correlation(A, B), want, atol=1e-12)


def test_maps_are_what_erasing_each_patch_takes():
    torch.manual_seed(3)
    model, X = vit.network(vit.Config(d=8, heads=2, f=8, layers=2)).eval(), digits.digits().test.X[:3]
    rollout, lost, raw = vision_study.maps(model, X)
    assert rollout.shape == lost.shape == (3, 16)
    seen = {}
    with torch.no_grad():
        model(torch.from_numpy(X), record=seen)
    weights = seen["layers"]["1"]["attention"]["weights"]
    assert raw.shape == (3, 2, 16) and weights.shape == (3, 2, 16, 16)
    compare(raw[2, 1], weights[2, 1].mean(0).numpy(), name="a head of the last layer", atol=1e-6)
    compare(rollout.sum(-1), np.ones(3), atol=1e-5)
    erased = X[1:2].copy()
    erased[..., 2:4, 4:6] = 0  # the patch in row 1, column 2
    with torch.no_grad():
        before, after = (model(torch.from_numpy(P))[0] for P in (X[1:2], erased))
    best = before.argmax()
    assert abs(before[best] - after[best]) > 1e-4
    compare(lost[1, 6], (before - after)[best], atol=1e-5)


def test_a_model_that_ignores_the_picture_is_right_as_often_as_its_digit_comes():
    test = digits.digits().test
    found = vision_study.moved(lambda X: np.where(X.sum((1, 2, 3)) > -1, 3, 0), test)
    share = round(float((test.y == 3).mean()), 4)
    assert found == {"step": share, "turned": [share] * len(vision_study.ANGLES)}


def test_pictures_of_scrambled_runs_are_scrambled_and_those_of_others_are_not():
    whole, other = vision_study.data("vit"), vision_study.data("scrambled")
    assert whole is digits.digits()
    for part, moved in zip(whole, other, strict=True):
        compare(digits.scrambled(part.X, vision_study.ORDER, 2), moved.X, atol=0.0)
        assert (part.X != moved.X).any() and (part.y == moved.y).all()


def test_the_committed_record_is_whole():
    record = json.loads(RECORD.read_text())
    assert vision_study.record(record["baselines"], record["sweep"], record["runs"]) == record
    rates = [f"{rate:g}" for rate in vision_study.RATES]
    assert {name: list(found) for name, found in record["sweep"].items()} == dict.fromkeys(vision_study.SWEPT, rates)
    seed = str(vision_study.TRIED)
    for name, found in record["sweep"].items():
        assert found["0.003"] == record["runs"][name][seed]["validation"], "the preset's rate"
    found = {name: tuple(map(int, seeds)) for name, seeds in record["runs"].items()}
    assert found == {name: seeds for name, (_, seeds) in vision_study.RUNS.items()}
    assert len(record["runs"]["vit"]["1"]["maps"]) == len(vision_study.SHOWN)
    heads = np.array(record["runs"]["vit"]["1"]["heads"])
    assert heads.shape == (len(vision_study.SHOWN), 4, 16)
    compare(heads.sum(-1), np.ones(heads.shape[:2]), name="distributions", atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "moved", "scrambled", "conv", "grid"])
def test_the_committed_study_begins_as_a_run_does_today(name, tmp_path):
    record = json.loads(RECORD.read_text())["runs"][name]["2"]
    task = vision_study.task(name, 2)
    run = Run(task, tmp_path)
    for chosen in task.epoch(0)[: vision_study.FIRST]:
        run._update(task.batch(chosen, run.device))
    compare(run.losses, record["first"], name=name, atol=2e-4)
    assert sum(P.numel() for P in run.model.parameters()) == record["parameters"]
