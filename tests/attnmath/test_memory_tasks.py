"""The record of recall against long memory is what its command makes, and its tasks are what they are said to be."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import memory_tasks as tasks
from attnmath.check import compare

RECORD = json.loads((Path(__file__).parents[2] / "chapters/07_outlook/memory_tasks.json").read_text(encoding="utf-8"))


def test_the_record_is_whole():
    names = {f"{task} {mixer} {seed}" for task in tasks.STEPS for mixer in tasks.MIXERS for seed in tasks.SEEDS}
    assert RECORD["runs"].keys() == names and tasks.record(RECORD["runs"]) == RECORD
    for name, run in RECORD["runs"].items():
        assert len(run["losses"]) == tasks.STEPS[name.split()[0]] and 0 <= run["accuracy"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("task", tasks.STEPS)
@pytest.mark.parametrize("mixer", tasks.MIXERS)
def test_the_first_steps_are_those_of_the_record(mixer, task):
    for seed in (0, 2):
        again = tasks.train(mixer, task, seed, steps=4)["losses"]
        compare(again, RECORD["runs"][f"{task} {mixer} {seed}"]["losses"][:4], name="losses", atol=2e-3)


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


def test_a_far_answer_stands_once_in_the_first_half_and_is_asked_for_at_the_end():
    ids, targets = tasks.far(np.random.default_rng(3), 500)
    rows, places = np.nonzero((ids >= tasks.NOISE) & (ids < tasks.NOISE + tasks.ANSWERS))
    assert (rows == np.arange(500)).all() and places.min() < 3 and tasks.FAR // 2 - 4 < places.max() < tasks.FAR // 2
    assert (ids[rows, places] - tasks.NOISE == targets[:, -1]).all() and (targets[:, :-1] == -1).all()
    assert (ids[:, -1] == tasks.NOISE + tasks.ANSWERS).all() and ids[:, :-1].max() < tasks.NOISE + tasks.ANSWERS
    for said in (targets[:, -1], ids[:, -2]):  # no answer and no symbol of noise is rarer than the others
        assert np.bincount(said)[: tasks.ANSWERS].min() > 90


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "STEPS", {"recall": 1})
    monkeypatch.setattr(tasks, "MIXERS", ("s4d", "attention"))
    monkeypatch.setattr(tasks, "SEEDS", (0,))
    out = tmp_path / "out.json"
    kept = {"losses": [7.0], "accuracy": 0.5}
    out.write_text(json.dumps(tasks.record({"recall s4d 0": kept})), encoding="utf-8")
    assert tasks.main([str(out)]) == 0
    runs = json.loads(out.read_text(encoding="utf-8"))["runs"]
    assert runs["recall s4d 0"] == kept and len(runs["recall attention 0"]["losses"]) == 1
