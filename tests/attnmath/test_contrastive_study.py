"""The study of two towers: what it measures, and that the committed record begins as a run does today."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import captions, contrastive_study
from attnmath.check import compare
from attnmath.digits import digits
from attnmath.tasks import clip
from attnmath.torch.training import Run

RECORD = Path(__file__).parents[2] / "chapters" / "08_at_work" / "contrastive.json"


def test_recalls_of_known_rankings(rng):
    y = np.array([0, 2, 1, 2])
    S = np.array([[3.0, 2, 1], [1, 2, 3], [3, 2, 1], [3, 2, 1]])
    found = contrastive_study.retrieval(S, y)
    assert found["sentences"] == [0.5, 1.0]
    assert found["pictures"] == [round(2 / 3, 4), 1.0]  # of the middle sentence the best picture is number 1, of a 2
    fits = rng.random((7, 30)) < 0.1
    S = rng.standard_normal(fits.shape)
    want = [np.mean([fits[i, np.argsort(S[i])[::-1][:k]].any() for i in range(7)]) for k in (1, 5)]
    compare(contrastive_study.recalls(S, fits), np.round(want, 4), atol=0.0)


def test_fresh_losses_of_a_model_that_knows_the_digits_are_those_of_the_floor(monkeypatch):
    """Perfect scores: 0 for a sentence that fits, far below for others."""
    test = digits().test
    fits = np.tile(test.y[:, None] == np.arange(10), len(captions.ONE))
    monkeypatch.setattr(clip, "scores", lambda model, X, said: np.where(fits, 0.0, -50.0))
    monkeypatch.setattr(contrastive_study, "BATCHES", (2, 64))
    two, many = contrastive_study.fresh_losses(None)
    assert abs(two - 0.1 * np.log(2)) < 0.02  # one time in ten the two digits are equal
    rng, want = np.random.default_rng(5), []
    for _ in range(400):
        counts = np.bincount(rng.integers(0, 10, 64))
        want.append((counts[counts > 0] / 64 * np.log(counts[counts > 0])).sum())
    assert abs(many - np.mean(want)) < 0.03


@pytest.mark.slow
def test_the_baselines_see_the_same_pictures_as_those_of_the_page_on_vision(monkeypatch):
    monkeypatch.setattr(contrastive_study, "SEEDS", ())
    found = contrastive_study.baselines()
    vision = json.loads(RECORD.with_name("vision_transformer.json").read_text())["baselines"]["svm"]
    assert found["svm"]["test"] == round(1 - len(vision["wrong"]) / len(digits().test.y), 4)
    stored = json.loads(RECORD.read_text())["baselines"]
    assert {name: stored[name] for name in ("linear", "svm")} == {name: found[name] for name in ("linear", "svm")}


def test_the_committed_record_is_whole():
    record = json.loads(RECORD.read_text())
    parts = (record[name] for name in ("baselines", "runs", "sweep", "tuned"))
    assert contrastive_study.record(*parts) == record
    assert list(record["runs"]) == list(contrastive_study.RUNS)
    assert all(list(map(int, seeds)) == list(contrastive_study.SEEDS) for seeds in record["runs"].values())


def test_the_chosen_rates_are_the_best_of_the_sweep_and_no_end_of_it():
    record = json.loads(RECORD.read_text())
    for name, rates in contrastive_study.RATES.items():
        swept = record["sweep"][name]
        assert list(swept) == [f"{rate:g}" for rate in rates] and max(rates) >= 9.99 * min(rates)
        assert contrastive_study.best(swept) == contrastive_study.CHOSEN[name] not in (min(rates), max(rates))
        found = record["tuned"].get(name, record["runs"].get(name))
        assert list(found) == [str(seed) for seed in contrastive_study.SEEDS]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(contrastive_study.RUNS))
def test_the_committed_study_begins_as_a_run_does_today(name, tmp_path):
    record = json.loads(RECORD.read_text())["runs"][name]["2"]
    task = contrastive_study.task(name, 2)
    run = Run(task, tmp_path)
    for chosen in [part for epoch in range(2) for part in task.epoch(epoch)][: contrastive_study.FIRST]:
        run._update(task.batch(chosen, run.device))
    compare(run.losses, record["first"], name=name, atol=5e-4)
    assert sum(P.numel() for P in run.model.parameters()) == record["parameters"]
    assert torch.isfinite(run.model.log_scale)
