"""The record of recall against long memory is what its command makes, and its tasks are what they are said to be."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import memory_tasks as tasks
from attnmath.check import compare

RECORD = json.loads((Path(__file__).parents[2] / "chapters/07_outlook/memory_tasks.json").read_text(encoding="utf-8"))


EVERY = [(task, mixer) for task in tasks.STEPS for mixer in tasks.MIXERS]


def test_the_record_is_whole():
    runs = RECORD["runs"]
    assert list(runs) == list(tasks.STUDY.plan()["runs"]) and tasks.record(runs) == RECORD
    for name, run in runs.items():
        assert len(run["curve"]) == tasks.STEPS[name.split()[0]] // tasks.KEEP and len(run["first"]) == 4
        assert 0 <= run["validation"] <= 1 and 0 <= run["accuracy"] <= 1


@pytest.mark.parametrize(("task", "mixer"), EVERY)
def test_what_is_measured_is_the_best_of_as_many_settings_as_attention_has_or_more(task, mixer):
    rival = tasks.rival(RECORD["runs"], task, mixer)
    assert rival.best("higher")[0] == tasks.CHOSEN[task, mixer]
    assert len(rival.tried) >= len(tasks.settings(task, "attention")) == 6 and len(rival.test) == 3
    for start in {setting.get("start") for setting, _ in rival.tried}:
        rates = [setting["rate"] for setting, _ in rival.tried if setting.get("start") == start]
        assert len(rates) >= 3 and max(rates) > 9.9 * min(rates)


def test_the_other_start_is_tuned_as_well():
    task, mixer, setting = tasks.BEHIND
    rival = tasks.rival(RECORD["runs"], task, mixer, setting["start"])
    assert {one["start"] for one, _ in rival.tried} == {setting["start"]} and rival.best("higher")[0] == setting
    assert tasks.CHOSEN[task, mixer]["start"] != setting["start"] and len(rival.test) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("task", "mixer"), EVERY)
def test_the_first_steps_are_those_of_the_record(task, mixer):
    for seed in (0, 2):
        setting = tasks.CHOSEN[task, mixer]
        again = tasks.train(mixer, task, seed, setting, steps=4)["first"]
        wanted = RECORD["runs"][tasks.named(task, mixer, setting, seed)]["first"]
        compare(again, wanted, name="losses", atol=2e-3)


@pytest.mark.parametrize("task", tasks.STEPS)
def test_a_memory_forgets_at_first_as_its_start_says(task):
    n = tasks.LENGTH[task]
    for start, low, high in (("published", 1e-3, 0.1), ("adapted", 0.64 / n, 32 / n)):
        params = [tasks.build("s4d", task, seed, start) for seed in range(9)]
        steps = np.concatenate([p["layers.0.mix.step"].detach().exp() for p in params])
        assert low <= steps.min() < 1.3 * low and high >= steps.max() > high / 1.3, "S4D"
        params = [tasks.build("mamba2", task, seed, start) for seed in range(99)]
        steps = np.stack([p["layers.1.mix.step"].detach().exp().log1p() for p in params])
        rates = np.stack([p["layers.1.mix.rate"].detach().exp() for p in params])
        halves = np.log(2) / (steps * rates)
        if start == "adapted":
            compare(halves, np.full(halves.shape, 2.0 * n), name="half-lives", atol=1e-3 * n)
            assert 0.01 <= steps.min() < 0.02 and 0.4 < steps.max() <= 0.5
        else:
            assert 1 <= rates.min() < 2 and 15 < rates.max() <= 16 and low <= steps.min() and steps.max() <= high
    other = tasks.build("mamba2", task, 0)
    same = [name for name, X in tasks.build("mamba2", task, 0, "adapted").items() if (X == other[name]).all()]
    assert {name.rpartition(".")[2] for name in other.keys() - same} == {"step", "rate"}, "only the memory starts anew"


@pytest.mark.parametrize("task", tasks.STEPS)
def test_what_trains_what_chooses_and_what_tests_share_nothing(task):
    draw, held = tasks._data(task, np.random.default_rng(0))
    parts = [{tuple(row) for row in X.tolist()} for X, _ in held.values()]
    seen = {tuple(row) for _ in range(40) for row in draw()[0].tolist()}
    assert not seen & parts[0] and not seen & parts[1] and not parts[0] & parts[1]
    assert list(held) == ["validation", "accuracy"] and len(seen) > 600


@pytest.mark.parametrize("mixer", tasks.MIXERS)
def test_the_models_are_causal(mixer):
    params = tasks.build(mixer, "recall", 1)
    ids, _ = tasks.recall(np.random.default_rng(0), 2)
    moved = ids.copy()
    moved[:, 20:] = (moved[:, 20:] + 1) % tasks.SYMBOLS
    Y, Z = (tasks.logits(mixer, torch.from_numpy(X), params) for X in (ids, moved))
    compare(Z[:, :20], Y[:, :20], name="the past", atol=1e-5)
    assert (Z[:, 20:] - Y[:, 20:]).abs().max() > 1e-2


def test_a_recall_task_can_be_solved_from_what_is_shown():
    ids, targets = tasks.recall(np.random.default_rng(3), 50)
    assert (targets[:, : 2 * tasks.PAIRS] == -1).all() and (targets[:, 2 * tasks.PAIRS :] >= 0).all()
    for text, want in zip(ids, targets, strict=True):
        seen = dict(zip(text[: 2 * tasks.PAIRS : 2], text[1 : 2 * tasks.PAIRS : 2] - tasks.SYMBOLS, strict=True))
        assert len(seen) == tasks.PAIRS
        assert [seen[key] for key in text[2 * tasks.PAIRS :]] == want[2 * tasks.PAIRS :].tolist()


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "STEPS", {"recall": 1})
    monkeypatch.setattr(tasks, "MIXERS", ("s4d", "attention"))
    monkeypatch.setattr(tasks, "RATES", {"s4d": (0.1,), "attention": (0.2,)})
    monkeypatch.setattr(tasks, "FURTHER", {})
    monkeypatch.setattr(tasks, "CHOSEN", {})
    monkeypatch.setattr(tasks, "BEHIND", ("recall", "attention", {"rate": 0.2}))
    out = tmp_path / "out.json"
    kept = {"first": [7.0], "curve": [7.0], "validation": 0.5, "accuracy": 0.5}
    out.write_text(json.dumps(tasks.record({"recall s4d 0.1 adapted 0": kept})), encoding="utf-8")
    assert tasks.main([str(out)]) == 0
    runs = json.loads(out.read_text(encoding="utf-8"))["runs"]
    assert runs["recall s4d 0.1 adapted 0"] == kept and len(runs["recall attention 0.2 0"]["first"]) == 1
    tuned = ["recall s4d 0.1 published 0", "recall s4d 0.1 adapted 0", "recall attention 0.2 0"]
    assert list(runs) == [*tuned, "recall attention 0.2 1", "recall attention 0.2 2"]
